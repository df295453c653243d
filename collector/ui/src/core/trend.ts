// Durations over time as lines with gaps.

import type { DurationPoint } from './api';

const QUANTILES = [
  ['p50', '--soft'],
  ['p90', '--ember'],
  ['p99', '--ink'],
] as const;

export interface TrendLine {
  name: string;
  color: string;
  /** Unix seconds. */
  times: number[];
  /** Nanoseconds; `null` ends a line, because no task ended in the step. */
  values: (number | null)[];
}

/** A line for each quantile. */
export function trendLines(points: DurationPoint[], stepNs: number): TrendLine[] {
  const times: number[] = [];
  const shown: (DurationPoint | null)[] = [];
  points.forEach((point, i) => {
    const after = i === 0 ? point.start_ns : points[i - 1].start_ns + stepNs;
    // Times in nanoseconds are rounded.
    if (point.start_ns - after > stepNs / 2) {
      times.push(after / 1e9);
      shown.push(null);
    }
    times.push(point.start_ns / 1e9);
    shown.push(point);
  });
  return QUANTILES.map(([name, color]) => ({
    name,
    color,
    times,
    values: shown.map((point) => point?.[`${name}_ns`] ?? null),
  }));
}
