// Draws a layout on a canvas. What it costs is bounded by pixels: nodes narrower than half a pixel
// are joined to runs, which are found by galloping and not node by node.

import { changeColour, crateColour, isDark, phaseColour, stateColour, taskColour, variable } from '../core/colours';
import { shown, shortFile, withoutGenerics } from '../core/names';
import { STATES } from '../core/states';
import { phasesOf } from './change';
import { AFTER, BEFORE, NO_FUNCTION, STATE_COUNT, type Functions, type Layout } from './layout';

export const ROW_PX = 19;
const FONT_PX = 11.5;
/** Narrower than this, text would be a letter and an ellipsis. */
const TEXT_PX_MIN = 34;

export const COLOURINGS = ['crate', 'state', 'phase', 'diff'] as const;
/** `diff` is of comparisons only, `phase` of profiles that are split by phase. */
export type Colouring = (typeof COLOURINGS)[number];

/** What part of a layout is on the canvas. */
export interface View {
  /** Nanoseconds from the left, at the canvas's left and right edge. */
  from: number;
  to: number;
  /** The canvas's upper edge, in pixels from the uppermost row's. */
  top: number;
  /** Whether the root is at the bottom. */
  upward: boolean;
  colouring: Colouring;
  /** Functions that a search found; all others are drawn pale. */
  found: Uint8Array | undefined;
}

interface Paint {
  full: string;
  pale: string;
}

/** Colours and labels of functions, made once for a profile and theme. */
export class Painter {
  private readonly paints: Paint[];
  private readonly labels: (string | undefined)[];
  private readonly states: string[];
  private readonly ground: string;
  private readonly text: string;
  private readonly run: string;
  private readonly match: string;
  private readonly rootFill: string;
  private readonly phasePaints: (string | undefined)[];
  /** The phase of each node of the layout that was drawn last. */
  private phases: { of: Layout; fn: Uint32Array } | undefined;

  constructor(
    private readonly functions: Functions,
    private readonly rootLabel: string,
  ) {
    const pale = isDark() ? '#2c2a28' : '#efebe6';
    const crates = new Map<string, Paint>();
    this.paints = functions.names.map((name, fn) => {
      const kind = functions.kinds[fn];
      if (kind === 'task') return { full: taskColour(name), pale };
      if (kind === 'phase') return { full: phaseColour(name), pale };
      if (kind !== 'function' && kind !== 'unresolved') return { full: isDark() ? '#4a4744' : '#cfc9c1', pale };
      let paint = crates.get(functions.crates[fn]);
      if (!paint) crates.set(functions.crates[fn], (paint = crateColour(functions.crates[fn])));
      return paint;
    });
    this.labels = Array<string | undefined>(functions.names.length);
    this.states = STATES.map(stateColour);
    this.phasePaints = functions.kinds.map((kind, fn) => (kind === 'phase' ? phaseColour(functions.names[fn]) : undefined));
    this.ground = variable('--panel');
    this.text = variable('--rect-text');
    this.run = isDark() ? '#4d4a46' : '#cdc6bd';
    this.match = variable('--match');
    this.rootFill = isDark() ? '#3a3734' : '#e2dcd4';
  }

  /** A function's label: short, and with its file where the name alone says nothing. */
  label(fn: number): string {
    return (this.labels[fn] ??= labelOf(this.functions, fn));
  }

  /** Draws; answers how many rectangles that took. */
  draw(canvas: HTMLCanvasElement, layout: Layout, view: View): number {
    const context = canvas.getContext('2d', { alpha: false });
    if (!context) return 0;
    const scale = canvas.width / Math.max(1, canvas.clientWidth);
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = this.ground;
    context.fillRect(0, 0, width, height);
    context.font = `${FONT_PX}px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace`;
    context.textBaseline = 'middle';
    context.direction = 'ltr';
    const letter = context.measureText('M').width;
    const rows = layout.rowStarts.length - 1;
    const first = Math.max(0, Math.floor(view.top / ROW_PX));
    const last = Math.min(rows, Math.ceil((view.top + height) / ROW_PX));
    let rects = 0;
    for (let line = first; line < last; line++) {
      const row = view.upward ? rows - 1 - line : line;
      rects += this.drawRow({ context, layout, view, row, y: line * ROW_PX - view.top, width, letter, scale, fill: '' });
    }
    return rects;
  }

