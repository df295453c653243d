// Runs of imported profiles.

import type { Run } from './api';

/** What ids of workers begin with whose data is an imported profile. */
const IMPORT = 'import:';

/** The workers to show with a run: that of an imported profile, without what others did at its time. */
export function workersOfRun(run: Run | undefined, chosen: string[]): string[] {
  if (run?.worker?.startsWith(IMPORT)) return [run.worker];
  return chosen.filter((worker) => !worker.startsWith(IMPORT));
}
