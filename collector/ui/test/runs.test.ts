import { expect, test } from 'vitest';
import type { Run } from '../src/core/api';
import { workersOfRun } from '../src/core/runs';

const run = (worker: string | null) => ({ id: '1', name: 'nightly', worker }) as Run;

test('the run of an imported profile selects its worker only', () => {
  expect(workersOfRun(run('import:before'), ['w-1', 'import:other'])).toEqual(['import:before']);
});

test('other runs keep the chosen workers, but not that of an imported profile', () => {
  expect(workersOfRun(run('w-1'), ['w-2', 'import:before'])).toEqual(['w-2']);
  expect(workersOfRun(run(null), ['import:before'])).toEqual([]);
  expect(workersOfRun(undefined, ['w-2', 'import:before'])).toEqual(['w-2']);
});
