// How a page asks for the profile that its address means.

import { apiUrl, rangeOf, useAddress } from '../../core/address';
import { type Answer, asked, paused, useAnswer } from '../../core/live';
import { isLive } from '../../core/time';
import { askProfile } from '../../flame/ask';
import type { Loaded } from '../../flame/load';

/** Parameters of the address that filter samples. */
export const FILTERS = ['task', 'worker', 'state', 'threads', 'label', 'phase'];

export type Pairs = [string, string][];

/** The filters of an address; those that a page is about take the place of its own. */
export function filtersOf(params: URLSearchParams, fixed: Pairs): Pairs {
  const names = FILTERS.filter((name) => !fixed.some(([one]) => one === name));
  return [...fixed, ...names.flatMap((name) => params.getAll(name).map((value): [string, string] => [name, value]))];
}

/** The newest profile of the address's range. */
export function useProfile(fixed: Pairs = []): Answer<Loaded> {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const question = filtersOf(params, fixed);
  if (params.get('by') === 'line') question.push(['by', 'line']);
  if (params.get('phases') === '1') question.push(['phases', 'true']);
  const outside = params.get('outside') === '1' ? 'shown' : 'hidden';
  const key = `${range.from} ${range.to} ${JSON.stringify(question)} ${outside} ${live && pausedAt}`;
  return useAnswer<Loaded>(
    key,
    (signal) => {
      const { from, to } = asked(range);
      return askProfile(
        apiUrl('profile', new URLSearchParams([['from', from], ['to', to], ['format', 'columns'], ...question])),
        outside,
        signal,
      );
    },
    live,
  );
}
