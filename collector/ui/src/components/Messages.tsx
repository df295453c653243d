// Messages in place of data: empty results, errors, loading.

import type { ComponentChildren } from 'preact';
import { currentAddress, setParams } from '../core/address';
import type { ApiError } from '../core/fetch';
import { safeText } from '../core/names';

export function EmptyState({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** An invalid request. Offers the nearest known names. */
export function InvalidRequest({ problem }: { problem: ApiError }) {
  const { params } = currentAddress();
  const filter = ['task', 'worker', 'run'].find(
    (name) => params.has(name) && problem.message.includes(`no ${name} is called`),
  );
  return (
    <EmptyState title="Invalid request">
      <p>
        <bdi>{safeText(problem.message, 600)}</bdi>
      </p>
      {filter &&
        problem.nearest.map((name) => (
          <button key={name} onClick={() => setParams({ [filter]: name })}>
            <bdi>{safeText(name)}</bdi>
          </button>
        ))}
      <button
        onClick={() =>
          setParams({
            task: null,
            worker: null,
            label: null,
            phase: null,
            state: null,
            threads: null,
            run: null,
            from: null,
            to: null,
          })
        }
      >
        Clear filters and show the last 5 min
      </button>
    </EmptyState>
  );
}

/** The times of the address are no range. */
export function InvalidRange({ error }: { error: string }) {
  return (
    <EmptyState title="Invalid time range">
      <p>
        <bdi>{safeText(error, 300)}</bdi>
      </p>
      <button onClick={() => setParams({ from: null, to: null, zoom: null })}>Show the last 5 min</button>
    </EmptyState>
  );
}

/** No worker has ever reported. */
export function NoData() {
  return (
    <EmptyState title="No worker has reported yet">
      <p>Add the agent to a program and point it at this collector, or try the demo:</p>
      <pre>emberline demo</pre>
      <p>The first samples appear here about two seconds after they are taken.</p>
    </EmptyState>
  );
}

export function Loading({ problem }: { problem?: ApiError | undefined }) {
  return (
    <div class="empty" role="status">
      {problem ? `${safeText(problem.message)} Retrying…` : 'Loading…'}
    </div>
  );
}
