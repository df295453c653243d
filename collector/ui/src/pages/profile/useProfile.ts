// Requests the profile that the address describes.

import { useEffect, useState } from 'preact/hooks';
import { apiUrl, rangeOf, useAddress } from '../../core/address';
import { pauseTime, type QueryState, requestRange, useQuery } from '../../core/query';
import { isLive } from '../../core/time';
import { fetchProfile } from '../../flame/client';
import type { LoadedProfile } from '../../flame/load';
import { type Params, queryOf } from './query';

/** The newest profile of the address's range. */
export function useProfile(fixed: Params = []): QueryState<LoadedProfile> {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const query = queryOf(params, fixed);
  const key = `${range.from} ${range.to} ${JSON.stringify(query)} ${live && pausedAt}`;
  // Names that are being read come with a later answer.
  const [isPending, setPending] = useState(false);
  const answer = useQuery<LoadedProfile>(
    key,
    (signal) => {
      const { from, to } = requestRange(range);
      return fetchProfile(
        apiUrl('profile', new URLSearchParams([['from', from], ['to', to], ['format', 'columns'], ...query])),
        signal,
      );
    },
    live || isPending,
  );
  const pending = answer.value?.metadata.unnamed.pending === true;
  useEffect(() => setPending(pending), [pending]);
  return answer;
}
