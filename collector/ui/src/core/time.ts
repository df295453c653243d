// Times, durations and numbers as text, and times as the API accepts them. `flamegraph/src/text/numbers.rs`
// formats the same numbers in the same way; `flamegraph/numbers.json` has the examples for both.

export const NS_PER_MS = 1e6;
export const NS_PER_S = 1e9;

const DAY_MS = 86_400_000;
/** The latest time that a `Date` can represent. */
const DATE_MAX_MS = 8.64e15;

/** Units of durations, by their names. */
const UNITS: [RegExp, number][] = [
  [/^ms$/, 1],
  [/^(s|sec|seconds?)$/, 1000],
  [/^(m|min|minutes?)$/, 60_000],
  [/^(h|hours?)$/, 3_600_000],
  [/^(d|days?)$/, DAY_MS],
  [/^(w|weeks?)$/, 7 * DAY_MS],
];

/** The forms of times, for messages. */
export const TIME_FORMS =
  'now, -5m, 10m ago, 17:20, 2026-01-31, 2026-01-31 17:20, 2026-01-31T12:00:00Z or Unix seconds';

/** A range of two times in one of the forms of `TIME_FORMS`. */
export interface Range {
  from: string;
  to: string;
}

export const RANGE_DEFAULT: Range = { from: '-5m', to: 'now' };

/**
 * The Unix milliseconds of a time, or `NaN` if it is invalid. Without a zone it is local time; a time of day
 * is the last one before `nowMs`. A date alone is its first moment as `from`, the first moment of the next day
 * as `to`. `api/src/time.rs` parses the same forms, and `api/times.json` has the examples for both.
 */
export function parseTimeMs(text: string, nowMs: number, end: 'from' | 'to' = 'from'): number {
  if (text === 'now') return nowMs;
  const ago = agoText(text);
  if (ago !== undefined) return nowMs - parseSpanMs(ago);
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  const isUtc = text.endsWith(' UTC');
  const parts = CALENDAR.exec(isUtc ? text.slice(0, -4) : text);
  if (!parts) return NaN;
  const [, date, clock, offset] = parts;
  if (date && clock && offset) return isUtc ? NaN : dateMs(`${date}T${clock}${offset}`);
  if (offset || (!date && !clock)) return NaN;
  const zone = isUtc ? 'Z' : '';
  if (date) return dateMs(clock ? `${date}T${clock}${zone}` : `${later(date, end === 'to' ? 1 : 0)}T00:00${zone}`);
  const today = isUtc ? isoTime(nowMs).slice(0, 10) : localDate(new Date(nowMs));
  const atMs = dateMs(`${today}T${clock}${zone}`);
  return atMs > nowMs ? dateMs(`${later(today, -1)}T${clock}${zone}`) : atMs;
}

