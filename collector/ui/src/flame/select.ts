// How readers select functions: by name or a part of it, by crate, or by a pattern. The collector has the same rules
// (`flamegraph/src/view/select.rs`); the examples in `flamegraph/views.json` are for both.

import { labelOf, plainLabelOf } from './label';
import type { Functions } from './layout';

/** Selects all functions of a crate. */
const CRATE = 'crate:';
/** Selects functions by a pattern of their names. */
const NAMES = 're:';
/** Selects functions by a pattern of their files. */
const FILES = 'file:';
/** Selects functions by a part of their names or labels. */
const PART = 'part:';
const PREFIXES = [CRATE, NAMES, FILES, PART];

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

/** Whether a search is a prefix without its text. */
export const isUnfinished = (text: string): boolean => PREFIXES.includes(text);

/** The selector of what a search finds: text without a prefix, or that names have, is a part of names. */
export function searchSelector(text: string, functions: Functions): string {
  const prefix = PREFIXES.find((one) => text.startsWith(one));
  if (prefix === undefined || selected(functions, [PART + text]).includes(1)) return PART + text;
  const value = text.slice(prefix.length);
  const isPattern = prefix === NAMES || prefix === FILES;
  return prefix + (isPattern && !isValid(value) ? literal(value) : value);
}

/** The selector for a transform of what a search found: its text alone, if that selects the same. */
export function transformSelector(text: string, functions: Functions): string {
  const selector = searchSelector(text, functions);
  const found = selected(functions, [selector]);
  const alone = selected(functions, [text]);
  return found.every((one, fn) => one === alone[fn]) ? text : selector;
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

function testOf(functions: Functions, selector: string): (fn: number) => boolean {
  const { names, kinds, files, crates } = functions;
  if (names.includes(selector)) return (fn) => names[fn] === selector;
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
  if (selector.startsWith(PART)) {
    const part = selector.slice(PART.length).toLowerCase();
    const has = (text: string) => text.toLowerCase().includes(part);
    return (fn) => has(names[fn]) || has(labelOf(functions, fn));
  }
  return (fn) => plainLabelOf(functions, fn) === selector;
}
