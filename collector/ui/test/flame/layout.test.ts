import { expect, test } from 'vitest';
import { NO_FUNCTION, STATE_COUNT, TreeBuilder } from '../../src/flame/layout';
import { profile, randomNumbers, stacksOf } from '../stacks';

test('the heaviest child comes first and a subtree is contiguous', () => {
  const { layout, functions } = profile('main;a 1\nmain;b;c 3\nmain;b 1\nidle 2');
  const names = Array.from(layout.fn, (fn) => (fn === NO_FUNCTION ? 'root' : functions.names[fn]));
  expect(names).toEqual(['root', 'main', 'b', 'c', 'a', 'idle']);
  expect([...layout.total]).toEqual([7, 5, 4, 3, 1, 2]);
  expect([...layout.x]).toEqual([0, 0, 0, 0, 4, 5]);
  expect([...layout.depth]).toEqual([0, 1, 2, 3, 2, 1]);
  expect([...layout.end]).toEqual([6, 5, 4, 4, 5, 6]);
});

test('rows list their nodes from left to right', () => {
  const { layout } = profile('main;a 1\nmain;b;c 3\nidle 2');
  const rows = Array.from({ length: layout.rowStarts.length - 1 }, (_, row) => [
    ...layout.rowNodes.subarray(layout.rowStarts[row], layout.rowStarts[row + 1]),
  ]);
  expect(rows).toEqual([[0], [1, 5], [2, 4], [3]]);
});

test('states include those of descendants', () => {
  const { layout } = profile('main;a 1 cpu\nmain;a 2 lock\nmain 4 disk');
  // In the order of the states: cpu, runnable, lock, interpreter, sleep, network, disk, other.
  const main = [1, 0, 2, 0, 0, 0, 4, 0];
  const a = [1, 0, 2, 0, 0, 0, 0, 0];
  expect([...layout.states.subarray(STATE_COUNT, 3 * STATE_COUNT)]).toEqual([...main, ...a]);
});

test('a tree builder sums equal stacks', () => {
  const builder = new TreeBuilder();
  const states = [5, 0, 0, 0, 0, 0, 0];
  for (let times = 0; times < 3; times++) builder.add(builder.child(builder.child(0, 0), 1), 5, states);
  const layout = builder.done();
  expect(stacksOf({ layout, functions: { names: ['main', 'a'] } })).toEqual(['main;a 15']);
  expect(layout.states[2 * STATE_COUNT]).toBe(15);
});

test.each([1, 2, 3, 4])('a random tree keeps its sums and its order (seed %i)', (seed) => {
  const random = randomNumbers(seed);
  const stacks = Array.from({ length: 60 }, () => {
    const frames = Array.from({ length: 1 + random(6) }, () => `f${random(5)}`);
    return `${frames.join(';')} ${1 + random(100)}`;
  });
  const { layout } = profile(stacks.join('\n'));
  expect(layout.total[0]).toBe(stacks.reduce((sum, stack) => sum + Number(stack.split(' ')[1]), 0));
  for (let node = 1; node < layout.count; node++) {
    const parent = layout.parent[node];
    expect(parent).toBeLessThan(node);
    expect(layout.end[node]).toBeLessThanOrEqual(layout.end[parent]);
    expect(layout.x[node]).toBeGreaterThanOrEqual(layout.x[parent]);
    expect(layout.x[node] + layout.total[node]).toBeLessThanOrEqual(layout.x[parent] + layout.total[parent]);
    const next = layout.end[node];
    if (next < layout.end[parent]) expect(layout.total[next]).toBeLessThanOrEqual(layout.total[node]);
  }
});
