import { expect, test } from 'vitest';
import { compare, FULL_WEIGHT, type Scale } from '../src/flame/compare';
import { AFTER, BEFORE } from '../src/flame/layout';
import { profileBody } from './stacks';

/** Self and total before and after of each function, in percent of a full weight. */
function weights(before: [string, number], after: [string, number], scale: Scale, tasks: number[] = []) {
  const bodies = [before, after].map(([stacks, sampled_ns]) => profileBody(stacks, { sampled_ns }));
  const compared = compare([bodies[0], bodies[1]], scale, tasks);
  const { functions, layout } = compared;
  const percent = (weight: number) => Math.round((100 * weight) / FULL_WEIGHT);
  const columns = [compared.selfBefore, compared.selfAfter, compared.totalBefore, compared.totalAfter];
  const byName = Object.fromEntries(functions.names.map((name, fn) => [name, columns.map((of) => percent(of[fn]))]));
  return { byName, root: [layout.states[BEFORE], layout.states[AFTER]].map(percent) };
}

test('shares are of each side', () => {
  const { byName, root } = weights(['main;a 1\nmain;b 3', 1], ['main;a 30\nmain;c 10', 1], 'share');
  expect(byName).toEqual({ main: [0, 0, 100, 100], a: [25, 75, 25, 75], b: [75, 0, 75, 0], c: [0, 25, 0, 25] });
  expect(root).toEqual([100, 100]);
});

test('times are relative to the sampled time', () => {
  const { byName, root } = weights(['main 50', 100], ['main 50', 50], 'time');
  expect(byName).toEqual({ main: [50, 100, 50, 100] });
  expect(root).toEqual([50, 100]);
});

test('times per task are relative to the slower side', () => {
  const { byName } = weights(['main 60\nsleep 40', 1], ['main 60\nsleep 240', 1], 'task', [10, 10]);
  expect(byName).toEqual({ main: [20, 20, 20, 20], sleep: [13, 80, 13, 80] });
  const fewer = weights(['main 100', 1], ['main 100', 1], 'task', [10, 5]);
  expect(fewer.byName).toEqual({ main: [50, 100, 50, 100] });
});

test('a recursive function counts once on each side', () => {
  const { byName } = weights(['f;f 4', 1], ['f 2\nf;f 2', 1], 'share');
  expect(byName).toEqual({ f: [100, 100, 100, 100] });
});

test('an empty side has no weight', () => {
  const { byName } = weights(['main 0', 1], ['main 5', 1], 'share');
  expect(byName).toEqual({ main: [0, 100, 0, 100] });
});
