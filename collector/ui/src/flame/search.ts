// Search for functions, and their share of the time.

import { type Functions, type Layout, NO_FUNCTION } from './layout';
import { isUnfinished, searchSelector, selected } from './select';

export interface SearchResult {
  /** 1 for each function that matches. */
  functions: Uint8Array;
  /** Time in and below matching functions; nested matches count once. */
  totalNs: number;
  /** Matching nodes, depth first. */
  nodes: Uint32Array;
}

/** The result of a search by parts of names, or with a prefix by patterns, files or crates. */
export function search(text: string, layout: Layout, functions: Functions): SearchResult | undefined {
  if (text === '' || isUnfinished(text)) return undefined;
  const matches = selected(functions, [searchSelector(text, functions)]);
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
