import { beforeEach, expect, test, vi } from 'vitest';

let address: typeof import('../src/core/address');

function visit(url: string): void {
  vi.stubGlobal('location', new URL(url, 'http://collector/'));
}

beforeEach(async () => {
  vi.stubGlobal('window', { addEventListener: () => {} });
  visit('/');
  address = await import('../src/core/address');
});

test.each(['qr', 'stack-qr 2', 'a/b', '..', '.', '<script>', 'ä', '%2e', '~', 'x'.repeat(300)])(
  'the page of %j is found by its address',
  (name) => {
    visit(address.itemHref('tasks', name, new URLSearchParams('from=-1h')));
    const current = address.currentAddress();
    expect([current.page, current.item]).toEqual(['tasks/~', name]);
    expect(current.params.get('from')).toBe('-1h');
  },
);

test.each([
  ['/', '', null],
  ['/profile', 'profile', null],
  ['/profile/', 'profile', null],
  ['/workers/w1', 'workers/~', 'w1'],
  ['/a/b/c', 'a/b/c', 'b'],
  ['/tasks/%E0%A4', 'tasks/~', '%E0%A4'],
])('%s is page %j, item %j', (path, page, item) => {
  visit(path);
  const current = address.currentAddress();
  expect([current.page, current.item]).toEqual([page, item]);
});

test('parameters are replaced, repeated and removed', () => {
  const params = new URLSearchParams('task=a&task=b&from=-5m&q=x');
  const next = address.withParams(params, { task: ['c', 'd'], from: null, to: 'now' });
  expect(next.toString()).toBe('q=x&task=c&task=d&to=now');
  expect(params.toString()).toBe('task=a&task=b&from=-5m&q=x');
});

test('links to other pages keep the range and the workers only', () => {
  visit('/profile?from=-1h&to=now&worker=a&worker=b&zoom=9&q=x');
  expect(address.sharedParams({ task: 'qr' }).toString()).toBe('from=-1h&to=now&worker=a&worker=b&task=qr');
});

test('the default range is the last five minutes', () => {
  expect(address.rangeOf(new URLSearchParams())).toEqual({ from: '-5m', to: 'now' });
  expect(address.rangeOf(new URLSearchParams('from=-1h'))).toEqual({ from: '-1h', to: 'now' });
});
