// Runs of imported profiles.

import type { Run } from './api';

/** Prefix of the worker ids of imported profiles. */
const IMPORT = 'import:';

/** The workers to show with a run: that of an imported profile, without what others did at its time. */
export function workersOfRun(run: Run | undefined, chosen: string[]): string[] {
  if (run?.worker?.startsWith(IMPORT)) return [run.worker];
  return chosen.filter((worker) => !worker.startsWith(IMPORT));
}
