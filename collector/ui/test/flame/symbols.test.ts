import { expect, test } from 'vitest';
import examples from '../../../../flamegraph/symbols.json';
import { shortFile } from '../../src/core/names';
import { crateOf, functionLabel, isOwn } from '../../src/core/symbols';

interface Example {
  name: string;
  file?: string;
  line?: number;
  module?: string;
  label?: string;
  crate?: string;
  own?: boolean;
  short_file?: string;
}

test.each(examples.functions as Example[])('%j is named as in files', (example) => {
  const { name, file = '', line = 0, module = '', label, crate, own, short_file } = example;
  if (label !== undefined) expect(functionLabel(name, file, line, module)).toBe(label);
  if (crate !== undefined) expect(crateOf(name, file, module)).toBe(crate);
  if (own !== undefined) expect(isOwn(name, file)).toBe(own);
  if (short_file !== undefined) expect(shortFile(file)).toBe(short_file);
});
