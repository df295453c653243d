// The active transforms, each with a button that removes it.

import { setParams, useAddress } from '../../core/address';
import { middleCut, safeText } from '../../core/names';
import { duration } from '../../core/time';
import type { TreeTransforms } from '../../flame/transform';

const KIND_LABELS = { focus: 'focus', hide: 'hide', merge: 'merge' } as const;
export type Kind = keyof typeof KIND_LABELS;
const KINDS = Object.keys(KIND_LABELS) as Kind[];

export function transformsOf(params: URLSearchParams): TreeTransforms {
  return {
    focus: params.getAll('focus'),
    hide: params.getAll('hide'),
    merge: params.getAll('merge'),
    recursion: params.get('recursion') === '1',
  };
}

/** Resets the zoom, because its node may be gone. */
export function addTransform(kind: Kind, name: string, params: URLSearchParams): void {
  // There is one focus; hidden and merged functions add up.
  const others = kind === 'focus' ? [] : params.getAll(kind).filter((one) => one !== name);
  setParams({ [kind]: [...others, name], zoom: null });
}

export const NO_TRANSFORMS = { focus: null, hide: null, merge: null, recursion: null, zoom: null };

export function Changes({ hiddenNs }: { hiddenNs: number }) {
  const { params } = useAddress();
  const made = KINDS.flatMap((kind) => params.getAll(kind).map((name) => ({ kind, name })));
  const recursion = params.get('recursion') === '1';
  if (made.length === 0 && !recursion) return null;
  return (
    <p class="transforms">
      {made.map(({ kind, name }) => (
        <button
          key={`${kind} ${name}`}
          class="chip set"
          title={`Remove\n${safeText(name, 600)}`}
          onClick={() => setParams({ [kind]: params.getAll(kind).filter((one) => one !== name), zoom: null })}
        >
          {KIND_LABELS[kind]} <bdi>{middleCut(safeText(name, 600), 40)}</bdi> ✕
        </button>
      ))}
      {recursion && (
        <button class="chip set" title="Remove" onClick={() => setParams({ recursion: null, zoom: null })}>
          collapse recursion ✕
        </button>
      )}
      {hiddenNs > 0 && <span class="soft">{duration(hiddenNs)} hidden</span>}
      {made.length + Number(recursion) > 1 && (
        <button class="link" onClick={() => setParams(NO_TRANSFORMS)}>
          remove all
        </button>
      )}
    </p>
  );
}