  private drawRow(at: RowAt): number {
    const { context, layout, view, row, y, width } = at;
    const { x, total, rowNodes } = layout;
    const perNs = width / (view.to - view.from);
    const narrow = 0.5 / at.scale;
    const pixel = 1 / at.scale;
    const stop = layout.rowStarts[row + 1];
    let i = firstEndingAfter(layout, layout.rowStarts[row], stop, view.from);
    let rects = 0;
    // The run that is open: pixels side by side are one rectangle.
    let [runFrom, runTo] = [0, -1];
    const closeRun = () => {
      if (runTo < runFrom) return;
      if (at.fill !== this.run) context.fillStyle = at.fill = this.run;
      context.fillRect(runFrom, y, Math.max(runTo - runFrom, narrow), ROW_PX - 1);
      rects++;
      runTo = -1;
    };
    while (i < stop) {
      const node = rowNodes[i];
      const left = (x[node] - view.from) * perNs;
      if (left >= width) break;
      if (total[node] * perNs >= narrow) {
        closeRun();
        this.drawNode(at, node, Math.max(0, left), Math.min(width, left + total[node] * perNs));
        rects++;
        i++;
        continue;
      }
      // All nodes that end within this pixel are one rectangle.
      const next = firstEndingAfter(layout, i + 1, stop, view.from + (Math.max(0, left) + pixel) / perNs);
      const end = rowNodes[next - 1];
      const right = Math.max((x[end] + total[end] - view.from) * perNs, left + narrow);
      if (left - runTo > pixel) {
        closeRun();
        runFrom = Math.max(0, left);
      }
      runTo = right;
      i = next;
    }
    closeRun();
    return rects;
  }

  /** The colour of a node where that is not its function's. */
  private fill(layout: Layout, node: number, colouring: Colouring): string | undefined {
    if (colouring === 'crate') return undefined;
    if (colouring === 'state') return this.states[heaviestState(layout, node)];
    if (colouring === 'diff') {
      const at = node * STATE_COUNT;
      return changeColour(layout.states[at + BEFORE], layout.states[at + AFTER]);
    }
    if (this.phases?.of !== layout) this.phases = { of: layout, fn: phasesOf(layout, this.functions.kinds) };
    const phase = this.phases.fn[node];
    return phase === NO_FUNCTION ? undefined : this.phasePaints[phase];
  }

  private drawNode(at: RowAt, node: number, left: number, right: number): void {
    const { context, layout, view, y, letter } = at;
    const fn = layout.fn[node];
    const isFound = view.found !== undefined && fn !== NO_FUNCTION && view.found[fn] === 1;
    const isPale = view.found !== undefined && !isFound;
    const paint = fn === NO_FUNCTION ? undefined : this.paints[fn];
    const fill = isFound ? this.match
      : !paint ? this.rootFill
      : isPale ? paint.pale
      : this.fill(layout, node, view.colouring) ?? paint.full;
    // To set a colour costs, even the same again.
    if (fill !== at.fill) context.fillStyle = at.fill = fill;
    const wide = right - left > 3;
    context.fillRect(left, y, wide ? right - left - 0.6 : right - left, ROW_PX - 1);
    if (right - left < TEXT_PX_MIN) return;
    const room = Math.floor((right - left - 8) / letter);
    const label = fn === NO_FUNCTION ? this.rootLabel : this.label(fn);
    context.fillStyle = at.fill = this.text;
    if (isPale) context.globalAlpha = 0.55;
    context.fillText(label.length <= room ? label : `${label.slice(0, Math.max(1, room - 1))}…`, left + 4, y + ROW_PX / 2);
    context.globalAlpha = 1;
  }
}

interface RowAt {
  context: CanvasRenderingContext2D;
  layout: Layout;
  view: View;
  row: number;
  y: number;
  width: number;
  letter: number;
  scale: number;
  /** The colour that is set, as far as it is known. */
  fill: string;
}

export function labelOf(functions: Functions, fn: number): string {
  const name = shown(withoutGenerics(functions.names[fn]));
  // A closure is called like all others, so it goes by its file; so does what only calls it.
  const isVague = /^(\{|call_once|call_mut|call\b|main\b|run\b|poll\b)/.test(name) && functions.files[fn] !== '';
  const line = functions.lines[fn] > 0 ? `:${functions.lines[fn]}` : '';
  if (!isVague && line === '') return name;
  return `${name} · ${shown(shortFile(functions.files[fn]).split('/').pop() ?? '')}${line}`;
}

export function heaviestState(layout: Layout, node: number): number {
  let heaviest = 0;
  const at = node * STATE_COUNT;
  for (let s = 1; s < STATE_COUNT; s++) if (layout.states[at + s] > layout.states[at + heaviest]) heaviest = s;
  return heaviest;
}

/** Of the nodes `from..to` of a row, the first that ends after a position: by steps that double, then
 * by halving, so that a near one is found at once. */
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

/** The node at a point of the canvas; -1 if there is none. */
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
