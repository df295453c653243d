// A stacked timeline of threads by task or other group; dragging selects a range.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { TimelineAnswer } from '../core/api';
import { onTheme, taskColor } from '../core/colors';
import { safeText } from '../core/names';
import { fitCanvas, useSize } from '../core/size';
import { clock, digits } from '../core/time';
import { drawTimeline, LEFT_PX, RIGHT_PX } from './timeline-draw';
import { LAYERS_MAX, layersOf, type Measure } from './timeline-layers';
import { averagedSpan, meanOver } from './timeline-mean';

interface Properties {
  answer: TimelineAnswer;
  measure: Measure;
  /** Shows only tasks, if there are any. */
  onlyTasks?: boolean;
  /** Layers that are shown individually; the rest is summed. */
  layersMax?: number;
  height: number;
  /** The page's range in Unix seconds, drawn as a band. Averages are over it. */
  band?: [number, number];
  onSelect(fromS: number, toS: number): void;
}

/** A longer empty interval before the first data is not shown. */
const STEPS_BEFORE_MAX = 20;

/** The steps with complete data: the first, and the one after the last. */
function seen({ data, first_ns, step_ns, steps }: TimelineAnswer): [number, number] {
  if (!data) return [0, 0];
  const step = (ns: number) => Math.max(0, Math.min(steps, Math.floor((ns - first_ns) / step_ns)));
  return [step(data.from_ns), step(data.to_ns)];
}

/** The displayed times, without a long empty interval before the first data. */
function shownTimes(answer: TimelineAnswer): [number, number] {
  const at = (step: number) => (answer.first_ns + step * answer.step_ns) / 1e9;
  const [first] = seen(answer);
  return [at(first < STEPS_BEFORE_MAX ? 0 : first - 2), at(answer.steps)];
}

/** A press that moves less selects nothing. */
const DRAG_PX = 4;

/** On a narrower plot, the height is this part. */
const NARROW_PX = 560;
const NARROW_PART = 0.75;

export function Timeline({
  answer,
  measure,
  onlyTasks = false,
  layersMax = LAYERS_MAX,
  height: heightMax,
  band,
  onSelect,
}: Properties) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [theme, setTheme] = useState(0);
  const { width } = useSize(box);
  const height = width < NARROW_PX ? Math.round(heightMax * NARROW_PART) : heightMax;
  const [at, setAt] = useState<number | null>(null);
  // Start and current position of a drag, in pixels from the box's left edge.
  const [brush, setBrush] = useState<[number, number] | null>(null);
  const span = useMemo(() => averagedSpan(answer, band), [answer, band?.[0], band?.[1]]);
  const layers = useMemo(
    () => layersOf(answer, measure, onlyTasks, layersMax, span),
    [answer, measure, onlyTasks, layersMax, span],
  );
  const means = useMemo(() => layers.map(({ values }) => meanOver(answer, values, span)), [layers, span]);
  const [from, to] = shownTimes(answer);
  const [, filled] = seen(answer);
  useEffect(() => onTheme(() => setTheme((count) => count + 1)), []);
  useLayoutEffect(() => {
    const element = canvas.current!;
    if (fitCanvas(element, { width, height }))
      drawTimeline(element, {
        width,
        height,
        layers,
        first: answer.first_ns / 1e9,
        step: answer.step_ns / 1e9,
        filled,
        from,
        to,
        band,
      });
  }, [layers, width, height, theme, from, to, band?.[0], band?.[1]]);

  const plotPx = Math.max(1, width - LEFT_PX - RIGHT_PX);
  const timeAt = (px: number) => from + ((px - LEFT_PX) / plotPx) * (to - from);
  const pxOf = (event: PointerEvent) =>
    Math.max(LEFT_PX, Math.min(width - RIGHT_PX, event.clientX - box.current!.getBoundingClientRect().left));
  const stepAt = (px: number) => Math.floor((timeAt(px) * 1e9 - answer.first_ns) / answer.step_ns);

  function moved(event: PointerEvent) {
    const px = pxOf(event);
    const step = stepAt(px);
    setAt(step >= 0 && step < answer.steps ? step : null);
    if (brush) setBrush([brush[0], px]);
  }

  function released(event: PointerEvent) {
    setBrush(null);
    const px = pxOf(event);
    if (!brush || Math.abs(px - brush[0]) < DRAG_PX) return;
    const [first, last] = [brush[0], px].sort((a, b) => a - b).map(timeAt);
    // The resolution is a second: a fraction of one would have no samples.
    onSelect(Math.floor(first), Math.max(Math.floor(first) + 1, Math.ceil(last)));
  }

  const listed = layers
    .map((layer, i) => ({ name: layer.name, mean: means[i], value: at === null ? means[i] : (layer.values[at] ?? 0) }))
    .filter(({ mean, value }) => mean > 0 || value > 0);
  const atPx =
    at === null ? 0 : LEFT_PX + (((answer.first_ns + (at + 0.5) * answer.step_ns) / 1e9 - from) / (to - from)) * plotPx;
  return (
    <figure class="timeline" aria-label="Threads over time, by task">
      <div
        ref={box}
        class="plot brushed"
        aria-hidden="true"
        style={{ height: `${height}px` }}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          setBrush([pxOf(event), pxOf(event)]);
        }}
        onPointerMove={moved}
        onPointerUp={released}
        onPointerCancel={() => setBrush(null)}
        onPointerLeave={() => setAt(null)}
      >
        <canvas ref={canvas} />
        {at !== null && !brush && atPx >= LEFT_PX && <i class="cursor" style={{ left: `${atPx}px` }} />}
        {brush && (
          <i class="brush" style={{ left: `${Math.min(...brush)}px`, width: `${Math.abs(brush[1] - brush[0])}px` }} />
        )}
      </div>
      <figcaption class="legend">
        <span class="when" title="Averages over the part of the selected range that has data">
          {at === null
            ? `average ${measure === 'cpu' ? 'cores' : 'threads'}`
            : clock((answer.first_ns + at * answer.step_ns) / 1e6)}
        </span>
        {listed.map(({ name, value }) => (
          <span key={name}>
            <i class="dot" style={{ background: taskColor(name) }} />
            <bdi>{safeText(name, 28)}</bdi> {digits(value)}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}
