// A menu of files.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

/**
 * `files` renders the menu while it is open. It closes when a link in it is followed, by Escape and by a click elsewhere.
 */
export function DownloadMenu({ files }: { files(): ComponentChildren }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event) => {
      const target = event.target as Element;
      const stays =
        event instanceof KeyboardEvent ? event.key !== 'Escape' : box.current?.contains(target) && !target.closest('a');
      if (!stays && box.current) box.current.open = false;
    };
    const events = ['click', 'keydown'];
    for (const event of events) document.addEventListener(event, close);
    return () => {
      for (const event of events) document.removeEventListener(event, close);
    };
  }, []);
  return (
    <details class="download" ref={box} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Download</summary>
      {isOpen && <div>{files()}</div>}
    </details>
  );
}
