import { describe, expect, it } from 'vitest';

import { tickStep } from '../src/core/ticks';

describe('steps of the axis of threads', () => {
  it('are 1, 2 or 5 times a power of ten, and not closer than asked', () => {
    expect(tickStep(100, 13)).toBe(20);
    expect(tickStep(8, 1)).toBe(1);
    expect(tickStep(0.8, 0.03)).toBe(0.05);
  });

  it('leave one tick above zero on a low chart', () => {
    expect(tickStep(2.16, 2.2)).toBe(2);
    expect(tickStep(1.08, 3)).toBe(1);
    expect(tickStep(9, 9)).toBe(5);
  });
});
