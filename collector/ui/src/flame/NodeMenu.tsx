// The context menu of a function.

import { useEffect, useRef } from 'preact/hooks';
import { safeText } from '../core/names';

export type Action = 'zoom' | 'find' | 'focus' | 'hide' | 'crate' | 'merge' | 'callers' | 'copy';

/** An action with its key and label. */
export type NodeAction = [action: Action, key: string, label: string];

/** Actions with their keys and labels, in the menu's order. */
export const ACTIONS: NodeAction[] = [
  ['zoom', 'Enter', 'Zoom'],
  ['focus', 'f', 'Focus'],
  ['hide', 'd', 'Hide function and callees'],
  ['crate', 'D', 'Hide crate'],
  ['merge', 'm', 'Merge into caller'],
  ['callers', 'b', 'Show callers and callees'],
  ['copy', 'y', 'Copy name'],
];

interface Properties {
  actions: NodeAction[];
  name: string;
  /** The function's crate; without one it cannot be hidden. */
  crate: string | undefined;
  at: { px: number; py: number };
  onAction(action: Action): void;
  onClose(): void;
}

export function NodeMenu({ actions: offered, name, crate, at, onAction, onClose }: Properties) {
  const box = useRef<HTMLDivElement>(null);
  const actions = offered.filter(([action]) => action !== 'crate' || crate !== undefined);
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
    const action = actions.find(([, letter]) => letter === event.key);
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
    top: `${Math.max(8, Math.min(at.py, innerHeight - 280))}px`,
  };
  return (
    <div
      ref={box}
      class="node-menu"
      role="menu"
      aria-label={`Actions on ${safeText(name, 80)}`}
      style={place}
      onKeyDown={key}
    >
      <b class="name">
        <bdi>{safeText(name, 80)}</bdi>
      </b>
      {actions.map(([action, letter, label]) => (
        <button key={action} role="menuitem" onClick={() => onAction(action)}>
          <span>
            {label}
            {action === 'crate' && (
              <>
                {' '}
                <bdi>{safeText(crate!, 24)}</bdi>
              </>
            )}
          </span>
          <kbd>{letter}</kbd>
        </button>
      ))}
    </div>
  );
}
