// Queries in SQL: an editor, examples, and a table of rows.

import { useRef, useState } from 'preact/hooks';
import { EmptyState } from '../components/Messages';
import { apiUrl, setParams, useAddress } from '../core/address';
import type { SqlAnswer, SqlFormat } from '../core/api';
import { ApiError, fetchOk } from '../core/fetch';
import { safeText } from '../core/names';
import { session } from '../core/session';
import { count, isoTime } from '../core/time';
import { EXAMPLES, isNumber, parsed, written } from './queries';

/** Rows that the table shows; files have all. */
const ROWS = 500;
/** Rows of a file. */
const FILE_ROWS = 1_000_000;
const FILES: SqlFormat[] = ['csv', 'parquet'];

export function SqlPage() {
  const { params } = useAddress();
  const known = session.use();
  const query = params.get('query') ?? EXAMPLES[0][1];
  const [answer, setAnswer] = useState<SqlAnswer>();
  const [problem, setProblem] = useState<string>();
  const [isRunning, setRunning] = useState(false);
  const running = useRef<AbortController | undefined>(undefined);
  if (known && !known.sql) {
    return (
      <EmptyState title="SQL is not available here">
        <p>It needs the role operator, a collector that stores its data, and the program emberline-sql next to it.</p>
      </EmptyState>
    );
  }
  const ask = async (format: SqlFormat, rows: number) => {
    running.current?.abort();
    const own = new AbortController();
    running.current = own;
    setRunning(true);
    setProblem(undefined);
    try {
      const response = await fetchOk(apiUrl('sql'), own.signal, { query, format, rows });
      if (format === 'json') setAnswer(parsed(await response.text()));
      else save(await response.blob(), `rows.${format}`);
    } catch (error) {
      if (!own.signal.aborted) setProblem(error instanceof ApiError ? error.message : String(error));
    }
    if (running.current === own) setRunning(false);
  };
  const run = () => void ask('json', ROWS);
  return (
    <section>
      <h2>
        SQL <small>over the stored tables; the last minute may be missing</small>
      </h2>
      <div class="filters">
        <label>
          Examples{' '}
          <select
            value={String(EXAMPLES.findIndex(([, text]) => text === query))}
            onChange={(event) => setParams({ query: EXAMPLES[Number(event.currentTarget.value)][1] })}
          >
            <option value="-1" disabled>
              choose
            </option>
            {EXAMPLES.map(([name], number) => (
              <option key={name} value={String(number)}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <textarea
        class="query"
        aria-label="Query"
        rows={6}
        spellcheck={false}
        maxLength={65536}
        value={query}
        onInput={(event) => setParams({ query: event.currentTarget.value }, true)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) run();
        }}
      />
      <div class="filters">
        <button onClick={run} disabled={isRunning} title="Ctrl+Enter">
          Run
        </button>
        {isRunning && <button onClick={() => running.current?.abort()}>Cancel</button>}
        {FILES.map((format) => (
          <button key={format} disabled={isRunning} onClick={() => void ask(format, FILE_ROWS)}>
            {format === 'csv' ? 'CSV' : 'Parquet'}
          </button>
        ))}
        <span role="status">{isRunning ? 'Running…' : ''}</span>
      </div>
      {problem !== undefined && (
        <p role="alert">
          <b>The query failed:</b> <bdi>{safeText(problem, 1000)}</bdi>
        </p>
      )}
      {answer && <Rows answer={answer} />}
    </section>
  );
}

function Rows({ answer }: { answer: SqlAnswer }) {
  const until = isoTime(Number(answer.data_until_ns) / 1e6);
  const classes = answer.columns.map((column) => (isNumber(column) ? 'number' : ''));
  return (
    <>
      <p class="soft">
        {answer.truncated ? `The first ${count(answer.rows.length)} rows` : `${count(answer.rows.length)} rows`}, data
        until {until}
        {answer.corrupt_files.length > 0 &&
          `; data is missing: ${safeText(answer.corrupt_files.join(', '), 300)} cannot be read`}
      </p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Rows">
        <table>
          <thead>
            <tr>
              {answer.columns.map((column, at) => (
                <th key={at} class={classes[at]} title={safeText(column.type, 60)}>
                  <bdi>{safeText(column.name, 60)}</bdi>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {answer.rows.map((row, number) => (
              <tr key={number}>
                {row.map((cell, at) => (
                  <td key={at} class={classes[at]}>
                    <bdi>{written(cell)}</bdi>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function save(content: Blob, name: string) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
