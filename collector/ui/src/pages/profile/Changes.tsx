// What the reader did to the tree, each with the way back.

import { change, useAddress } from '../../core/address';
import { middleCut, shown } from '../../core/names';
import { duration } from '../../core/time';
import type { TreeChanges } from '../../flame/change';

const WORDS = { focus: 'only through', drop: 'without', merge: 'merged' } as const;
export type Kind = keyof typeof WORDS;
const KINDS = Object.keys(WORDS) as Kind[];

export function changesOf(params: URLSearchParams): TreeChanges {
  return {
    focus: params.getAll('focus'),
    drop: params.getAll('drop'),
    merge: params.getAll('merge'),
    recursion: params.get('recursion') === '1',
  };
}

/** The zoom may not be there any more, so it goes. */
export function addChange(kind: Kind, name: string, params: URLSearchParams): void {
  // To look through one function at a time is what one wants; of the others there may be many.
  const others = kind === 'focus' ? [] : params.getAll(kind).filter((one) => one !== name);
  change({ [kind]: [...others, name], zoom: null });
}

export const NO_CHANGES = { focus: null, drop: null, merge: null, recursion: null, zoom: null };

export function Changes({ leftOutNs }: { leftOutNs: number }) {
  const { params } = useAddress();
  const made = KINDS.flatMap((kind) => params.getAll(kind).map((name) => ({ kind, name })));
  const recursion = params.get('recursion') === '1';
  if (made.length === 0 && !recursion) return null;
  return (
    <p class="changes">
      {made.map(({ kind, name }) => (
        <button
          key={`${kind} ${name}`}
          class="chip set"
          title={`Undo\n${shown(name, 600)}`}
          onClick={() => change({ [kind]: params.getAll(kind).filter((one) => one !== name), zoom: null })}
        >
          {WORDS[kind]} <bdi>{middleCut(shown(name, 600), 40)}</bdi> ✕
        </button>
      ))}
      {recursion && (
        <button class="chip set" title="Undo" onClick={() => change({ recursion: null, zoom: null })}>
          recursion collapsed ✕
        </button>
      )}
      {leftOutNs > 0 && <span class="soft">{duration(leftOutNs)} left out</span>}
      {made.length + Number(recursion) > 1 && (
        <button class="link" onClick={() => change(NO_CHANGES)}>
          undo all
        </button>
      )}
    </p>
  );
}
