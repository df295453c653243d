// Tasks: the task stream, the slowest, and a summary by name.

import { useMemo } from 'preact/hooks';
import { Disclosure } from '../components/Disclosure';
import { DownloadMenu } from '../components/DownloadMenu';
import { LabelMenu, RunMenu, TaskMenu, useFleet, WorkerMenu } from '../components/FilterMenus';
import { EmptyState, InvalidRequest, Loading } from '../components/Messages';
import { MultiSelect } from '../components/MultiSelect';
import { Timeline } from '../components/Timeline';
import { SampledTasks, TaskSummary } from '../components/tasks/TaskSummary';
import { TaskTable } from '../components/tasks/TaskTable';
import { apiUrl, rangeOf, setParams, useAddress } from '../core/address';
import type { Task, TaskSummaryAnswer, TasksAnswer, TimelineAnswer } from '../core/api';
import { nowMs } from '../core/clock';
import { fetchJson } from '../core/fetch';
import { indicesOfLargest } from '../core/largest';
import { FAILED } from '../core/outcomes';
import { pauseTime, requestRange, useQuery } from '../core/query';
import { count, isLive, isoTime, parseTimeMs, quantity, rangeText } from '../core/time';
import { fetchTaskColumns } from '../flame/client';
import type { Stream } from '../stream/columns';
import { outlineOf, TaskStream } from '../stream/TaskStream';

/**
 * Tasks with full records. If there are more, all are requested in columns too, fewer of them in live
 * mode.
 */
const STREAM_ROWS = 5000;
const OUTLINES = 1_000_000;
const OUTLINES_LIVE = 100_000;
const NAMES_MAX = 40;
const SLOWEST = 8;
/** Files of the newest tasks: the collector's extension, what they are and what opens them. */
const FILES = [
  ['firefox.json', 'Firefox Profiler', 'profiler.firefox.com'],
  ['csv', 'CSV', 'spreadsheets'],
  ['parquet', 'Parquet', 'DuckDB, pandas'],
];
const OUTCOMES = ['running', 'ok', 'failed', 'cancelled', 'panicked', 'lost'];

/** The slowest of all tasks in the columns. */
function slowestOf(stream: Stream): Task[] {
  const { starts, ends } = stream.rows;
  const lengths = new Float64Array(starts.length);
  for (let task = 0; task < lengths.length; task++) lengths[task] = ends[task] - starts[task];
  return indicesOfLargest(lengths, SLOWEST).map((task) => outlineOf(stream, task));
}

function slowestRows(tasks: Task[]): Task[] {
  const lengths = tasks.map((task) => task.duration_ns);
  return indicesOfLargest(lengths, SLOWEST).map((at) => tasks[at]);
}

