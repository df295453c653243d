// The search for functions: a field whose text is in the address.

import type { ComponentChildren, RefObject } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { setParams, useAddress } from '../core/address';
import { percent, quantity } from '../core/time';
import type { Functions, Layout } from '../flame/layout';
import { type SearchResult, search } from '../flame/search';
import { scopeOf } from '../flame/select';

/** Delay before typed text goes into the address. */
const TYPING_MS = 250;

interface FunctionSearch {
  text: string;
  setText(text: string): void;
  field: RefObject<HTMLInputElement | null>;
  result: SearchResult | undefined;
}

interface SearchFieldProperties extends Omit<FunctionSearch, 'result'> {
  children?: ComponentChildren;
}

/** The text of the field, which follows the address unless someone types, and its result. */
export function useFunctionSearch(layout: Layout, functions: Functions): FunctionSearch {
  const addressText = useAddress().params.get('q') ?? '';
  const [text, setText] = useState(addressText);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (document.activeElement !== field.current) setText(addressText);
  }, [addressText]);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text !== addressText) setParams({ q: text || null }, true);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const result = useMemo(() => search(text, layout, functions), [text, layout, functions]);
  return { text, setText, field, result };
}

/** The field, and next to it what was found. */
export function SearchField({ text, setText, field, children }: SearchFieldProperties) {
  return (
    <label class="search">
      <input
        ref={field}
        type="search"
        value={text}
        placeholder="Search, or re:…  /"
        title="Searches this profile: a part of a function's name as shown or in full; re:PATTERN, a regular expression for full names; file:PATTERN for files; crate:NAME for a whole crate"
        aria-label="Search functions"
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Escape') setText('');
          if (event.key === 'Escape' || event.key === 'Enter') field.current?.blur();
        }}
      />
      <span aria-live="polite">{children}</span>
    </label>
  );
}

interface SummaryProperties {
  text: string;
  result: SearchResult;
  /** Time of the whole profile. */
  total: number;
  /** The share of the zoomed view. */
  viewShare?: string;
  /** Applies a transform to what was found. */
  onTransform?(kind: 'focus' | 'hide'): void;
}

/** The searched text and the share of the profile that matches. */
export function SearchSummary({ text, result, total, viewShare, onTransform }: SummaryProperties) {
  const functions = result.functions.reduce((sum, matches) => sum + matches, 0);
  return (
    <>
      <output>
        {scopeOf(text)} in this profile: {quantity(functions, 'function')}, {quantity(result.nodes.length, 'frame')},{' '}
        {percent(result.totalNs, total)} of total{viewShare !== undefined && `, ${viewShare} of the view`}
      </output>
      {functions > 0 &&
        onTransform &&
        (['focus', 'hide'] as const).map((kind) => (
          <button key={kind} class="link" aria-label={`${kind} what was found`} onClick={() => onTransform(kind)}>
            {kind}
          </button>
        ))}
    </>
  );
}
