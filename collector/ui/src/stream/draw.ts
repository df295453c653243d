// Draws lanes. Where tasks are narrower than a pixel or two, their names would be coloured noise: there
// it is drawn how busy the lane was.

import type { Task } from '../core/api';
import { isDark, oklch, phaseColour, pixelOf, taskColour, variable } from '../core/colours';
import { shown } from '../core/names';
import { clock, timeStepMs } from '../core/time';
import { firstEndingAfter, type Lane, type Lanes } from './lanes';

export const AXIS_PX = 22;
/** Room for names of threads, on a wide and on a narrow canvas. */
export const GUTTER_PX = 132;
export const GUTTER_NARROW_PX = 64;

export interface StreamView {
  /** Milliseconds since the lanes' base. */
  from: number;
  to: number;
  top: number;
  lanePx: number;
  gutterPx: number;
  /** How long tasks of a name take mostly, in milliseconds. */
  typicalMs: Map<string, number>;
}

/** Tasks that are narrower are not drawn one by one. */
const TASK_PX_MIN = 1.5;
/** Most tasks that are drawn one by one: of more, wider ones only. They would be noise, and cost. */
const TASKS_DRAWN_MAX = 3000;
/** How finely busyness is drawn: this many pixels, in this many shades. */
const BUSY_PX = 4;
const SHADES = 8;

interface Inks {
  ground: string;
  line: string;
  soft: string;
  ink: string;
  text: string;
  /** From a little busy to all the time. */
  busy: string[];
}

