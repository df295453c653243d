import { expect, test } from 'vitest';
import type { Disconnect, Epoch, TasksAnswer, WorkersAnswer } from '../src/core/api';
import { alertsOf, badEnds, epochWarnings, stateOf, warningsOf } from '../src/pages/warnings';

const NOW_NS = Date.parse('2026-01-31T12:00:00Z') * 1e6;

function epoch(more: Partial<Epoch> = {}, losses: Partial<Epoch['account']> = {}): Epoch {
  return {
    epoch: '1',
    state: 'connected',
    last_seen: '2026-01-31T11:59:59Z',
    enabled: true,
    sampler_mode: 'full',
    signal_blocked_threads: 0,
    signal_blocked_since: null,
    clock: { offset_ns: 0, error_ns: 1000 },
    data_ahead_ns: 0,
    ticks: 1000,
    ticks_expected: 1000,
    ticks_throttled: 0,
    rejected: 0,
    account: {
      accepted_ns: 100e9,
      lost_rejected_ns: 0,
      lost_by_collector_ns: 0,
      lost_queue_ns: 0,
      lost_unseen_ns: 0,
      lost_tasks: 0,
      ...losses,
    },
    ...more,
  } as Epoch;
}

test.each<[string, Epoch, string[]]>([
  ['healthy', epoch(), []],
  [
    'away',
    epoch({ state: 'away', disconnect: { cause: 'messages stopped' } as Disconnect }),
    ['away for 1.00 s: messages stopped'],
  ],
  ['late', epoch({ last_seen: '2026-01-31T11:59:50Z' }), ['late: no data for 10.0 s']],
  [
    'pushed by a foreign profiler, a minute ago',
    epoch({ last_seen: '2026-01-31T11:59:00Z', sampler_mode: 'pushed by nodespy as pprof' }),
    [],
  ],
  ['losses', epoch({}, { lost_queue_ns: 1e9, lost_tasks: 1 }), ['lost 1.00 s of samples (1.00%)', 'lost 1 task']],
  ['rejections', epoch({ rejected: 2 }), ['2 messages rejected']],
  ['gone', epoch({ state: 'gone', enabled: false }, { lost_rejected_ns: 2e9 }), ['lost 2.00 s of samples (2.00%)']],
  ['clock', epoch({ clock: { offset_ns: 0, error_ns: 3e8 } as Epoch['clock'] }), ['clock error ±300 ms']],
  ['ahead', epoch({ data_ahead_ns: 3000e9 }), ["its clock is 50 min ahead of the collector's: set it (NTP)"]],
  ['off', epoch({ enabled: false }), ['sampling is off']],
  ['sampler', epoch({ sampler_mode: 'reduced' }), ['sampler: reduced']],
  ['rate', epoch({ ticks: 400 }), ['only 40.0% of expected samples taken']],
  ['throttled', epoch({ ticks: 400, ticks_throttled: 500 }), []],
  [
    'throttled for long',
    epoch({ ticks: 2800, ticks_throttled: 1200, ticks_expected: 4000 }),
    ['30.0% of samples skipped by its CPU limit'],
  ],
])('%s', (_, one, expected) => {
  expect(epochWarnings(one, NOW_NS)).toEqual(expected);
});

function answer(epochs: Epoch[], open = true): WorkersAnswer {
  const ingest = { open, reason: open ? null : 'disk full' };
  const connected = Number(epochs.some(({ state }) => state === 'connected'));
  const counts = { connected, away: 0, gone: 1 - connected, need_attention: 0 };
  return { now_ns: NOW_NS, ingest, counts, workers: [{ worker: 'w', epochs }] } as unknown as WorkersAnswer;
}

test('of earlier sessions only losses are reported', () => {
  const earlier = epoch({ enabled: false }, { lost_queue_ns: 1e9 });
  expect(warningsOf(answer([earlier, epoch()]), [])).toEqual([
    { worker: 'w', text: 'w: lost 1.00 s of samples (1.00%)' },
  ]);
});

test('a collector without ingestion or workers warns first', () => {
  const texts = warningsOf(answer([epoch({ state: 'gone' })], false), []).map(({ text }) => text);
  expect(texts).toEqual(['ingestion stopped: disk full', 'no worker is connected']);
});

function ended(life: string, reason: Disconnect['reason'], state: Epoch['state'] = 'gone'): Epoch {
  return epoch({ epoch: life, state, disconnect: { reason, cause: 'why', next_step: 'look', at: '', at_ns: 1 } });
}

