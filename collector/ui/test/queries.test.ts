import { expect, test } from 'vitest';
import { EXAMPLES, written } from '../src/pages/queries';

test('cells are written with as many digits as say something', () => {
  expect([1234567, 0.000012345678, 12.5, -3, null, true, 'a'].map(written)).toEqual([
    '1,234,567',
    '0.0000123457',
    '12.5',
    '-3',
    '–',
    'true',
    'a',
  ]);
});

test('examples are different queries', () => {
  expect(new Set(EXAMPLES.map(([, query]) => query)).size).toBe(EXAMPLES.length);
});
