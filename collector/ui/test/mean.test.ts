import { expect, test } from 'vitest';
import { layersOf } from '../src/components/timeline-layers';
import { averagedSpan, meanOver } from '../src/components/timeline-mean';
import type { TimelineAnswer } from '../src/core/api';

const NS = 1e9;

/** Steps of a second from `fromS` to `toS`; data is from `dataS[0]` to `dataS[1]`. */
function answer(fromS: number, toS: number, dataS: [number, number], series: [string, number[]][] = []) {
  const at = ([from, to]: [number, number]) => ({ from_ns: from * NS, to_ns: to * NS });
  const one = ([name, cores]: [string, number[]]) => {
    const cpu_ns = cores.map((one) => one * NS);
    const zeros = cores.map(() => 0);
    const total = cpu_ns.reduce((sum, ns) => sum + ns, 0);
    return {
      kind: 'task',
      name,
      totals: { cpu_ns: total, total_ns: total },
      cpu_ns,
      runnable_ns: zeros,
      wait_ns: zeros,
    };
  };
  return {
    range: at([fromS, toS]),
    data: at(dataS),
    first_ns: fromS * NS,
    step_ns: NS,
    steps: toS - fromS,
    others: 0,
    series: series.map(one),
  } as unknown as TimelineAnswer;
}

test('a core that is busy in all of the data is one core of a longer range', () => {
  const one = answer(0, 8, [2, 5]);
  expect(averagedSpan(one)).toEqual({ fromNs: 2 * NS, toNs: 5 * NS });
  expect(meanOver(one, [0, 0, 1, 1, 1, 0, 0, 0], averagedSpan(one))).toBe(1);
});

test('an average over a part of a timeline is of that part, with parts of the steps at its edges', () => {
  const one = answer(0, 6, [0, 6]);
  const mean = (from: number, to: number) => meanOver(one, [3, 0, 0, 1, 1, 4], averagedSpan(one, [from, to]));
  expect([mean(3, 5), mean(0, 3), mean(4.5, 5.5), mean(0, 6)]).toEqual([1, 1, 2.5, 1.5]);
  expect([mean(5, 5), mean(7, 9)]).toEqual([0, 0]);
});

test('the time of a step of which a part has data is in that part', () => {
  const one = answer(0, 2, [0, 1.5]);
  expect(meanOver(one, [1, 0.5], averagedSpan(one))).toBe(1);
});

test('layers are the heaviest series of the selected range', () => {
  const of = answer(
    0,
    3,
    [0, 3],
    [
      ['before', [9, 0, 0]],
      ['in range', [0, 1, 0]],
    ],
  );
  const names = (band?: [number, number]) =>
    layersOf(of, 'cpu', false, 1, averagedSpan(of, band)).map(({ name }) => name);
  expect(names()).toEqual(['before', '[1 others]']);
  expect(names([1, 2])).toEqual(['in range', '[1 others]']);
});
