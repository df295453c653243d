import { expect, test } from 'vitest';
import { STATE_COUNT } from '../../src/flame/layout';
import { sandwich } from '../../src/flame/sandwich';
import { profile, stacksOf } from '../stacks';

function check(stacks: string, name: string, expected: { callers: string[]; callees: string[] }) {
  const { layout, functions } = profile(stacks);
  const halves = sandwich(layout, functions.names.indexOf(name));
  const { callers, callees } = expected;
  expect(stacksOf({ layout: halves.callers, functions })).toEqual(callers);
  expect(stacksOf({ layout: halves.callees, functions })).toEqual(callees);
  expect(halves.callers.total[0]).toBe(halves.callees.total[0]);
}

test('callers are listed nearest first, callees below the function', () => {
  check('main;read;copy 3\nmain;read 1\nserve;read;copy 2', 'read', {
    callers: ['read;main 4', 'read;serve 2'],
    callees: ['read 1', 'read;copy 5'],
  });
});

test('a recursive call counts once, in the outermost one', () => {
  check('main;walk;walk;leaf 4\nmain;walk 1', 'walk', {
    callers: ['walk;main 5'],
    callees: ['walk 1', 'walk;walk;leaf 4'],
  });
});

test('a function without callers has only itself', () => {
  check('main 1\nother 2', 'main', { callers: ['main 1'], callees: ['main 1'] });
});

test('states go along with the time', () => {
  const { layout, functions } = profile('main;read 3 disk\nmain;read;copy 2 cpu');
  const { callees, callers } = sandwich(layout, functions.names.indexOf('read'));
  expect([...callees.states.subarray(0, STATE_COUNT)]).toEqual([2, 0, 0, 0, 0, 0, 3, 0]);
  expect([...callers.states.subarray(0, STATE_COUNT)]).toEqual([2, 0, 0, 0, 0, 0, 3, 0]);
});
