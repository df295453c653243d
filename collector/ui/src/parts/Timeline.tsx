// How much time the tasks took, step by step, one above the other; a drag selects a range.

import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { Series, TimelineAnswer } from '../core/api';
import { onTheme, taskColour, variable } from '../core/colours';
import { shown } from '../core/names';
import { clock, digits } from '../core/time';

export type Measure = 'cpu' | 'total';

interface Properties {
  answer: TimelineAnswer;
  measure: Measure;
  /** Whether only tasks are shown, if there are any. */
  onlyTasks?: boolean;
  height: number;
  /** The range that the page is about, in Unix seconds; drawn as a band. */
  band?: [number, number];
  onSelect(fromS: number, toS: number): void;
}

/** More tasks than this would be stripes that nobody tells apart; the rest is one. */
const LAYERS_MAX = 8;
/** An empty stretch before the first data that is longer is left out. */
const STEPS_BEFORE_MAX = 20;

export interface Layer {
  name: string;
  /** Threads, by step. */
  values: Float64Array;
}

/** The heaviest series by a measure, and one for the rest. */
export function layersOf(answer: TimelineAnswer, measure: Measure, onlyTasks: boolean): Layer[] {
  const steps = answer.steps;
  const values = (series: Series) =>
    Float64Array.from({ length: steps }, (_, i) =>
      (series.cpu_ns[i] + (measure === 'cpu' ? 0 : series.runnable_ns[i] + series.wait_ns[i])) / answer.step_ns);
  const weight = ({ totals }: Series) => (measure === 'cpu' ? totals.cpu_ns : totals.total_ns);
  const without = onlyTasks && answer.series.some(({ kind }) => kind === 'task');
  const fitting = answer.series.filter((series) => weight(series) > 0 && !(without && ['no_task', 'agent'].includes(series.kind)));
  const sorted = fitting.sort((a, b) => weight(b) - weight(a));
  const layers = sorted.slice(0, LAYERS_MAX).map((series) => ({ name: series.name, values: values(series) }));
  const rest = sorted.slice(LAYERS_MAX);
  if (rest.length > 0) {
    const sum = new Float64Array(steps);
    for (const series of rest) values(series).forEach((value, i) => (sum[i] += value));
    layers.push({ name: `[${rest.length} others]`, values: sum });
  }
  return layers;
}

/** The steps for which there can be data: the first, and the one behind the last whole one. */
function seen({ data, first_ns, step_ns, steps }: TimelineAnswer): [number, number] {
  if (!data) return [0, 0];
  const step = (ns: number) => Math.max(0, Math.min(steps, Math.floor((ns - first_ns) / step_ns)));
  return [step(data.from_ns), step(data.to_ns)];
}

/** The times to be shown: not what is long before the first data. */
function shownTimes(answer: TimelineAnswer): [number, number] {
  const at = (step: number) => (answer.first_ns + step * answer.step_ns) / 1e9;
  const [first] = seen(answer);
  return [at(first < STEPS_BEFORE_MAX ? 0 : first - 2), at(answer.steps)];
}

/** Columns as uPlot takes them: times, then the sums of layers, the highest first. */
function columns(answer: TimelineAnswer, layers: Layer[]): uPlot.AlignedData {
  const first = answer.first_ns / 1e9;
  const step = answer.step_ns / 1e9;
  const times = Float64Array.from({ length: answer.steps }, (_, i) => first + i * step);
  const sum = new Float64Array(answer.steps);
  // A step that is still being filled would look like a fall.
  const [, full] = seen(answer);
  const stacked = layers.map((layer) => {
    layer.values.forEach((value, i) => (sum[i] += value));
    return Array.from(sum, (value, i) => (i < full ? value : null));
  });
  return [times, ...stacked.reverse()] as uPlot.AlignedData;
}

