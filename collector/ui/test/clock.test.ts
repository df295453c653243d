import { beforeEach, expect, test, vi } from 'vitest';

let clock: typeof import('../src/core/clock');

beforeEach(async () => {
  vi.useFakeTimers({ now: 1_000_000 });
  vi.resetModules();
  clock = await import('../src/core/clock');
});

/** Something that was sent `ahead` of the browser's clock, and took `before` and `after` that moment. */
function sync(ahead: number, before: number, after: number): number {
  const sentNs = (Date.now() - after + ahead) * 1e6;
  clock.syncClock(sentNs, Date.now() - before - after);
  return clock.nowMs() - Date.now();
}

test('equal clocks stay equal, however slow an answer is', () => {
  expect([sync(0, 5, 5), sync(0, 9000, 0), sync(0, 0, 9000)]).toEqual([0, 0, 0]);
});

test.each([-86_400_000, -277_000, 500, 3_600_000])(
  'a clock that differs by %i ms is known to the length of a request',
  (ahead) => {
    expect(Math.abs(sync(ahead, 30, 30) - ahead)).toBeLessThanOrEqual(30);
    expect(sync(ahead, 0, 0)).toBe(ahead);
    expect(sync(ahead, 60_000, 60_000)).toBe(ahead);
  },
);

test('an old event moves no time', () => {
  sync(500, 0, 0);
  clock.syncClock((Date.now() - 277_000) * 1e6, -Infinity);
  expect(clock.nowMs() - Date.now()).toBe(500);
});

test('every answer sets the clock, also an error', async () => {
  const { fetchOk } = await import('../src/core/fetch');
  for (const [status, ahead] of [
    [200, 60_000],
    [404, -60_000],
    [503, 7000],
  ]) {
    const headers = { 'x-emberline-now-ns': String((Date.now() + ahead) * 1e6) };
    vi.stubGlobal('fetch', async () => new Response('{}', { status, headers }));
    await fetchOk('api/v1/profile').catch(() => undefined);
    expect(clock.nowMs() - Date.now()).toBe(ahead);
  }
});
