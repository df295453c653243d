// Chips for the states of threads.

import { stateColor } from '../../core/colors';
import { STATE_DESCRIPTIONS, STATES, type State, stateLabel } from '../../core/states';
import { percent } from '../../core/time';
import { WAITS } from './states';

interface Properties {
  chosen: Set<State>;
  /** Time in each state, for shares; none if unknown. */
  timeNs?: (state: State) => number;
  onChange(chosen: Set<State>): void;
}

export function StateChips({ chosen, timeNs = () => 0, onChange }: Properties) {
  const sum = (states: readonly State[]) => states.reduce((ns, state) => ns + timeNs(state), 0);
  const allNs = sum(STATES);
  // Most programs have no interpreter.
  const waits = WAITS.filter((state) => state !== 'interpreter' || allNs === 0 || timeNs(state) > 0);
  const toggle = (states: readonly State[]) => {
    const next = new Set(chosen);
    const isChosen = states.every((state) => chosen.has(state));
    for (const state of states) isChosen ? next.delete(state) : next.add(state);
    onChange(next);
  };
  const chip = (label: string, title: string, states: readonly State[]) => {
    const count = states.filter((state) => chosen.has(state)).length;
    return (
      <button
        key={label}
        aria-pressed={count === states.length ? true : count > 0 ? 'mixed' : false}
        class="chip"
        title={title}
        onClick={() => toggle(states)}
      >
        <i class="dot" style={{ background: stateColor(states[0]) }} />
        {label}
        {allNs > 0 && <small>{percent(sum(states), allNs)}</small>}
      </button>
    );
  };
  return (
    <span class="chips" role="group" aria-label="Thread states">
      {chip('on CPU', STATE_DESCRIPTIONS.cpu, ['cpu'])}
      {chip('runnable', STATE_DESCRIPTIONS.runnable, ['runnable'])}
      {chip('waiting', 'blocked in any kind of call', WAITS)}
      {WAITS.some((state) => chosen.has(state)) &&
        waits.map((state) => chip(stateLabel(state), STATE_DESCRIPTIONS[state], [state]))}
    </span>
  );
}
