// The states of a thread, as the API names them; `wait` is the sum of all after the second.

export const STATES = ['cpu', 'runnable', 'lock', 'sleep', 'network', 'disk', 'other'] as const;
export type State = (typeof STATES)[number];

export const STATE_WORDS: Record<State, string> = {
  cpu: 'running on a processor',
  runnable: 'ready, but without a processor',
  lock: 'waiting for a lock or another thread',
  sleep: 'asleep',
  network: 'waiting for the network',
  disk: 'waiting for a file or the disk',
  other: 'waiting for a pipe, a child or something else',
};
