// The ledger: tasks by name, and what every thread worked on.

import { useMemo } from 'preact/hooks';
import { apiUrl, change, rangeOf, useAddress } from '../core/address';
import type { Task, TaskSummaryAnswer, TasksAnswer, TimelineAnswer } from '../core/api';
import { fetchJson } from '../core/fetch';
import { heaviest } from '../core/heaviest';
import { asked, noteNow, nowMs, paused, useAnswer } from '../core/live';
import { count, isLive, pinned, rangeWords, timeMs } from '../core/time';
import { askStream } from '../flame/ask';
import { LabelMenu, RunMenu, TaskMenu, useFleet, WorkerMenu } from '../parts/Menus';
import { Empty, Loading, Refused } from '../parts/Notes';
import { Select } from '../parts/Select';
import { TaskNames } from '../parts/TaskNames';
import { TaskRows } from '../parts/TaskRows';
import { Timeline } from '../parts/Timeline';
import type { Stream } from '../stream/rows';
import { outlineOf, TaskStream } from '../stream/TaskStream';

/** Tasks that are asked for with all that is known of them. Of more, the outlines are asked for too: fewer
 * while they are asked for again and again. */
const STREAM_ROWS = 5000;
const OUTLINES = 1_000_000;
const OUTLINES_LIVE = 100_000;
const NAMES_MAX = 40;
const SLOWEST = 8;
const OUTCOMES = ['running', 'ok', 'failed', 'cancelled', 'panicked', 'lost'];

/** Of all tasks whose outlines are here, not only of those whose records are. */
function slowestOf(stream: Stream): Task[] {
  const { starts, ends } = stream.rows;
  const lengths = new Float64Array(starts.length);
  for (let task = 0; task < lengths.length; task++) lengths[task] = ends[task] - starts[task];
  return heaviest(lengths, SLOWEST).map((task) => outlineOf(stream, task));
}

export function TasksPage() {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const filters: [string, string][] = ['task', 'worker', 'label', 'outcome'].flatMap((name) =>
    params.getAll(name).map((value): [string, string] => [name, value]),
  );
  const key = `${range.from} ${range.to} ${JSON.stringify(filters)} ${live && pausedAt}`;
  const question = (more: [string, string][], own = filters) => {
    const { from, to } = asked(range);
    return new URLSearchParams([['from', from], ['to', to], ...own, ...more]);
  };
  const rows = useAnswer<TasksAnswer>(
    key,
    async (signal) => {
      const answer = await fetchJson<TasksAnswer>(apiUrl('tasks', question([['limit', String(STREAM_ROWS)]])), signal);
      if (live && pausedAt === null) noteNow(answer.range.to_ns);
      return answer;
    },
    live,
    3000,
  );
  const isMany = rows.value?.truncated === true;
  const outlines = String(live && pausedAt === null ? OUTLINES_LIVE : OUTLINES);
  const all = useAnswer<Stream | undefined>(
    `${key} ${isMany}`,
    async (signal) =>
      isMany
        ? askStream(
            apiUrl(
              'tasks',
              question([
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
  const slowestOfAll = useMemo(() => stream && slowestOf(stream), [stream]);
  const recordsIn = async (from: number, to: number, signal: AbortSignal) =>
    (
      await fetchJson<TasksAnswer>(
        apiUrl(
          'tasks',
          new URLSearchParams([['from', pinned(from)], ['to', pinned(to)], ...filters, ['limit', String(STREAM_ROWS)]]),
        ),
        signal,
      )
    ).tasks;
  // Sums of all tasks, however many there are.
  const lines = filters.filter(([name]) => name !== 'outcome');
  const busy = useAnswer<TimelineAnswer | undefined>(
    `${key} ${isMany}`,
    async (signal) => (isMany ? fetchJson(apiUrl('timeline', question([], lines)), signal) : undefined),
    live && isMany,
    3000,
  );
  const summary = useAnswer<TaskSummaryAnswer>(
    key,
    (signal) => fetchJson(apiUrl('tasks', question([['summary', 'true']])), signal),
    live,
  );
  const fleet = useFleet();

  const problem = rows.problem ?? summary.problem;
  if (problem?.kind === 'request') return <Refused problem={problem} />;
  if (!rows.value || !summary.value) return <Loading problem={problem} />;
  const now = pausedAt ?? nowMs();
  const [fromMs, toMs] = [timeMs(range.from, now), timeMs(range.to, now)];
  // Known before the outlines are, so that the page does not jump when they come.
  const isCut = isMany && (stream ? stream.rows.count < stream.total : rows.value.total > Number(outlines));
  const slowest = slowestOfAll ?? [...rows.value.tasks].sort((a, b) => b.duration_ns - a.duration_ns).slice(0, SLOWEST);
  const compared = stream ? stream.rows.count : rows.value.tasks.length;
  return (
    <>
      <div class="filters">
        <TaskMenu fleet={fleet} chosen={params.getAll('task')} onChange={(task) => change({ task })} />
        <WorkerMenu fleet={fleet} chosen={params.getAll('worker')} onChange={(worker) => change({ worker })} />
        <LabelMenu fleet={fleet} chosen={params.getAll('label')} onChange={(label) => change({ label })} />
        <RunMenu fleet={fleet} chosen={params.get('run')} />
        <Select
          what="outcomes"
          chosen={params.getAll('outcome')}
          onChange={(outcome) => change({ outcome })}
          choices={OUTCOMES.map((value) => ({ value }))}
        />
        <span class="soft">
          {count(rows.value.total)} tasks in {rangeWords(range, now)}
          {rows.value.aggregated > 0 && `; rows of ${count(rows.value.aggregated)} older ones are gone, sums are not`}
        </span>
      </div>
      {rows.value.total === 0 ? (
        <Empty title="No task in this range">
          <p>A task is in it if it ran at any time between its ends.</p>
          <button
            onClick={() => change({ task: null, outcome: null, worker: null, label: null, from: '-15m', to: null })}
          >
            Show all of the last 15 min
          </button>
        </Empty>
      ) : (
        <>
          {isCut && (
            <section>
              <h2>
                Threads busy <small>more tasks than are drawn below; drag to look into a part</small>
              </h2>
              {busy.value && (
                <Timeline
                  answer={busy.value}
                  measure="total"
                  onlyTasks
                  height={92}
                  onSelect={(from, to) => change({ from: pinned(from * 1000), to: pinned(to * 1000) })}
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
                of {compared < rows.value.total && 'the newest '}
                {count(compared)} tasks; one shows the profile of its very time
              </small>
            </h2>
            <TaskRows tasks={slowest} />
          </section>
          <section>
            <h2>By name</h2>
            <TaskNames names={summary.value.names} rowsMax={NAMES_MAX} />
          </section>
        </>
      )}
    </>
  );
}
