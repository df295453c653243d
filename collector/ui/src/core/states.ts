// Thread states, named as in the API. `wait` is the sum of all but the first two.

export const STATES = ['cpu', 'runnable', 'lock', 'interpreter', 'sleep', 'network', 'disk', 'other'] as const;
export type State = (typeof STATES)[number];

export const STATE_DESCRIPTIONS: Record<State, string> = {
  cpu: 'running on a CPU',
  runnable: 'runnable: waiting for a CPU',
  lock: 'waiting for a lock or another thread',
  interpreter: "waiting for the interpreter's lock, such as Python's GIL",
  sleep: 'sleeping',
  network: 'waiting for the network',
  disk: 'waiting for a file or the disk',
  other: 'waiting for a pipe, a child or something else',
};

/** A state's name on the page. */
export const stateLabel = (state: State): string => (state === 'interpreter' ? 'GIL' : state);