export function Timeline({ answer, measure, onlyTasks = false, height, band, onSelect }: Properties) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const bands = useRef(band);
  const select = useRef(onSelect);
  const [theme, setTheme] = useState(0);
  const [at, setAt] = useState<number | null>(null);
  const newest = useRef(answer);
  newest.current = answer;
  bands.current = band;
  select.current = onSelect;
  const layers = layersOf(answer, measure, onlyTasks);
  // Names may hold anything, so they are joined as JSON.
  const names = JSON.stringify(layers.map((layer) => layer.name));
  useEffect(() => onTheme(() => setTheme((count) => count + 1)), []);
  useEffect(() => {
    const element = box.current!;
    const ink = variable('--soft');
    const grid = { stroke: variable('--line'), width: 1 };
    const axis = { stroke: ink, grid, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    const drawn = new uPlot(
      {
        width: element.clientWidth,
        height,
        padding: [8, 8, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false, dist: 4 }, points: { show: false } },
        scales: { x: { time: true, range: () => shownTimes(newest.current) }, y: { range: (_u, _min, max) => [0, Math.max(1, max * 1.08)] } },
        axes: [
          { ...axis, values: (_u, splits) => splits.map((s) => clock(s * 1000)), space: 90, size: 26 },
          { ...axis, values: (_u, splits) => splits.map(digits), size: 46, space: 26 },
        ],
        series: [
          {},
          ...(JSON.parse(names) as string[]).reverse().map((name) => ({
            label: name, stroke: taskColour(name), fill: taskColour(name), width: 1, points: { show: false },
            paths: uPlot.paths.stepped!({ align: 1 }),
          })),
        ],
        hooks: {
          setCursor: [(u) => setAt(u.cursor.idx ?? null)],
          setSelect: [
            (u) => {
              if (u.select.width < 4) return;
              const [from, to] = [u.posToVal(u.select.left, 'x'), u.posToVal(u.select.left + u.select.width, 'x')];
              u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
              // The grain is a second: a part of one would hold the samples of none.
              select.current(Math.floor(from), Math.max(Math.floor(from) + 1, Math.ceil(to)));
            },
          ],
          draw: [(u) => drawBand(u, bands.current)],
        },
      },
      columns(answer, layers),
      element,
    );
    plot.current = drawn;
    const observer = new ResizeObserver(() => drawn.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [names, theme, height]);
  useEffect(() => plot.current?.setData(columns(answer, layers)), [answer, measure, onlyTasks]);
  useEffect(() => plot.current?.redraw(false), [band?.[0], band?.[1]]);

  const [first, full] = seen(answer);
  const total = (layer: Layer) => layer.values.reduce((sum, value) => sum + value, 0) / Math.max(1, full - first);
  const value = (layer: Layer) => (at === null ? total(layer) : layer.values[at] ?? 0);
  return (
    <figure class="timeline" aria-label="Time by task, step by step">
      <div ref={box} class="plot" aria-hidden="true" />
      <figcaption class="legend">
        <span class="when">{at === null ? `mean of ${measure === 'cpu' ? 'busy processors' : 'threads'}` : clock((answer.first_ns + at * answer.step_ns) / 1e6)}</span>
        {layers.map((layer) => (
          <span key={layer.name}><i class="dot" style={{ background: taskColour(layer.name) }} /><bdi>{shown(layer.name, 28)}</bdi> {digits(value(layer))}</span>
        ))}
      </figcaption>
    </figure>
  );
}

/** Shades what is outside the page's range. */
function drawBand(u: uPlot, band: [number, number] | undefined): void {
  if (!band) return;
  const { left, top, width, height } = u.bbox;
  const clamp = (x: number) => Math.min(left + width, Math.max(left, x));
  const from = clamp(u.valToPos(band[0], 'x', true));
  const to = clamp(u.valToPos(band[1], 'x', true));
  const context = u.ctx;
  context.save();
  context.fillStyle = variable('--shade');
  context.fillRect(left, top, from - left, height);
  context.fillRect(to, top, left + width - to, height);
  context.fillStyle = variable('--ember');
  const edge = 2 * devicePixelRatio;
  if (from > left) context.fillRect(from, top, edge, height);
  if (to < left + width) context.fillRect(to - edge, top, edge, height);
  context.restore();
}
