// Two text fields for the ends of a range, each with the browser's date and time picker.

import { nowMs } from '../core/clock';
import { type Range, rangeText, resolveRange, utcOffset } from '../core/time';

interface Properties {
  range: Range;
  onChange(range: Range): void;
  /** The user has finished a field. */
  onDone?(): void;
  /** Precedes the fields' names for screen readers. */
  label?: string;
}

export function RangeFields({ range, onChange, onDone, label = '' }: Properties) {
  const isInvalid = 'error' in resolveRange(range, nowMs());
  const field = (which: 'from' | 'to') => (
    <span class="time-field">
      <input
        aria-label={`${label}${which}`}
        aria-invalid={isInvalid}
        size={16}
        value={range[which]}
        onInput={(event) => onChange({ ...range, [which]: event.currentTarget.value })}
        onBlur={onDone}
        onKeyDown={(event) => {
          if (event.key === 'Enter') onDone?.();
        }}
      />
      <input
        type="datetime-local"
        step="1"
        tabIndex={-1}
        aria-label={`${label}pick ${which}`}
        title="Pick a date and time"
        onInput={(event) => {
          const picked = event.currentTarget.value;
          if (picked !== '') onChange({ ...range, [which]: picked.replace('T', ' ') });
        }}
        onChange={onDone}
      />
    </span>
  );
  return (
    <>
      {field('from')} to {field('to')}
    </>
  );
}

/** The range that the fields select, or their error. */
export function RangeMeaning({ range }: { range: Range }) {
  const resolved = resolveRange(range, nowMs());
  if ('error' in resolved) return <span role="alert">{resolved.error}</span>;
  return (
    <span>
      {rangeText(range, nowMs())} · {utcOffset(nowMs())}
    </span>
  );
}
