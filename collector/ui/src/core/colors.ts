// Colors of tasks, crates and states in both themes. Red against green never carries a meaning.

import { hash } from './names';
import type { State } from './states';
import { store, stored } from './stored';

/**
 * Hues of tasks, from green to magenta. Red to yellow is reserved for phases, and gray for sums of tasks, so
 * that neither looks like a task.
 */
const TASK_HUES = [135, 163, 192, 220, 249, 277, 306, 335];

/** Chroma of tasks: names beyond the number of hues are duller, then more vivid and darker. */
const TASK_CHROMAS = [0.12, 0.08, 0.15];

/** Hues of phases without a conventional color. */
const PHASE_HUES = [20, 38, 56, 74, 92];

const query = window.matchMedia('(prefers-color-scheme: dark)');

/** A theme that overrides the system's. */
export type Theme = 'light' | 'dark' | '';
const THEME_KEY = 'emberline.theme';
let theme: Theme = '';
const themeListeners = new Set<() => void>();
query.addEventListener('change', () => themeListeners.forEach((changed) => changed()));

export const chosenTheme = (): Theme => theme;

function applyTheme(chosen: string): void {
  theme = chosen === 'light' || chosen === 'dark' ? chosen : '';
  document.documentElement.dataset.theme = theme;
}

/** Chooses a theme and keeps it in the browser; an empty one is the system's. */
export function chooseTheme(chosen: string): void {
  applyTheme(chosen);
  store(THEME_KEY, theme);
  themeListeners.forEach((changed) => changed());
}

export function isDark(): boolean {
  return theme === '' ? query.matches : theme === 'dark';
}

/** Calls `changed` when the theme changes. Returns the function that unsubscribes. */
export function onTheme(changed: () => void): () => void {
  themeListeners.add(changed);
  return () => themeListeners.delete(changed);
}

applyTheme(stored(THEME_KEY));

/**
 * An OKLCH color (hue in degrees) as `#rrggbb`, the form that a canvas parses fastest. Computed here
 * because painting a color and reading it back costs more. The constants are those of the definition
 * of OKLab.
 */
export function oklch(lightness: number, chroma: number, hue: number): string {
  const angle = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(angle);
  const b = chroma * Math.sin(angle);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const rgb = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return `#${rgb.map(byteOf).join('')}`;
}

/** One linear channel as two hex digits of sRGB. */
function byteOf(linear: number): string {
  const part = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
  return Math.round(255 * Math.max(0, Math.min(1, part)))
    .toString(16)
    .padStart(2, '0');
}

/** A color `#rrggbb` as the bytes of a pixel. */
export function pixelOf(hex: string): number {
  const rgb = Number.parseInt(hex.slice(1), 16);
  return ((255 << 24) | ((rgb & 255) << 16) | (rgb & 0xff00) | (rgb >> 16)) >>> 0;
}

/** Neighbors among hues differ in lightness too, for color-blind readers. */
function paletteColor(index: number, shift = 0): string {
  const hue = index % TASK_HUES.length;
  const step = Math.floor(index / TASK_HUES.length) % TASK_CHROMAS.length;
  const isDeep = (hue + step) % 2 === 1;
  const [deep, high] = isDark() ? [0.42, 0.515] : [0.69, 0.8];
  const lightness = (isDeep ? deep : high) - (step === 2 ? 0.06 : 0) + shift;
  return oklch(lightness, TASK_CHROMAS[step], TASK_HUES[hue]);
}

/** Color index of each task. Never reassigned, so a new task does not change the colors of others. */
const indexByTask = new Map<string, number>();
const usedIndices = new Set<number>();
const COLOR_COUNT = TASK_HUES.length * TASK_CHROMAS.length;

/** Assigns colors to all task names in sorted order, so that every page assigns the same. */
export function prepareColors(names: string[]): void {
  [...names].sort().forEach(colorIndexOf);
}

/** The first free color from the name's own hue on. All hues are used before a second color of one. */
function colorIndexOf(name: string): number {
  const known = indexByTask.get(name);
  if (known !== undefined) return known;
  const hues = TASK_HUES.length;
  const own = hash(name) % hues;
  const order = Array.from({ length: COLOR_COUNT }, (_, i) => i - (i % hues) + ((own + i) % hues));
  const index = order.find((color) => !usedIndices.has(color)) ?? own;
  indexByTask.set(name, index);
  usedIndices.add(index);
  return index;
}

export function taskColor(name: string): string {
  if (name.endsWith(' others]')) return isDark() ? '#8a857e' : '#d8d2ca';
  if (name.startsWith('[')) return isDark() ? '#4f4c49' : '#b3ada5';
  return themed(`task ${name}`, () => paletteColor(colorIndexOf(name)));
}

