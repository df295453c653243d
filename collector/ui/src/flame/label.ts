// Labels of functions, tasks and other nodes of a profile.

import { safeText } from '../core/names';
import { functionLabel } from '../core/symbols';
import type { Functions } from './layout';

/** The label as it is compared, without escapes. */
export function plainLabelOf({ names, kinds, files, lines, modules }: Functions, fn: number): string {
  return kinds[fn] === 'function' ? functionLabel(names[fn], files[fn], lines[fn], modules[fn]) : names[fn];
}

/** The label as it is shown. */
export const labelOf = (functions: Functions, fn: number): string => safeText(plainLabelOf(functions, fn));
