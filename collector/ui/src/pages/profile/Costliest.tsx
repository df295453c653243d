// The answer before any question: which functions take the most time themselves, and how far the
// profile can be trusted.

import { useMemo } from 'preact/hooks';
import { change, useAddress } from '../../core/address';
import { heaviest } from '../../core/heaviest';
import { middleCut, shown } from '../../core/names';
import { count, duration, percent } from '../../core/time';
import { labelOf } from '../../flame/draw';
import type { Loaded } from '../../flame/load';

const SHOWN = 3;

interface Properties {
  loaded: Loaded;
  onSearch(text: string): void;
  onFunction(fn: number): void;
}

export function Costliest({ loaded, onFunction }: Properties) {
  const { params } = useAddress();
  const { layout, functions, fnSelf, about } = loaded;
  const order = useMemo(() => heaviest(fnSelf, SHOWN, (fn) => fnSelf[fn] > 0), [fnSelf]);
  const tasks = params.getAll('task');
  return (
    <div class="costliest">
      <p>
        <b>{duration(layout.total[0])}</b> of thread time
        {tasks.length > 0 && (
          <>
            {' '}
            in <bdi>{tasks.map((name) => shown(name, 40)).join(', ')}</bdi>
          </>
        )}
        , {about.workers.length} {about.workers.length === 1 ? 'worker' : 'workers'}
        {about.achieved_share !== null && (
          <>
            ,{' '}
            <span title="The share of samplings that were made of those due. Times are measured, so they hold at any rate.">
              {percent(about.achieved_share, 1)} of samples made
            </span>
          </>
        )}
        {loaded.outsideNs > 0 && (
          <>
            ; {duration(loaded.outsideNs)} outside tasks left out{' '}
            <button class="link" onClick={() => change({ outside: '1', zoom: null })}>
              show
            </button>
          </>
        )}
        {params.get('outside') === '1' && (
          <>
            {' '}
            <button class="link" onClick={() => change({ outside: null, zoom: null })}>
              only tasks
            </button>
          </>
        )}
      </p>
      {loaded.pruned > 0 && (
        <p class="soft">
          {count(loaded.pruned)} stacks that are narrower than a pixel are summed as [pruned]; a shorter range, or one
          task, shows them.
        </p>
      )}
      {about.corrupt_files && about.corrupt_files.length > 0 && (
        <p class="bad">
          ⚠ {count(about.corrupt_files.length)} files of the store could not be read: some of the time is missing here.
        </p>
      )}
      <ol aria-label="Functions that cost most by themselves">
        {order.map((fn, rank) => (
          <li key={fn}>
            <button
              title={`${shown(functions.names[fn], 600)}\nshow its callers and callees`}
              onClick={() => onFunction(fn)}
            >
              <span class="rank">{rank === 0 ? 'costs most' : `${count(rank + 1)}.`}</span>
              <b>{percent(fnSelf[fn], layout.total[0])}</b> <bdi>{middleCut(labelOf(functions, fn), 42)}</bdi>
            </button>
          </li>
        ))}
      </ol>
    </div>
  );
}
