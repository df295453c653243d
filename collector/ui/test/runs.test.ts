import { expect, test, vi } from 'vitest';
import type { Run } from '../src/core/api';
import { changesForRun, workersOfRun } from '../src/core/runs';

vi.stubGlobal('window', { addEventListener: () => {} });
vi.stubGlobal('location', new URL('http://collector/'));
const { withParams } = await import('../src/core/address');

const run = (worker: string | null) => ({ id: '1', name: 'nightly', worker }) as Run;

test('the run of an imported profile selects its worker only', () => {
  expect(workersOfRun(run('import:before'), ['w-1', 'import:other'])).toEqual(['import:before']);
});

test('other runs keep the chosen workers, but not that of an imported profile', () => {
  expect(workersOfRun(run('w-1'), ['w-2', 'import:before'])).toEqual(['w-2']);
  expect(workersOfRun(run(null), ['import:before'])).toEqual([]);
  expect(workersOfRun(undefined, ['w-2', 'import:before'])).toEqual(['w-2']);
});

const RUN = { ...run('w-1'), start_ns: 1_000_000_000_500_000, stop_ns: 1_000_060_000_000_001 } as Run;
const OPEN = { ...RUN, stop_ns: null } as Run;
const OF_IMPORT = { ...RUN, worker: 'import:before' } as Run;
const RANGE = 'from=1970-01-12T13:46:40Z&to=1970-01-12T13:47:40.001Z';

test.each([
  ['run=nightly', RUN, `run=nightly@1&${RANGE}`],
  ['run=nightly@1', RUN, `run=nightly@1&${RANGE}`],
  ['run=nightly&from=-5m&view=flame&zoom=a', RUN, `view=flame&run=nightly@1&${RANGE}`],
  ['run=nightly&worker=w-2', RUN, `run=nightly@1&worker=w-2&${RANGE}`],
  ['run=nightly&to=-1m', OPEN, 'run=nightly@1&from=1970-01-12T13:46:40Z'],
  ['run=nightly', OF_IMPORT, `run=nightly@1&worker=import:before&${RANGE}`],
  ['run=nightly&worker=w-2', OF_IMPORT, `run=nightly@1&worker=w-2&${RANGE}`],
])('the address %j shows the run itself', (search, meant, expected) => {
  const before = new URLSearchParams(search);
  const changes = changesForRun(meant, before);
  const after = withParams(before, changes!);
  expect(decodeURIComponent(after.toString())).toBe(expected);
  expect(changesForRun(meant, after)).toBeUndefined();
});
