import { expect, test } from 'vitest';
import { pinnedAddress } from '../src/core/pinned';

const NOW = Date.parse('2026-01-31T12:00:00Z');

test.each([
  ['', 'from=2026-01-31T11:55:00Z&to=2026-01-31T12:00:00Z'],
  ['?view=flame&from=-1h', 'view=flame&from=2026-01-31T11:00:00Z&to=2026-01-31T12:00:00Z'],
  ['?from=2026-01-31T10:00:00Z&to=2026-01-31T10:05:00Z', 'from=2026-01-31T10:00:00Z&to=2026-01-31T10:05:00Z'],
  [
    '?b.from=-10m&b.to=-5m&from=-5m',
    'b.from=2026-01-31T11:50:00Z&b.to=2026-01-31T11:55:00Z&from=2026-01-31T11:55:00Z&to=2026-01-31T12:00:00Z',
  ],
  ['?run=a&from=2026-01-31T10:00:00Z', 'from=2026-01-31T10:00:00Z&to=2026-01-31T12:00:00Z'],
  [
    '?run=a&from=2026-01-31T10:00:00Z&to=2026-01-31T10:05:00Z',
    'run=a&from=2026-01-31T10:00:00Z&to=2026-01-31T10:05:00Z',
  ],
  ['?from=yesterday&zoom=a', 'from=yesterday&zoom=a&to=2026-01-31T12:00:00Z'],
])('the times of %j are fixed', (search, expected) => {
  const pinned = new URL(pinnedAddress(new URL(`http://host/profile${search}`), NOW));
  expect(decodeURIComponent(pinned.search.slice(1))).toBe(expected);
});
