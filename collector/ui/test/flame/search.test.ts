import { expect, test } from 'vitest';
import { labelOf } from '../../src/flame/label';
import { findByPathId, pathId } from '../../src/flame/path';
import { search, totalBelow } from '../../src/flame/search';
import { pattern, selected, transformSelector } from '../../src/flame/select';
import { profile } from '../stacks';

const STACKS = 'main;walk;walk;leaf 6\nmain;walk 1\nmain;other 3';

test.each([
  ['walk', 7, 2],
  ['re:^w|leaf', 7, 3],
  ['^w|leaf', 0, 0],
  ['re:^main$', 10, 1],
  ['LEAF', 6, 1],
  ['lea', 6, 1],
  ['file:other\\.rs$', 3, 1],
  ['re:other\\.rs$', 0, 0],
  ['file:walk', 7, 2],
  ['crate:unknown', 10, 5],
  ['crate:unk', 0, 0],
  ['nothing', 0, 0],
])('searching %s finds %i ns in %i nodes', (text, totalNs, nodes) => {
  const { layout, functions } = profile(STACKS);
  const result = search(text, layout, functions)!;
  expect([result.totalNs, result.nodes.length]).toEqual([totalNs, nodes]);
});

test('an empty search is none', () => {
  const { layout, functions } = profile(STACKS);
  expect(search('', layout, functions)).toBeUndefined();
});

test('an invalid regular expression is searched as text', () => {
  expect(pattern('closure(').test('{closure(0)}')).toBe(true);
  expect(pattern('a.b').test('axb')).toBe(true);
  expect(pattern('a.b(').test('axb(')).toBe(false);
});

/** Names that are not the regular expressions which they look like, and one whose label is shorter. */
const ODD = [
  'operator new(unsigned long)',
  'operator()(int, char) const',
  'foo[bar]',
  '[vdso]',
  '[unnamed]',
  'crate:foo',
  're:x',
  '$anon$1',
  'lib.so (deleted)',
  'tab\there',
  '<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend',
];

function oddProfile() {
  const stacks = ODD.map((_, number) => `main;odd${number} 1`);
  const made = profile(stacks.join('\n'));
  ODD.forEach((name, number) => (made.functions.names[made.functions.names.indexOf(`odd${number}`)] = name));
  return made;
}

test.each(ODD)('%j is found by its name, by what is shown for it, and in any case', (name) => {
  const { layout, functions } = oddProfile();
  const shown = labelOf(functions, functions.names.indexOf(name));
  for (const text of [name, shown, shown.toUpperCase()]) {
    const { functions: found } = search(text, layout, functions)!;
    expect(functions.names.filter((_, fn) => found[fn] === 1)).toEqual([name]);
  }
});

test('a transform of a search has the searched text where it selects the same, else a part', () => {
  const { functions } = oddProfile();
  expect(transformSelector('[vdso]', functions)).toBe('[vdso]');
  expect(transformSelector('Vec::extend', functions)).toBe('Vec::extend');
  expect(transformSelector('vdso', functions)).toBe('part:vdso');
  expect(transformSelector('re:^main$', functions)).toBe('re:^main$');
});

test.each(['walk', 'wal', 're:^w|leaf', 'file:other', 'crate:unknown', 're:closure(', 'walk('])(
  'a transform of the search %s selects what it found',
  (text) => {
    const { layout, functions } = profile(`${STACKS}\nclosure(0) 1`);
    const transform = transformSelector(text, functions);
    expect(selected(functions, [transform])).toEqual(search(text, layout, functions)!.functions);
  },
);

test('an unfinished prefix searches nothing', () => {
  const { layout, functions } = profile(STACKS);
  expect(['file:', 'crate:', 're:', 'part:'].map((text) => search(text, layout, functions))).toEqual(
    Array(4).fill(undefined),
  );
});

test('the share of a subtree counts nested matches once', () => {
  const { layout, functions } = profile(STACKS);
  const { functions: matches } = search('re:walk|leaf', layout, functions)!;
  expect(totalBelow(layout, matches)).toBe(7);
  // Below the inner `walk`, its node itself not included.
  expect(totalBelow(layout, matches, 3)).toBe(6);
});

test('a node is found by its path in another profile', () => {
  const first = profile('main;a;b 2\nmain;c;b 1');
  const later = profile('main;c;b 9\nmain;a;b 1\nmain;a 1');
  for (let node = 1; node < first.layout.count; node++) {
    const id = pathId(first.layout, first.functions, node);
    const found = findByPathId(later.layout, later.functions, id);
    expect(pathId(later.layout, later.functions, found)).toBe(id);
    expect(later.functions.names[later.layout.fn[found]]).toBe(first.functions.names[first.layout.fn[node]]);
    expect(later.layout.depth[found]).toBe(first.layout.depth[node]);
  }
  expect(findByPathId(later.layout, later.functions, pathId(first.layout, first.functions, 0))).toBe(0);
});

test('a path that is gone leads to the root', () => {
  const first = profile('main;a;b 2');
  const later = profile('main;a 2');
  expect(findByPathId(later.layout, later.functions, pathId(first.layout, first.functions, 3))).toBe(0);
});