/** The color of a line on the ground of a chart: a name's hue, nearer to that of text. */
export function lineColor(name: string): string {
  return themed(`line ${name}`, () => paletteColor(colorIndexOf(name), isDark() ? 0.22 : -0.16));
}

/** Colors by name, for the current theme. */
const cache = new Map<string, string>();
let cacheTheme = isDark();

/** Computes a color once per theme. */
function themed(name: string, make: () => string): string {
  const theme = isDark();
  if (theme !== cacheTheme) {
    cache.clear();
    cacheTheme = theme;
  }
  let color = cache.get(name);
  if (color === undefined) {
    color = make();
    cache.set(name, color);
  }
  return color;
}

/** A CSS variable of the page. Cached, because getComputedStyle forces a layout. */
export function variable(name: string): string {
  return themed(name, () => getComputedStyle(document.documentElement).getPropertyValue(name).trim());
}

/** A crate's color: full, and pale for functions that a search does not match. */
export function crateColor(name: string): { full: string; pale: string } {
  const hue = hash(name) % 360;
  const shift = (hash(`${name}/`) % 5) * 0.012;
  return isDark()
    ? { full: oklch(0.44 + shift, 0.085, hue), pale: oklch(0.28, 0.015, hue) }
    : { full: oklch(0.8 + shift, 0.085, hue), pale: oklch(0.94, 0.012, hue) };
}

/** Functions that a search matches; `--match` in the style sheet. */
export const matchColor = (): string => (isDark() ? '#866200' : '#ffd23f');

const STATE_HUES: Record<State, [number, number]> = {
  cpu: [48, 0.14],
  runnable: [92, 0.13],
  lock: [300, 0.1],
  interpreter: [345, 0.12],
  sleep: [260, 0.03],
  network: [235, 0.11],
  disk: [165, 0.09],
  other: [260, 0.015],
};

export function stateColor(state: State): string {
  const [hue, chroma] = STATE_HUES[state];
  return oklch(isDark() ? 0.52 : 0.8, chroma, hue);
}

/** Shades of `busyShades`. */
export const BUSY_SHADES = 8;

/** Shades of short tasks drawn as a sum, from a thread that was hardly busy to one that always was. */
export function busyShades(): string[] {
  const [first, step] = isDark() ? [0.32, 0.055] : [0.92, -0.05];
  // Gray, because a sum may have tasks of several names.
  return Array.from({ length: BUSY_SHADES }, (_, i) => oklch(first + i * step, 0.006, 80));
}

/** Failed tasks, whatever their name. */
export const failedColor = (): string => (isDark() ? '#ece7e1' : '#211d1a');

interface PhaseColor {
  /** In the light and in the dark theme. */
  lightness: [number, number];
  chroma: number;
  hue: number;
}

/** Task phases in conventional colors: transfers are red, the disk is orange, outgoing data is darker. */
const PHASE_COLORS: Record<string, PhaseColor | undefined> = {
  queue: { lightness: [0.9, 0.5], chroma: 0.1, hue: 98 },
  serialize: { lightness: [0.64, 0.36], chroma: 0.08, hue: 75 },
  deserialize: { lightness: [0.76, 0.44], chroma: 0.08, hue: 85 },
  transfer: { lightness: [0.72, 0.5], chroma: 0.16, hue: 25 },
  'disk-read': { lightness: [0.82, 0.52], chroma: 0.13, hue: 62 },
  'disk-write': { lightness: [0.7, 0.42], chroma: 0.13, hue: 62 },
  // Where it is not the task's own color.
  execute: { lightness: [0.84, 0.46], chroma: 0.03, hue: 250 },
};

export function phaseColor(name: string): string {
  const number = hash(name);
  const { lightness, chroma, hue } = PHASE_COLORS[name] ?? {
    lightness: number % 2 === 0 ? [0.84, 0.5] : [0.7, 0.41],
    chroma: 0.1,
    hue: PHASE_HUES[(number >>> 1) % PHASE_HUES.length],
  };
  return themed(`phase ${name}`, () => oklch(lightness[isDark() ? 1 : 0], chroma, hue));
}

/** Shades of a change in each direction. */
const CHANGE_SHADES = 6;

/** From blue (disappeared) over gray (unchanged) to orange (new). */
export function changeColor(before: number, after: number): string {
  const sum = before + after;
  const change = sum > 0 ? (after - before) / sum : 0;
  const shade = Math.round(change * CHANGE_SHADES) / CHANGE_SHADES;
  const size = Math.sqrt(Math.abs(shade));
  const light = isDark() ? 0.36 + 0.2 * size : 0.92 - 0.16 * size;
  return themed(`change ${shade}`, () => oklch(light, 0.14 * size, shade > 0 ? 50 : 250));
}
