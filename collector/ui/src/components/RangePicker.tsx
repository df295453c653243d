// The time range: presets, a custom range, steps back and forth.

import { useState } from 'preact/hooks';
import { rangeOf, setParams, useAddress } from '../core/address';
import { nowMs } from '../core/query';
import { isLive, isoTime, parseTimeMs, rangeText } from '../core/time';

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
  const [own, setOwn] = useState<{ from: string; to: string } | null>(null);
  const preset = isLive(range) && PRESETS.some(([from]) => from === range.from) ? range.from : 'own';
  const fromMs = parseTimeMs(range.from, nowMs());
  const toMs = parseTimeMs(range.to, nowMs());

  function move(steps: number) {
    const length = toMs - fromMs;
    setParams({ from: isoTime(fromMs + steps * length), to: isoTime(toMs + steps * length), zoom: null });
  }
  if (own) {
    const bad = Number.isNaN(parseTimeMs(own.from, 0)) || Number.isNaN(parseTimeMs(own.to, 0));
    return (
      <form
        class="range"
        onSubmit={(event) => {
          event.preventDefault();
          if (!bad) {
            setParams({ ...own, zoom: null });
            setOwn(null);
          }
        }}
      >
        <input
          aria-label="from"
          value={own.from}
          onInput={(event) => setOwn({ ...own, from: event.currentTarget.value })}
        />
        <input aria-label="to" value={own.to} onInput={(event) => setOwn({ ...own, to: event.currentTarget.value })} />
        <button type="submit" disabled={bad}>
          Show
        </button>
        <button type="button" onClick={() => setOwn(null)}>
          Cancel
        </button>
        {bad && <small role="alert">Expected -90s, -2h, now, 2026-01-31T12:00:00Z or Unix seconds</small>}
      </form>
    );
  }
  return (
    <div class="range">
      {!isLive(range) && (
        <button title="Previous range of the same length" aria-label="earlier" onClick={() => move(-1)}>
          ‹
        </button>
      )}
      <select
        aria-label="Range"
        value={preset}
        onChange={(event) => {
          const value = event.currentTarget.value;
          if (value === 'pick') setOwn({ from: range.from, to: range.to });
          else if (value !== 'own') setParams({ from: value, to: null, zoom: null });
          event.currentTarget.value = preset;
        }}
      >
        {preset === 'own' && <option value="own">{rangeText(range, nowMs()).replace(/^the /, '')}</option>}
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
