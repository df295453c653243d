// The states of a view. The default is time on CPU: what tasks do, not what they wait for.

import { STATES, type State } from '../../core/states';

export const WAITS: readonly State[] = STATES.slice(2);

/** The states of the address, as the collector names them. */
export function statesOf(params: URLSearchParams): string[] {
  const states = params.getAll('state');
  return states.length === 0 ? ['cpu'] : states;
}

/** The same as single states. */
export function chosenStates(params: URLSearchParams): Set<State> {
  const names = statesOf(params).flatMap((name): readonly string[] =>
    name === 'all' ? STATES : name === 'wait' ? WAITS : [name],
  );
  return new Set(STATES.filter((state) => names.includes(state)));
}

/** The shortest parameters for these states; `null` for the default. */
export function stateParams(states: Set<State>): string[] | null {
  const isAll = (some: readonly State[]) => some.every((state) => states.has(state));
  if (states.size === 0 || (states.size === 1 && states.has('cpu'))) return null;
  if (isAll(STATES)) return ['all'];
  const waits = isAll(WAITS) ? ['wait'] : WAITS.filter((state) => states.has(state));
  return [...STATES.slice(0, 2).filter((state) => states.has(state)), ...waits];
}

const WORDS: Record<string, string> = { all: 'in all states', cpu: 'on CPU', wait: 'waiting', interpreter: 'GIL' };

/** The states in words. */
export function statesText(params: URLSearchParams): string {
  const names = stateParams(chosenStates(params)) ?? ['cpu'];
  const words = names.map((name) => WORDS[name] ?? name);
  return words.join(', ');
}
