// Ticks of an axis of numbers.

/** 1, 2 or 5 times a power of ten, and at least `least`; the largest one up to `most` where that exceeds `most`. */
export function tickStep(most: number, least: number): number {
  const bound = Math.min(most, least);
  const power = 10 ** Math.floor(Math.log10(bound));
  const steps = [1, 2, 5, 10].map((one) => one * power);
  const step = steps.find((one) => one >= least && one <= most);
  return step ?? steps.findLast((one) => one <= most) ?? most;
}
