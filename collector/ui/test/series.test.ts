import { expect, test } from 'vitest';
import type { WorkerEpochs } from '../src/core/api';
import { seriesNames } from '../src/core/series';

const series = (worker: string, labels: Record<string, string>) => ({ worker, epochs: [{ labels }] }) as WorkerEpochs;

test('a series is named by its service and by what tells it apart', () => {
  const region = { region: 'eu', source: 'pyroscope' };
  const names = seriesNames([
    series('a', { service_name: 'shop', instance: 'i-1', ...region }),
    series('b', { service_name: 'shop', instance: 'i-2', ...region }),
    series('c', { service_name: 'shop', instance: 'i-3', ...region, region: 'us' }),
    series('d', { service_name: 'one', instance: 'i-1', ...region }),
    series('w-1', { region: 'eu' }),
  ]);
  expect([...names]).toEqual([
    ['a', 'shop instance=i-1 region=eu'],
    ['b', 'shop instance=i-2 region=eu'],
    ['c', 'shop instance=i-3 region=us'],
    ['d', 'one'],
  ]);
});
