import { expect, test } from 'vitest';
import { chosenStates, stateParams, statesOf, statesText } from '../src/pages/profile/states';

test.each([
  ['', ['cpu'], null, 'on CPU'],
  ['state=cpu', ['cpu'], null, 'on CPU'],
  ['state=cpu&state=runnable', ['cpu', 'runnable'], ['cpu', 'runnable'], 'on CPU, runnable'],
  ['state=wait', ['lock', 'interpreter', 'sleep', 'network', 'disk', 'other'], ['wait'], 'waiting'],
  ['state=disk', ['disk'], ['disk'], 'disk'],
  ['state=interpreter', ['interpreter'], ['interpreter'], 'GIL'],
  [
    'state=all',
    ['cpu', 'runnable', 'lock', 'interpreter', 'sleep', 'network', 'disk', 'other'],
    ['all'],
    'in all states',
  ],
  ['state=wait&state=runnable&state=cpu', undefined, ['all'], 'in all states'],
  ['state=nonsense', [], null, 'on CPU'],
])('the states of %j', (search, single, shortest, text) => {
  const params = new URLSearchParams(search);
  const chosen = chosenStates(params);
  if (single !== undefined) expect([...chosen]).toEqual(single);
  expect(stateParams(chosen)).toEqual(shortest);
  expect(statesText(params)).toBe(text);
});

test('the collector is always told which states', () => {
  expect(statesOf(new URLSearchParams())).toEqual(['cpu']);
  expect(statesOf(new URLSearchParams('state=wait'))).toEqual(['wait']);
});
