import { describe, expect, test, vi } from 'vitest';
import colors from '../../../../flamegraph/colors.json';
import { STATES } from '../../src/core/states';

const listeners = { addEventListener: () => undefined };
vi.stubGlobal('window', { matchMedia: () => ({ matches: false, ...listeners }) });
vi.stubGlobal('document', { documentElement: { dataset: {} } });
const {
  busyShades,
  chooseTheme,
  crateColor,
  failedColor,
  lineColor,
  matchColor,
  phaseColor,
  prepareColors,
  stateColor,
  taskColor,
} = await import('../../src/core/colors');

/** As many names as there are colors of tasks. */
const NAMES = ['qr', 'stack-qr', 'compress', 'tokenize', 'merge', 'dot', 'digest', 'serve', 'load', 'transfer'].concat(
  Array.from({ length: 14 }, (_, i) => `task ${i}`),
);
/** As many as there are hues: most programs have no more. */
const FEW = 8;
const CONVENTIONAL = ['transfer', 'disk-read', 'disk-write', 'serialize', 'deserialize', 'queue'];
const PHASES = CONVENTIONAL.concat(Array.from({ length: 40 }, (_, i) => `phase ${i}`));
const CRATES = Array.from({ length: 60 }, (_, i) => `crate-${i}`);

/** Text on bars and rectangles, as in the style sheet. */
const TEXT = { light: '#1c1916', dark: '#f6f2ec' };
const CONTRAST_MIN = 4.5;
/** Minimum contrast of graphics in WCAG 2. */
const LINE_CONTRAST_MIN = 3;
/** Distances in OKLab, in which 0.02 is just noticeable. */
const OTHER_KIND = 0.055;
const OTHER_TASK = 0.08;
const ANY_TASK = 0.03;

/** The linear channels of a color. */
const linear = (color: string) =>
  [1, 3, 5].map((at) => {
    const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });

function oklab(color: string): number[] {
  const [r, g, b] = linear(color);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

const distance = (one: string, other: string) => Math.hypot(...oklab(one).map((part, i) => part - oklab(other)[i]));

/** The contrast ratio of WCAG 2. */
function contrast(one: string, other: string): number {
  const [low, high] = [one, other]
    .map((color) => linear(color).reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0.05))
    .sort((a, b) => a - b);
  return high / low;
}

/** The pairs that are nearer than `least`. */
function near(some: string[], others: string[], color: (name: string) => string, least: number, to = color): string[] {
  return some.flatMap((one, i) =>
    others
      .filter((other, j) => (some !== others || j < i) && distance(color(one), to(other)) < least)
      .map((other) => `${one} ${color(one)} and ${other} ${to(other)}`),
  );
}

const itself = (color: string) => color;

describe.each(['light', 'dark'] as const)('in the %s theme', (theme) => {
  test('no task looks like a phase, a sum of short tasks or a failed task', () => {
    chooseTheme(theme);
    prepareColors(NAMES);
    expect(new Set(NAMES.map(taskColor)).size).toBe(NAMES.length);
    expect(near(NAMES, PHASES, taskColor, OTHER_KIND, phaseColor)).toEqual([]);
    expect(near(NAMES, busyShades(), taskColor, OTHER_KIND, itself)).toEqual([]);
    expect(near(PHASES, busyShades(), phaseColor, OTHER_KIND, itself)).toEqual([]);
    const failed = [failedColor()];
    expect(near(failed, busyShades(), itself, OTHER_KIND)).toEqual([]);
    expect(near(NAMES, failed, taskColor, OTHER_KIND, itself)).toEqual([]);
    expect(near(PHASES, failed, phaseColor, OTHER_KIND, itself)).toEqual([]);
  });

  test('tasks have distinct colors, and so have conventional phases', () => {
    chooseTheme(theme);
    const few = [...NAMES].sort().slice(0, FEW);
    expect(near(few, few, taskColor, OTHER_TASK)).toEqual([]);
    expect(near(NAMES, NAMES, taskColor, ANY_TASK)).toEqual([]);
    expect(near(CONVENTIONAL, CONVENTIONAL, phaseColor, OTHER_KIND)).toEqual([]);
  });

  test('a line stands out from the ground of its chart', () => {
    chooseTheme(theme);
    const ground = { light: '#ffffff', dark: '#1e1b19' }[theme];
    expect(NAMES.map(lineColor).filter((color) => contrast(color, ground) < LINE_CONTRAST_MIN)).toEqual([]);
  });

  test('text on a color has enough contrast', () => {
    chooseTheme(theme);
    const colors = [
      ...NAMES.map(taskColor),
      ...[...PHASES, 'execute'].map(phaseColor),
      ...STATES.map(stateColor),
      matchColor(),
      ...CRATES.flatMap((name) => Object.values(crateColor(name))),
    ];
    expect(colors.filter((color) => contrast(color, TEXT[theme]) < CONTRAST_MIN)).toEqual([]);
  });
});

describe.each(['light', 'dark'] as const)('in the %s theme a picture has the colors of the page', (theme) => {
  // A module of its own, because colors of tasks depend on those assigned before.
  const fresh = async () => {
    vi.resetModules();
    const module = await import('../../src/core/colors');
    module.chooseTheme(theme);
    return module;
  };

  test('tasks', async () => {
    const { prepareColors, taskColor } = await fresh();
    prepareColors(colors.tasks.map((task) => task.name).filter((name) => !name.startsWith('[')));
    for (const task of colors.tasks) expect([task.name, taskColor(task.name)]).toEqual([task.name, task[theme]]);
  });

  test('crates and phases', async () => {
    const { crateColor, phaseColor } = await fresh();
    for (const one of colors.crates) expect([one.name, crateColor(one.name).full]).toEqual([one.name, one[theme]]);
    for (const one of colors.phases) expect([one.name, phaseColor(one.name)]).toEqual([one.name, one[theme]]);
  });
});
