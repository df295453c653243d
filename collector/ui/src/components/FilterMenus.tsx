// Menus of tasks, workers, labels, phases and runs. Menus without choices are hidden.

import { apiUrl, currentAddress, setParams } from '../core/address';
import type { Run, RunsAnswer, TaskSummaryAnswer, WorkersAnswer } from '../core/api';
import { phaseColor, taskColor } from '../core/colors';
import { fetchJson } from '../core/fetch';
import { useQuery } from '../core/query';
import { workersOfRun } from '../core/runs';
import { fetchTaskNames } from '../core/task-names';
import { duration, isoTime } from '../core/time';
import { type Choice, MultiSelect } from './MultiSelect';

/** Menus are refreshed less often than the data. */
const EVERY_MS = 15_000;
/** The phase of a task that sets none. */
const EXECUTE = 'execute';

/** The choices that are known so far. */
export interface Fleet {
  names: TaskSummaryAnswer | undefined;
  workers: WorkersAnswer | undefined;
  runs: RunsAnswer | undefined;
}

export function useFleet(): Fleet {
  const fleet = useQuery<Fleet>(
    'fleet',
    async (signal) => {
      // One response, so that the menus render once.
      const [names, workers, runs] = await Promise.all([
        fetchTaskNames(),
        fetchJson<WorkersAnswer>(apiUrl('workers'), signal),
        fetchJson<RunsAnswer>(apiUrl('runs'), signal),
      ]);
      return { names, workers, runs };
    },
    true,
    EVERY_MS,
  );
  return fleet.value ?? NOTHING_YET;
}

const NOTHING_YET: Fleet = { names: undefined, workers: undefined, runs: undefined };

interface Properties {
  fleet: Fleet;
  chosen: string[];
  onChange(chosen: string[]): void;
}

/** `notes` are shown next to the names and sort them, largest first. */
export function TaskMenu({ fleet, chosen, onChange, notes }: Properties & { notes?: Map<string, number> }) {
  const names = new Set([...(fleet.names?.names ?? []).map(({ name }) => name), ...(notes?.keys() ?? [])]);
  const sorted = [...names].sort((a, b) => (notes?.get(b) ?? 0) - (notes?.get(a) ?? 0));
  return (
    <MultiSelect
      what="tasks"
      chosen={chosen}
      onChange={onChange}
      choices={sorted.map((name) => ({
        value: name,
        color: taskColor(name),
        note: notes?.has(name) ? duration(notes.get(name)!) : '',
      }))}
    />
  );
}

export function WorkerMenu({ fleet, chosen, onChange }: Properties) {
  const choices = (fleet.workers?.workers ?? []).map(
    ({ worker, epochs }): Choice => ({ value: worker, note: epochs[epochs.length - 1]?.host }),
  );
  return <MultiSelect what="workers" chosen={chosen} onChange={onChange} choices={choices} />;
}

/** A worker must have all chosen labels. */
export function LabelMenu({ fleet, chosen, onChange }: Properties) {
  const having = new Map<string, number>();
  for (const { epochs } of fleet.workers?.workers ?? []) {
    // Labels of a worker's newest session count.
    for (const [key, value] of Object.entries(epochs[epochs.length - 1]?.labels ?? {}))
      having.set(`${key}=${value}`, (having.get(`${key}=${value}`) ?? 0) + 1);
  }
  if (having.size + chosen.length === 0) return null;
  const choices = [...having]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([value, workers]): Choice => ({ value, note: workers === 1 ? '1 worker' : `${workers} workers` }));
  return <MultiSelect what="labels" chosen={chosen} onChange={onChange} choices={choices} />;
}

export function PhaseMenu({ fleet, chosen, onChange }: Properties) {
  const sums = new Map<string, number>();
  for (const { phases = [] } of fleet.names?.names ?? [])
    for (const { name, duration_ns } of phases) sums.set(name, (sums.get(name) ?? 0) + duration_ns);
  sums.delete(EXECUTE);
  if (sums.size + chosen.length === 0) return null;
  const names = [EXECUTE, ...[...sums].sort(([, a], [, b]) => b - a).map(([name]) => name)];
  return (
    <MultiSelect
      what="phases"
      chosen={chosen}
      onChange={onChange}
      choices={names.map((value) => ({ value, color: phaseColor(value), note: '' }))}
    />
  );
}

/** The API's name of a run; without the id it would mean the newest run of that name. */
export const runName = ({ name, id }: Run): string => `${name}@${id}`;

/** Choosing a run navigates to its range. The name stays in the address until the range changes. */
export function RunMenu({ fleet, chosen }: { fleet: Fleet; chosen: string | null }) {
  const runs = fleet.runs?.runs ?? [];
  if (runs.length === 0 && chosen === null) return null;
  const choose = (values: string[]) => {
    const run = runs.find((one) => runName(one) === values[values.length - 1]);
    const worker = workersOfRun(run, currentAddress().params.getAll('worker'));
    if (!run) setParams({ run: null, worker, from: null, to: null, zoom: null });
    else
      setParams({
        run: runName(run),
        worker,
        from: isoTime(Math.floor(run.start_ns / 1e6)),
        to: run.stop_ns === null ? null : isoTime(Math.ceil(run.stop_ns / 1e6)),
        zoom: null,
      });
  };
  return (
    <MultiSelect
      what="runs"
      chosen={chosen === null ? [] : [chosen]}
      onChange={choose}
      choices={runs.map((run) => ({
        value: runName(run),
        label: run.name,
        note: run.open ? `running, ${duration(run.duration_ns)}` : duration(run.duration_ns),
      }))}
    />
  );
}
