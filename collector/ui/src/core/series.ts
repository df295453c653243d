// Series that other profilers push.

import type { WorkerEpochs } from './api';

export const SERVICE_LABEL = 'service_name';

/** Names of series by worker: the service, then the labels in which it differs from its other series. */
export function seriesNames(workers: WorkerEpochs[]): Map<string, string> {
  const series = workers.flatMap(({ worker, epochs }) => {
    const labels = epochs[epochs.length - 1]?.labels ?? {};
    return SERVICE_LABEL in labels ? [{ worker, labels }] : [];
  });
  const values = new Map<string, Set<string>>();
  const keyOf = (labels: Record<string, string>, label: string) => JSON.stringify([labels[SERVICE_LABEL], label]);
  for (const { labels } of series)
    for (const [label, value] of Object.entries(labels)) {
      const key = keyOf(labels, label);
      values.set(key, (values.get(key) ?? new Set()).add(value));
    }
  return new Map(
    series.map(({ worker, labels }) => {
      const differing = Object.keys(labels)
        .filter((label) => label !== SERVICE_LABEL && values.get(keyOf(labels, label))!.size > 1)
        .sort((a, b) => values.get(keyOf(labels, b))!.size - values.get(keyOf(labels, a))!.size)
        .map((label) => `${label}=${labels[label]}`);
      return [worker, [labels[SERVICE_LABEL], ...differing].join(' ')];
    }),
  );
}
