// Which tasks, workers, states and threads the profile is of.

import { change, useAddress } from '../../core/address';
import { apiUrl } from '../../core/address';
import { ask, type SummaryAnswer, type TimelineAnswer, type WorkersAnswer } from '../../core/api';
import { stateColour, taskColour } from '../../core/colours';
import { useAnswer } from '../../core/live';
import { STATES, STATE_WORDS } from '../../core/states';
import { duration, percent } from '../../core/time';
import type { Loaded } from '../../flame/load';
import { Select } from '../../parts/Select';

/** Menus need not be as fresh as what they choose from. */
const MENU_EVERY_MS = 15_000;

export function Filters({ loaded, timeline }: { loaded?: Loaded; timeline?: TimelineAnswer }) {
  const { params } = useAddress();
  const names = useAnswer<SummaryAnswer>('names', (signal) => ask(apiUrl('tasks', new URLSearchParams({ summary: 'true' })), signal), true, MENU_EVERY_MS);
  const workers = useAnswer<WorkersAnswer>('workers', (signal) => ask(apiUrl('workers'), signal), true, MENU_EVERY_MS);
  const weights = new Map(timeline?.series.map((series) => [series.name, series.totals.total_ns]));
  const taskNames = new Set([...(names.value?.names.map((task) => task.name) ?? []), ...(timeline?.series.filter(({ kind }) => kind === 'task').map(({ name }) => name) ?? [])]);
  const tasks = [...taskNames].sort((a, b) => (weights.get(b) ?? 0) - (weights.get(a) ?? 0));
  const chosenStates = params.getAll('state');
  const all = loaded?.layout.total[0] ?? 0;
  const toggleState = (state: string) => {
    const next = chosenStates.includes(state) ? chosenStates.filter((one) => one !== state) : [...chosenStates, state];
    change({ state: next });
  };
  return (
    <div class="filters">
      <Select
        what="tasks" chosen={params.getAll('task')} onChange={(task) => change({ task, zoom: null })}
        choices={tasks.map((name) => ({ value: name, colour: taskColour(name), note: weights.has(name) ? duration(weights.get(name)!) : '' }))}
      />
      <Select
        what="workers" chosen={params.getAll('worker')} onChange={(worker) => change({ worker })}
        choices={(workers.value?.workers ?? []).map(({ worker, epochs }) => ({ value: worker, note: epochs[epochs.length - 1]?.host }))}
      />
      <span class="chips" role="group" aria-label="States of threads">
        {STATES.map((state, s) => (
          <button
            key={state} aria-pressed={chosenStates.includes(state)} class="chip" title={STATE_WORDS[state]} onClick={() => toggleState(state)}
          >
            <i class="dot" style={{ background: stateColour(state) }} />{state}
            {chosenStates.length === 0 && <small>{percent(loaded?.layout.states[s] ?? 0, all)}</small>}
          </button>
        ))}
        {chosenStates.length > 0 && <button class="chip" onClick={() => change({ state: null })}>all states</button>}
      </span>
      <select
        aria-label="Threads" value={params.get('threads') ?? 'program'}
        onChange={(event) => change({ threads: event.currentTarget.value === 'program' ? null : event.currentTarget.value })}
      >
        <option value="program">the program's threads</option>
        <option value="agent">the profiler's threads</option>
        <option value="all">all threads</option>
      </select>
    </div>
  );
}
