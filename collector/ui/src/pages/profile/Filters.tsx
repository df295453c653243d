// Which tasks, workers, phases, states and threads the profile is of.

import { change, useAddress } from '../../core/address';
import type { TimelineAnswer } from '../../core/api';
import { stateColour } from '../../core/colours';
import { STATE_WORDS, STATES } from '../../core/states';
import { percent } from '../../core/time';
import type { Loaded } from '../../flame/load';
import { LabelMenu, PhaseMenu, RunMenu, TaskMenu, useFleet, WorkerMenu } from '../../parts/Menus';

export function Filters({ loaded, timeline }: { loaded?: Loaded; timeline?: TimelineAnswer }) {
  const { params } = useAddress();
  const fleet = useFleet();
  const weights = new Map(
    timeline?.series.filter(({ kind }) => kind === 'task').map((series) => [series.name, series.totals.total_ns]),
  );
  const chosenStates = params.getAll('state');
  const all = loaded?.layout.total[0] ?? 0;
  const toggleState = (state: string) => {
    const next = chosenStates.includes(state) ? chosenStates.filter((one) => one !== state) : [...chosenStates, state];
    change({ state: next });
  };
  return (
    <div class="filters">
      <TaskMenu
        fleet={fleet}
        notes={weights}
        chosen={params.getAll('task')}
        onChange={(task) => change({ task, zoom: null })}
      />
      <WorkerMenu fleet={fleet} chosen={params.getAll('worker')} onChange={(worker) => change({ worker })} />
      <LabelMenu fleet={fleet} chosen={params.getAll('label')} onChange={(label) => change({ label })} />
      <PhaseMenu fleet={fleet} chosen={params.getAll('phase')} onChange={(phase) => change({ phase, zoom: null })} />
      <RunMenu fleet={fleet} chosen={params.get('run')} />
      <span class="chips" role="group" aria-label="States of threads">
        {STATES.map((state, s) => (
          <button
            key={state}
            aria-pressed={chosenStates.includes(state)}
            class="chip"
            title={STATE_WORDS[state]}
            onClick={() => toggleState(state)}
          >
            <i class="dot" style={{ background: stateColour(state) }} />
            {state}
            {chosenStates.length === 0 && <small>{percent(loaded?.layout.states[s] ?? 0, all)}</small>}
          </button>
        ))}
        {chosenStates.length > 0 && (
          <button class="chip" onClick={() => change({ state: null })}>
            all states
          </button>
        )}
      </span>
      <select
        aria-label="Threads"
        value={params.get('threads') ?? 'program'}
        onChange={(event) =>
          change({ threads: event.currentTarget.value === 'program' ? null : event.currentTarget.value })
        }
      >
        <option value="program">the program's threads</option>
        <option value="agent">the profiler's threads</option>
        <option value="all">all threads</option>
      </select>
    </div>
  );
}
