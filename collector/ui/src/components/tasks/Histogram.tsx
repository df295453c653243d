// A duration histogram on a logarithmic scale; a click on a bar selects it.

import { count, duration } from '../../core/time';

export interface Bucket {
  fromNs: number;
  toNs: number;
  count: number;
}

/** Bars per doubling, and the maximum number of bars. */
const STEPS = [8, 4, 2, 1];
const BARS_MAX = 48;

/** Buckets of equal logarithmic width, as fine as there is room for. */
export function bucketsOf(durations: number[]): Bucket[] {
  if (durations.length === 0) return [];
  const logs = durations.map((ns) => Math.log2(Math.max(1, ns)));
  const [least, most] = logs.reduce(
    ([low, high], log) => [Math.min(low, log), Math.max(high, log)],
    [Infinity, -Infinity],
  );
  const step = STEPS.find((one) => (most - least) * one < BARS_MAX) ?? STEPS[STEPS.length - 1];
  const first = Math.floor(least * step);
  const buckets = Array.from({ length: Math.floor(most * step) - first + 1 }, (_, i) => ({
    fromNs: 2 ** ((first + i) / step),
    toNs: 2 ** ((first + i + 1) / step),
    count: 0,
  }));
  for (const log of logs) buckets[Math.floor(log * step) - first].count++;
  return buckets;
}

interface Properties {
  buckets: Bucket[];
  color: string;
  chosen: number;
  onChoose(index: number): void;
}

export function Histogram({ buckets, color, chosen, onChoose }: Properties) {
  const most = Math.max(1, ...buckets.map((bucket) => bucket.count));
  const text = ({ fromNs, toNs, count: tasks }: Bucket) =>
    `${count(tasks)} took ${duration(fromNs)} to ${duration(toNs)}`;
  return (
    <figure class="histogram" aria-label="Duration distribution">
      <div class="bars">
        {buckets.map((bucket, index) => (
          <button
            key={bucket.fromNs}
            title={text(bucket)}
            aria-label={text(bucket)}
            aria-pressed={index === chosen}
            disabled={bucket.count === 0}
            onClick={() => onChoose(index === chosen ? -1 : index)}
          >
            {/* A single task among thousands must be visible too. */}
            <i
              style={{
                height: bucket.count === 0 ? '0' : `max(3px, ${(100 * bucket.count) / most}%)`,
                background: color,
              }}
            />
          </button>
        ))}
      </div>
      {buckets.length > 0 && (
        <figcaption>
          <span>{duration(buckets[0].fromNs)}</span>
          <span>{duration(Math.sqrt(buckets[0].fromNs * buckets[buckets.length - 1].toNs))}</span>
          <span>{duration(buckets[buckets.length - 1].toNs)}</span>
        </figcaption>
      )}
    </figure>
  );
}
