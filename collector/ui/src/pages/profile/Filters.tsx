// Filters of the profile: tasks, workers, labels, phases, runs, states, threads.

import { Disclosure } from '../../components/Disclosure';
import { LabelMenu, PhaseMenu, RunMenu, TaskMenu, useFleet, WorkerMenu } from '../../components/FilterMenus';
import { setParams, useAddress } from '../../core/address';
import type { TimelineAnswer } from '../../core/api';
import { stateColor } from '../../core/colors';
import { STATE_DESCRIPTIONS, STATES, type State } from '../../core/states';
import { percent, quantity } from '../../core/time';
import type { LoadedProfile } from '../../flame/load';
import { chosenStates, stateParams, WAITS } from './states';

/** The menus, by their parameters. */
const MENUS = ['task', 'worker', 'label', 'phase', 'run'];

export function Filters({ loaded, timeline }: { loaded?: LoadedProfile; timeline?: TimelineAnswer }) {
  const { params } = useAddress();
  const fleet = useFleet();
  const weights = new Map(
    timeline?.series.filter(({ kind }) => kind === 'task').map((series) => [series.name, series.totals.total_ns]),
  );
  const chosen = chosenStates(params);
  const hidden = loaded?.metadata.hidden.states;
  const timeNs = (states: readonly State[]) =>
    states.reduce(
      (sum, state) => sum + (loaded?.layout.states[STATES.indexOf(state)] ?? 0) + (hidden?.[`${state}_ns`] ?? 0),
      0,
    );
  const toggle = (states: readonly State[]) => {
    const next = new Set(chosen);
    const isChosen = states.every((state) => chosen.has(state));
    for (const state of states) isChosen ? next.delete(state) : next.add(state);
    setParams({ state: stateParams(next), zoom: null });
  };
  const allNs = timeNs(STATES);
  const chip = (label: string, title: string, states: readonly State[]) => {
    const count = states.filter((state) => chosen.has(state)).length;
    return (
      <button
        key={label}
        aria-pressed={count === states.length ? true : count > 0 ? 'mixed' : false}
        class="chip"
        title={title}
        onClick={() => toggle(states)}
      >
        <i class="dot" style={{ background: stateColor(states[0]) }} />
        {label}
        {allNs > 0 && <small>{percent(timeNs(states), allNs)}</small>}
      </button>
    );
  };
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
      </Disclosure>
      <span class="chips" role="group" aria-label="Thread states">
        {chip('on CPU', STATE_DESCRIPTIONS.cpu, ['cpu'])}
        {chip('runnable', STATE_DESCRIPTIONS.runnable, ['runnable'])}
        {chip('waiting', 'blocked in any kind of call', WAITS)}
        {WAITS.some((state) => chosen.has(state)) &&
          WAITS.map((state) => chip(state, STATE_DESCRIPTIONS[state], [state]))}
      </span>
    </div>
  );
}
