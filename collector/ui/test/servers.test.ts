import { expect, test } from 'vitest';
import type { Forward, Scrape, Store, WorkersAnswer } from '../src/core/api';
import { serverWarnings } from '../src/pages/servers';

const WORKING = { url: 'http://a', unit: 'ns', waiting: 0, lost_queue: 0, lost_rejected: 0, failure: null };

function texts(forwards: Partial<Forward>[], scrapes: Partial<Scrape>[] = [], stores: Store[] = []): string[] {
  const answer = { forwards, scrapes, stores } as unknown as WorkersAnswer;
  return serverWarnings(answer).map(({ text }) => text);
}

test('servers that work cause no warning', () => {
  expect(texts([WORKING], [{ name: 'shop', failure: null }])).toEqual([]);
});

test('failures and losses are named with their server', () => {
  const failing = { ...WORKING, failure: 'connection refused', waiting: 2e9 };
  const losing = { ...WORKING, url: 'http://b', unit: 'tasks', lost_queue: 2, lost_rejected: 1 };
  expect(texts([failing, losing], [{ name: 'shop', failure: 'timeout' }])).toEqual([
    'forwarding to http://a fails: connection refused; 2.00 s waiting',
    'forwarding to http://b lost 3 tasks',
    'no profile from shop: timeout',
  ]);
});

test('a store of which something is missing, or whose clock is off, is named', () => {
  const read = { name: 'c1', read_at: null, incomplete: null, clock_ahead_ns: null, clock_warning: null };
  const failing = { ...read, name: 'c2', incomplete: 'no network' };
  const late = { ...read, name: 'c3', clock_ahead_ns: 7e9, clock_warning: 'the clock is 7 s ahead' };
  expect(texts([], [], [read, failing, late])).toEqual([
    'answers are incomplete: c2: no network',
    'c3: the clock is 7 s ahead',
  ]);
});
