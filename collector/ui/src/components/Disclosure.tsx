// Controls that hide behind a button on narrow screens, and stand in their row on wide ones.

import type { ComponentChildren } from 'preact';
import { useId, useState } from 'preact/hooks';

interface Properties {
  label: string;
  /** Settings of the hidden controls, as text. */
  note?: ComponentChildren;
  children: ComponentChildren;
}

export function Disclosure({ label, note, children }: Properties) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  return (
    <div class={isOpen ? 'disclosure open' : 'disclosure'}>
      <button class="disclose" aria-expanded={isOpen} aria-controls={id} onClick={() => setOpen(!isOpen)}>
        {label} {isOpen ? '▴' : '▾'} {note && <small>{note}</small>}
      </button>
      <div id={id} class="disclosed">
        {children}
      </div>
    </div>
  );
}
