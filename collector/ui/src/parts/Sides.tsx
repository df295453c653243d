// What one side of a comparison is of: a range or a named run, some tasks, workers, phases.

import { useEffect, useState } from 'preact/hooks';
import { type Changes, change } from '../core/address';
import { nowMs } from '../core/live';
import { shown } from '../core/names';
import { duration, type Range, rangeWords, timeMs } from '../core/time';
import { type Fleet, LabelMenu, PhaseMenu, runName, TaskMenu, WorkerMenu } from './Menus';

/** A side's filters; its range is what it is of unless a run is named. */
export interface Side extends Range {
  run: string | null;
  tasks: string[];
  workers: string[];
  labels: string[];
  phases: string[];
}

interface Properties {
  words: string;
  /** What stands before the names of this side's parameters. */
  prefix: string;
  side: Side;
  fleet: Fleet;
}

export function SidePicker({ words, prefix, side, fleet }: Properties) {
  const [own, setOwn] = useState({ from: side.from, to: side.to });
  useEffect(() => setOwn({ from: side.from, to: side.to }), [side.from, side.to]);
  const set = (changes: Changes) =>
    change(
      Object.fromEntries(
        Object.entries({ ...changes, zoom: null }).map(([name, value]) => [
          name === 'zoom' ? name : prefix + name,
          value,
        ]),
      ),
    );
  const runs = fleet.runs?.runs ?? [];
  const bad = Number.isNaN(timeMs(own.from, 0)) || Number.isNaN(timeMs(own.to, 0));
  const commit = () => {
    if (!bad && (own.from !== side.from || own.to !== side.to)) set({ ...own, run: null });
  };
  const field = (which: 'from' | 'to') => (
    <input
      aria-label={`${words}: ${which}`}
      value={own[which]}
      aria-invalid={bad}
      size={11}
      onInput={(event) => setOwn({ ...own, [which]: event.currentTarget.value })}
      onBlur={commit}
      onKeyDown={(event) => {
        if (event.key === 'Enter') commit();
      }}
    />
  );
  return (
    <fieldset class="side">
      <legend>{words}</legend>
      <div class="filters">
        {side.run === null && (
          <>
            {field('from')} to {field('to')}
          </>
        )}
        {runs.length > 0 && (
          <select
            aria-label={`${words}: run`}
            value={side.run ?? ''}
            onChange={(event) => set({ run: event.currentTarget.value || null })}
          >
            <option value="">a range</option>
            {runs.map((run) => (
              <option key={run.id} value={runName(run)}>
                {shown(run.name, 40)}, {duration(run.duration_ns)}
              </option>
            ))}
            {side.run !== null && !runs.some((run) => runName(run) === side.run) && (
              <option value={side.run}>{shown(side.run, 40)}</option>
            )}
          </select>
        )}
        <TaskMenu fleet={fleet} chosen={side.tasks} onChange={(task) => set({ task })} />
        <WorkerMenu fleet={fleet} chosen={side.workers} onChange={(worker) => set({ worker })} />
        <LabelMenu fleet={fleet} chosen={side.labels} onChange={(label) => set({ label })} />
        <PhaseMenu fleet={fleet} chosen={side.phases} onChange={(phase) => set({ phase })} />
      </div>
      <small>
        {bad ? (
          <span role="alert">-90s, -2h, now, 2026-01-31T12:00:00Z or Unix seconds</span>
        ) : side.run === null ? (
          rangeWords(side, nowMs())
        ) : (
          `the run ${shown(side.run, 60)}`
        )}
      </small>
    </fieldset>
  );
}
