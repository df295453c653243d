// Draws a layout on a canvas. The cost is bounded by pixels: nodes narrower than half a pixel are
// joined to runs, found by galloping search instead of node by node.

import {
  changeColor,
  crateColor,
  isDark,
  matchColor,
  phaseColor,
  pixelOf,
  stateColor,
  taskColor,
  variable,
} from '../core/colors';
import { middleCut } from '../core/names';
import type { Size } from '../core/size';
import { STATES } from '../core/states';
import { labelOf } from './label';
import { AFTER, BEFORE, type Functions, type Layout, NO_FUNCTION, STATE_COUNT } from './layout';
import { phasesOf } from './transform';

export const ROW_PX = 19;
const FONT_PX = 11.5;
/** Narrower nodes get no label: it would be a letter and an ellipsis. */
const TEXT_PX_MIN = 34;

export const COLORINGS = ['crate', 'state', 'phase', 'diff'] as const;
/** `diff` is for comparisons, `phase` for profiles that are split by phase. */
export type Coloring = (typeof COLORINGS)[number];

/** The visible part of a layout. */
export interface View {
  /** Nanoseconds from the left, at the canvas's left and right edge. */
  from: number;
  to: number;
  /** The canvas's top edge, in pixels from the first row. */
  top: number;
  /** Whether the root is at the bottom. */
  upward: boolean;
  coloring: Coloring;
  /** Functions that match a search; others are drawn pale. */
  matched: Uint8Array | undefined;
}

/** Colors as pixels. */
interface Paint {
  full: number;
  pale: number;
}

/** Colors and labels of functions, computed once per profile and theme. */
export class Painter {
  private readonly paints: Paint[];
  private readonly labels: (string | undefined)[];
  private readonly states: number[];
  private readonly ground: string;
  private readonly text: string;
  private readonly run: number;
  private readonly match: number;
  private readonly rootFill: number;
  private readonly phasePaints: (number | undefined)[];
  /** The phase of each node of the layout that was drawn last. */
  private phases: { of: Layout; fn: Uint32Array } | undefined;
  private picture = new OffscreenCanvas(1, 1);

  constructor(
    private readonly functions: Functions,
    private readonly rootLabel: string,
  ) {
    const pale = pixelOf(isDark() ? '#2c2a28' : '#efebe6');
    const other = { full: pixelOf(isDark() ? '#4a4744' : '#cfc9c1'), pale };
    const crates = new Map<string, Paint>();
    this.paints = functions.names.map((name, fn) => {
      const kind = functions.kinds[fn];
      if (kind === 'task') return { full: pixelOf(taskColor(name)), pale };
      if (kind === 'phase') return { full: pixelOf(phaseColor(name)), pale };
      if (kind !== 'function' && kind !== 'unresolved') return other;
      let paint = crates.get(functions.crates[fn]);
      if (!paint) {
        const color = crateColor(functions.crates[fn]);
        paint = { full: pixelOf(color.full), pale: pixelOf(color.pale) };
        crates.set(functions.crates[fn], paint);
      }
      return paint;
    });
    this.labels = Array<string | undefined>(functions.names.length);
    this.states = STATES.map((state) => pixelOf(stateColor(state)));
    this.phasePaints = functions.kinds.map((kind, fn) =>
      kind === 'phase' ? pixelOf(phaseColor(functions.names[fn])) : undefined,
    );
    this.ground = variable('--panel');
    this.text = variable('--rect-text');
    this.run = pixelOf(isDark() ? '#4d4a46' : '#cdc6bd');
    this.match = pixelOf(matchColor());
    this.rootFill = pixelOf(isDark() ? '#3a3734' : '#e2dcd4');
  }

  /** A function's label, with its file if the name alone is ambiguous. */
  label(fn: number): string {
    this.labels[fn] ??= labelOf(this.functions, fn);
    return this.labels[fn];
  }

  /**
   * Draws and returns the number of rectangles. Draws them into an image with one line of pixels per
   * row, then scales it to the height of rows: thousands of fillRect calls took three times as long,
   * half of it in the browser's compositor.
   */
  draw(canvas: HTMLCanvasElement, { width, height }: Size, layout: Layout, view: View): number {
    const context = canvas.getContext('2d', { alpha: false });
    if (!context || canvas.width === 0) return 0;
    const scale = canvas.width / Math.max(1, width);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = this.ground;
    context.fillRect(0, 0, width, height);
    const rows = layout.rowStarts.length - 1;
    const first = Math.max(0, Math.floor(view.top / ROW_PX));
    const last = Math.min(rows, Math.ceil((view.top + height) / ROW_PX));
    if (last <= first) return 0;
    const picture = new ImageData(canvas.width, last - first);
    const pixels = new Uint32Array(picture.data.buffer);
    const labels: Label[] = [];
    let rects = 0;
    for (let line = first; line < last; line++) {
      const row = view.upward ? rows - 1 - line : line;
      rects += this.drawRow({
        pixels,
        start: (line - first) * canvas.width,
        columns: canvas.width,
        layout,
        view,
        row,
        scale,
        y: line * ROW_PX - view.top,
        labels,
      });
    }
    if (this.picture.width !== picture.width) this.picture.width = picture.width;
    if (this.picture.height !== picture.height) this.picture.height = picture.height;
    this.picture.getContext('2d')!.putImageData(picture, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture, 0, first * ROW_PX - view.top, width, (last - first) * ROW_PX);
    for (let line = first; line < last; line++) context.fillRect(0, (line + 1) * ROW_PX - 1 - view.top, width, 1);
    this.write(context, labels);
    return rects;
  }

