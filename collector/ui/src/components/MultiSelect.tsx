// A menu with multiple choice and type-ahead search.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { safeText } from '../core/names';
import { count } from '../core/time';

export interface Choice {
  value: string;
  /** The label, if it is not the value. */
  label?: string;
  /** A note next to the label, such as a share. */
  note?: string;
  color?: string;
}

interface Properties {
  /** Plural noun of the choices: `tasks`. */
  what: string;
  choices: Choice[];
  chosen: string[];
  onChange(chosen: string[]): void;
  /** Number of further choices. */
  omitted?: number;
  /** Called with what is typed, so that the owner finds some of them. */
  onText?(text: string): void;
}

/** Others are found by typing. */
const LISTED_MAX = 60;

export function MultiSelect({ what, choices, chosen, onChange, omitted = 0, onText }: Properties) {
  const [open, setOpen] = useState(false);
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  // Before the menu is seen: keys that are typed at once belong to it, not to the page's shortcuts.
  useLayoutEffect(() => {
    if (open) field.current?.focus();
  }, [open]);
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);

  // Chosen values stay listed, even if they do not occur in this range.
  const all = [
    ...choices,
    ...chosen.filter((value) => !choices.some((choice) => choice.value === value)).map((value): Choice => ({ value })),
  ];
  const wanted = text.toLowerCase();
  const fitting = all.filter((choice) => (choice.label ?? choice.value).toLowerCase().includes(wanted));
  const listed = fitting.slice(0, LISTED_MAX);
  const more = fitting.length - listed.length + omitted;
  const toggle = (value: string) =>
    onChange(chosen.includes(value) ? chosen.filter((one) => one !== value) : [...chosen, value]);

  function key(event: KeyboardEvent) {
    event.stopPropagation();
    if (event.key === 'Escape') {
      setOpen(false);
      button.current?.focus();
    } else if (event.key === 'ArrowDown') setAt(Math.min(at + 1, listed.length - 1));
    else if (event.key === 'ArrowUp') setAt(Math.max(at - 1, 0));
    else if (event.key === 'Enter' && listed[at]) toggle(listed[at].value);
    else return;
    event.preventDefault();
  }

  const summary =
    chosen.length === 0
      ? 'all'
      : chosen.length === 1
        ? safeText(all.find(({ value }) => value === chosen[0])?.label ?? chosen[0], 24)
        : `${chosen.length} chosen`;
  return (
    <div class="select" ref={box}>
      <button
        ref={button}
        aria-haspopup="listbox"
        aria-expanded={open}
        class={chosen.length > 0 ? 'set' : ''}
        onClick={() => setOpen(!open)}
      >
        {what}:{' '}
        <b>
          <bdi>{summary}</bdi>
        </b>
      </button>
      {open && (
        <div class="menu" onKeyDown={key}>
          <input
            ref={field}
            value={text}
            placeholder={`find ${what}`}
            aria-label={`find ${what}`}
            role="combobox"
            aria-expanded="true"
            aria-controls={`list-${what}`}
            aria-activedescendant={listed[at] ? `${what}-${at}` : ''}
            onInput={(event) => {
              setText(event.currentTarget.value);
              onText?.(event.currentTarget.value);
              setAt(0);
            }}
          />
          <ul id={`list-${what}`} role="listbox" aria-multiselectable="true" aria-label={what}>
            {listed.map((choice, index) => (
              <li
                key={choice.value}
                id={`${what}-${index}`}
                role="option"
                aria-selected={chosen.includes(choice.value)}
                class={index === at ? 'at' : ''}
                onClick={() => toggle(choice.value)}
              >
                <span class="check">{chosen.includes(choice.value) ? '✓' : ''}</span>
                {choice.color && <i class="dot" style={{ background: choice.color }} />}
                <bdi>{safeText(choice.label ?? choice.value, 60)}</bdi>
                <small>{choice.note}</small>
              </li>
            ))}
          </ul>
          {more > 0 && <p>{count(more)} more; type to find them</p>}
          {fitting.length === 0 && <p>no matches</p>}
          {chosen.length > 0 && <button onClick={() => onChange([])}>Show all {what}</button>}
        </div>
      )}
    </div>
  );
}
