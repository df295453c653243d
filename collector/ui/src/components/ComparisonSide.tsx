// One side of a comparison: a range or a named run, and filters.

import { useEffect, useState } from 'preact/hooks';
import { type Changes, setParams } from '../core/address';
import { nowMs } from '../core/clock';
import { safeText } from '../core/names';
import { runName } from '../core/runs';
import { duration, type Range, resolveRange } from '../core/time';
import { type Fleet, LabelMenu, PhaseMenu, TaskMenu, WorkerMenu } from './FilterMenus';
import { RangeFields, RangeMeaning } from './RangeFields';

/** A side's filters. Its range applies unless a run is named. */
export interface Side extends Range {
  run: string | null;
  tasks: string[];
  workers: string[];
  labels: string[];
  phases: string[];
}

interface Properties {
  label: string;
  /** Prefix of this side's parameters. */
  prefix: string;
  side: Side;
  fleet: Fleet;
}

export function SidePicker({ label, prefix, side, fleet }: Properties) {
  const [own, setOwn] = useState({ from: side.from, to: side.to });
  useEffect(() => setOwn({ from: side.from, to: side.to }), [side.from, side.to]);
  const set = (changes: Changes) =>
    setParams(
      Object.fromEntries(
        Object.entries({ ...changes, zoom: null }).map(([name, value]) => [
          name === 'zoom' ? name : prefix + name,
          value,
        ]),
      ),
    );
  const runs = fleet.runs?.runs ?? [];
  const isValid = !('error' in resolveRange(own, nowMs()));
  const commit = () => {
    if (isValid && (own.from !== side.from || own.to !== side.to)) set({ ...own, run: null });
  };
  return (
    <fieldset class="side">
      <legend>{label}</legend>
      <div class="filters">
        {side.run === null && <RangeFields range={own} label={`${label}: `} onChange={setOwn} onDone={commit} />}
        {runs.length > 0 && (
          <select
            aria-label={`${label}: run`}
            value={side.run ?? ''}
            onChange={(event) => set({ run: event.currentTarget.value || null })}
          >
            <option value="">custom range</option>
            {runs.map((run) => (
              <option key={run.id} value={runName(run)}>
                {safeText(run.name, 40)}, {duration(run.duration_ns)}
              </option>
            ))}
            {side.run !== null && !runs.some((run) => runName(run) === side.run) && (
              <option value={side.run}>{safeText(side.run, 40)}</option>
            )}
          </select>
        )}
        <TaskMenu fleet={fleet} chosen={side.tasks} onChange={(task) => set({ task })} />
        <WorkerMenu fleet={fleet} chosen={side.workers} onChange={(worker) => set({ worker })} />
        <LabelMenu fleet={fleet} chosen={side.labels} onChange={(label) => set({ label })} />
        <PhaseMenu fleet={fleet} chosen={side.phases} onChange={(phase) => set({ phase })} />
      </div>
      <small>{side.run === null ? <RangeMeaning range={own} /> : `run ${safeText(side.run, 60)}`}</small>
    </fieldset>
  );
}
