// Identifies a node in the address by a short hash of the functions on its path, so that it is found
// again in a later profile.

import { hash } from '../core/names';
import type { Functions, Layout } from './layout';

/** The id of a node's path. */
export function pathId(layout: Layout, functions: Functions, node: number): string {
  const path: number[] = [];
  for (let at = node; at !== 0; at = layout.parent[at]) path.push(at);
  let value = 0;
  for (const at of path.reverse()) value = step(value, functionHash(functions, layout.fn[at]));
  return value.toString(36);
}

/** The node of a path id; 0, the root, if this profile has none. */
export function findByPathId(layout: Layout, functions: Functions, name: string): number {
  const wanted = Number.parseInt(name, 36);
  const hashes = new Uint32Array(functions.names.length);
  for (let fn = 0; fn < hashes.length; fn++) hashes[fn] = functionHash(functions, fn);
  const values = new Uint32Array(layout.count);
  for (let i = 1; i < layout.count; i++) {
    values[i] = step(values[layout.parent[i]], hashes[layout.fn[i]]);
    if (values[i] === wanted) return i;
  }
  return 0;
}

function functionHash(functions: Functions, fn: number): number {
  return hash(`${functions.kinds[fn]}\n${functions.names[fn]}\n${functions.files[fn]}`);
}

function step(above: number, own: number): number {
  return (Math.imul(above ^ own, 2654435761) + Math.imul(above, 31) + 1) >>> 0;
}
