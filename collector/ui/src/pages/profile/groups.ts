// Groups of a timeline: kinds, and the filters that select one.

import type { Series, WorkerNamesAnswer } from '../../core/api';

/** Kinds of groups next to tasks and labels. */
export const GROUP_KINDS = ['worker', 'host', 'run', 'phase', 'thread'];

/** Groups with a layer of their own. */
export const GROUPS_SHOWN = 20;

/** Most groups that are searched: as many as the collector returns. */
export const GROUPS_SEARCHED = 10_000;

/** Keys of the labels in an answer of names, in order. */
export function labelKeys(names: WorkerNamesAnswer | undefined): string[] {
  const keys = (names?.labels ?? []).map(({ label }) => label.slice(0, label.indexOf('=')));
  return [...new Set(keys)].sort();
}

/** The parameter of the address that selects a group; `null` for kinds without one and for groups without a value. */
export function groupFilter(kind: string, name: string): [string, string] | null {
  if (name.startsWith('[')) return null;
  if (kind.startsWith('label:')) return ['label', `${kind.slice('label:'.length)}=${name}`];
  return ['worker', 'phase'].includes(kind) ? [kind, name] : null;
}

/** The heaviest groups whose name has a text, in any case. */
export function groupsWith(series: Series[], text: string, most: number): Series[] {
  const wanted = text.toLowerCase();
  return series.filter(({ kind, name }) => kind === 'group' && name.toLowerCase().includes(wanted)).slice(0, most);
}
