// The legend of the graph's colors.

import { useMemo } from 'preact/hooks';
import { crateColor, phaseColor, stateColor } from '../../core/colors';
import { safeText } from '../../core/names';
import { STATE_DESCRIPTIONS, STATES, type State, stateLabel } from '../../core/states';
import { percent } from '../../core/time';
import type { Coloring } from '../../flame/draw';
import type { LoadedProfile } from '../../flame/load';

const CRATES_SHOWN = 8;

/** Self time by crate, the heaviest first. */
function cratesOf({ functions, fnSelf }: LoadedProfile): [string, number][] {
  const sums = new Map<string, number>();
  functions.crates.forEach((name, fn) => {
    const isCode = functions.kinds[fn] === 'function' || functions.kinds[fn] === 'unresolved';
    if (isCode) sums.set(name, (sums.get(name) ?? 0) + fnSelf[fn]);
  });
  return [...sums].sort((a, b) => b[1] - a[1]).slice(0, CRATES_SHOWN);
}

export function Legend({ loaded, coloring }: { loaded: LoadedProfile; coloring: Coloring }) {
  const crates = useMemo(() => cratesOf(loaded), [loaded.fnSelf]);
  if (coloring === 'state') {
    // The root's. Most programs have no interpreter.
    const isShown = (_: State, at: number) => STATES[at] !== 'interpreter' || loaded.layout.states[at] > 0;
    return (
      <p class="legend">
        {STATES.filter(isShown).map((state) => (
          <span key={state} title={STATE_DESCRIPTIONS[state]}>
            <i class="dot" style={{ background: stateColor(state) }} />
            {stateLabel(state)}
          </span>
        ))}
        <span class="soft">each rectangle has the color of its longest state</span>
      </p>
    );
  }
  const { functions, fnTotal, layout } = loaded;
  if (coloring === 'phase') {
    const phases = functions.names
      .map((name, fn) => ({ name, ns: fnTotal[fn] }))
      .filter((_, fn) => functions.kinds[fn] === 'phase')
      .sort((a, b) => b.ns - a.ns);
    return (
      <p class="legend">
        <span class="soft">task phases</span>
        {phases.slice(0, CRATES_SHOWN).map(({ name, ns }) => (
          <span key={name}>
            <i class="dot" style={{ background: phaseColor(name) }} />
            <bdi>{safeText(name, 28)}</bdi> {percent(ns, layout.total[0])}
          </span>
        ))}
      </p>
    );
  }
  return (
    <p class="legend">
      <span class="soft">self time by crate or library</span>
      {crates.map(([name, ns]) => (
        <span key={name}>
          <i class="dot" style={{ background: crateColor(name).full }} />
          <bdi>{safeText(name, 28)}</bdi> {percent(ns, layout.total[0])}
        </span>
      ))}
    </p>
  );
}
