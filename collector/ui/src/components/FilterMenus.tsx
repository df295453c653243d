// Menus of tasks, workers, labels, phases and runs. Menus without choices are hidden.

import { useEffect, useState } from 'preact/hooks';
import { apiUrl, currentAddress, setParams } from '../core/address';
import type { RunsAnswer, TaskSummaryAnswer, WorkerNamesAnswer } from '../core/api';
import { phaseColor, taskColor } from '../core/colors';
import { fetchJson } from '../core/fetch';
import { useQuery } from '../core/query';
import { paramsOfRun, runName, workersOfRun } from '../core/runs';
import { fetchTaskNames } from '../core/task-names';
import { duration, quantity } from '../core/time';
import { type Choice, MultiSelect } from './MultiSelect';

/** Menus are refreshed less often than the data. */
const EVERY_MS = 15_000;
/** Wait after a key before the collector is asked. */
const TYPING_MS = 150;
/** The phase of a task that sets none. */
const EXECUTE = 'execute';

/** The choices that are known so far. */
export interface Fleet {
  names: TaskSummaryAnswer | undefined;
  workers: WorkerNamesAnswer | undefined;
  runs: RunsAnswer | undefined;
}

export function useFleet(): Fleet {
  const fleet = useQuery<Fleet>(
    'fleet',
    async (signal) => {
      // One response, so that the menus render once.
      const [names, workers, runs] = await Promise.all([
        fetchTaskNames(),
        fetchJson<WorkerNamesAnswer>(apiUrl('workers/names'), signal),
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
  const names = new Set([
    ...(fleet.names?.names ?? []).map(({ name }) => name),
    ...(fleet.names?.sampled ?? []).map(({ name }) => name),
    ...(notes?.keys() ?? []),
  ]);
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

/** The names of the fleet, or if there are more, those with the text that was typed. */
function useNames({ workers }: Fleet, isPart: boolean) {
  const [text, setText] = useState('');
  const [found, setFound] = useState<WorkerNamesAnswer>();
  useEffect(() => {
    if (text === '' || !isPart) {
      setFound(undefined);
      return;
    }
    const stop = new AbortController();
    const ask = () => {
      const query = new URLSearchParams({ text });
      // Without a response the menu keeps what it has.
      fetchJson<WorkerNamesAnswer>(apiUrl('workers/names', query), stop.signal).then(setFound, () => {});
    };
    const timer = setTimeout(ask, TYPING_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, isPart]);
  return { names: found ?? workers, setText };
}

export function WorkerMenu({ fleet, chosen, onChange }: Properties) {
  const { names, setText } = useNames(fleet, (fleet.workers?.omitted ?? 0) > 0);
  const choices = (names?.workers ?? []).map(({ worker, host }): Choice => ({ value: worker, note: host }));
  const omitted = names?.omitted;
  return <MultiSelect what="workers" {...{ chosen, onChange, choices, omitted }} onText={setText} />;
}

/** A worker must have all chosen labels. */
export function LabelMenu({ fleet, chosen, onChange }: Properties) {
  const { names, setText } = useNames(fleet, (fleet.workers?.labels_omitted ?? 0) > 0);
  const labels = names?.labels ?? [];
  if ((fleet.workers?.labels.length ?? 0) + chosen.length === 0) return null;
  const choices = [...labels]
    .sort((a, b) => (a.label < b.label ? -1 : 1))
    .map(({ label, workers }): Choice => ({ value: label, note: quantity(workers, 'worker') }));
  const omitted = names?.labels_omitted;
  return <MultiSelect what="labels" {...{ chosen, onChange, choices, omitted }} onText={setText} />;
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

/** Choosing a run navigates to its range. The name stays in the address until the range changes. */
export function RunMenu({ fleet, chosen }: { fleet: Fleet; chosen: string | null }) {
  const runs = fleet.runs?.runs ?? [];
  if (runs.length === 0 && chosen === null) return null;
  const choose = (values: string[]) => {
    const run = runs.find((one) => runName(one) === values[values.length - 1]);
    const worker = workersOfRun(run, currentAddress().params.getAll('worker'));
    if (!run) setParams({ run: null, worker, from: null, to: null, zoom: null });
    else setParams({ ...paramsOfRun(run, worker), zoom: null });
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
