// Draws a timeline as stacked steps, with axes.

import { taskColor, variable } from '../core/colors';
import { axisLabels, digits, ticksMs, timeStepMs } from '../core/time';

export interface Layer {
  name: string;
  /** Threads by step. */
  values: Float64Array;
}

/** Input of a drawing. Times are Unix seconds. */
export interface Drawing {
  /** Size of the canvas in CSS pixels. */
  width: number;
  height: number;
  /** The bottom layer first. */
  layers: Layer[];
  first: number;
  step: number;
  /** Number of complete steps; an incomplete one would look like a drop. */
  filled: number;
  from: number;
  to: number;
  /** The page's range; the rest is shaded. */
  band: [number, number] | undefined;
}

/** Margins for the axes, in pixels. */
export const LEFT_PX = 46;
export const RIGHT_PX = 8;
const TOP_PX = 8;
const BOTTOM_PX = 22;
/** Minimum distance of ticks. */
const TICK_X_PX = 90;
const TICK_Y_PX = 26;

export function drawTimeline(canvas: HTMLCanvasElement, drawing: Drawing): void {
  const context = canvas.getContext('2d');
  if (!context) return;
  const { width, height } = drawing;
  const scale = canvas.width / Math.max(1, width);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const area = { left: LEFT_PX, width: width - LEFT_PX - RIGHT_PX, top: TOP_PX, height: height - TOP_PX - BOTTOM_PX };
  if (area.width <= 0) return;
  const sums = stacked(drawing, area.width);
  let highest = 0;
  // Unknown columns are NaN, and no comparison with NaN holds.
  for (const sum of sums[sums.length - 1] ?? []) if (sum > highest) highest = sum;
  const most = Math.max(1, 1.08 * highest);
  drawGrid(context, drawing, area, most);
  // Top layer first: each is painted over by those below it.
  for (let i = sums.length - 1; i >= 0; i--) {
    context.fillStyle = taskColor(drawing.layers[i].name);
    context.beginPath();
    drawSteps(context, sums[i], area, most);
    context.fill();
  }
  drawBand(context, drawing, area);
}

interface Area {
  left: number;
  width: number;
  top: number;
  height: number;
}

/** For each layer and pixel column, the average of it and the layers below; `NaN` where unknown. */
function stacked({ layers, first, step, filled, from, to }: Drawing, widthPx: number): Float64Array[] {
  const columns = Math.floor(widthPx);
  const perPx = (to - from) / widthPx;
  let below = new Float64Array(columns);
  return layers.map(({ values }) => {
    const sum = new Float64Array(columns);
    for (let column = 0; column < columns; column++) {
      const begin = Math.floor((from + column * perPx - first) / step);
      const end = Math.max(begin + 1, Math.floor((from + (column + 1) * perPx - first) / step));
      if (begin < 0 || end > filled) {
        sum[column] = NaN;
        continue;
      }
      let whole = 0;
      for (let i = begin; i < end; i++) whole += values[i];
      sum[column] = below[column] + whole / (end - begin);
    }
    below = sum;
    return sum;
  });
}

/** The outline of all known columns; equal neighbors form one step. */
function drawSteps(
  context: CanvasRenderingContext2D,
  sums: Float64Array,
  { left, top, height }: Area,
  most: number,
): void {
  const bottom = top + height;
  let open = false;
  for (let column = 0; column <= sums.length; column++) {
    const value = column < sums.length ? sums[column] : NaN;
    if (Number.isNaN(value)) {
      if (open) context.lineTo(left + column, bottom);
      open = false;
      continue;
    }
    const y = bottom - (height * value) / most;
    if (!open) context.moveTo(left + column, bottom);
    if (!open || value !== sums[column - 1]) context.lineTo(left + column, y);
    if (value !== sums[column + 1]) context.lineTo(left + column + 1, y);
    open = true;
  }
}

function drawGrid(
  context: CanvasRenderingContext2D,
  { from, to }: Drawing,
  { left, width, top, height }: Area,
  most: number,
): void {
  const line = variable('--line');
  const soft = variable('--soft');
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  const least = (most * TICK_Y_PX) / height;
  const power = 10 ** Math.floor(Math.log10(least));
  // A low chart has one tick, at its top.
  const step = Math.min(most, [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least) ?? most);
  for (let value = 0; value <= most; value += step) {
    const y = Math.round(top + height - (height * value) / most);
    context.fillStyle = line;
    context.fillRect(left, y, width, 1);
    context.fillStyle = soft;
    context.fillText(digits(value), left - 6, y);
  }
  context.textAlign = 'center';
  const perMs = width / (1000 * (to - from));
  const stepMs = timeStepMs(TICK_X_PX / perMs);
  const ticks = ticksMs(1000 * from, 1000 * to, stepMs);
  axisLabels(ticks, stepMs).forEach((text, i) => {
    const x = Math.round(left + (ticks[i] - 1000 * from) * perMs);
    context.fillStyle = line;
    context.fillRect(x, top, 1, height);
    context.fillStyle = soft;
    const half = 3 * text.length;
    if (x + half < left + width + RIGHT_PX && x > half) context.fillText(text, x, top + height + 12);
  });
  context.textAlign = 'left';
}

/** Shades the area outside the page's range. */
function drawBand(
  context: CanvasRenderingContext2D,
  { band, from, to }: Drawing,
  { left, top, width, height }: Area,
): void {
  if (!band) return;
  const place = (time: number) => Math.min(left + width, Math.max(left, left + ((time - from) / (to - from)) * width));
  const [begin, end] = band.map(place);
  context.fillStyle = variable('--shade');
  context.fillRect(left, top, begin - left, height);
  context.fillRect(end, top, left + width - end, height);
  context.fillStyle = variable('--ember');
  if (begin > left) context.fillRect(begin, top, 2, height);
  if (end < left + width) context.fillRect(end - 2, top, 2, height);
}
