// The hottest functions by self time, and the quality of the samples.

import { useMemo } from 'preact/hooks';
import { setParams, useAddress } from '../../core/address';
import { indicesOfLargest } from '../../core/largest';
import { middleCut, safeText } from '../../core/names';
import { isOwn } from '../../core/symbols';
import { count, duration, percent, quantity } from '../../core/time';
import { labelOf } from '../../flame/label';
import type { LoadedProfile } from '../../flame/load';
import { HiddenTime } from './HiddenTime';
import { statesText } from './states';

const SHOWN = 3;

/** Smaller shares do not explain a function's time. */
const CALLER_SHARE_MIN = 0.5;

/** The program's own function from which most of a dependency's self time comes, if one explains it. */
function ownCaller({ layout, functions, fnSelf }: LoadedProfile, fn: number): number | undefined {
  const isOwnFunction = (one: number) => isOwn(functions.names[one], functions.files[one]);
  if (functions.kinds[fn] !== 'function' || isOwnFunction(fn)) return undefined;
  const byCaller = new Map<number, number>();
  for (let node = 1; node < layout.count; node++) {
    if (layout.fn[node] !== fn || layout.self[node] === 0) continue;
    let above = layout.parent[node];
    while (above !== 0 && !isOwnFunction(layout.fn[above])) above = layout.parent[above];
    if (above !== 0) byCaller.set(layout.fn[above], (byCaller.get(layout.fn[above]) ?? 0) + layout.self[node]);
  }
  return [...byCaller].find(([, ns]) => ns >= CALLER_SHARE_MIN * fnSelf[fn])?.[0];
}

/** Time without stacks is no function: it is shown only if there is nothing else. */
function hottestOf({ functions, fnSelf }: LoadedProfile): number[] {
  const isCode = (fn: number) => functions.kinds[fn] === 'function' || functions.kinds[fn] === 'unresolved';
  const code = indicesOfLargest(fnSelf, SHOWN, (fn) => fnSelf[fn] > 0 && isCode(fn));
  return code.length > 0 ? code : indicesOfLargest(fnSelf, SHOWN, (fn) => fnSelf[fn] > 0);
}

interface Properties {
  loaded: LoadedProfile;
  onSearch(text: string): void;
  onFunction(fn: number): void;
}

export function Hottest({ loaded, onFunction }: Properties) {
  const { params } = useAddress();
  const { layout, functions, fnSelf, metadata } = loaded;
  const order = useMemo(() => hottestOf(loaded), [loaded]);
  const callers = useMemo(() => order.map((fn) => ownCaller(loaded, fn)), [loaded, order]);
  const tasks = params.getAll('task');
  return (
    <div class="hottest">
      <p>
        <b>{duration(layout.total[0])}</b> of thread time {statesText(params)}
        {tasks.length > 0 && (
          <>
            {' '}
            in <bdi>{tasks.map((name) => safeText(name, 40)).join(', ')}</bdi>
          </>
        )}
        , {quantity(metadata.worker_count, 'worker')}
        {metadata.achieved_share !== null && (
          <>
            ,{' '}
            <span title="Share of the expected samples that were taken. Times are measured, so they are correct at any rate.">
              {percent(metadata.achieved_share, 1)} of expected samples
            </span>
          </>
        )}
        . <HiddenTime hidden={metadata.hidden} />
        {params.get('outside') === '1' && (
          <>
            {' '}
            <button class="link" onClick={() => setParams({ outside: null, zoom: null })}>
              hide time outside tasks
            </button>
          </>
        )}
      </p>
      {loaded.pruned > 0 && (
        <p class="soft">
          {count(loaded.pruned)} stacks narrower than a pixel are summed as [pruned]; select a shorter range or a task
          to see them.
        </p>
      )}
      {metadata.corrupt_files && metadata.corrupt_files.length > 0 && (
        <p class="bad">
          ⚠ {quantity(metadata.corrupt_files.length, 'part')} of the store cannot be read: some of the time is missing.
        </p>
      )}
      <ol aria-label="Hottest functions by self time">
        {order.map((fn, rank) => (
          <li key={fn}>
            <button
              title={`${safeText(functions.names[fn], 600)}\nshow callers and callees`}
              onClick={() => onFunction(fn)}
            >
              <span class="rank">{rank === 0 ? 'Hottest (self time)' : `${count(rank + 1)}.`}</span>
              <b>{percent(fnSelf[fn], layout.total[0])}</b>{' '}
              <bdi>
                {callers[rank] !== undefined && (
                  <span class="caller">{middleCut(labelOf(functions, callers[rank]), 30)} → </span>
                )}
                {middleCut(labelOf(functions, fn), 42)}
              </bdi>
            </button>
          </li>
        ))}
      </ol>
    </div>
  );
}
