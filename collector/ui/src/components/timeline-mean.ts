// Averages of a timeline. All of them are over the time of a range of which the collector has data.

import type { TimelineAnswer } from '../core/api';

/** A range in Unix nanoseconds; empty if it ends where it starts or before. */
export interface Span {
  fromNs: number;
  toNs: number;
}

const EMPTY: Span = { fromNs: 0, toNs: 0 };

export const spanLengthNs = ({ fromNs, toNs }: Span): number => Math.max(0, toNs - fromNs);

const overlap = (a: Span, b: Span): Span => ({
  fromNs: Math.max(a.fromNs, b.fromNs),
  toNs: Math.min(a.toNs, b.toNs),
});

/** The part of the answer's range of which there is data; with `band`, in Unix seconds, the part of it in that. */
export function averagedSpan({ data, range }: TimelineAnswer, band?: [number, number]): Span {
  if (!data) return EMPTY;
  const known = overlap({ fromNs: range.from_ns, toNs: range.to_ns }, { fromNs: data.from_ns, toNs: data.to_ns });
  return band ? overlap(known, { fromNs: band[0] * 1e9, toNs: band[1] * 1e9 }) : known;
}

/** The average of threads by step over a span. Steps at its edges count in part. */
export function meanOver(answer: TimelineAnswer, values: ArrayLike<number>, span: Span): number {
  const lengthNs = spanLengthNs(span);
  if (lengthNs === 0) return 0;
  const { first_ns, step_ns, steps } = answer;
  const known = averagedSpan(answer);
  const first = Math.max(0, Math.floor((span.fromNs - first_ns) / step_ns));
  const last = Math.min(steps, Math.ceil((span.toNs - first_ns) / step_ns));
  let sumNs = 0;
  for (let i = first; i < last; i++) {
    const step = overlap(known, { fromNs: first_ns + i * step_ns, toNs: first_ns + (i + 1) * step_ns });
    // All time of a step is where the answer has data, which at the ends of the range may be a part of the step.
    const knownNs = spanLengthNs(step);
    if (knownNs > 0) sumNs += values[i] * step_ns * (spanLengthNs(overlap(step, span)) / knownNs);
  }
  return sumNs / lengthNs;
}
