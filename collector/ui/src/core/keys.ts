// Keyboard shortcuts of the whole page.

import { useEffect, useRef } from 'preact/hooks';

/**
 * Calls `handle` for keys that are not meant for a field, a dialog or the browser. If it returns
 * `true`, the key has no other effect. `isFirst` calls it before the handlers of elements and pages.
 */
export function useKeys(handle: (key: string, target: HTMLElement) => boolean, isFirst = false): void {
  const newest = useRef(handle);
  newest.current = handle;
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) || document.querySelector('dialog[open]')) return;
      if (newest.current(event.key, target)) event.preventDefault();
    };
    document.addEventListener('keydown', listen, isFirst);
    return () => document.removeEventListener('keydown', listen, isFirst);
  }, []);
}
