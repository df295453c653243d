import { expect, test } from 'vitest';
import type { Epoch, WorkersAnswer } from '../src/core/api';
import { epochWarnings, warningsOf } from '../src/pages/warnings';

const NOW_NS = Date.parse('2026-01-31T12:00:00Z') * 1e6;

function epoch(more: Partial<Epoch> = {}, losses: Partial<Epoch['account']> = {}): Epoch {
  return {
    epoch: '1',
    state: 'connected',
    last_seen: '2026-01-31T11:59:59Z',
    enabled: true,
    sampler_mode: 'full',
    clock: { offset_ns: 0, error_ns: 1000 },
    ticks: 1000,
    ticks_expected: 1000,
    ticks_throttled: 0,
    refused: 0,
    account: {
      accepted_ns: 100e9,
      lost_refused_ns: 0,
      lost_by_collector_ns: 0,
      lost_queue_ns: 0,
      lost_tasks: 0,
      ...losses,
    },
    ...more,
  } as Epoch;
}

test.each<[string, Epoch, string[]]>([
  ['healthy', epoch(), []],
  ['away', epoch({ state: 'away' }), ['away for 1.00 s']],
  ['late', epoch({ last_seen: '2026-01-31T11:59:50Z' }), ['late: no data for 10.0 s']],
  ['losses', epoch({}, { lost_queue_ns: 1e9, lost_tasks: 1 }), ['lost 1.00 s of samples (1.00%)', 'lost 1 task']],
  ['rejections', epoch({ refused: 2 }), ['2 messages rejected']],
  ['gone', epoch({ state: 'gone', enabled: false }, { lost_refused_ns: 2e9 }), ['lost 2.00 s of samples (2.00%)']],
  ['clock', epoch({ clock: { offset_ns: 0, error_ns: 3e8 } as Epoch['clock'] }), ['clock error ±300 ms']],
  ['off', epoch({ enabled: false }), ['sampling is off']],
  ['sampler', epoch({ sampler_mode: 'reduced' }), ['sampler: reduced']],
  ['rate', epoch({ ticks: 400 }), ['only 40.0% of expected samples taken']],
  ['throttled', epoch({ ticks: 400, ticks_throttled: 500 }), []],
])('%s', (_, one, expected) => {
  expect(epochWarnings(one, NOW_NS)).toEqual(expected);
});

function answer(epochs: Epoch[], open = true): WorkersAnswer {
  const ingest = { open, reason: open ? null : 'disk full' };
  return { now_ns: NOW_NS, ingest, workers: [{ worker: 'w', epochs }] } as unknown as WorkersAnswer;
}

test('of earlier sessions only losses are reported', () => {
  const earlier = epoch({ enabled: false }, { lost_queue_ns: 1e9 });
  expect(warningsOf(answer([earlier, epoch()]))).toEqual([{ worker: 'w', text: 'w: lost 1.00 s of samples (1.00%)' }]);
});

test('a collector without ingestion or workers warns first', () => {
  const texts = warningsOf(answer([epoch({ state: 'gone' })], false)).map(({ text }) => text);
  expect(texts).toEqual(['ingestion stopped: disk full', 'no worker is connected']);
});
