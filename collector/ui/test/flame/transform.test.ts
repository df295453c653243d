import { expect, test } from 'vitest';
import examples from '../../../../flamegraph/views.json';
import { invertTree } from '../../src/flame/invert';
import { STATE_COUNT } from '../../src/flame/layout';
import { findByPathId } from '../../src/flame/path';
import { hasTransforms, ownStates, phasesOf, type TreeTransforms, transformTree } from '../../src/flame/transform';
import { profile, stacksOf } from '../stacks';

const NONE: TreeTransforms = { focus: [], hide: [], merge: [], recursion: false };
const STACKS = 'main;walk;leaf 6\nmain;walk;walk 2\nmain;walk 1\nmain;other 3\nidle 4';

interface View extends Partial<TreeTransforms> {
  name: string;
  invert?: boolean;
  zoom?: string;
  /** Sorted. */
  shown: string[];
  hidden_ns?: number;
  zoomed_away_ns?: number;
}

test.each(examples.views as View[])('$name: as in files', (view) => {
  const { zoom, shown, invert, hidden_ns = 0, zoomed_away_ns = 0, ...transforms } = view;
  const loaded = profile(examples.stacks.join('\n'));
  const transformed = transformTree(loaded, { ...NONE, ...transforms });
  const displayed = invert ? invertTree(transformed) : transformed;
  const { layout, functions } = displayed;
  expect(transformed.hiddenNs).toBe(hidden_ns);
  expect(layout.total[0] + hidden_ns).toBe(loaded.layout.total[0]);
  const node = zoom === undefined ? 0 : findByPathId(layout, functions, zoom);
  expect(layout.total[0] - layout.total[node]).toBe(zoomed_away_ns);
  expect(stacksOf(displayed, node).sort()).toEqual(shown);
});

test('sums by function are recomputed', () => {
  const { functions, fnSelf, fnTotal } = transformTree(profile(STACKS), { ...NONE, hide: ['leaf'] });
  const walk = functions.names.indexOf('walk');
  expect([fnSelf[walk], fnTotal[walk]]).toEqual([3, 3]);
});

test('an inverted tree has the states of the tree', () => {
  const loaded = profile('main;read 2 disk\nmain;read;lock 3 lock\nmain 4 cpu\nother;read 8 cpu');
  const { layout, functions, fnSelf } = invertTree(loaded);
  expect([...layout.states.subarray(0, STATE_COUNT)]).toEqual([...loaded.layout.states.subarray(0, STATE_COUNT)]);
  const read = functions.names.indexOf('read');
  const root = layout.fn.indexOf(read);
  expect([layout.depth[root], layout.total[root], fnSelf[read]]).toEqual([1, 10, 10]);
});

test('recursion alone is a transform', () => {
  expect(hasTransforms(NONE)).toBe(false);
  expect(hasTransforms({ ...NONE, recursion: true })).toBe(true);
});

test("a node's own states exclude its children's", () => {
  const { layout } = profile('main;a 2 lock\nmain 3 cpu');
  expect([...ownStates(layout).subarray(STATE_COUNT, 3 * STATE_COUNT)]).toEqual([
    ...[3, 0, 0, 0, 0, 0, 0, 0],
    ...[0, 0, 2, 0, 0, 0, 0, 0],
  ]);
});

test('a node is in the nearest phase above it', () => {
  const { layout, functions } = profile('task;execute;a 3\ntask;transfer;b;c 2\ntask 1');
  const kinds = functions.names.map((name) => (['execute', 'transfer'].includes(name) ? 'phase' : 'function'));
  const phases = Array.from(phasesOf(layout, kinds), (fn) => functions.names[fn] ?? 'none');
  // Nodes: root, task, execute, a, transfer, b, c.
  expect(phases).toEqual(['none', 'none', 'execute', 'execute', 'transfer', 'transfer', 'transfer']);
});
