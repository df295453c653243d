// Requests the profile that the address describes.

import { apiUrl, rangeOf, useAddress } from '../../core/address';
import { pauseTime, type QueryState, requestRange, useQuery } from '../../core/query';
import { isLive } from '../../core/time';
import { fetchProfile } from '../../flame/client';
import type { LoadedProfile } from '../../flame/load';

/** Parameters of the address that filter samples. */
export const FILTERS = ['task', 'worker', 'state', 'threads', 'label', 'phase'];

export type Params = [string, string][];

/** The filters of the address; `fixed` ones replace those of the same name. */
export function filtersOf(params: URLSearchParams, fixed: Params): Params {
  const names = FILTERS.filter((name) => !fixed.some(([one]) => one === name));
  return [...fixed, ...names.flatMap((name) => params.getAll(name).map((value): [string, string] => [name, value]))];
}

/** The newest profile of the address's range. */
export function useProfile(fixed: Params = []): QueryState<LoadedProfile> {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const question = filtersOf(params, fixed);
  if (params.get('by') === 'line') question.push(['by', 'line']);
  if (params.get('phases') === '1') question.push(['phases', 'true']);
  const outside = params.get('outside') === '1' ? 'shown' : 'hidden';
  const key = `${range.from} ${range.to} ${JSON.stringify(question)} ${outside} ${live && pausedAt}`;
  return useQuery<LoadedProfile>(
    key,
    (signal) => {
      const { from, to } = requestRange(range);
      return fetchProfile(
        apiUrl('profile', new URLSearchParams([['from', from], ['to', to], ['format', 'columns'], ...question])),
        outside,
        signal,
      );
    },
    live,
  );
}
