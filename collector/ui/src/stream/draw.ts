// Draws lanes. Where tasks are narrower than a pixel or two, their names would be coloured noise: there
// it is drawn how busy the lane was.

import type { Task } from '../core/api';
import { asHex, isDark, taskColour, variable } from '../core/colours';
import { shown } from '../core/names';
import { clock } from '../core/time';
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
}

/** Tasks that are narrower are not drawn one by one. */
const TASK_PX_MIN = 1.5;
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
  let rects = 0;
  for (let i = first; i < last; i++) {
    const y = AXIS_PX + i * view.lanePx - view.top;
    context.save();
    context.beginPath();
    context.rect(view.gutterPx, 0, width - view.gutterPx, height);
    context.clip();
    rects += drawLane(context, lanes[i], tasks, view, { y, width, inks });
    context.restore();
    if (lanes[i].first && i > 0) {
      context.fillStyle = inks.line;
      context.fillRect(0, y - 1, width, 1);
    }
  }
  drawNames(context, lanes, view, { first, last, inks });
  drawAxis(context, baseMs, view, { width, inks });
  return rects;
}

interface At {
  y: number;
  width: number;
  inks: Inks;
}

function drawLane(context: CanvasRenderingContext2D, lane: Lane, tasks: Task[], view: StreamView, at: At): number {
  const perMs = (at.width - view.gutterPx) / (view.to - view.from);
  const place = (ms: number) => view.gutterPx + (ms - view.from) * perMs;
  const height = Math.max(1, view.lanePx - (view.lanePx > 6 ? 2 : 0.5));
  let rects = 0;
  // The stretch of one shade that is open.
  let [from, to, shade] = [0, 0, -1];
  const close = () => {
    if (shade >= 0) {
      context.fillStyle = at.inks.busy[shade];
      context.fillRect(from, at.y, to - from, height);
      rects++;
    }
    shade = -1;
  };
  for (let i = firstEndingAfter(lane, view.from); i < lane.starts.length && lane.starts[i] < view.to; ) {
    const left = Math.max(place(lane.starts[i]), view.gutterPx - 2);
    const right = place(lane.ends[i]);
    if (right - left >= TASK_PX_MIN) {
      close();
      drawTask(context, tasks[lane.tasks[i]], { left, right, y: at.y, height }, at.inks);
      rects++;
      i++;
      continue;
    }
    const next = firstEndingAfter(lane, view.from + (left - view.gutterPx + BUSY_PX) / perMs, i + 1);
    const end = Math.max(place(lane.ends[next - 1]), left + 1);
    const busy = ((lane.busy[next] - lane.busy[i]) * perMs) / (end - left);
    const now = Math.max(0, Math.min(SHADES - 1, Math.ceil(busy * SHADES) - 1));
    if (now !== shade || left - to > 1) {
      close();
      [from, shade] = [left, now];
    }
    to = end;
    i = next;
  }
  close();
  return rects;
}

function shades(): string[] {
  const [light, step] = isDark() ? [0.32, 0.055] : [0.92, -0.05];
  return Array.from({ length: SHADES }, (_, i) => asHex(`oklch(${light + i * step} ${0.02 + i * 0.014} 50)`));
}

interface Box {
  left: number;
  right: number;
  y: number;
  height: number;
}

/** How a task ended is told by its shape too: failed is solid ink, unfinished or cut off is hollow. */
function drawTask(context: CanvasRenderingContext2D, task: Task, { left, right, y, height }: Box, inks: Inks): void {
  const width = Math.max(0.5, right - left - (right - left > 2 ? 0.5 : 0));
  const isFailed = task.outcome === 'erred' || task.outcome === 'panicked';
  const isCut = task.outcome === 'cancelled' || task.outcome === 'lost';
  const colour = taskColour(task.name);
  context.fillStyle = isFailed ? inks.ink : colour;
  if (isCut) context.globalAlpha = 0.35;
  context.fillRect(left, y, width, height);
  context.globalAlpha = 1;
  if ((isCut || isFailed) && width > 3) {
    context.strokeStyle = colour;
    context.strokeRect(left + 0.5, y + 0.5, width - 1, height - 1);
  }
  if (task.outcome === 'running' && width > 4) {
    // Open to the right: it goes on.
    context.fillStyle = inks.ink;
    context.fillRect(left + width - 2, y, 2, height);
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

/** Steps of the time axis. */
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 6e5, 18e5, 36e5, 216e5, 864e5];

function drawAxis(context: CanvasRenderingContext2D, baseMs: number, view: StreamView, { width, inks }: { width: number; inks: Inks }): void {
  context.fillStyle = inks.ground;
  context.fillRect(0, 0, width, AXIS_PX);
  const perMs = (width - view.gutterPx) / (view.to - view.from);
  const step = STEPS_MS.find((ms) => ms * perMs >= 96) ?? 864e5;
  const first = Math.ceil((baseMs + view.from) / step) * step;
  for (let ms = first; ms <= baseMs + view.to; ms += step) {
    const x = view.gutterPx + (ms - baseMs - view.from) * perMs;
    context.fillStyle = inks.line;
    context.fillRect(x, AXIS_PX - 4, 1, 4);
    context.fillStyle = inks.soft;
    if (x < width - 60) context.fillText(clock(ms, step < 1000), x + 3, AXIS_PX / 2);
  }
}
