// What is said instead of data: that there is none and what to do, or what went wrong.

import type { ComponentChildren } from 'preact';
import { change, current } from '../core/address';
import type { ApiError } from '../core/fetch';
import { shown } from '../core/names';

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A question that the collector refused. What it names as nearest can be chosen instead. */
export function Refused({ problem }: { problem: ApiError }) {
  const { params } = current();
  const filter = ['task', 'worker'].find((name) => params.has(name) && problem.message.includes(name));
  return (
    <Empty title="This cannot be shown">
      <p>
        <bdi>{shown(problem.message, 600)}</bdi>
      </p>
      {filter &&
        problem.nearest.map((name) => (
          <button key={name} onClick={() => change({ [filter]: name })}>
            <bdi>{shown(name)}</bdi>
          </button>
        ))}
      <button
        onClick={() =>
          change({
            task: null,
            worker: null,
            label: null,
            phase: null,
            state: null,
            threads: null,
            from: null,
            to: null,
          })
        }
      >
        Show everything of the last 5 min
      </button>
    </Empty>
  );
}

/** Nothing has ever been received. */
export function NoData() {
  return (
    <Empty title="No worker has reported yet">
      <p>Add the agent to a program and point it to this collector, or watch a fleet that is made for looking at:</p>
      <pre>emberline demo</pre>
      <p>This page shows the first samples about two seconds after they were taken.</p>
    </Empty>
  );
}

export function Loading({ problem }: { problem?: ApiError | undefined }) {
  return (
    <div class="empty" role="status">
      {problem ? `${shown(problem.message)} Asking again…` : 'Asking the collector…'}
    </div>
  );
}
