// Times and durations as people read them and as the API takes them.

export const NS_PER_MS = 1e6;
export const NS_PER_S = 1e9;

const UNITS_MS: Record<string, number> = {
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/** A range as the API takes it: `-5m`, `now`, RFC 3339 or Unix seconds. */
export interface Range {
  from: string;
  to: string;
}

export const RANGE_DEFAULT: Range = { from: '-5m', to: 'now' };

/** The Unix milliseconds that a text of the API means at `nowMs`; `NaN` if it means none. */
export function timeMs(text: string, nowMs: number): number {
  if (text === 'now') return nowMs;
  if (/^-(\d+(ms|[smhdw]))+$/.test(text)) {
    let ago = 0;
    for (const [, count, unit] of text.matchAll(/(\d+)(ms|[smhdw])/g)) ago += Number(count) * UNITS_MS[unit];
    return nowMs - ago;
  }
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  // Only with an offset: without one, browsers would take the reader's own zone.
  return /^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:?\d\d)$/i.test(text) ? Date.parse(text) : NaN;
}

/** Whether a range moves with the clock. */
export function isLive(range: Range): boolean {
  return range.to === 'now';
}

/** A pinned time, to the millisecond, as short as it can be. */
export function pinned(ms: number): string {
  return new Date(Math.round(ms)).toISOString().replace('.000Z', 'Z');
}

/** `90 s`, `1.2 ms`, `3 h 4 min`: three digits, the unit that fits. */
export function duration(ns: number): string {
  const text = (value: number, unit: string) => `${digits(value)} ${unit}`;
  const size = Math.abs(ns);
  if (size === 0) return '0 s';
  if (size < 999.5) return text(ns, 'ns');
  if (size < 999.5e3) return text(ns / 1e3, 'µs');
  if (size < 999.5e6) return text(ns / 1e6, 'ms');
  if (size < 119.5e9) return text(ns / 1e9, 's');
  const minutes = Math.round(ns / 60e9);
  if (size < 7200e9) return text(ns / 60e9, 'min');
  if (size < 172_800e9) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return text(ns / 86_400e9, 'd');
}

/** Three significant digits, never in powers of ten. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95) return count(Math.round(value));
  if (size >= 9.995) return value.toFixed(1);
  return value === 0 ? '0' : value.toFixed(2);
}

/** A whole number with thin spaces between thousands. */
export function count(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

export function percent(part: number, whole: number): string {
  if (!(whole > 0)) return '–';
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.01) return '<0.01 %';
  return `${share >= 99.95 || share === 0 ? share.toFixed(0) : share >= 9.995 ? share.toFixed(1) : share.toFixed(2)} %`;
}

const two = (value: number) => String(value).padStart(2, '0');

/** The time of day in the reader's zone; with the day if that is not today's. */
export function clock(ms: number, milliseconds = false): string {
  const at = new Date(ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const rest = milliseconds ? `.${String(at.getMilliseconds()).padStart(3, '0')}` : '';
  const today = new Date().toDateString() === at.toDateString();
  return today ? time + rest : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}${rest}`;
}

/** A length that was chosen, such as `5 min` or `90 s`. */
function lengthWords(ms: number): string {
  const whole = (
    [
      ['d', 864e5],
      ['h', 36e5],
      ['min', 6e4],
      ['s', 1e3],
    ] as const
  ).find(([, unit]) => ms >= unit && ms % unit === 0);
  return whole ? `${count(ms / whole[1])} ${whole[0]}` : duration(ms * NS_PER_MS);
}

/** A range in words: `the last 5 min`, or from when to when. */
export function rangeWords(range: Range, nowMs: number): string {
  const from = timeMs(range.from, nowMs);
  const to = timeMs(range.to, nowMs);
  if (isLive(range)) return `the last ${lengthWords(to - from)}`;
  return `${clock(from)} – ${clock(to)} (${lengthWords(to - from)})`;
}

/** `1.50 GB`: three digits, the unit that fits, in powers of ten. */
export function bytes(value: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let unit = 0;
  for (let size = Math.abs(value); size >= 999.5 && unit < units.length - 1; size /= 1000) unit++;
  return unit === 0 ? `${count(value)} B` : `${digits(value / 1000 ** unit)} ${units[unit]}`;
}

/** Steps of time axes. */
const STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5,
  864e5, 6048e5, 2592e6,
];

/** The least step of a time axis that is at least as long. */
export function timeStepMs(leastMs: number): number {
  return STEPS_MS.find((ms) => ms >= leastMs) ?? leastMs;
}
