import { expect, test } from 'vitest';
import { EXAMPLES, isNumber, parsed, written } from '../src/pages/queries';

test('a result is not rounded', () => {
  const json =
    '{"columns":[],"rows":[[9007199254740993,18446744073709551615,123456789.123,-0.1234567890123456,12.5,-3,null,true,' +
    '"a \\"12345678901234567890\\" b"]]}';
  expect(parsed(json).rows[0].map(written)).toEqual([
    '9007199254740993',
    '18446744073709551615',
    '123456789.123',
    '-0.1234567890123456',
    '12.5',
    '-3',
    '–',
    'true',
    'a "12345678901234567890" b',
  ]);
});

test('a column of numbers has one of three types', () => {
  const types = ['integer', 'double', 'decimal', 'text', 'boolean', 'interval(daytime)'];
  expect(types.filter((type) => isNumber({ name: 'a', type }))).toHaveLength(3);
});

test('examples are different queries', () => {
  expect(new Set(EXAMPLES.map(([, query]) => query)).size).toBe(EXAMPLES.length);
});
