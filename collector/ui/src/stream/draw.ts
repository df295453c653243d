// Draws the task stream. Tasks narrower than a pixel or two would be colored noise, so the lane's
// utilization is drawn there instead.

import type { Task } from '../core/api';
import { BUSY_SHADES, busyShades, failedColor, isDark, phaseColor, pixelOf, taskColor, variable } from '../core/colors';
import { middleCut, safeText } from '../core/names';
import type { Size } from '../core/size';
import { axisLabels, ticksMs, timeStepMs } from '../core/time';
import type { TaskColumns } from './columns';
import { firstEndingAfter, type Lane, type Line } from './lanes';

export const AXIS_PX = 22;
/** Width of the thread names, on a wide and on a narrow canvas. */
export const GUTTER_PX = 132;
export const GUTTER_NARROW_PX = 64;

export interface StreamView {
  /** Milliseconds since the rows' base. */
  from: number;
  to: number;
  top: number;
  lanePx: number;
  gutterPx: number;
  /** Typical duration by task name, in milliseconds. */
  typicalMs: Map<string, number>;
}

/** Narrower tasks are not drawn individually. */
const TASK_PX_MIN = 1.5;
/** Limit on tasks drawn individually; if there are more, only wider ones are. */
const TASKS_DRAWN_MAX = 3000;
/** Pixels per step of the utilization. */
const BUSY_PX = 4;

interface Inks {
  ground: string;
  line: string;
  soft: string;
  ink: string;
  text: string;
  /** Shades from low to full utilization. */
  busy: string[];
}

/** Input of a drawing: lines of lanes, and full records of some tasks. */
export interface Scene {
  /** Size of the canvas in CSS pixels. */
  size: Size;
  lines: Line[];
  rows: TaskColumns;
  record(task: number): Task | undefined;
}

