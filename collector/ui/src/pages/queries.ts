// Examples of queries in SQL, and how cells are written.

import type { SqlAnswer, SqlCell, SqlColumn } from '../core/api';
import { safeText } from '../core/names';

/** Names of examples, and their queries. */
export const EXAMPLES: [string, string][] = [
  [
    'CPU time by task',
    "SELECT task, sum(weight_ns) / 1e9 AS cpu_seconds\nFROM samples WHERE state = 'cpu'\nGROUP BY task ORDER BY 2 DESC",
  ],
  [
    'Functions of the last hour, by second',
    "SELECT function, module, sum(weight_ns) / 1e9 AS seconds\nFROM samples('1s')\nWHERE ts >= now() - INTERVAL '1 hour' AND state = 'cpu'\nGROUP BY function, module ORDER BY 3 DESC LIMIT 50",
  ],
  [
    'Hottest stacks',
    "SELECT seconds, stack(node) AS stack FROM (\n  SELECT node, sum(weight_ns) / 1e9 AS seconds FROM samples\n  WHERE state = 'cpu' GROUP BY node ORDER BY 2 DESC LIMIT 20)\nORDER BY seconds DESC",
  ],
  [
    'Slowest tasks',
    'SELECT task, key, worker, start, duration_ns / 1e9 AS seconds, outcome\nFROM tasks ORDER BY duration_ns DESC NULLS LAST LIMIT 50',
  ],
  [
    'Failures by cause',
    "SELECT task, outcome, cause, count(*) AS tasks FROM tasks\nWHERE outcome NOT IN ('ok', 'running')\nGROUP BY task, outcome, cause ORDER BY tasks DESC",
  ],
  ['Tables and views', 'SHOW TABLES'],
];

/** Numbers of JSON, and texts, whose digits are none. */
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;
/** A number of fewer characters is exact in JavaScript, and written as the collector wrote it. */
const EXACT_MAX = 15;

/** An answer whose long numbers are texts: JavaScript would round them, and a rounded id finds nothing in the next query. */
export function parsed(json: string): SqlAnswer {
  const exact = json.replace(TOKENS, (token) =>
    token.startsWith('"') || token.length <= EXACT_MAX ? token : `"${token}"`,
  );
  return JSON.parse(exact) as SqlAnswer;
}

/** A cell, as it can be typed into the next query. */
export function written(cell: SqlCell): string {
  return cell === null ? '–' : safeText(String(cell), 400);
}

/** Types of columns of numbers. */
const NUMBERS = ['integer', 'double', 'decimal'];

export const isNumber = ({ type }: SqlColumn): boolean => NUMBERS.includes(type);
