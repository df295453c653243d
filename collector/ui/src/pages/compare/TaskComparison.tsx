// Task names on both sides: durations, counts, failures, and whether changes exceed noise.

import { useState } from 'preact/hooks';
import { setParams } from '../../core/address';
import type { NameComparison, TaskComparisonAnswer } from '../../core/api';
import { taskColor } from '../../core/colors';
import { safeText } from '../../core/names';
import { count, digits, duration, percent, quantity } from '../../core/time';

/** Rows, unless all are shown. */
const ROWS = 10;
const ROWS_MAX = 60;

const VERDICTS: Record<NameComparison['verdict'], string> = {
  slower: 'slower, exceeds noise',
  faster: 'faster, exceeds noise',
  mixed: 'slower and faster, exceeds noise',
  no_change: 'no change beyond noise',
  too_few: 'too few',
  only_before: 'only before',
  only_after: 'only after',
};

const QUANTILES = ['p50', 'p90', 'p99'] as const;

interface Properties {
  answer: TaskComparisonAnswer;
  /** The name that the diff is about. */
  chosen: string | null;
}

export function TaskComparison({ answer, chosen }: Properties) {
  const [showsAll, setShowsAll] = useState(false);
  const rows = answer.names.slice(0, showsAll ? ROWS_MAX : ROWS);
  const more = answer.names.length + answer.omitted - rows.length;
  if (rows.length === 0) return <p class="soft">No tasks ended on either side.</p>;
  return (
    <div class="scroll">
      <table class="compared">
        <caption>Did it get slower?</caption>
        <thead>
          <tr>
            <th>Task</th>
            <th>Verdict</th>
            {QUANTILES.map((name) => (
              <th key={name} class="number">
                {name}
              </th>
            ))}
            <th class="number">Tasks</th>
            <th class="number">Failed</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name} class={row.name === chosen ? 'chosen' : ''}>
              <td>
                <button
                  class="link"
                  aria-pressed={row.name === chosen}
                  title="Show what changed in this task"
                  onClick={() => setParams({ name: row.name === chosen ? null : row.name, zoom: null })}
                >
                  <i class="dot" style={{ background: taskColor(row.name) }} />
                  <bdi>{safeText(row.name, 40)}</bdi>
                </button>
              </td>
              <td class={row.verdict === 'slower' || row.verdict === 'mixed' ? 'bad' : 'soft'}>
                {VERDICTS[row.verdict]}
              </td>
              {QUANTILES.map((name) => (
                <Quantile key={name} row={row} name={name} />
              ))}
              <td class="number">
                {count(row.before.ended)} → {count(row.after.ended)}
              </td>
              <Failures row={row} />
            </tr>
          ))}
        </tbody>
      </table>
      {answer.tests > 0 && (
        <p class="soft">
          {quantity(answer.tests, 'change')} tested; of those that exceed noise, at most{' '}
          {Math.round(100 * answer.false_alarms)}% are expected to be false alarms.
        </p>
      )}
      {more > 0 && (
        <p class="soft">
          {quantity(more, 'more name')} with smaller changes or tasks on one side only{' '}
          {!showsAll && (
            <button class="link" onClick={() => setShowsAll(true)}>
              show more
            </button>
          )}
        </p>
      )}
    </div>
  );
}

function Quantile({ row, name }: { row: NameComparison; name: (typeof QUANTILES)[number] }) {
  const { ratio, verdict, p_value } = row[name];
  const [before, after] = [row.before, row.after].map((side) => {
    const ns = side[`${name}_ns`];
    return ns === null ? '–' : duration(ns);
  });
  const exceeds = verdict === 'slower' || verdict === 'faster';
  const change = ratio === null ? '' : `×${digits(ratio)}`;
  return (
    <td class="number" title={p_value === null ? undefined : `${VERDICTS[verdict]} (p = ${p_value.toPrecision(2)})`}>
      {before} → {after} {exceeds ? <b class={verdict === 'slower' ? 'bad' : ''}>{change}</b> : <small>{change}</small>}
    </td>
  );
}

function Failures({ row }: { row: NameComparison }) {
  const { before_share, after_share, verdict } = row.failures;
  if (row.before.failed + row.after.failed === 0) return <td class="number soft">none</td>;
  const text = `${percent(before_share ?? NaN, 1)} → ${percent(after_share ?? NaN, 1)}`;
  return (
    <td class="number">
      {text} {verdict === 'more' || verdict === 'fewer' ? <b class={verdict === 'more' ? 'bad' : ''}>{verdict}</b> : ''}
    </td>
  );
}
