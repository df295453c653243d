// The layers of a timeline: the heaviest series, and all others as one.

import type { Series, TimelineAnswer } from '../core/api';
import type { Layer } from './timeline-draw';
import { averagedSpan, meanOver, type Span } from './timeline-mean';

export type Measure = 'cpu' | 'total';

/** Tasks that are shown individually. */
export const LAYERS_MAX = 8;

/** The heaviest series by a measure in a span, by default of all data, and the sum of the rest. */
export function layersOf(
  answer: TimelineAnswer,
  measure: Measure,
  onlyTasks: boolean,
  layersMax = LAYERS_MAX,
  span: Span = averagedSpan(answer),
): Layer[] {
  const steps = answer.steps;
  const values = (series: Series) =>
    Float64Array.from(
      { length: steps },
      (_, i) =>
        (series.cpu_ns[i] + (measure === 'cpu' ? 0 : series.runnable_ns[i] + series.wait_ns[i])) / answer.step_ns,
    );
  const weight = ({ totals }: Series) => (measure === 'cpu' ? totals.cpu_ns : totals.total_ns);
  const without = onlyTasks && answer.series.some(({ kind }) => kind === 'task');
  const fitting = answer.series.filter(
    (series) => weight(series) > 0 && !(without && ['no_task', 'agent'].includes(series.kind)),
  );
  const isRest = ({ kind }: Series) => kind === 'other';
  const sorted = fitting
    .filter((series) => !isRest(series))
    .map((series) => ({ series, layer: { name: series.name, values: values(series) } }))
    .map((one) => ({ ...one, mean: meanOver(answer, one.layer.values, span) }))
    .sort((a, b) => b.mean - a.mean || weight(b.series) - weight(a.series));
  const layers = sorted.slice(0, layersMax).map(({ layer }) => layer);
  const named = sorted.slice(layersMax).map(({ series }) => series);
  const rest = [...named, ...fitting.filter(isRest)];
  if (rest.length > 0) {
    const sum = new Float64Array(steps);
    for (const series of rest) values(series).forEach((value, i) => (sum[i] += value));
    layers.push({ name: `[${named.length + answer.others} others]`, values: sum });
  }
  return layers;
}
