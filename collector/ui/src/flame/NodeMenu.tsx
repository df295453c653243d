// What can be done with a function, beside the pointer or below a finger.

import { useEffect, useRef } from 'preact/hooks';
import { shown } from '../core/names';

export type Action = 'zoom' | 'focus' | 'drop' | 'merge' | 'callers' | 'copy';

/** The keys of actions and their words, in the menu's order. */
export const ACTIONS: [Action, string, string][] = [
  ['zoom', 'Enter', 'Zoom'],
  ['focus', 'f', 'Only stacks through it'],
  ['drop', 'd', 'Leave it out, with all it calls'],
  ['merge', 'm', 'Merge it into its callers'],
  ['callers', 'b', 'Its callers and callees'],
  ['copy', 'y', 'Copy its name'],
];

interface Properties {
  name: string;
  at: { px: number; py: number };
  onAction(action: Action): void;
  onClose(): void;
}

export function NodeMenu({ name, at, onAction, onClose }: Properties) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    box.current!.querySelector('button')!.focus();
    const outside = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) onClose();
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, []);
  function key(event: KeyboardEvent) {
    const buttons = [...box.current!.querySelectorAll('button')];
    const index = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const action = ACTIONS.find(([, letter]) => letter === event.key);
    if (event.key === 'Escape') onClose();
    else if (event.key === 'ArrowDown') buttons[(index + 1) % buttons.length].focus();
    else if (event.key === 'ArrowUp') buttons[(index + buttons.length - 1) % buttons.length].focus();
    else if (action && event.key !== 'Enter') onAction(action[0]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  const place = {
    left: `${Math.max(8, Math.min(at.px, innerWidth - 300))}px`,
    top: `${Math.max(8, Math.min(at.py, innerHeight - 250))}px`,
  };
  return (
    <div
      ref={box}
      class="node-menu"
      role="menu"
      aria-label={`What to do with ${shown(name, 80)}`}
      style={place}
      onKeyDown={key}
    >
      <b class="name">
        <bdi>{shown(name, 80)}</bdi>
      </b>
      {ACTIONS.map(([action, letter, words]) => (
        <button key={action} role="menuitem" onClick={() => onAction(action)}>
          {words}
          <kbd>{letter}</kbd>
        </button>
      ))}
    </div>
  );
}
