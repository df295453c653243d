// Search for functions, and their share of the time.

import { type Functions, type Layout, NO_FUNCTION } from './layout';

export interface SearchResult {
  /** 1 for each function that matches. */
  functions: Uint8Array;
  /** Time in and below matching functions; nested matches count once. */
  totalNs: number;
  /** Matching nodes, depth first. */
  nodes: Uint32Array;
}

/** The pattern of a search: a regular expression, or literal text if it is not a valid one. */
export function pattern(text: string): RegExp {
  try {
    return new RegExp(text, 'iu');
  } catch {
    return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'iu');
  }
}

export function search(text: string, layout: Layout, functions: Functions): SearchResult | undefined {
  if (text === '') return undefined;
  const expression = pattern(text);
  const matches = new Uint8Array(functions.names.length);
  for (let fn = 0; fn < matches.length; fn++) {
    if (expression.test(functions.names[fn]) || expression.test(functions.files[fn])) matches[fn] = 1;
  }
  const nodes = new Uint32Array(layout.count);
  let found = 0;
  for (let i = 1; i < layout.count; i++) if (matches[layout.fn[i]] === 1) nodes[found++] = i;
  return { functions: matches, totalNs: totalBelow(layout, matches), nodes: nodes.slice(0, found) };
}

/** Total time of subtrees of `functions`; nested ones count once. */
export function totalBelow(layout: Layout, functions: Uint8Array, from = 0): number {
  let sum = 0;
  for (let i = from; i < layout.end[from]; ) {
    const fn = layout.fn[i];
    if (fn !== NO_FUNCTION && functions[fn] === 1) {
      sum += layout.total[i];
      i = layout.end[i];
    } else {
      i++;
    }
  }
  return sum;
}
