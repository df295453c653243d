// Query to the collector from the page's address: filters, view, threads.

import { rangeOf } from '../../core/address';
import { nowMs } from '../../core/clock';
import { isLive, isoTime, type Range, resolveRange } from '../../core/time';
import { statesOf } from './states';

/** Parameters of the address that filter samples. */
export const FILTERS = ['task', 'worker', 'state', 'threads', 'label', 'phase'];

export type Params = [string, string][];

/** The values of some parameters of the address. */
export const valuesOf = (params: URLSearchParams, names: string[]): Params =>
  names.flatMap((name) => params.getAll(name).map((value): [string, string] => [name, value]));

/** The filters of the address; `fixed` ones replace those of the same name. Without states, time on CPU. */
export function filtersOf(params: URLSearchParams, fixed: Params): Params {
  const names = FILTERS.filter((name) => name !== 'state' && !fixed.some(([one]) => one === name));
  const states = statesOf(params).map((state): [string, string] => ['state', state]);
  return [...fixed, ...valuesOf(params, names), ...states];
}

/** Values of `stacks`, next to the default. */
const STACKS = ['full', 'own', 'python', 'native'];

/** The collector's parameters that select the visible part of a profile. */
export function viewOf(params: URLSearchParams): Params {
  const stacks = params.get('stacks');
  return [
    ['outside', params.get('outside') === '1' ? 'shown' : 'hidden'],
    ['stacks', stacks !== null && STACKS.includes(stacks) ? stacks : 'simple'],
  ];
}

/** The thread of the chosen task. The time of short-lived threads is summed by name, with the id 0. */
function threadOf(params: URLSearchParams): Params {
  const name = params.get('on');
  if (name === null || params.get('only') === '0') return [];
  return [
    ['thread', name],
    ['thread_id', params.get('on_id') ?? '0'],
    ['thread_id', '0'],
  ];
}

/** The longest range with a flame chart; the collector rejects more single seconds. */
const CHART_MAX_MS = 600_000;

/** The end of a range that is too long for a flame chart; `null` for other ranges. */
export function chartableEnd(range: Range, now: number): Range | null {
  const resolved = resolveRange(range, now);
  if ('error' in resolved || resolved.toMs - resolved.fromMs <= CHART_MAX_MS) return null;
  if (isLive(range)) return { from: '-10m', to: 'now' };
  return { from: isoTime(resolved.toMs - CHART_MAX_MS), to: isoTime(resolved.toMs) };
}

/** Everything but range and format that the collector needs for the profile of the address. */
export function queryOf(params: URLSearchParams, fixed: Params): Params {
  const query = [...filtersOf(params, fixed), ...viewOf(params)];
  query.push(...threadOf(params));
  if (params.get('by') === 'line') query.push(['by', 'line']);
  if (params.get('phases') === '1') query.push(['phases', 'true']);
  const isChart = params.get('view') === 'chart' && chartableEnd(rangeOf(params), nowMs()) === null;
  if (isChart) query.push(['group', 'second']);
  return query;
}