  private drawRow(at: RowAt): number {
    const { pixels, start, columns, layout, view, row } = at;
    const { x, total, rowNodes } = layout;
    const perNs = columns / (view.to - view.from);
    const stop = layout.rowStarts[row + 1];
    let i = firstEndingAfter(layout, layout.rowStarts[row], stop, view.from);
    let rects = 0;
    // The open run: adjacent narrow nodes are one rectangle.
    let [runFrom, runTo] = [0, -1];
    const closeRun = () => {
      if (runTo <= runFrom) return;
      pixels.fill(this.run, start + runFrom, start + Math.min(columns, runTo));
      rects++;
      runTo = -1;
    };
    while (i < stop) {
      const node = rowNodes[i];
      const left = (x[node] - view.from) * perNs;
      if (left >= columns) break;
      if (total[node] * perNs >= NARROW) {
        closeRun();
        this.drawNode(at, node, Math.max(0, left), Math.min(columns, left + total[node] * perNs));
        rects++;
        i++;
        continue;
      }
      // All nodes that end within this pixel are one rectangle.
      const from = Math.max(0, Math.floor(left));
      const next = firstEndingAfter(layout, i + 1, stop, view.from + (from + 1) / perNs);
      if (from > runTo) {
        closeRun();
        runFrom = from;
      }
      runTo = from + 1;
      i = next;
    }
    closeRun();
    return rects;
  }

  /** The color of a node, if it is not its function's. */
  private fill(layout: Layout, node: number, coloring: Coloring): number | undefined {
    if (coloring === 'crate') return undefined;
    if (coloring === 'state') return this.states[heaviestState(layout, node)];
    if (coloring === 'diff') {
      const at = node * STATE_COUNT;
      return pixelOf(changeColor(layout.states[at + BEFORE], layout.states[at + AFTER]));
    }
    if (this.phases?.of !== layout) this.phases = { of: layout, fn: phasesOf(layout, this.functions.kinds) };
    const phase = this.phases.fn[node];
    return phase === NO_FUNCTION ? undefined : this.phasePaints[phase];
  }

  private drawNode(at: RowAt, node: number, left: number, right: number): void {
    const { pixels, start, columns, layout, view, scale, y, labels } = at;
    const fn = layout.fn[node];
    const isMatch = view.matched !== undefined && fn !== NO_FUNCTION && view.matched[fn] === 1;
    const isPale = view.matched !== undefined && !isMatch;
    const paint = fn === NO_FUNCTION ? undefined : this.paints[fn];
    const fill = isMatch
      ? this.match
      : !paint
        ? this.rootFill
        : isPale
          ? paint.pale
          : (this.fill(layout, node, view.coloring) ?? paint.full);
    const first = Math.min(columns - 1, Math.round(left));
    const last = Math.max(first + 1, Math.round(right));
    // Leave a pixel between wide neighbors.
    pixels.fill(fill, start + first, start + (last - first > 3 ? last - 1 : last));
    if (right - left >= TEXT_PX_MIN * scale)
      labels.push({ fn, x: left / scale, y, width: (right - left) / scale, isPale });
  }

  private write(context: CanvasRenderingContext2D, labels: Label[]): void {
    context.font = `${FONT_PX}px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace`;
    context.textBaseline = 'middle';
    context.direction = 'ltr';
    context.fillStyle = this.text;
    const letter = context.measureText('M').width;
    for (const { fn, x, y, width, isPale } of labels) {
      const room = Math.floor((width - 8) / letter);
      const label = fn === NO_FUNCTION ? this.rootLabel : this.label(fn);
      context.globalAlpha = isPale ? 0.55 : 1;
      context.fillText(middleCut(label, room), x + 4, y + ROW_PX / 2);
    }
    context.globalAlpha = 1;
  }
}

/** Nodes narrower than this, in device pixels, are joined to runs. */
const NARROW = 0.5;

interface RowAt {
  pixels: Uint32Array;
  /** First pixel of the row, and how many there are. */
  start: number;
  columns: number;
  layout: Layout;
  view: View;
  row: number;
  /** Device pixels per CSS pixel. */
  scale: number;
  /** The row's top edge on the canvas. */
  y: number;
  labels: Label[];
}

interface Label {
  fn: number;
  x: number;
  y: number;
  width: number;
  isPale: boolean;
}

export function heaviestState(layout: Layout, node: number): number {
  let heaviest = 0;
  const at = node * STATE_COUNT;
  for (let s = 1; s < STATE_COUNT; s++) if (layout.states[at + s] > layout.states[at + heaviest]) heaviest = s;
  return heaviest;
}

/**
 * The first node of the row's range `from..to` that ends after `position`. Galloping search: near
 * nodes are found in a few steps.
 */
function firstEndingAfter(layout: Layout, from: number, to: number, position: number): number {
  const { x, total, rowNodes } = layout;
  const ends = (i: number) => x[rowNodes[i]] + total[rowNodes[i]] > position;
  let low = from;
  let high = from;
  for (let step = 1; high < to && !ends(high); step *= 2) {
    low = high + 1;
    high += step;
  }
  high = Math.min(high, to);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The node at a point of the canvas, or -1. */
export function nodeAt(layout: Layout, view: View, width: number, px: number, py: number): number {
  const rows = layout.rowStarts.length - 1;
  const line = Math.floor((py + view.top) / ROW_PX);
  if (line < 0 || line >= rows) return -1;
  const row = view.upward ? rows - 1 - line : line;
  const at = view.from + (px / width) * (view.to - view.from);
  const stop = layout.rowStarts[row + 1];
  const i = firstEndingAfter(layout, layout.rowStarts[row], stop, at);
  if (i >= stop) return -1;
  const node = layout.rowNodes[i];
  return layout.x[node] <= at ? node : -1;
}
