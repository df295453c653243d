import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import examples from '../../../api/times.json';
import numbers from '../../../flamegraph/numbers.json';
import {
  axisLabels,
  bytes,
  clock,
  count,
  digits,
  duration,
  isLive,
  isoTime,
  parseTimeMs,
  percent,
  quantity,
  rangeText,
  resolveRange,
  ticksMs,
  timeAxis,
  timeStepMs,
  utcOffset,
} from '../src/core/time';

const NOW = Date.parse('2026-01-31T12:00:00Z');

beforeEach(() => void vi.useFakeTimers({ now: NOW }));
afterEach(() => void vi.useRealTimers());

const examplesNow = Date.parse(examples.now);

test.each(examples.from)('%j as the start of a range is %s', (text, expected) => {
  expect(parseTimeMs(text, examplesNow)).toBe(Date.parse(expected));
});

test.each(examples.to)('%j as the end of a range is %s', (text, expected) => {
  expect(parseTimeMs(text, examplesNow, 'to')).toBe(Date.parse(expected));
});

test.each(examples.invalid)('the time %j is invalid', (text) => {
  expect(parseTimeMs(text, examplesNow)).toBeNaN();
});

test.each([
  ['-5m', 'now', undefined],
  ['yesterday', 'now', '“yesterday” is not a time'],
  ['-5m', '99999999999999', 'is not a time'],
  ['-5m', '-10m', 'The range is reversed'],
  ['-5m', '-5m', 'The range is empty'],
])('the range from %s to %s is explained', (from, to, error) => {
  const range = resolveRange({ from, to }, NOW);
  if (error === undefined) expect(range).toEqual({ fromMs: NOW - 300_000, toMs: NOW });
  else expect('error' in range && range.error).toContain(error);
});

test.each([
  ['2026-01-31T12:00:00Z', 'UTC+1'],
  ['2026-07-31T12:00:00Z', 'UTC+2'],
])('at %s the zone of the tests is %s', (time, text) => {
  expect(utcOffset(Date.parse(time))).toBe(text);
});

test.each(numbers.duration as [number, string][])('%d ns are %s', (ns, text) => {
  expect(duration(ns)).toBe(text);
});

test.each(numbers.count as [number, string][])('the count %d is %s', (value, text) => {
  expect(count(value)).toBe(text);
});

test.each(numbers.digits as [number, string][])('the number %d is %s', (value, text) => {
  expect(digits(value)).toBe(text);
});

test.each(numbers.bytes as [number, string][])('%d bytes are %s', (value, text) => {
  expect(bytes(value)).toBe(text);
});

test.each(numbers.percent as [[number, number], string][])('the share %j is %s', ([part, whole], text) => {
  expect(percent(part, whole)).toBe(text);
});

test.each([
  [duration(-2e6), '-2.00 ms'],
  [duration(0.3), '0 s'],
  [quantity(1, 'task'), '1 task'],
  [quantity(0, 'task'), '0 tasks'],
  [quantity(2500, 'task'), '2,500 tasks'],
  [percent(1, 0), '–'],
  [percent(NaN, 1), '–'],
])('%s is %s', (text, expected) => {
  expect(text).toBe(expected);
});

test('a time of the API has milliseconds only if needed', () => {
  expect(isoTime(NOW)).toBe('2026-01-31T12:00:00Z');
  expect(isoTime(NOW + 5.4)).toBe('2026-01-31T12:00:00.005Z');
});

test('a range is named by its length, or by its ends', () => {
  expect(rangeText({ from: '-5m', to: 'now' }, NOW)).toBe('the last 5 min');
  expect(rangeText({ from: '-1d', to: 'now' }, NOW)).toBe('the last 1 d');
  const fixed = { from: '2026-01-31T11:00:00Z', to: '2026-01-31T11:01:30Z' };
  expect([isLive(fixed), isLive({ from: '-5m', to: 'now' })]).toEqual([false, true]);
  const [from, to] = [fixed.from, fixed.to].map((text) => clock(Date.parse(text)));
  expect(rangeText(fixed, NOW)).toBe(`${from} – ${to} (1 min 30 s)`);
  const old = { from: '2026-01-20T11:00:00Z', to: '2026-01-20T11:00:05Z' };
  expect(rangeText(old, NOW)).toMatch(/^2026-01-(20|21) \d\d:\d\d:00 – \d\d:\d\d:05 \(5 s\)$/);
  // A date as an end is the end of that day.
  expect(rangeText({ from: '2026-01-30', to: '2026-01-30' }, NOW)).toMatch(/\(1 d\)$/);
});

test('a clock time names the day unless it is today', () => {
  expect(clock(NOW)).toMatch(/^\d\d:\d\d:\d\d$/);
  expect(clock(NOW + 5, true)).toMatch(/^\d\d:\d\d:\d\d\.005$/);
  expect(clock(NOW - 3 * 86_400_000)).toMatch(/^2026-01-2[789] \d\d:\d\d:\d\d$/);
});

test('a time axis has the shortest step that fits', () => {
  expect([0.5, 3, 1000, 61_000].map(timeStepMs)).toEqual([1, 5, 1000, 120_000]);
});

test('the ticks of an axis are multiples of its step within the range', () => {
  expect(ticksMs(1, 999, 250)).toEqual([250, 500, 750]);
  expect(ticksMs(250, 500, 250)).toEqual([250, 500]);
  expect(ticksMs(1, 2, 250)).toEqual([]);
});

test('labels of an axis are times of day, and dates where a day begins that is not today', () => {
  const today = new Date(new Date(NOW).toDateString()).getTime();
  const hour = 3_600_000;
  const noon = today + 12 * hour;
  expect(axisLabels([noon, noon + 5000], 5000)).toEqual(['12:00:00', '12:00:05']);
  expect(axisLabels([noon, noon + 200], 200)).toEqual(['12:00:00.000', '12:00:00.200']);
  const days = axisLabels([noon - 24 * hour, noon - 18 * hour, today, noon], 6 * hour);
  expect(days).toEqual([clock(noon - 24 * hour).slice(0, 10), '18:00:00', expect.stringMatching(/^2026-/), '12:00:00']);
});

test('the axis of a single point is the minute around it', () => {
  expect(timeAxis(100, 160)).toEqual([100, 160]);
  expect(timeAxis(100, 100)).toEqual([70, 130]);
  expect(timeAxis(null, null)).toEqual([-30, 30]);
});
