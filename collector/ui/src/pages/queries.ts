// Examples of queries in SQL, and how cells are written.

import type { SqlCell } from '../core/api';
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

/** A cell: whole numbers with separators, others with three digits after the point. */
export function written(cell: SqlCell): string {
  if (cell === null) return '–';
  if (typeof cell !== 'number') return safeText(String(cell), 400);
  if (Number.isInteger(cell)) return cell.toLocaleString('en');
  return cell.toLocaleString('en', { maximumSignificantDigits: 6 });
}