export function TasksPage() {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const filters: [string, string][] = ['task', 'worker', 'label', 'outcome'].flatMap((name) =>
    params.getAll(name).map((value): [string, string] => [name, value]),
  );
  const key = `${range.from} ${range.to} ${JSON.stringify(filters)} ${live && pausedAt}`;
  const query = (more: [string, string][], own = filters) => {
    const { from, to } = requestRange(range);
    return new URLSearchParams([['from', from], ['to', to], ...own, ...more]);
  };
  const rows = useQuery<TasksAnswer>(
    key,
    (signal) => fetchJson(apiUrl('tasks', query([['limit', String(STREAM_ROWS)]])), signal),
    live,
    3000,
  );
  const isMany = rows.value?.truncated === true;
  const outlines = String(live && pausedAt === null ? OUTLINES_LIVE : OUTLINES);
  const all = useQuery<Stream | undefined>(
    `${key} ${isMany}`,
    async (signal) =>
      isMany
        ? fetchTaskColumns(
            apiUrl(
              'tasks',
              query([
                ['format', 'columns'],
                ['limit', outlines],
              ]),
            ),
            signal,
          )
        : undefined,
    live && isMany,
    3000,
  );
  const stream = isMany ? all.value : undefined;
  // Known before the columns arrive, so that the layout does not jump.
  const isCut = isMany && (stream ? stream.rows.count < stream.total : (rows.value?.total ?? 0) > Number(outlines));
  const newest = rows.value?.tasks;
  const slowest = useMemo(() => (stream ? slowestOf(stream) : slowestRows(newest ?? [])), [stream, newest]);
  const recordsIn = async (from: number, to: number, signal: AbortSignal) =>
    (
      await fetchJson<TasksAnswer>(
        apiUrl(
          'tasks',
          new URLSearchParams([
            ['from', isoTime(from)],
            ['to', isoTime(to)],
            ...filters,
            ['limit', String(STREAM_ROWS)],
          ]),
        ),
        signal,
      )
    ).tasks;
  // Sums over all tasks, regardless of limits.
  const lines = filters.filter(([name]) => name !== 'outcome');
  const busy = useQuery<TimelineAnswer | undefined>(
    `${key} ${isCut}`,
    async (signal) => (isCut ? fetchJson(apiUrl('timeline', query([], lines)), signal) : undefined),
    live && isCut,
    3000,
  );
  const summary = useQuery<TaskSummaryAnswer>(
    key,
    (signal) => fetchJson(apiUrl('tasks', query([['summary', 'true']])), signal),
    live,
  );
  const fleet = useFleet();

  const problem = rows.problem ?? summary.problem;
  if (problem?.kind === 'request') return <InvalidRequest problem={problem} />;
  if (!rows.value || !summary.value) return <Loading problem={problem} />;
  const now = pausedAt ?? nowMs();
  const fromMs = parseTimeMs(range.from, now);
  const toMs = parseTimeMs(range.to, now);
  const isFailedOnly = params.getAll('outcome').join() === FAILED.join();
  const considered = stream ? stream.rows.count : rows.value.tasks.length;
  const { from: fileFrom, to: fileTo } = rows.value.range;
  const fileQuery = new URLSearchParams([['from', fileFrom], ['to', fileTo], ...filters]);
  return (
    <>
      <div class="filters">
        <Disclosure label="Filters">
          <TaskMenu fleet={fleet} chosen={params.getAll('task')} onChange={(task) => setParams({ task })} />
          <WorkerMenu fleet={fleet} chosen={params.getAll('worker')} onChange={(worker) => setParams({ worker })} />
          <LabelMenu fleet={fleet} chosen={params.getAll('label')} onChange={(label) => setParams({ label })} />
          <RunMenu fleet={fleet} chosen={params.get('run')} />
          <MultiSelect
            what="outcomes"
            chosen={params.getAll('outcome')}
            onChange={(outcome) => setParams({ outcome })}
            choices={OUTCOMES.map((value) => ({ value }))}
          />
        </Disclosure>
        <button
          class="chip"
          title="Tasks that failed, panicked or were lost"
          aria-pressed={isFailedOnly}
          onClick={() => setParams({ outcome: isFailedOnly ? null : FAILED })}
        >
          failed
        </button>
        <span class="soft">
          {quantity(rows.value.total, 'task')} in {rangeText(range, now)}
          {rows.value.aggregated > 0 && `; ${count(rows.value.aggregated)} more have no row, only totals`}
        </span>
        <DownloadMenu
          files={() =>
            FILES.map(([extension, label, reader]) => (
              <a
                key={extension}
                href={apiUrl(`tasks.${extension}`, fileQuery)}
                download={`emberline-tasks-${fileFrom.slice(0, 19).replace(/[-:]/g, '')}Z.${extension}`}
              >
                {label} <small>{reader}</small>
              </a>
            ))
          }
        />
      </div>
      {rows.value.total === 0 && summary.value.sampled.length > 0 ? null : rows.value.total === 0 ? (
        <EmptyState title="No tasks in this range">
          <p>The range includes tasks that overlap it.</p>
          <button
            onClick={() => setParams({ task: null, outcome: null, worker: null, label: null, from: '-15m', to: null })}
          >
            Show all tasks, last 15 min
          </button>
        </EmptyState>
      ) : (
        <>
          {isCut && (
            <section>
              <h2>
                Busy threads <small>more tasks than are drawn below; drag to select a part</small>
              </h2>
              {busy.value && (
                <Timeline
                  answer={busy.value}
                  measure="total"
                  onlyTasks
                  height={92}
                  onSelect={(from, to) => setParams({ from: isoTime(from * 1000), to: isoTime(to * 1000) })}
                />
              )}
            </section>
          )}
          <section>
            <h2>By thread</h2>
            <TaskStream
              answer={rows.value}
              all={stream}
              recordsIn={recordsIn}
              fromMs={fromMs}
              toMs={toMs}
              heightMax={380}
              names={summary.value.names}
            />
          </section>
          <section>
            <h2>
              Slowest{' '}
              <small>
                of {considered < rows.value.total && 'the newest '}
                {quantity(considered, 'task')}; click to profile that time range
              </small>
            </h2>
            <TaskTable tasks={slowest} />
          </section>
          <section>
            <h2>By name</h2>
            <TaskSummary names={summary.value.names} rowsMax={NAMES_MAX} />
          </section>
        </>
      )}
      {summary.value.sampled.length > 0 && (
        <section>
          <h2>
            By samples <small>no task of these names ended or runs in this range</small>
          </h2>
          <SampledTasks tasks={summary.value.sampled} />
        </section>
      )}
    </>
  );
}