/** A date, a time of day, or both; with both, an offset. */
const CALENDAR = /^(\d{4}-\d\d-\d\d)?(?:(?:^|[T ])(\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?(Z|[+-]\d\d:?\d\d)?$/i;

/** `Date.parse`, which accepts the 30th of February and 24:00. */
function dateMs(text: string): number {
  const [year, month, day] = text.slice(0, 10).split('-').map(Number);
  const isReal = new Date(Date.UTC(year, month - 1, day)).getUTCDate() === day;
  return isReal && !text.includes('T24') ? Date.parse(text) : NaN;
}

/** The date some days later. Impossible dates stay. */
function later(date: string, days: number): string {
  const ms = dateMs(`${date}T00:00Z`);
  return Number.isNaN(ms) ? date : isoTime(ms + days * DAY_MS).slice(0, 10);
}

/** The milliseconds of a duration such as `1h30m` or `10 minutes`; `NaN` if it is invalid. */
function parseSpanMs(text: string): number {
  if (!/^(\d+ ?[a-z]+ ?)*\d+ ?[a-z]+$/.test(text)) return NaN;
  let sum = 0;
  for (const [, number, name] of text.matchAll(/(\d+) ?([a-z]+)/g)) {
    sum += Number(number) * (UNITS.find(([names]) => names.test(name))?.[1] ?? NaN);
  }
  return sum;
}

/** The duration of a time ago: `-5m`, `now-5m`, `5m ago`, `5m`. */
function agoText(text: string): string | undefined {
  const ago = /^(?:-|now-)(.*)$/.exec(text) ?? /^([a-z\d ]*?[a-z])(?: ago)?$/.exec(text);
  return ago?.[1];
}

/** Whether a time moves with the clock. */
export function isRelative(text: string): boolean {
  return text === 'now' || agoText(text) !== undefined;
}

/** The range as the API reads it: times that do not move with the clock as RFC 3339. Invalid ones stay. */
export function absoluteRange(range: Range, nowMs: number): Range {
  const absolute = (text: string, end: 'from' | 'to') => {
    if (isRelative(text)) return text;
    const ms = parseTimeMs(text, nowMs, end);
    return Math.abs(ms) < DATE_MAX_MS ? isoTime(ms) : text;
  };
  return { from: absolute(range.from, 'from'), to: absolute(range.to, 'to') };
}

/** An absolute time as people write it, in local time; a relative one as it is. */
export function localTime(text: string): string {
  const ms = isRelative(text) ? NaN : parseTimeMs(text, 0);
  if (!(Math.abs(ms) < DATE_MAX_MS)) return text;
  const at = new Date(ms);
  return `${localDate(at)} ${timeOfDay(at, at.getMilliseconds() !== 0)}`;
}

/** The difference of local time to UTC: `UTC+5:30`. */
export function utcOffset(ms: number): string {
  const behind = new Date(ms).getTimezoneOffset();
  const rest = Math.abs(behind % 60);
  return `UTC${behind > 0 ? '' : '+'}${Math.trunc(-behind / 60)}${rest ? `:${rest}` : ''}`;
}

/** The ends of a range in Unix milliseconds, or what is wrong with it. */
export function resolveRange(range: Range, nowMs: number): { fromMs: number; toMs: number } | { error: string } {
  const fromMs = parseTimeMs(range.from, nowMs);
  const toMs = parseTimeMs(range.to, nowMs, 'to');
  for (const [text, ms] of [
    [range.from, fromMs],
    [range.to, toMs],
  ] as const) {
    if (!(Math.abs(ms) < DATE_MAX_MS)) return { error: `“${text}” is not a time. Expected ${TIME_FORMS}.` };
  }
  if (fromMs > toMs) return { error: `The range is reversed: ${clock(fromMs)} is after ${clock(toMs)}.` };
  if (fromMs === toMs) return { error: `The range is empty: both ends are ${clock(fromMs)}.` };
  return { fromMs, toMs };
}

/** Whether a range moves with the clock. */
export function isLive(range: Range): boolean {
  return range.to === 'now';
}

/** An RFC 3339 time, to the millisecond if needed. */
export function isoTime(ms: number): string {
  return new Date(Math.round(ms)).toISOString().replace('.000Z', 'Z');
}

/** The collector's sums end here, at 2^64 - 1, which a number cannot hold. */
const SUM_MAX = 2 ** 64;

/** `1.24 ms`, `12.3 s`, `1 h 59 min`: three digits and the unit that fits; from a minute on, two units. */
export function duration(ns: number): string {
  if (ns < 0) return `-${duration(-ns)}`;
  if (ns >= SUM_MAX) return 'over 584 years';
  const rounded = Math.round(ns);
  if (rounded === 0) return '0 s';
  if (rounded < 1000) return `${rounded} ns`;
  if (ns < 999.5e3) return `${digits(ns / 1e3)} µs`;
  if (ns < 999.5e6) return `${digits(ns / 1e6)} ms`;
  if (ns < 59.95e9) return `${digits(ns / 1e9)} s`;
  const [seconds, minutes, hours] = [1e9, 60e9, 3600e9].map((unit) => Math.round(ns / unit));
  if (seconds < 3600) return twoUnits(seconds, 60, 'min', 's');
  if (minutes < 1440) return twoUnits(minutes, 60, 'h', 'min');
  return twoUnits(hours, 24, 'd', 'h');
}

/** `1 h 59 min`, or `2 h` if nothing is left. */
function twoUnits(value: number, size: number, large: string, small: string): string {
  const rest = value % size;
  return `${count((value - rest) / size)} ${large}${rest === 0 ? '' : ` ${rest} ${small}`}`;
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
  const share = (100 * part) / whole;
  if (!(whole > 0) || Number.isNaN(share)) return '–';
  if (share > 0 && share < 0.01) return '<0.01%';
  return `${digits(share)}%`;
}

const two = (value: number) => String(value).padStart(2, '0');

function localDate(at: Date): string {
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

function timeOfDay(at: Date, withMilliseconds: boolean): string {
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return withMilliseconds ? `${time}.${String(at.getMilliseconds()).padStart(3, '0')}` : time;
}

/** The local time of day, with the date if it is not today. */
export function clock(ms: number, withMilliseconds = false): string {
  const at = new Date(ms);
  const time = timeOfDay(at, withMilliseconds);
  const today = new Date().toDateString() === at.toDateString();
  return today ? time : `${localDate(at)} ${time}`;
}

/** A chosen length, such as `5 min` or `30 s`. */
const lengthText = (ms: number) => (ms < 60_000 && ms % 1000 === 0 ? `${ms / 1000} s` : duration(ms * NS_PER_MS));

/** A range as text: `the last 5 min`, or its two ends. */
export function rangeText(range: Range, nowMs: number): string {
  const from = parseTimeMs(range.from, nowMs);
  const to = parseTimeMs(range.to, nowMs, 'to');
  if (isLive(range)) return `the last ${lengthText(to - from)}`;
  // A date that both ends have is written once.
  const end = clock(to).replace(`${localDate(new Date(from))} `, '');
  return `${clock(from)} – ${end} (${lengthText(to - from)})`;
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

/** The times of an axis that are multiples of `stepMs`. */
export function ticksMs(fromMs: number, toMs: number, stepMs: number): number[] {
  const first = Math.ceil(fromMs / stepMs);
  const count = Math.max(0, Math.floor(toMs / stepMs) - first + 1);
  return Array.from({ length: count }, (_, i) => (first + i) * stepMs);
}

/** The first and last second of an axis, from those of its data. A single point is in the middle of a minute. */
export function timeAxis(first: number | null, last: number | null): [number, number] {
  const from = first ?? 0;
  const to = last ?? 0;
  return from < to ? [from, to] : [from - 30, to + 30];
}

/** Labels of a time axis: times of day. The first of each day is its date instead, unless all are of today. */
export function axisLabels(allMs: number[], stepMs: number): string[] {
  const times = allMs.map((ms) => new Date(ms));
  const days = times.map(localDate);
  const today = localDate(new Date());
  const isToday = days.every((day) => day === today);
  return times.map((at, i) => (isToday || days[i] === days[i - 1] ? timeOfDay(at, stepMs < 1000) : days[i]));
}
