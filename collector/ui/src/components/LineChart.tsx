// A line chart of one measure, with a line per worker.

import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { onTheme, variable } from '../core/colors';
import { axisLabels, duration, timeAxis } from '../core/time';

export interface Line {
  name: string;
  /** A color, or the name of a variable of the style sheet. */
  color: string;
  /** Unix seconds in ascending order, and the values; `null` is a gap. */
  times: number[];
  values: (number | null)[];
}

interface Properties {
  lines: Line[];
  label: string;
  height: number;
  /** A value that is drawn as a dashed line, unless all others are far below. */
  limit?: number | undefined;
  /** Whether times are relative to a start instead of absolute. */
  isAligned: boolean;
  /** Whether each value has a dot, for lines with gaps. */
  hasPoints?: boolean;
  written(value: number): string;
  onSelect?(fromS: number, toS: number): void;
}

/** The union of all times, and each line's values at them. */
function columns(lines: Line[]): uPlot.AlignedData {
  const times = [...new Set(lines.flatMap((line) => line.times))].sort((a, b) => a - b);
  const place = new Map(times.map((time, at) => [time, at]));
  const values = lines.map((line) => {
    const column: (number | null | undefined)[] = Array(times.length).fill(undefined);
    line.times.forEach((time, i) => (column[place.get(time)!] = line.values[i]));
    return column;
  });
  return [times, ...values] as uPlot.AlignedData;
}

/** A limit is in the picture if it is at most this many times the largest value. */
const LIMIT_FACTOR_MAX = 4;

/** The top of the chart. */
const topOf = (most: number, limit = 0) =>
  (limit <= LIMIT_FACTOR_MAX * most ? Math.max(limit, most) : most) * 1.08 || 1;

export function LineChart({ lines, limit, label, height, isAligned, hasPoints, written, onSelect }: Properties) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const select = useRef(onSelect);
  const [theme, setTheme] = useState(0);
  select.current = onSelect;
  // Names may contain any character, so they are joined as JSON.
  const names = JSON.stringify(lines.map(({ name, color }) => [name, color]));
  useEffect(() => onTheme(() => setTheme((count) => count + 1)), []);
  useEffect(() => {
    const element = box.current!;
    const axis = {
      stroke: variable('--soft'),
      grid: { stroke: variable('--line'), width: 1 },
      ticks: { show: false },
      font: '11px system-ui, sans-serif',
    };
    const drawn = new uPlot(
      {
        width: element.clientWidth,
        height,
        padding: [8, 38, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: onSelect !== undefined, y: false, setScale: false, dist: 4 }, points: { show: false } },
        scales: {
          x: { time: !isAligned, range: (_u, first, last) => timeAxis(first, last) },
          y: { range: (_u, _min, max) => [0, topOf(max ?? 0, limit)] },
        },
        axes: [
          {
            ...axis,
            values: (_u, splits, _axis, _space, step) =>
              isAligned
                ? splits.map((s) => duration(s * 1e9))
                : axisLabels(
                    splits.map((s) => s * 1000),
                    step * 1000,
                  ),
            space: 90,
            size: 26,
          },
          {
            ...axis,
            values: (_u, splits) => splits.map(written).map((text, i, all) => (text === all[i - 1] ? '' : text)),
            size: 66,
            space: 26,
          },
        ],
        series: [
          {},
          ...(JSON.parse(names) as [string, string][]).map(([name, stroke]) => ({
            label: name,
            stroke: stroke.startsWith('--') ? variable(stroke) : stroke,
            width: 1.5,
            points: { show: hasPoints ?? false, size: 4 },
          })),
        ],
        hooks: {
          draw: [
            ({ ctx, bbox, valToPos, scales }) => {
              if (limit === undefined || limit > (scales.y.max ?? 0)) return;
              const y = Math.round(valToPos(limit, 'y', true)) + 0.5;
              ctx.save();
              ctx.strokeStyle = variable('--bad');
              ctx.setLineDash([6, 4]);
              ctx.beginPath();
              ctx.moveTo(bbox.left, y);
              ctx.lineTo(bbox.left + bbox.width, y);
              ctx.stroke();
              ctx.restore();
            },
          ],
          setSelect: [
            (u) => {
              if (u.select.width < 4) return;
              const from = u.posToVal(u.select.left, 'x');
              const to = u.posToVal(u.select.left + u.select.width, 'x');
              u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
              select.current?.(Math.floor(from), Math.max(Math.floor(from) + 1, Math.ceil(to)));
            },
          ],
        },
      },
      columns(lines),
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
  }, [names, theme, height, isAligned, limit]);
  useEffect(() => plot.current?.setData(columns(lines)), [lines]);
  return (
    <figure class="timeline" aria-label={label}>
      <div ref={box} class="plot" aria-hidden="true" />
    </figure>
  );
}
