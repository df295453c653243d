// Colors of tasks, crates and states in both themes. Red against green never carries a meaning.

import { hash } from './names';
import type { State } from './states';

/** Distinguishable hues; their lightness differs too, for color-blind readers. */
const HUES = [45, 255, 150, 320, 95, 205, 15, 285, 70, 230, 175, 345];

const query = window.matchMedia('(prefers-color-scheme: dark)');

export function isDark(): boolean {
  return query.matches;
}

/** Calls `changed` when the system's theme changes. Returns the function that unsubscribes. */
export function onTheme(changed: () => void): () => void {
  query.addEventListener('change', changed);
  return () => query.removeEventListener('change', changed);
}

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

function paletteColor(index: number, chroma: number): string {
  const step = Math.floor(index / HUES.length) % 3;
  const lightness = isDark() ? 0.56 - step * 0.07 : 0.76 - step * 0.08;
  return oklch(lightness, chroma, HUES[index % HUES.length]);
}

/** Color index of each task. Never reassigned, so a new task does not change the colors of others. */
const indexByTask = new Map<string, number>();
const usedIndices = new Set<number>();
const COLOR_COUNT = HUES.length * 3;

/** Assigns colors to all task names in sorted order, so that every page assigns the same. */
export function prepareColors(names: string[]): void {
  [...names].sort().forEach(colorIndexOf);
}

function colorIndexOf(name: string): number {
  let index = indexByTask.get(name);
  if (index === undefined) {
    index = hash(name) % HUES.length;
    while (usedIndices.has(index) && usedIndices.size < COLOR_COUNT) index = (index + 1) % COLOR_COUNT;
    indexByTask.set(name, index);
    usedIndices.add(index);
  }
  return index;
}

export function taskColor(name: string): string {
  if (name.endsWith(' others]')) return isDark() ? '#8a857e' : '#d8d2ca';
  if (name.startsWith('[')) return isDark() ? '#4f4c49' : '#b3ada5';
  return themed(`task ${name}`, () => paletteColor(colorIndexOf(name), 0.13));
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

const STATE_HUES: Record<State, [number, number]> = {
  cpu: [48, 0.14],
  runnable: [92, 0.13],
  lock: [300, 0.1],
  sleep: [260, 0.03],
  network: [235, 0.11],
  disk: [165, 0.09],
  other: [260, 0.015],
};

export function stateColor(state: State): string {
  const [hue, chroma] = STATE_HUES[state];
  return oklch(isDark() ? 0.52 : 0.8, chroma, hue);
}

/** Task phases in conventional colors: waiting is gray, transfers are red, the disk is orange. */
const PHASE_HUES: Record<string, [number, number]> = {
  queue: [260, 0.015],
  serialize: [90, 0.01],
  deserialize: [90, 0.01],
  transfer: [25, 0.15],
  'disk-read': [65, 0.14],
  'disk-write': [65, 0.14],
  execute: [250, 0.1],
};

export function phaseColor(name: string): string {
  const [hue, chroma] = PHASE_HUES[name] ?? [hash(name) % 360, 0.1];
  // Outgoing data is slightly darker than incoming.
  const shift = name === 'serialize' || name === 'disk-write' ? -0.1 : 0;
  return themed(`phase ${name}`, () => oklch((isDark() ? 0.52 : 0.8) + shift, chroma, hue));
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
