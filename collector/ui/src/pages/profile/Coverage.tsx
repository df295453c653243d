// Coverage of the profile of one task. Stacks are counted by task, not by thread: if most of the thread's time
// has no stacks of its own, those of all threads in the task are shown instead.

import { useEffect } from 'preact/hooks';
import { setParams, useAddress } from '../../core/address';
import { safeText } from '../../core/names';
import { duration } from '../../core/time';
import type { LoadedProfile } from '../../flame/load';

/** The collector's name for time that several threads of a task have in common. */
const NOT_TOLD_APART = '[threads not told apart]';
/** A larger share of time without stacks explains nothing. */
const SHARED_MAX = 0.5;

/** Parameters for all threads of the task's name, whatever task was chosen. */
export const ANY_TASK = { on: null, on_id: null, only: null, ran: null, key: null };

export function Coverage({ loaded }: { loaded: LoadedProfile }) {
  const { params } = useAddress();
  const { functions, fnSelf, layout, metadata } = loaded;
  const thread = params.get('on');
  const isOnly = params.get('only') !== '0';
  const sharedNs = functions.names.reduce((sum, name, fn) => sum + (name === NOT_TOLD_APART ? fnSelf[fn] : 0), 0);
  const isVague = thread !== null && !params.has('only') && sharedNs > SHARED_MAX * layout.total[0];
  useEffect(() => {
    if (isVague) setParams({ only: '0' }, true);
  }, [isVague]);
  if (thread === null) return null;
  const ran = params.get('ran');
  const key = params.get('key');
  const covered = duration(metadata.range.to_ns - metadata.range.from_ns);
  const name = <bdi>{safeText(thread, 30)}</bdi>;
  const others = isOnly ? 'this thread' : 'all threads';
  return (
    <p class="coverage">
      {ran === null ? (
        <>
          The profile covers {covered} of {isOnly ? <>the thread {name}</> : others} of this worker.{' '}
        </>
      ) : (
        <>
          The task{' '}
          {key !== null && (
            <>
              <bdi>{safeText(key, 60)}</bdi>{' '}
            </>
          )}
          ran {duration(Number(ran))} on the thread {name}. The profile covers {covered} of {others} in tasks of this
          name on this worker.{' '}
        </>
      )}
      {isOnly && sharedNs > 0 && (
        <>{duration(sharedNs)} has no stacks, because other threads ran such tasks in the same seconds. </>
      )}
      <button class="link" onClick={() => setParams({ only: isOnly ? '0' : '1', zoom: null })}>
        {isOnly ? 'show all threads' : 'show this thread only'}
      </button>
    </p>
  );
}