/** Draws, and returns the number of rectangles and how many of them are tasks. */
export function drawStream(
  canvas: HTMLCanvasElement,
  { size, lines, rows, record }: Scene,
  view: StreamView,
): { rects: number; tasks: number } {
  const context = canvas.getContext('2d', { alpha: false });
  if (!context) return { rects: 0, tasks: 0 };
  const { width, height } = size;
  const scale = canvas.width / Math.max(1, width);
  const inks = {
    ground: variable('--panel'),
    line: variable('--line'),
    soft: variable('--soft'),
    ink: variable('--ink'),
    text: variable('--rect-text'),
    busy: busyShades(),
  };
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = inks.ground;
  context.fillRect(0, 0, width, height);
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.direction = 'ltr';
  const first = Math.max(0, Math.floor(view.top / view.lanePx));
  const last = Math.min(lines.length, Math.ceil((view.top + height) / view.lanePx));
  context.save();
  context.beginPath();
  context.rect(view.gutterPx, 0, width - view.gutterPx, height);
  context.clip();
  const perMs = (width - view.gutterPx) / (view.to - view.from);
  const columns = Math.max(1, Math.round((width - view.gutterPx) * scale));
  const viewport: Viewport = {
    lines: lines.slice(first, last),
    view,
    perMs,
    columns,
    scale,
    paints: inks.busy.map(pixelOf),
    pixels: new Uint32Array(columns * (last - first)),
  };
  const bars = drawBusyLines(viewport).map(({ row, lane, at }): Bar => {
    const task = lane.tasks[at];
    const left = (lane.starts[at] - view.from) * perMs;
    return {
      row,
      name: rows.names[rows.name[task]],
      outcome: rows.outcomes[rows.outcome[task]],
      record: record(task),
      left,
      right: left + Math.max(0.5, (lane.ends[at] - lane.starts[at]) * perMs),
    };
  });
  for (const bar of bars) fillBar(viewport, bar);
  if (viewport.lines.length > 0) {
    // One image with a line of pixels per lane, as in the flame graph.
    const picture = new OffscreenCanvas(columns, viewport.lines.length);
    picture
      .getContext('2d')!
      .putImageData(new ImageData(new Uint8ClampedArray(viewport.pixels.buffer), columns, viewport.lines.length), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(
      picture,
      view.gutterPx,
      AXIS_PX + first * view.lanePx - view.top,
      columns / scale,
      viewport.lines.length * view.lanePx,
    );
  }
  const gapPx = view.lanePx > 6 ? 2 : 0.5;
  context.translate(view.gutterPx, 0);
  for (const bar of bars)
    drawShape(
      context,
      bar,
      {
        y: AXIS_PX + (first + bar.row) * view.lanePx - view.top,
        height: Math.max(1, view.lanePx - gapPx),
        typicalPx: (view.typicalMs.get(bar.name) ?? 0) * perMs,
      },
      inks,
    );
  context.restore();
  context.fillStyle = inks.ground;
  for (let i = first; i < last; i++)
    context.fillRect(view.gutterPx, AXIS_PX + (i + 1) * view.lanePx - view.top - gapPx, width, gapPx);
  context.fillStyle = inks.line;
  for (let i = Math.max(1, first); i < last; i++)
    if (lines[i].first) context.fillRect(0, AXIS_PX + i * view.lanePx - view.top - 1, width, 1);
  drawNames(context, lines, view, { first, last, inks });
  drawAxis(context, rows.baseMs, view, { width, inks });
  return { rects: bars.length + 1, tasks: bars.length };
}

/** The visible lines and their image, one line of pixels each. */
interface Viewport {
  lines: Line[];
  view: StreamView;
  perMs: number;
  /** Device pixels per line, and per CSS pixel. */
  columns: number;
  scale: number;
  /** Shades as pixels. */
  paints: number[];
  pixels: Uint32Array<ArrayBuffer>;
}

interface WideTask {
  row: number;
  lane: Lane;
  at: number;
  px: number;
}

/**
 * Draws the utilization of each line where its tasks are narrow; for a million tasks these are 100,000
 * numbers. Returns the tasks that are wide enough to be drawn individually.
 */
function drawBusyLines(viewport: Viewport): WideTask[] {
  const { lines } = viewport;
  const wide: WideTask[] = [];
  lines.forEach((line, row) => {
    if (line.isCollapsed) {
      drawCollapsed(viewport, line, row);
      return;
    }
    drawBusyLane(viewport, line.lanes[0], row, wide);
  });
  // If too many are wide, keep the wider ones.
  let least = TASK_PX_MIN;
  let selected = wide;
  while (selected.length > TASKS_DRAWN_MAX) {
    least *= 2;
    selected = selected.filter(({ px }) => px >= least);
  }
  if (selected !== wide) for (const { row, lane, at, px } of wide) if (px < least) drawBusy(viewport, lane, at, row);
  return selected;
}

/** Draws one lane in steps. In each step, only its last task is searched. */
function drawBusyLane(viewport: Viewport, lane: Lane, row: number, wide: WideTask[]): void {
  const { view, perMs, paints } = viewport;
  const { starts, ends, busy } = lane;
  const stepMs = BUSY_PX / perMs;
  // The end of the step that was drawn last, and the lane's busy time before it.
  let [done, busyMs] = [-1, 0];
  for (let i = firstEndingAfter(lane, view.from); i < starts.length && starts[i] < view.to; ) {
    const px = (ends[i] - Math.max(starts[i], view.from)) * perMs;
    if (px >= TASK_PX_MIN) {
      wide.push({ row, lane, at: i++, px });
      continue;
    }
    const step = Math.max(done + 1, Math.floor((starts[i] - view.from) / stepMs));
    const from = view.from + step * stepMs;
    const until = view.from + (step + 1) * stepMs;
    const before = step > 0 && step === done + 1 ? busyMs : busyUntil(lane, from, Math.max(0, i - 1));
    i = firstEndingAfter(lane, until, i);
    busyMs = busy[i] + (i < starts.length ? Math.max(0, until - starts[i]) : 0);
    fill(viewport, row, step * BUSY_PX, (step + 1) * BUSY_PX, shadeOf((busyMs - before) / stepMs, paints));
    done = step;
  }
}

/** Shades the steps in which a task lies. */
function drawBusy(viewport: Viewport, lane: Lane, task: number, row: number): void {
  const { view, perMs } = viewport;
  const stepMs = BUSY_PX / perMs;
  const first = Math.max(0, Math.floor((lane.starts[task] - view.from) / stepMs));
  const last = Math.floor((Math.min(view.to, lane.ends[task]) - view.from) / stepMs);
  for (let step = first; step <= last; step++) {
    const from = view.from + step * stepMs;
    const share = (busyUntil(lane, from + stepMs, task) - busyUntil(lane, from, Math.max(0, task - 1))) / stepMs;
    fill(viewport, row, step * BUSY_PX, (step + 1) * BUSY_PX, shadeOf(share, viewport.paints));
  }
}

/** Draws the utilization of a collapsed worker, averaged over its threads. */
function drawCollapsed(viewport: Viewport, { lanes }: Line, row: number): void {
  const { view, perMs, columns, scale, paints } = viewport;
  const stepMs = BUSY_PX / perMs;
  const sums = new Float64Array(Math.ceil(columns / scale / BUSY_PX));
  for (const lane of lanes) {
    let i = firstEndingAfter(lane, view.from);
    let before = busyUntil(lane, view.from, i);
    for (let step = 0; step < sums.length; step++) {
      const until = view.from + (step + 1) * stepMs;
      i = firstEndingAfter(lane, until, i);
      const now = busyUntil(lane, until, i);
      sums[step] += (now - before) / stepMs;
      before = now;
    }
  }
  const threads = new Set(lanes.map(({ threadIndex }) => threadIndex)).size;
  sums.forEach((sum, step) => {
    if (sum > 0) fill(viewport, row, step * BUSY_PX, (step + 1) * BUSY_PX, shadeOf(sum / threads, paints));
  });
}

const shadeOf = (share: number, paints: number[]) =>
  paints[Math.max(0, Math.min(BUSY_SHADES - 1, Math.ceil(share * BUSY_SHADES) - 1))];

/** Fills a part of a line, in CSS pixels from its left. */
function fill({ pixels, columns, scale }: Viewport, row: number, from: number, to: number, color: number): void {
  const first = Math.max(0, Math.round(from * scale));
  const last = Math.min(columns, Math.round(to * scale));
  for (let column = first; column < last; column++) pixels[row * columns + column] = color;
}

/** The lane's busy time before a time. */
function busyUntil(lane: Lane, ms: number, from: number): number {
  const i = firstEndingAfter(lane, ms, from);
  return lane.busy[i] + (i < lane.starts.length ? Math.max(0, ms - lane.starts[i]) : 0);
}

/** A task to draw, in CSS pixels from the lanes' left. Phases are drawn if its record is known. */
interface Bar {
  row: number;
  name: string;
  outcome: string;
  record: Task | undefined;
  left: number;
  right: number;
}

const isFailed = ({ outcome }: Bar) => outcome === 'failed' || outcome === 'panicked';
const isIncomplete = ({ outcome }: Bar) => outcome === 'cancelled' || outcome === 'lost';

/** Fills a task's bar and its phases other than executing, whose color is the bar's. */
function fillBar(viewport: Viewport, bar: Bar): void {
  const { row, name, left, right, record } = bar;
  // Leave a pixel after wide bars, so that neighbors stay apart.
  const end = Math.max(left + 1 / viewport.scale, right - left > 3 ? right - 1 / viewport.scale : right);
  const own = pixelOf(isFailed(bar) ? failedColor() : taskColor(name));
  fill(viewport, row, left, end, isIncomplete(bar) ? paled(own) : own);
  if (isFailed(bar)) return;
  for (const phase of record?.phases ?? []) {
    if (phase.name === 'execute') continue;
    const from = left + ((phase.start_ns - record!.start_ns) / 1e6) * viewport.perMs;
    fill(
      viewport,
      row,
      Math.max(left, from),
      Math.min(end, from + (phase.duration_ns / 1e6) * viewport.perMs),
      pixelOf(phaseColor(phase.name)),
    );
  }
}

/** A third of a color on the background. */
function paled(pixel: number): number {
  const ground = pixelOf(isDark() ? '#1e1b19' : '#ffffff');
  const part = (shift: number) =>
    Math.round(0.35 * ((pixel >>> shift) & 255) + 0.65 * ((ground >>> shift) & 255)) << shift;
  return ((255 << 24) | part(16) | part(8) | part(0)) >>> 0;
}

/**
 * Shapes show how a task ended, in addition to colors: failed is solid, cancelled has an outline, lost a
 * dashed one.
 */
function drawShape(
  context: CanvasRenderingContext2D,
  bar: Bar,
  { y, height, typicalPx }: { y: number; height: number; typicalPx: number },
  inks: Inks,
): void {
  const { name, outcome, right } = bar;
  const left = Math.max(bar.left, -2);
  const width = right - left - 0.5;
  if (width <= 3) return;
  if (isIncomplete(bar) || isFailed(bar)) {
    context.strokeStyle = taskColor(name);
    context.setLineDash(outcome === 'lost' ? [3, 2] : []);
    context.strokeRect(left + 0.5, y + 0.5, width - 1, height - 1);
    context.setLineDash([]);
  }
  if (outcome === 'running' && width > 4) {
    // A running task is open to the right.
    context.fillStyle = inks.ink;
    context.fillRect(left + width - 2, y, 2, height);
    const expected = bar.left + typicalPx;
    if (expected > right + 2) {
      // Hollow up to the typical end of such tasks.
      context.strokeStyle = taskColor(name);
      context.setLineDash([3, 3]);
      context.strokeRect(right + 0.5, y + 0.5, expected - right - 1, height - 1);
      context.setLineDash([]);
    }
  }
  if (width > 44 && height > 9) {
    const text = `${isFailed(bar) ? '✕ ' : ''}${safeText(name, 60)}`;
    const letters = Math.floor((width - 8) / 6.2);
    context.fillStyle = isFailed(bar) ? inks.ground : inks.text;
    context.fillText(middleCut(text, letters), left + 4, y + height / 2 + 0.5);
  }
}

interface Range {
  first: number;
  last: number;
  inks: Inks;
}

/** Height of a name, regardless of the lines' height. Names of workers come first. */
const NAME_PX = 11;

function drawNames(
  context: CanvasRenderingContext2D,
  lines: Line[],
  view: StreamView,
  { first, last, inks }: Range,
): void {
  const letters = Math.floor((view.gutterPx - 10) / 6.1);
  const usedRows: number[] = [];
  const write = (i: number, text: string, ink: string) => {
    const y = Math.max(AXIS_PX + NAME_PX / 2, AXIS_PX + i * view.lanePx - view.top + view.lanePx / 2);
    if (usedRows.some((other) => Math.abs(other - y) < NAME_PX)) return;
    usedRows.push(y);
    context.fillStyle = ink;
    context.fillText(middleCut(text, letters), 4, y);
  };
  for (let i = first; i < last; i++) {
    const { lanes, worker, isCollapsed } = lines[i];
    if (lines[i].first || i === first)
      write(
        i,
        `${isCollapsed ? '▸' : '▾'} ${safeText(worker, 40)}${isCollapsed || view.gutterPx < GUTTER_PX ? '' : ` ${safeText(lanes[0].thread, 40)}`}`,
        inks.ink,
      );
  }
  for (let i = first + 1; i < last; i++) {
    const [lane] = lines[i].lanes;
    if (lines[i].first) continue;
    // A thread with tasks at once has several lanes.
    const isSame = lines[i - 1].lanes[0].threadIndex === lane.threadIndex;
    write(i, isSame ? '  ↳' : safeText(lane.thread, 40), inks.soft);
  }
}

function drawAxis(
  context: CanvasRenderingContext2D,
  baseMs: number,
  view: StreamView,
  { width, inks }: { width: number; inks: Inks },
): void {
  context.fillStyle = inks.ground;
  context.fillRect(0, 0, width, AXIS_PX);
  const perMs = (width - view.gutterPx) / (view.to - view.from);
  const step = timeStepMs(96 / perMs);
  const ticks = ticksMs(baseMs + view.from, baseMs + view.to, step);
  axisLabels(ticks, step).forEach((text, i) => {
    const x = view.gutterPx + (ticks[i] - baseMs - view.from) * perMs;
    context.fillStyle = inks.line;
    context.fillRect(x, AXIS_PX - 4, 1, 4);
    context.fillStyle = inks.soft;
    if (x + 6 * text.length < width) context.fillText(text, x + 3, AXIS_PX / 2);
  });
}
