// Filters of the profile: tasks, workers, labels, phases, runs, states, threads.

import { LabelMenu, PhaseMenu, RunMenu, TaskMenu, useFleet, WorkerMenu } from '../../components/FilterMenus';
import { setParams, useAddress } from '../../core/address';
import type { TimelineAnswer } from '../../core/api';
import { stateColor } from '../../core/colors';
import { STATE_DESCRIPTIONS, STATES } from '../../core/states';
import { percent } from '../../core/time';
import type { LoadedProfile } from '../../flame/load';

export function Filters({ loaded, timeline }: { loaded?: LoadedProfile; timeline?: TimelineAnswer }) {
  const { params } = useAddress();
  const fleet = useFleet();
  const weights = new Map(
    timeline?.series.filter(({ kind }) => kind === 'task').map((series) => [series.name, series.totals.total_ns]),
  );
  const chosenStates = params.getAll('state');
  const all = loaded?.layout.total[0] ?? 0;
  const toggleState = (state: string) => {
    const next = chosenStates.includes(state) ? chosenStates.filter((one) => one !== state) : [...chosenStates, state];
    setParams({ state: next });
  };
  return (
    <div class="filters">
      <TaskMenu
        fleet={fleet}
        notes={weights}
        chosen={params.getAll('task')}
        onChange={(task) => setParams({ task, zoom: null })}
      />
      <WorkerMenu fleet={fleet} chosen={params.getAll('worker')} onChange={(worker) => setParams({ worker })} />
      <LabelMenu fleet={fleet} chosen={params.getAll('label')} onChange={(label) => setParams({ label })} />
      <PhaseMenu fleet={fleet} chosen={params.getAll('phase')} onChange={(phase) => setParams({ phase, zoom: null })} />
      <RunMenu fleet={fleet} chosen={params.get('run')} />
      <span class="chips" role="group" aria-label="Thread states">
        {STATES.map((state, s) => (
          <button
            key={state}
            aria-pressed={chosenStates.includes(state)}
            class="chip"
            title={STATE_DESCRIPTIONS[state]}
            onClick={() => toggleState(state)}
          >
            <i class="dot" style={{ background: stateColor(state) }} />
            {state}
            {chosenStates.length === 0 && <small>{percent(loaded?.layout.states[s] ?? 0, all)}</small>}
          </button>
        ))}
        {chosenStates.length > 0 && (
          <button class="chip" onClick={() => setParams({ state: null })}>
            all states
          </button>
        )}
      </span>
      <select
        aria-label="Threads"
        value={params.get('threads') ?? 'program'}
        onChange={(event) =>
          setParams({ threads: event.currentTarget.value === 'program' ? null : event.currentTarget.value })
        }
      >
        <option value="program">program threads</option>
        <option value="agent">profiler threads</option>
        <option value="all">all threads</option>
      </select>
    </div>
  );
}
