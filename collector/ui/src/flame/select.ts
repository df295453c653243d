// How readers select functions: by name, by crate, or by a pattern. The collector has the same rules
// (`flamegraph/src/view/select.rs`); the examples in `flamegraph/views.json` are for both.

import { functionLabel } from '../core/symbols';
import type { Functions } from './layout';

/** Selects all functions of a crate. */
const CRATE = 'crate:';
/** Selects functions by a pattern of their names. */
const NAMES = 're:';
/** Selects functions by a pattern of their files. */
const FILES = 'file:';

/** A regular expression in any case, or literal text if it is not a valid one. */
export function pattern(text: string): RegExp {
  return new RegExp(isValid(text) ? text : literal(text), 'iu');
}

const literal = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

function isValid(text: string): boolean {
  try {
    return new RegExp(text, 'iu') !== null;
  } catch {
    return false;
  }
}

export const crateSelector = (name: string): string => CRATE + name;

/** The selector of what a search finds: a search without a prefix is a pattern of names. */
export function searchSelector(text: string): string {
  if (text.startsWith(CRATE)) return text;
  const prefix = text.startsWith(FILES) ? FILES : NAMES;
  const expression = prefix === FILES ? text.slice(FILES.length) : text;
  return prefix + (isValid(expression) ? expression : literal(expression));
}

/** Description of a selector's comparison. */
export function scopeOf(selector: string): string {
  return selector.startsWith(CRATE) ? 'crates' : selector.startsWith(FILES) ? 'files' : 'names';
}

/** By function, 1 if one of the selectors selects it. */
export function selected(functions: Functions, selectors: string[]): Uint8Array {
  const result = new Uint8Array(functions.names.length);
  for (const selector of selectors) {
    const test = testOf(functions, selector);
    for (let fn = 0; fn < result.length; fn++) if (test(fn)) result[fn] = 1;
  }
  return result;
}

function testOf({ names, kinds, files, lines, modules, crates }: Functions, selector: string): (fn: number) => boolean {
  const isCode = (fn: number) => kinds[fn] === 'function' || kinds[fn] === 'unresolved';
  if (selector.startsWith(CRATE)) {
    const crate = selector.slice(CRATE.length);
    return (fn) => isCode(fn) && crates[fn] === crate;
  }
  if (selector.startsWith(NAMES)) {
    const expression = pattern(selector.slice(NAMES.length));
    return (fn) => expression.test(names[fn]);
  }
  if (selector.startsWith(FILES)) {
    const expression = pattern(selector.slice(FILES.length));
    return (fn) => isCode(fn) && expression.test(files[fn]);
  }
  if (names.includes(selector)) return (fn) => names[fn] === selector;
  const label = (fn: number) =>
    kinds[fn] === 'function' ? functionLabel(names[fn], files[fn], lines[fn], modules[fn]) : names[fn];
  return (fn) => label(fn) === selector;
}
