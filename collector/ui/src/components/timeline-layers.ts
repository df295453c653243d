// The layers of a timeline: the heaviest series, and all others as one.

import type { Series, TimelineAnswer } from '../core/api';
import type { Layer } from './timeline-draw';

export type Measure = 'cpu' | 'total';

/** Tasks that are shown individually. */
export const LAYERS_MAX = 8;

/** The heaviest series by a measure, and the sum of the rest. */
export function layersOf(
  answer: TimelineAnswer,
  measure: Measure,
  onlyTasks: boolean,
  layersMax = LAYERS_MAX,
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
  const sorted = fitting.filter((series) => !isRest(series)).sort((a, b) => weight(b) - weight(a));
  const layers = sorted.slice(0, layersMax).map((series) => ({ name: series.name, values: values(series) }));
  const named = sorted.slice(layersMax);
  const rest = [...named, ...fitting.filter(isRest)];
  if (rest.length > 0) {
    const sum = new Float64Array(steps);
    for (const series of rest) values(series).forEach((value, i) => (sum[i] += value));
    layers.push({ name: `[${named.length + answer.others} others]`, values: sum });
  }
  return layers;
}
