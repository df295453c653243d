// A bar of the time per phase, with a legend.

import { phaseColor, taskColor } from '../../core/colors';
import { safeText } from '../../core/names';
import { duration, percent } from '../../core/time';

export interface Part {
  name: string;
  ns: number;
}

const PARTS_MAX = 12;

/** Executing has the task's own color, as in the task stream. */
export function partColor(phase: string, task: string): string {
  return phase === 'execute' ? taskColor(task) : phaseColor(phase);
}

export function PhaseBar({ parts, task }: { parts: Part[]; task: string }) {
  const whole = parts.reduce((sum, { ns }) => sum + ns, 0);
  const sorted = parts
    .filter(({ ns }) => ns > 0)
    .sort((a, b) => b.ns - a.ns)
    .slice(0, PARTS_MAX);
  return (
    <>
      <div class="split high" aria-hidden="true">
        {sorted.map(({ name, ns }) => (
          <i key={name} title={safeText(name)} style={{ flexGrow: ns / whole, background: partColor(name, task) }} />
        ))}
      </div>
      <p class="legend">
        {sorted.map(({ name, ns }) => (
          <span key={name}>
            <i class="dot" style={{ background: partColor(name, task) }} />
            <bdi>{safeText(name, 40)}</bdi> <b>{percent(ns, whole)}</b> {duration(ns)}
          </span>
        ))}
      </p>
    </>
  );
}
