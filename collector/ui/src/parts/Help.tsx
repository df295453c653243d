// The keys, and what the words mean.

import { useEffect, useRef } from 'preact/hooks';

const KEYS: [string, string][] = [
  ['/', 'search functions'],
  ['n  N', 'next, previous match'],
  ['← ↑ → ↓', 'move in the graph'],
  ['Enter', 'zoom to the outlined function'],
  ['Esc', 'one level up'],
  ['0', 'zoom out to all'],
  ['f', 'only stacks through the outlined function'],
  ['d', 'leave it out'],
  ['m', 'merge it into its callers'],
  ['c', 'collapse recursion'],
  ['b', 'its callers and callees'],
  ['y', 'copy its name'],
  ['right click', 'a menu of these'],
  ['Ctrl wheel', 'zoom at the pointer, as two fingers do; drag moves'],
  ['v', 'next view'],
  ['s', 'colour by the next: crate, state, …'],
  ['space', 'pause or go on'],
  ['1 … 8', 'the pages, from left to right'],
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
        {KEYS.map(([key, words]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{words}</dd>
          </div>
        ))}
      </dl>
      <h2>Words</h2>
      <p>
        <b>Total</b> is the time in a function and in all that it calls; <b>self</b> is its own part. Time is thread
        time: two threads that run for a second took two seconds.
      </p>
      <p>
        <b>cpu</b> ran on a processor; <b>runnable</b> was ready and had none: the machine is too busy; <b>lock</b>,{' '}
        <b>sleep</b>, <b>network</b>, <b>disk</b> and <b>other</b> waited for that.
      </p>
      <p>
        Drag over a timeline to look at that part only. The address holds the whole view: copy it to show it to others.
      </p>
      <button onClick={onClose}>Close</button>
    </dialog>
  );
}
