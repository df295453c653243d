// What the colours mean.

import { useMemo } from 'preact/hooks';
import { crateColour, phaseColour, stateColour } from '../../core/colours';
import { shown } from '../../core/names';
import { STATE_WORDS, STATES } from '../../core/states';
import { percent } from '../../core/time';
import type { Colouring } from '../../flame/draw';
import type { Loaded } from '../../flame/load';

const CRATES_SHOWN = 8;

/** Self time by crate, the heaviest first. */
function cratesOf({ functions, fnSelf }: Loaded): [string, number][] {
  const sums = new Map<string, number>();
  functions.crates.forEach((name, fn) => {
    const isCode = functions.kinds[fn] === 'function' || functions.kinds[fn] === 'unresolved';
    if (isCode) sums.set(name, (sums.get(name) ?? 0) + fnSelf[fn]);
  });
  return [...sums].sort((a, b) => b[1] - a[1]).slice(0, CRATES_SHOWN);
}

export function Legend({ loaded, colouring }: { loaded: Loaded; colouring: Colouring }) {
  const crates = useMemo(() => cratesOf(loaded), [loaded.fnSelf]);
  if (colouring === 'state') {
    return (
      <p class="legend">
        {STATES.map((state) => (
          <span key={state} title={STATE_WORDS[state]}>
            <i class="dot" style={{ background: stateColour(state) }} />
            {state}
          </span>
        ))}
        <span class="soft">a rectangle has the colour of its longest state</span>
      </p>
    );
  }
  const { functions, fnTotal, layout } = loaded;
  if (colouring === 'phase') {
    const phases = functions.names
      .map((name, fn) => ({ name, ns: fnTotal[fn] }))
      .filter((_, fn) => functions.kinds[fn] === 'phase')
      .sort((a, b) => b.ns - a.ns);
    return (
      <p class="legend">
        <span class="soft">phases of tasks</span>
        {phases.slice(0, CRATES_SHOWN).map(({ name, ns }) => (
          <span key={name}>
            <i class="dot" style={{ background: phaseColour(name) }} />
            <bdi>{shown(name, 28)}</bdi> {percent(ns, layout.total[0])}
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
          <i class="dot" style={{ background: crateColour(name).full }} />
          <bdi>{shown(name, 28)}</bdi> {percent(ns, layout.total[0])}
        </span>
      ))}
    </p>
  );
}
