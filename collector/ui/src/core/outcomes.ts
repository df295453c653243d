// Meaning of the outcomes of tasks.

import type { Task, TaskName } from './api';

/** Outcomes of tasks that failed. */
export const FAILED = ['failed', 'panicked', 'lost'];

/** How many tasks failed. */
export const failedOf = ({ failed, panicked, lost }: TaskName['outcomes']) => failed + panicked + lost;

/** Why a task failed; empty if it did not, or did not say. */
export const causeOf = ({ cause, outcome }: Pick<Task, 'cause' | 'outcome'>) =>
  cause === '' && outcome === 'lost' ? 'its worker ended or disconnected first' : cause;
