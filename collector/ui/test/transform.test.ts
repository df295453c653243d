import { expect, test } from 'vitest';
import { hasTransforms, ownStates, phasesOf, type TreeTransforms, transformTree } from '../src/flame/transform';
import { profile, stacksOf } from './stacks';

const NONE: TreeTransforms = { focus: [], hide: [], merge: [], recursion: false };
const STACKS = 'main;walk;leaf 6\nmain;walk;walk 2\nmain;walk 1\nmain;other 3\nidle 4';

test.each<[string, Partial<TreeTransforms>, string[], number]>([
  ['nothing', {}, ['main;walk 1', 'main;walk;leaf 6', 'main;walk;walk 2', 'main;other 3', 'idle 4'], 0],
  ['focus', { focus: ['leaf'] }, ['main;walk;leaf 6'], 10],
  ['focus on two', { focus: ['leaf', 'other'] }, ['main;walk;leaf 6', 'main;other 3'], 7],
  ['hide', { hide: ['walk'] }, ['idle 4', 'main;other 3'], 9],
  ['merge', { merge: ['walk'] }, ['main 3', 'main;leaf 6', 'main;other 3', 'idle 4'], 0],
  ['recursion', { recursion: true }, ['main;walk 3', 'main;walk;leaf 6', 'main;other 3', 'idle 4'], 0],
  ['focus and hide', { focus: ['walk'], hide: ['leaf'] }, ['main;walk 1', 'main;walk;walk 2'], 13],
])('%s', (_, transforms, expected, hiddenNs) => {
  const loaded = profile(STACKS);
  const transformed = transformTree(loaded, { ...NONE, ...transforms });
  expect(stacksOf(transformed)).toEqual(expected);
  expect(transformed.hiddenNs).toBe(hiddenNs);
  expect(transformed.layout.total[0] + hiddenNs).toBe(loaded.layout.total[0]);
});

test('sums by function are recomputed', () => {
  const { functions, fnSelf, fnTotal } = transformTree(profile(STACKS), { ...NONE, hide: ['leaf'] });
  const walk = functions.names.indexOf('walk');
  expect([fnSelf[walk], fnTotal[walk]]).toEqual([3, 3]);
});

test('recursion alone is a transform', () => {
  expect(hasTransforms(NONE)).toBe(false);
  expect(hasTransforms({ ...NONE, recursion: true })).toBe(true);
});

test("a node's own states exclude its children's", () => {
  const { layout } = profile('main;a 2 lock\nmain 3 cpu');
  expect([...ownStates(layout).subarray(7, 21)]).toEqual([3, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
});

test('a node is in the nearest phase above it', () => {
  const { layout, functions } = profile('task;execute;a 3\ntask;transfer;b;c 2\ntask 1');
  const kinds = functions.names.map((name) => (['execute', 'transfer'].includes(name) ? 'phase' : 'function'));
  const phases = Array.from(phasesOf(layout, kinds), (fn) => functions.names[fn] ?? 'none');
  // Nodes: root, task, execute, a, transfer, b, c.
  expect(phases).toEqual(['none', 'none', 'execute', 'execute', 'transfer', 'transfer', 'transfer']);
});
