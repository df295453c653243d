// Help: keyboard shortcuts and a glossary.

import { useEffect, useRef } from 'preact/hooks';

const KEYS: [string, string][] = [
  ['/', 'search functions'],
  ['n  N', 'next, previous match'],
  ['← ↑ → ↓', 'move in the graph'],
  ['Enter', 'zoom to the selected function'],
  ['Esc', 'zoom out one level'],
  ['0', 'reset the zoom'],
  ['f', 'focus on the selected function'],
  ['d', 'hide function and callees'],
  ['D', 'hide its crate'],
  ['m', 'merge into caller'],
  ['c', 'collapse recursion'],
  ['i', 'invert the tree: callers below functions'],
  ['b', 'show callers and callees'],
  ['y', 'copy name'],
  ['right click', 'menu of these actions'],
  ['Ctrl+scroll', 'zoom at the pointer (or pinch); drag to pan'],
  ['v', 'next view'],
  ['s', 'next coloring: crate, state, …'],
  ['space', 'pause/resume'],
  ['1 … 9', 'pages, from left to right'],
  ['?', 'this help'],
];

export function Help({ onClose }: { onClose(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === dialog.current) onClose();
      }}
      aria-label="Help"
    >
      <h2 tabIndex={-1} autofocus>
        Keys
      </h2>
      <dl class="keys">
        {KEYS.map(([key, label]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{label}</dd>
          </div>
        ))}
      </dl>
      <h2>Glossary</h2>
      <p>
        <b>Total</b> is the time in a function and its callees; <b>self</b> excludes the callees. Time is thread time:
        two threads that run for one second take two seconds.
      </p>
      <p>
        <b>cpu</b> is running on a CPU; <b>runnable</b> is waiting for a CPU, because the host is overloaded;{' '}
        <b>lock</b>, <b>GIL</b>, <b>sleep</b>, <b>network</b>, <b>disk</b> and <b>other</b> are waiting for that.
      </p>
      <p>Drag over a timeline to select a range. The address contains the whole view: copy it to share the view.</p>
      <button onClick={onClose}>Close</button>
    </dialog>
  );
}
