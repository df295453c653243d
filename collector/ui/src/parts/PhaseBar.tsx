// How tasks' time is split by phase: one bar, and its parts in words.

import { phaseColour, taskColour } from '../core/colours';
import { shown } from '../core/names';
import { duration, percent } from '../core/time';

export interface Part {
  name: string;
  ns: number;
}

const PARTS_MAX = 12;

/** Executing has the task's own colour, as on the lanes. */
export function partColour(phase: string, task: string): string {
  return phase === 'execute' ? taskColour(task) : phaseColour(phase);
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
          <i key={name} title={shown(name)} style={{ flexGrow: ns / whole, background: partColour(name, task) }} />
        ))}
      </div>
      <p class="legend">
        {sorted.map(({ name, ns }) => (
          <span key={name}>
            <i class="dot" style={{ background: partColour(name, task) }} />
            <bdi>{shown(name, 40)}</bdi> <b>{percent(ns, whole)}</b> {duration(ns)}
          </span>
        ))}
      </p>
    </>
  );
}
