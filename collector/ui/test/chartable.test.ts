import { beforeAll, expect, test, vi } from 'vitest';

let chartableEnd: typeof import('../src/pages/profile/query')['chartableEnd'];

beforeAll(async () => {
  vi.stubGlobal('window', { addEventListener: () => {} });
  vi.stubGlobal('location', new URL('http://collector/'));
  ({ chartableEnd } = await import('../src/pages/profile/query'));
});

const NOW = Date.parse('2026-01-31T12:00:00Z');

test('a range up to ten minutes has a flame chart', () => {
  expect(chartableEnd({ from: '-10m', to: 'now' }, NOW)).toBeNull();
  expect(chartableEnd({ from: '2026-01-31T11:50:00Z', to: '2026-01-31T12:00:00Z' }, NOW)).toBeNull();
});

test('of a longer range, the last ten minutes have one', () => {
  expect(chartableEnd({ from: '-1h', to: 'now' }, NOW)).toEqual({ from: '-10m', to: 'now' });
  expect(chartableEnd({ from: '2026-01-31T10:00:00Z', to: '2026-01-31T11:00:00Z' }, NOW)).toEqual({
    from: '2026-01-31T10:50:00Z',
    to: '2026-01-31T11:00:00Z',
  });
});

test('an invalid range is explained elsewhere', () => {
  expect(chartableEnd({ from: 'yesterdayish', to: 'now' }, NOW)).toBeNull();
});