/** Draws; answers how many rectangles that took. */
export function drawStream(canvas: HTMLCanvasElement, { lanes, baseMs }: Lanes, tasks: Task[], view: StreamView): number {
  const context = canvas.getContext('2d', { alpha: false });
  if (!context) return 0;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const scale = canvas.width / Math.max(1, width);
  const inks = { ground: variable('--panel'), line: variable('--line'), soft: variable('--soft'), ink: variable('--ink'), text: variable('--rect-text'), busy: shades() };
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = inks.ground;
  context.fillRect(0, 0, width, height);
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.direction = 'ltr';
  const first = Math.max(0, Math.floor(view.top / view.lanePx));
  const last = Math.min(lanes.length, Math.ceil((view.top + height) / view.lanePx));
  context.save();
  context.beginPath();
  context.rect(view.gutterPx, 0, width - view.gutterPx, height);
  context.clip();
  const perMs = (width - view.gutterPx) / (view.to - view.from);
  const seen: Seen = { lanes: lanes.slice(first, last), view, perMs, columns: Math.ceil((width - view.gutterPx) / BUSY_PX) };
  let { wide, pixels } = lookAt(seen, inks.busy, TASK_PX_MIN);
  for (let px = 2 * TASK_PX_MIN; wide.length > TASKS_DRAWN_MAX; px *= 2) ({ wide, pixels } = lookAt(seen, inks.busy, px));
  const isBusy = pixels !== undefined && seen.columns > 0;
  if (isBusy) {
    const picture = new OffscreenCanvas(seen.columns, seen.lanes.length);
    picture.getContext('2d')!.putImageData(new ImageData(new Uint8ClampedArray(pixels!.buffer), seen.columns, seen.lanes.length), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(picture, view.gutterPx, AXIS_PX + first * view.lanePx - view.top, seen.columns * BUSY_PX, seen.lanes.length * view.lanePx);
  }
  const gapPx = view.lanePx > 6 ? 2 : 0.5;
  for (const { row, task } of wide) {
    const lane = seen.lanes[row];
    const from = view.gutterPx + (lane.starts[task] - view.from) * perMs;
    const left = Math.max(from, view.gutterPx - 2);
    const right = view.gutterPx + (lane.ends[task] - view.from) * perMs;
    const y = AXIS_PX + (first + row) * view.lanePx - view.top;
    drawTask(context, tasks[lane.tasks[task]], { left, right, y, height: Math.max(1, view.lanePx - gapPx), perMs, clippedPx: left - from, typicalPx: (view.typicalMs.get(tasks[lane.tasks[task]].name) ?? 0) * perMs }, inks);
  }
  context.restore();
  for (let i = first; i < last; i++) {
    const y = AXIS_PX + i * view.lanePx - view.top;
    context.fillStyle = inks.ground;
    context.fillRect(view.gutterPx, y + view.lanePx - gapPx, width, gapPx);
    if (!lanes[i].first || i === 0) continue;
    context.fillStyle = inks.line;
    context.fillRect(0, y - 1, width, 1);
  }
  drawNames(context, lanes, view, { first, last, inks });
  drawAxis(context, baseMs, view, { width, inks });
  return wide.length + Number(isBusy);
}

/** The lanes that are seen, and how. */
interface Seen {
  lanes: Lane[];
  view: StreamView;
  perMs: number;
  /** How many stretches of `BUSY_PX` there are. */
  columns: number;
}

/** How busy each lane was where its tasks are narrow, as a picture with a pixel for each stretch: of a
 * million tasks this is a hundred thousand numbers, and one rectangle. Beside it the tasks that are wide
 * enough to be drawn one by one. */
function lookAt({ lanes, view, perMs, columns }: Seen, busy: string[], wideFromPx: number): { wide: { row: number; task: number }[]; pixels?: Uint32Array<ArrayBuffer> } {
  const wide: { row: number; task: number }[] = [];
  const pixels = new Uint32Array(columns * lanes.length);
  const paints = busy.map(pixelOf);
  const columnMs = BUSY_PX / perMs;
  let isBusy = false;
  lanes.forEach((lane, row) => {
    for (let i = firstEndingAfter(lane, view.from); i < lane.starts.length && lane.starts[i] < view.to; ) {
      if ((lane.ends[i] - Math.max(lane.starts[i], view.from)) * perMs >= wideFromPx) {
        wide.push({ row, task: i++ });
        continue;
      }
      const first = Math.max(0, Math.floor((lane.starts[i] - view.from) / columnMs));
      const last = Math.min(columns - 1, Math.floor((lane.ends[i] - view.from) / columnMs));
      for (let column = first; column <= last; column++) {
        const from = view.from + column * columnMs;
        const share = (busyUntil(lane, from + columnMs, i) - busyUntil(lane, from, Math.max(0, i - 1))) / columnMs;
        pixels[row * columns + column] = paints[Math.max(0, Math.min(SHADES - 1, Math.ceil(share * SHADES) - 1))];
      }
      isBusy = true;
      i = firstEndingAfter(lane, view.from + (last + 1) * columnMs, i + 1);
    }
  });
  return isBusy ? { wide, pixels } : { wide };
}

/** How long a lane was busy before a time. */
function busyUntil(lane: Lane, ms: number, from: number): number {
  const i = firstEndingAfter(lane, ms, from);
  return lane.busy[i] + (i < lane.starts.length ? Math.max(0, ms - lane.starts[i]) : 0);
}

function shades(): string[] {
  const [light, step] = isDark() ? [0.32, 0.055] : [0.92, -0.05];
  return Array.from({ length: SHADES }, (_, i) => oklch(light + i * step, 0.02 + i * 0.014, 50));
}

interface Box {
  left: number;
  right: number;
  y: number;
  height: number;
  perMs: number;
  /** How much of it is left of the canvas. */
  clippedPx: number;
  /** How wide such tasks are mostly; 0 if that is not known. */
  typicalPx: number;
}

/** The task's phases but executing, on its bar, so that this is what is seen of the rest. */
function drawPhases(context: CanvasRenderingContext2D, { phases = [], start_ns }: Task, { left, right, y, height, perMs, clippedPx }: Box): void {
  for (const phase of phases) {
    if (phase.name === 'execute') continue;
    const from = Math.max(left, left - clippedPx + ((phase.start_ns - start_ns) / 1e6) * perMs);
    const to = Math.min(right, left - clippedPx + ((phase.start_ns - start_ns + phase.duration_ns) / 1e6) * perMs);
    if (to - from < 0.5) continue;
    context.fillStyle = phaseColour(phase.name);
    context.fillRect(from, y, to - from, height);
  }
}

/** How a task ended is told by its shape too: failed is solid ink, unfinished or cut off is hollow. */
function drawTask(context: CanvasRenderingContext2D, task: Task, box: Box, inks: Inks): void {
  const { left, right, y, height } = box;
  const width = Math.max(0.5, right - left - (right - left > 2 ? 0.5 : 0));
  const isFailed = task.outcome === 'erred' || task.outcome === 'panicked';
  const isCut = task.outcome === 'cancelled' || task.outcome === 'lost';
  const colour = taskColour(task.name);
  context.fillStyle = isFailed ? inks.ink : colour;
  if (isCut) context.globalAlpha = 0.35;
  context.fillRect(left, y, width, height);
  context.globalAlpha = 1;
  if (!isFailed && task.phases !== undefined) drawPhases(context, task, box);
  if ((isCut || isFailed) && width > 3) {
    context.strokeStyle = colour;
    context.strokeRect(left + 0.5, y + 0.5, width - 1, height - 1);
  }
  if (task.outcome === 'running' && width > 4) {
    // Open to the right: it goes on.
    context.fillStyle = inks.ink;
    context.fillRect(left + width - 2, y, 2, height);
    const expected = left - box.clippedPx + box.typicalPx;
    if (expected > right + 2) {
      // Hollow, up to where such tasks mostly end.
      context.strokeStyle = colour;
      context.setLineDash([3, 3]);
      context.strokeRect(right + 0.5, y + 0.5, expected - right - 1, height - 1);
      context.setLineDash([]);
    }
  }
  if (width > 44 && height > 9) {
    const name = `${isFailed ? '✕ ' : ''}${shown(task.name, 60)}`;
    const letters = Math.floor((width - 8) / 6.2);
    context.fillStyle = isFailed ? inks.ground : inks.text;
    context.fillText(name.length <= letters ? name : `${name.slice(0, letters - 1)}…`, left + 4, y + height / 2 + 0.5);
  }
}

interface Range {
  first: number;
  last: number;
  inks: Inks;
}

function drawNames(context: CanvasRenderingContext2D, lanes: Lane[], view: StreamView, { first, last, inks }: Range): void {
  const letters = Math.floor((view.gutterPx - 10) / 6.1);
  let free = AXIS_PX;
  for (let i = first; i < last; i++) {
    const { worker, thread, first: isFirst } = lanes[i];
    const y = AXIS_PX + i * view.lanePx - view.top + view.lanePx / 2;
    const isNew = isFirst || i === first || lanes[i - 1].thread !== thread;
    // A name takes 11 pixels, however narrow the lanes are; a worker's comes first.
    if (!isNew || y < free + 5) continue;
    const text = isFirst || i === first ? `${shown(worker, 40)} ${shown(thread, 40)}` : shown(thread, 40);
    context.fillStyle = isFirst || i === first ? inks.ink : inks.soft;
    context.fillText(text.length <= letters ? text : `${text.slice(0, letters - 1)}…`, 4, y);
    free = y + 6;
  }
}

function drawAxis(context: CanvasRenderingContext2D, baseMs: number, view: StreamView, { width, inks }: { width: number; inks: Inks }): void {
  context.fillStyle = inks.ground;
  context.fillRect(0, 0, width, AXIS_PX);
  const perMs = (width - view.gutterPx) / (view.to - view.from);
  const step = timeStepMs(96 / perMs);
  const first = Math.ceil((baseMs + view.from) / step) * step;
  for (let ms = first; ms <= baseMs + view.to; ms += step) {
    const x = view.gutterPx + (ms - baseMs - view.from) * perMs;
    context.fillStyle = inks.line;
    context.fillRect(x, AXIS_PX - 4, 1, 4);
    context.fillStyle = inks.soft;
    if (x < width - 60) context.fillText(clock(ms, step < 1000), x + 3, AXIS_PX / 2);
  }
}
