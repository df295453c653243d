// Filters of the profile: tasks, workers, labels, phases, runs, states, threads.

import { Disclosure } from '../../components/Disclosure';
import { LabelMenu, PhaseMenu, RunMenu, TaskMenu, useFleet, WorkerMenu } from '../../components/FilterMenus';
import { setParams, useAddress } from '../../core/address';
import type { TimelineAnswer } from '../../core/api';
import { safeText } from '../../core/names';
import { STATES, type State } from '../../core/states';
import { quantity } from '../../core/time';
import type { LoadedProfile } from '../../flame/load';
import { GROUP_KINDS, labelKeys } from './groups';
import { StateChips } from './StateChips';
import { chosenStates, stateParams } from './states';

/** The menus, by their parameters. */
const MENUS = ['task', 'worker', 'label', 'phase', 'run'];

export function Filters({ loaded, timeline }: { loaded?: LoadedProfile; timeline?: TimelineAnswer }) {
  const { params } = useAddress();
  const fleet = useFleet();
  const weights = new Map(
    timeline?.series.filter(({ kind }) => kind === 'task').map((series) => [series.name, series.totals.total_ns]),
  );
  const hidden = loaded?.metadata.hidden.states;
  const timeNs = (state: State) => (loaded?.layout.states[STATES.indexOf(state)] ?? 0) + (hidden?.[`${state}_ns`] ?? 0);
  const choices = MENUS.map((name) => ({ name, count: params.getAll(name).length })).filter(({ count }) => count > 0);
  const note = choices.map(({ name, count }) => quantity(count, name)).join(', ');
  return (
    <div class="filters">
      <Disclosure label="Filters" note={note}>
        <TaskMenu
          fleet={fleet}
          notes={weights}
          chosen={params.getAll('task')}
          onChange={(task) => setParams({ task, zoom: null })}
        />
        <WorkerMenu fleet={fleet} chosen={params.getAll('worker')} onChange={(worker) => setParams({ worker })} />
        <LabelMenu fleet={fleet} chosen={params.getAll('label')} onChange={(label) => setParams({ label })} />
        <PhaseMenu
          fleet={fleet}
          chosen={params.getAll('phase')}
          onChange={(phase) => setParams({ phase, zoom: null })}
        />
        <RunMenu fleet={fleet} chosen={params.get('run')} />
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
        <select
          aria-label="Timeline by"
          value={params.get('lines') ?? 'task'}
          onChange={(event) =>
            setParams({ lines: event.currentTarget.value === 'task' ? null : event.currentTarget.value })
          }
        >
          {['task', ...GROUP_KINDS, ...labelKeys(fleet.workers).map((key) => `label:${key}`)].map((kind) => (
            <option key={kind} value={kind}>
              timeline by {safeText(kind.replace(/^label:/, 'label '), 40)}
            </option>
          ))}
        </select>
      </Disclosure>
      <StateChips
        chosen={chosenStates(params)}
        timeNs={timeNs}
        onChange={(chosen) => setParams({ state: stateParams(chosen), zoom: null })}
      />
    </div>
  );
}
