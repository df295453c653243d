// The time range: presets, a custom range, steps back and forth.

import { useState } from 'preact/hooks';
import { rangeOf, setParams, useAddress } from '../core/address';
import { nowMs } from '../core/clock';
import { isLive, isoTime, localTime, type Range, rangeText, resolveRange } from '../core/time';
import { RangeFields, RangeMeaning } from './RangeFields';

const PRESETS: [string, string][] = [
  ['-1m', '1 min'],
  ['-5m', '5 min'],
  ['-15m', '15 min'],
  ['-1h', '1 h'],
  ['-6h', '6 h'],
  ['-1d', '1 day'],
  ['-7d', '7 days'],
  ['-30d', '30 days'],
];

export function RangePicker() {
  const range = rangeOf(useAddress().params);
  const [own, setOwn] = useState<Range | null>(null);
  const preset = isLive(range) && PRESETS.some(([from]) => from === range.from) ? range.from : 'own';
  const resolved = resolveRange(range, nowMs());
  const isInvalid = 'error' in resolved;

  function move(steps: number) {
    if (isInvalid) return;
    const { fromMs, toMs } = resolved;
    const length = toMs - fromMs;
    setParams({ from: isoTime(fromMs + steps * length), to: isoTime(toMs + steps * length), zoom: null });
  }
  if (own) {
    const isValid = !('error' in resolveRange(own, nowMs()));
    return (
      <form
        class="range"
        onSubmit={(event) => {
          event.preventDefault();
          if (!isValid) return;
          setParams({ ...own, zoom: null });
          setOwn(null);
        }}
      >
        <RangeFields range={own} onChange={setOwn} />
        <button type="submit" disabled={!isValid}>
          Show
        </button>
        <button type="button" onClick={() => setOwn(null)}>
          Cancel
        </button>
        <small>
          <RangeMeaning range={own} />
        </small>
      </form>
    );
  }
  const text = isInvalid ? 'invalid range' : rangeText(range, nowMs()).replace(/^the /, '');
  return (
    <div class="range">
      {!isLive(range) && (
        <button title="Previous range of the same length" aria-label="earlier" onClick={() => move(-1)}>
          ‹
        </button>
      )}
      <select
        aria-label="Range"
        title={text}
        value={preset}
        onChange={(event) => {
          const value = event.currentTarget.value;
          if (value === 'pick') setOwn({ from: localTime(range.from), to: localTime(range.to) });
          else if (value !== 'own') setParams({ from: value, to: null, zoom: null });
          event.currentTarget.value = preset;
        }}
      >
        {preset === 'own' && <option value="own">{text}</option>}
        {PRESETS.map(([from, label]) => (
          <option key={from} value={from}>
            last {label}
          </option>
        ))}
        <option value="pick">Custom range…</option>
      </select>
      {!isLive(range) && (
        <button title="Next range of the same length" aria-label="later" onClick={() => move(1)}>
          ›
        </button>
      )}
    </div>
  );
}
