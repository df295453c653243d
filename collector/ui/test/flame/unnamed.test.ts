import { expect, test } from 'vitest';
import { unnamedNote } from '../../src/pages/profile/UnnamedTime';

const unnamed = (total_ns: number, pending = false) => ({ total_ns, pending, modules: [] });

test('time without names is stated from one percent on', () => {
  expect(unnamedNote(unnamed(120), 1000)).toBe('12.0% of this time has no function names');
  expect(unnamedNote(unnamed(9), 1000)).toBeNull();
  expect(unnamedNote(unnamed(0), 0)).toBeNull();
});

test('names that are being read are announced', () => {
  expect(unnamedNote(unnamed(500, true), 1000)).toContain('yet: symbols are being read');
});
