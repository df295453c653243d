// Menus of what the fleet has: tasks, workers, their labels, phases of tasks, named runs. Those of
// which there is nothing to choose are left out.

import { apiUrl, change } from '../core/address';
import type { Run, RunsAnswer, TaskSummaryAnswer, WorkersAnswer } from '../core/api';
import { phaseColour, taskColour } from '../core/colours';
import { fetchJson } from '../core/fetch';
import { useAnswer } from '../core/live';
import { askNames } from '../core/task-names';
import { duration, pinned } from '../core/time';
import { type Choice, Select } from './Select';

/** Menus need not be as fresh as what they choose from. */
const EVERY_MS = 15_000;
/** A task is in this phase unless it says otherwise. */
const EXECUTE = 'execute';

/** What can be chosen, as far as it has been heard of. */
export interface Fleet {
  names: TaskSummaryAnswer | undefined;
  workers: WorkersAnswer | undefined;
  runs: RunsAnswer | undefined;
}

export function useFleet(): Fleet {
  const fleet = useAnswer<Fleet>(
    'fleet',
    async (signal) => {
      // One answer, so that the menus are made once.
      const [names, workers, runs] = await Promise.all([
        askNames(),
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

/** `notes`: words beside the names, by which they stand heaviest first. */
export function TaskMenu({ fleet, chosen, onChange, notes }: Properties & { notes?: Map<string, number> }) {
  const names = new Set([...(fleet.names?.names ?? []).map(({ name }) => name), ...(notes?.keys() ?? [])]);
  const sorted = [...names].sort((a, b) => (notes?.get(b) ?? 0) - (notes?.get(a) ?? 0));
  return (
    <Select
      what="tasks"
      chosen={chosen}
      onChange={onChange}
      choices={sorted.map((name) => ({
        value: name,
        colour: taskColour(name),
        note: notes?.has(name) ? duration(notes.get(name)!) : '',
      }))}
    />
  );
}

export function WorkerMenu({ fleet, chosen, onChange }: Properties) {
  const choices = (fleet.workers?.workers ?? []).map(
    ({ worker, epochs }): Choice => ({ value: worker, note: epochs[epochs.length - 1]?.host }),
  );
  return <Select what="workers" chosen={chosen} onChange={onChange} choices={choices} />;
}

/** Of several labels, workers must have all. */
export function LabelMenu({ fleet, chosen, onChange }: Properties) {
  const having = new Map<string, number>();
  for (const { epochs } of fleet.workers?.workers ?? []) {
    // What a worker's last agent said counts.
    for (const [key, value] of Object.entries(epochs[epochs.length - 1]?.labels ?? {}))
      having.set(`${key}=${value}`, (having.get(`${key}=${value}`) ?? 0) + 1);
  }
  if (having.size + chosen.length === 0) return null;
  const choices = [...having]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([value, workers]): Choice => ({ value, note: workers === 1 ? '1 worker' : `${workers} workers` }));
  return <Select what="labels" chosen={chosen} onChange={onChange} choices={choices} />;
}

export function PhaseMenu({ fleet, chosen, onChange }: Properties) {
  const sums = new Map<string, number>();
  for (const { phases = [] } of fleet.names?.names ?? [])
    for (const { name, duration_ns } of phases) sums.set(name, (sums.get(name) ?? 0) + duration_ns);
  sums.delete(EXECUTE);
  if (sums.size + chosen.length === 0) return null;
  const names = [EXECUTE, ...[...sums].sort(([, a], [, b]) => b - a).map(([name]) => name)];
  return (
    <Select
      what="phases"
      chosen={chosen}
      onChange={onChange}
      choices={names.map((value) => ({ value, colour: phaseColour(value), note: '' }))}
    />
  );
}

/** What the API calls a run; its name alone would be the newest of that name. */
export const runName = ({ name, id }: Run): string => `${name}@${id}`;

/** A run is a range: it is chosen by going there, and its name stays in the address until one goes elsewhere. */
export function RunMenu({ fleet, chosen }: { fleet: Fleet; chosen: string | null }) {
  const runs = fleet.runs?.runs ?? [];
  if (runs.length === 0 && chosen === null) return null;
  const choose = (values: string[]) => {
    const run = runs.find((one) => runName(one) === values[values.length - 1]);
    if (!run) change({ run: null, from: null, to: null, zoom: null });
    else
      change({
        run: runName(run),
        from: pinned(Math.floor(run.start_ns / 1e6)),
        to: run.stop_ns === null ? null : pinned(Math.ceil(run.stop_ns / 1e6)),
        zoom: null,
      });
  };
  return (
    <Select
      what="runs"
      chosen={chosen === null ? [] : [chosen]}
      onChange={choose}
      choices={runs.map((run) => ({
        value: runName(run),
        words: run.name,
        note: run.open ? `goes on, ${duration(run.duration_ns)}` : duration(run.duration_ns),
      }))}
    />
  );
}
