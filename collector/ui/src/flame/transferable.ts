// Functions in the form in which the web worker sends them. Columns repeat few files, modules and
// crates, and copying each string would cost the page time.

import type { Functions } from './layout';

const TEXTS = ['files', 'modules', 'kinds', 'crates'] as const;

interface Column {
  texts: string[];
  numbers: Uint32Array;
}

export type TransferableFunctions = Pick<Functions, 'names' | 'lines'> & Record<(typeof TEXTS)[number], Column>;

export function toTransferable(functions: Functions): TransferableFunctions {
  const columns = TEXTS.map((name) => {
    const indices = new Map<string, number>();
    const numbers = Uint32Array.from(functions[name], (text) => {
      let index = indices.get(text);
      if (index === undefined) {
        index = indices.size;
        indices.set(text, index);
      }
      return index;
    });
    return [name, { texts: [...indices.keys()], numbers }];
  });
  return { names: functions.names, lines: functions.lines, ...Object.fromEntries(columns) };
}

/** Decodes each column when it is first used: some are needed only under the pointer. */
export function fromTransferable(parcel: TransferableFunctions): Functions {
  const functions = { names: parcel.names, lines: parcel.lines };
  for (const name of TEXTS) {
    let column: string[] | undefined;
    const get = () => (column ??= Array.from(parcel[name].numbers, (number) => parcel[name].texts[number]));
    Object.defineProperty(functions, name, { get, enumerable: true });
  }
  return functions as Functions;
}
