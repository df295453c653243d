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
      if (place === undefined) places.set(text, (place = places.size));
      return place;
    });
    return [name, { texts: [...places.keys()], numbers }];
  });
  return { names: functions.names, lines: functions.lines, ...Object.fromEntries(columns) };
}

export function unpacked(parcel: Parcel): Functions {
  const columns = TEXTS.map((name) => [name, Array.from(parcel[name].numbers, (number) => parcel[name].texts[number])]);
  return { names: parcel.names, lines: parcel.lines, ...Object.fromEntries(columns) };
}
