// Runs of imported profiles.

import type { Changes } from './address';
import type { Run } from './api';
import { isoTime } from './time';

/** Prefix of the worker ids of imported profiles. */
const IMPORT = 'import:';

/** The workers to show with a run: that of an imported profile, without what others did at its time. */
export function workersOfRun(run: Run | undefined, chosen: string[]): string[] {
  if (run?.worker?.startsWith(IMPORT)) return [run.worker];
  return chosen.filter((worker) => !worker.startsWith(IMPORT));
}

/** Pages that show several runs, each from its own start: they ask the collector for runs instead of a range. */
const PAGES_OF_RUNS = ['compare', 'resources'];

/** Whether the view of a page is of the range of the run in its address. */
export const showsOneRun = (page: string): boolean => !PAGES_OF_RUNS.includes(page);

/** The API's name of a run; without the id it would mean the newest run of that name. */
export const runName = ({ name, id }: Run): string => `${name}@${id}`;

/** The parameters of an address that shows a run. An open run ends now. */
export function paramsOfRun(run: Run, workers: string[]): Changes {
  return {
    run: runName(run),
    worker: workers,
    from: isoTime(Math.floor(run.start_ns / 1e6)),
    to: run.stop_ns === null ? null : isoTime(Math.ceil(run.stop_ns / 1e6)),
  };
}

/** Changes of an address with `run`, so that it shows that run; `undefined` if it does already. */
export function changesForRun(run: Run, params: URLSearchParams): Changes | undefined {
  const chosen = params.getAll('worker');
  const changes = paramsOfRun(run, chosen.length > 0 ? chosen : workersOfRun(run, []));
  const differs = Object.entries(changes).some(
    ([name, value]) => JSON.stringify(params.getAll(name)) !== JSON.stringify(value === null ? [] : [value].flat()),
  );
  return differs ? { ...changes, zoom: null } : undefined;
}
