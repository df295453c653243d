// Times, durations and numbers as text, and times as the API accepts them.

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

/** A range in the API's notation: `-5m`, `now`, RFC 3339 or Unix seconds. */
export interface Range {
  from: string;
  to: string;
}

export const RANGE_DEFAULT: Range = { from: '-5m', to: 'now' };

/** The Unix milliseconds of a time in the API's notation, relative to `nowMs`; `NaN` if it is invalid. */
export function parseTimeMs(text: string, nowMs: number): number {
  if (text === 'now') return nowMs;
  if (/^-(\d+(ms|[smhdw]))+$/.test(text)) {
    let ago = 0;
    for (const [, count, unit] of text.matchAll(/(\d+)(ms|[smhdw])/g)) ago += Number(count) * UNITS_MS[unit];
    return nowMs - ago;
  }
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  // An offset is required: without one, browsers assume the local zone.
  return /^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:?\d\d)$/i.test(text) ? Date.parse(text) : NaN;
}

/** Whether a range moves with the clock. */
export function isLive(range: Range): boolean {
  return range.to === 'now';
}

/** An RFC 3339 time, to the millisecond if needed. */
export function isoTime(ms: number): string {
  return new Date(Math.round(ms)).toISOString().replace('.000Z', 'Z');
}

/** `90 s`, `1.2 ms`, `3 h 4 min`: three digits and the unit that fits. */
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

/** Three significant digits, without an exponent. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95) return count(Math.round(value));
  if (size >= 9.995) return value.toFixed(1);
  return value === 0 ? '0' : value.toFixed(2);
}

/** A whole number with commas between thousands. */
export function count(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/** `1 task`, `2 tasks`: a count with its noun. */
export function quantity(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** The share of `part` in `whole` with three digits. */
export function percent(part: number, whole: number): string {
  if (!(whole > 0)) return '–';
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.01) return '<0.01%';
  return `${share >= 99.95 || share === 0 ? share.toFixed(0) : share >= 9.995 ? share.toFixed(1) : share.toFixed(2)}%`;
}

const two = (value: number) => String(value).padStart(2, '0');

/** The local time of day, with the date if it is not today. */
export function clock(ms: number, milliseconds = false): string {
  const at = new Date(ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const rest = milliseconds ? `.${String(at.getMilliseconds()).padStart(3, '0')}` : '';
  const today = new Date().toDateString() === at.toDateString();
  return today ? time + rest : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}${rest}`;
}

/** A chosen length, such as `5 min` or `90 s`. */
function lengthText(ms: number): string {
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

/** A range as text: `the last 5 min`, or its two ends. */
export function rangeText(range: Range, nowMs: number): string {
  const from = parseTimeMs(range.from, nowMs);
  const to = parseTimeMs(range.to, nowMs);
  if (isLive(range)) return `the last ${lengthText(to - from)}`;
  return `${clock(from)} – ${clock(to)} (${lengthText(to - from)})`;
}

/** `1.50 GB`: three digits and the decimal unit that fits. */
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

/** The shortest step of a time axis that is at least `leastMs`. */
export function timeStepMs(leastMs: number): number {
  return STEPS_MS.find((ms) => ms >= leastMs) ?? leastMs;
}
