import { expect, test } from 'vitest';
import { indicesOfLargest } from '../../src/core/largest';
import { hash, middleCut, safeText, shortFile, withoutGenerics } from '../../src/core/names';
import { randomNumbers } from '../stacks';

test.each([
  ['plain', 'plain'],
  ['<script>', '<script>'],
  ['a\u202eb', 'a\\u{202e}b'],
  ['a\u200bb\u0000', 'a\\u{200b}b\\u{0}'],
  ['\ud800 lone', '\\u{d800} lone'],
  ['😀', '😀'],
])('%j is shown as %s', (name, expected) => {
  expect(safeText(name)).toBe(expected);
});

test('a long name is cut, in the middle where its ends count', () => {
  expect(safeText('x'.repeat(400))).toBe(`${'x'.repeat(300)}…`);
  expect(middleCut('worker-pool-thread-17', 10)).toBe('worke…d-17');
  expect(middleCut('short', 10)).toBe('short');
  // The end starts with a word if one is near; the start gets the room.
  expect(middleCut('pipeline::stages::decode_frame', 20)).toBe('pipeline::sta…_frame');
  expect(middleCut('library::module::solve', 16)).toBe('library::m…solve');
  for (let room = 1; room < 30; room++) {
    const cut = middleCut('library::module::a_function_of_some_length', room);
    expect(cut.length).toBeLessThanOrEqual(Math.max(room, 2));
  }
});

test.each([
  ['core::slice::sort<u8>', 'core::slice::sort<…>'],
  ['<Vec<T> as Drop>::drop', '<Vec<…> as Drop>::drop'],
  ['call<fn(u8) -> u8>', 'call<…>'],
  ['map<a, b<c, d>>::next', 'map<…>::next'],
  ['operator<', 'operator<'],
  ['plain', 'plain'],
])('the generics of %s are elided', (name, expected) => {
  expect(withoutGenerics(name)).toBe(expected);
});

test.each([
  ['/root/.cargo/registry/src/index.crates.io-1949/tokio-1.40.0/src/runtime/mod.rs', 'tokio-1.40.0/src/runtime/mod.rs'],
  ['/rustc/abc/library/core/src/ops/function.rs', 'core/src/ops/function.rs'],
  ['/home/me/app/src/main.rs', 'app/src/main.rs'],
  ['/usr/include/stdio.h', 'include/stdio.h'],
])('the file %s is shortened', (file, short) => {
  expect(shortFile(file)).toBe(short);
});

test('a hash, and so a color, never changes', () => {
  expect([hash(''), hash('a'), hash('foobar')]).toEqual([0x811c9dc5, 0xe40c292c, 0xbf9cf968]);
});

test.each([1, 2, 3])('the largest values are those of a sort (seed %i)', (seed) => {
  const random = randomNumbers(seed);
  const values = Float64Array.from({ length: 200 }, () => random(50));
  const isKept = (index: number) => index % 3 !== 0;
  const sorted = [...values.keys()].filter(isKept).sort((a, b) => values[b] - values[a] || a - b);
  expect(indicesOfLargest(values, 10, isKept)).toEqual(sorted.slice(0, 10));
  expect(indicesOfLargest(values, 1000, isKept).length).toBe(sorted.length);
});