test('a life that ended badly is a warning until it is dismissed', () => {
  const ends = (epochs: Epoch[], dismissed: string[] = []) =>
    badEnds(answer(epochs), dismissed).map((one) => `${one.epoch.epoch} ${one.disconnect.reason}`);
  expect(ends([ended('1', 'clean')])).toEqual([]);
  expect(ends([ended('1', 'crashed', 'away')])).toEqual([]);
  expect(ends([ended('1', 'crashed')])).toEqual(['1 crashed']);
  expect(ends([ended('1', 'silent'), epoch()])).toEqual(['1 silent']);
  expect(ends([ended('1', 'unknown'), epoch()])).toEqual([]);
  expect(ends([ended('1', 'crashed'), ended('2', 'unknown')])).toEqual(['1 crashed', '2 unknown']);
  expect(ends([ended('1', 'crashed'), ended('2', 'unknown')], ['1'])).toEqual(['2 unknown']);
  const texts = (dismissed: string[]) =>
    warningsOf(answer([ended('1', 'crashed'), epoch()]), dismissed).map(({ text }) => text);
  expect(texts([])).toEqual(['w crashed']);
  expect(texts(['1'])).toEqual([]);
});

test('the state of a life says how it ended', () => {
  expect(stateOf(epoch())).toBe('● connected');
  expect(stateOf(ended('1', 'silent', 'away'))).toBe('○ away');
  expect(stateOf(ended('1', 'silent'))).toBe('○ went silent');
  expect(stateOf(ended('1', 'clean'))).toBe('○ exited');
});

const failedTasks = (total: number, more: object = {}): TasksAnswer =>
  ({
    total,
    tasks: [
      {
        worker: 'w',
        epoch: '1',
        id: 7,
        name: 'load',
        key: 'load-7',
        start_ns: NOW_NS - 5e9,
        stop_ns: NOW_NS - 4e9,
        outcome: 'failed',
        cause: 'no such file',
        ...more,
      },
    ].slice(0, total),
  }) as unknown as TasksAnswer;

test.each<[string, Epoch, string]>([
  ['a silent worker', epoch({ last_seen: '2026-01-31T11:59:50Z' }), 'sends no data since 11:59:50'],
  ['samples lost in the queue', epoch({}, { lost_queue_ns: 2e9 }), 'lost 2.00 s of samples since 11:00:00'],
  ['lost tasks', epoch({}, { lost_tasks: 3 }), 'lost 3 task records since 11:00:00'],
  ['a reduced sampler', epoch({ sampler_mode: 'on-CPU threads only' }), 'is sampled in part since 11:00:00'],
  [
    'threads without stacks',
    epoch({ signal_blocked_threads: 2, signal_blocked_since: '2026-01-31T11:30:00Z' }),
    'has 2 threads without stacks since 11:30:00',
  ],
  [
    'throttled sampling',
    epoch({ ticks: 6000, ticks_throttled: 3000, ticks_expected: 10_000 }),
    'is sampled less often: 30.0% of samples skipped since 11:00:00',
  ],
  ['a crash', ended('1', 'crashed'), 'crashed at 00:00:00'],
])('%s is an alert with time, cause and next step', (_, one, expected) => {
  const life = { ...one, pid: 42, host: 'h', first_seen: '2026-01-31T11:00:00Z' };
  const fleet = answer([life]);
  const [alert, ...others] = alertsOf(fleet, undefined, []);
  const at = new Date(alert.atMs).toISOString().slice(11, 19);
  expect(`${alert.what} ${alert.isSince ? 'since' : 'at'} ${at}`).toBe(expected);
  expect(alert.worker).toBe('w');
  expect(alert.cause).not.toBe('');
  expect(alert.next).not.toBe('');
  expect(alert.id).not.toMatch(/\s/);
  expect(others).toEqual([]);
  expect(alertsOf(fleet, undefined, [alert.id])).toEqual([]);
});

test('a healthy fleet has no alerts', () => {
  expect(alertsOf(answer([epoch()]), failedTasks(0), [])).toEqual([]);
  const throttledAtStart = epoch({ ticks: 500, ticks_throttled: 500, ticks_expected: 1000 });
  expect(alertsOf(answer([throttledAtStart]), undefined, [])).toEqual([]);
});

test('a dismissed loss is an alert again when it has doubled', () => {
  const alerts = (lost_queue_ns: number, dismissed: string[]) =>
    alertsOf(answer([epoch({}, { lost_queue_ns })]), undefined, dismissed);
  const known = alerts(1e9, []).map(({ id }) => id);
  expect(alerts(1.01e9, known)).toEqual([]);
  expect(alerts(2.2e9, known)).toHaveLength(1);
});

test('failed tasks are one alert with the newest cause', () => {
  const alerts = (failed: TasksAnswer, dismissed: string[] = []) => alertsOf(answer([epoch()]), failed, dismissed);
  const [alert] = alerts(failedTasks(1));
  expect(alert.what).toBe('1 task failed in the last 24 h');
  expect(alert.cause).toBe('the newest is load (load-7) on w: no such file');
  expect(alerts(failedTasks(5))[0].what).toBe('5 tasks failed in the last 24 h');
  expect(alerts(failedTasks(1, { outcome: 'lost', cause: '' }))[0].cause).toContain('its worker ended');
  expect(alerts(failedTasks(1), [alert.id])).toEqual([]);
  expect(alerts(failedTasks(2), [alert.id])).toHaveLength(1);
  expect(alerts(failedTasks(1, { stop_ns: NOW_NS + 3600e9 }), [alert.id])).toHaveLength(1);
});
