// Texts on their way from the worker to the page. Columns of functions repeat few files, modules and crates,
// and the page would pay for each text that it is given.

import type { Functions } from './layout';

const TEXTS = ['files', 'modules', 'kinds', 'crates'] as const;

interface Column {
  texts: string[];
  numbers: Uint32Array;
}

export type Parcel = Pick<Functions, 'names' | 'lines'> & Record<(typeof TEXTS)[number], Column>;

export function packed(functions: Functions): Parcel {
  const columns = TEXTS.map((name) => {
    const places = new Map<string, number>();
    const numbers = Uint32Array.from(functions[name], (text) => {
      let place = places.get(text);
      if (place === undefined) {
        place = places.size;
        places.set(text, place);
      }
      return place;
    });
    return [name, { texts: [...places.keys()], numbers }];
  });
  return { names: functions.names, lines: functions.lines, ...Object.fromEntries(columns) };
}

/** Each column is made when it is first asked for: some are of use only where the pointer is. */
export function unpacked(parcel: Parcel): Functions {
  const functions = { names: parcel.names, lines: parcel.lines };
  for (const name of TEXTS) {
    let column: string[] | undefined;
    const get = () => (column ??= Array.from(parcel[name].numbers, (number) => parcel[name].texts[number]));
    Object.defineProperty(functions, name, { get, enumerable: true });
  }
  return functions as Functions;
}
