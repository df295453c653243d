import { expect, test } from 'vitest';
import { loadProfile } from '../../src/flame/load';
import { fromTransferable, toTransferable } from '../../src/flame/transferable';
import { profile, profileBody } from '../stacks';

test('a recursive function counts once in its total time', () => {
  const { functions, fnSelf, fnTotal } = profile('main;walk 1\nmain;walk;walk 2\nmain;walk;leaf;walk 4');
  const walk = functions.names.indexOf('walk');
  expect([fnSelf[walk], fnTotal[walk]]).toEqual([7, 7]);
  const leaf = functions.names.indexOf('leaf');
  expect([fnSelf[leaf], fnTotal[leaf]]).toEqual([0, 4]);
});

test('functions of equal name in different files are kept apart', () => {
  const body = profileBody('main;a 1\nmain;b 2');
  body.profile.functions.names[2] = 'a';
  const { functions } = loadProfile(body);
  expect(functions.names).toEqual(['main', 'a', 'a']);
  expect(functions.files[1]).not.toBe(functions.files[2]);
});

test('functions survive the way from the web worker', () => {
  const { functions } = profile('[load];a;b 2\nidle 3');
  const received = fromTransferable(structuredClone(toTransferable(functions)));
  expect({ ...received }).toEqual(functions);
});
