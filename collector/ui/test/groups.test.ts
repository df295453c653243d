import { expect, test } from 'vitest';
import { layersOf } from '../src/components/timeline-layers';
import type { Series, TimelineAnswer } from '../src/core/api';
import { groupFilter, groupsWith, labelKeys } from '../src/pages/profile/groups';

const series = (kind: string, name: string, cpu: number) =>
  ({
    kind,
    name,
    totals: { cpu_ns: cpu, total_ns: cpu },
    cpu_ns: [cpu],
    runnable_ns: [0],
    wait_ns: [0],
  }) as unknown as Series;

test('layers are the heaviest series, and one layer has the number and time of all others', () => {
  const groups = [5, 4, 3, 2].map((weight) => series('group', `w-${weight}`, weight));
  const answer = { steps: 1, step_ns: 1, others: 70, series: [series('other', '[other]', 100), ...groups] };
  const layers = layersOf(answer as unknown as TimelineAnswer, 'cpu', true, 2);
  expect(layers.map(({ name, values }) => [name, values[0]])).toEqual([
    ['w-5', 5],
    ['w-4', 4],
    ['[72 others]', 105],
  ]);
});

test.each([
  ['worker', 'w-1', ['worker', 'w-1']],
  ['label:zone', 'eu', ['label', 'zone=eu']],
  ['phase', '[no task]', null],
  ['label:zone', '[none]', null],
  ['host', 'h-1', null],
  ['run', 'nightly@1', null],
  ['thread', 'w-1 pool 7', null],
])('a group by %s called %s has the filter %j', (kind, name, filter) => {
  expect(groupFilter(kind, name)).toEqual(filter);
});

test('groups are found by a part of their name', () => {
  const all = [series('group', 'Shop-1', 3), series('group', 'cart', 2), series('other', '[other] shop', 1)];
  expect(groupsWith(all, 'shop', 20).map(({ name }) => name)).toEqual(['Shop-1']);
  expect(groupsWith(all, '', 1)).toHaveLength(1);
});

test('each label key is listed once', () => {
  const labels = ['zone=b', 'app=x=y', 'zone=a'].map((label) => ({ label, workers: 1 }));
  expect(labelKeys({ workers: [], omitted: 0, labels, labels_omitted: 0 })).toEqual(['app', 'zone']);
});
