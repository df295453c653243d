// The fleet at a glance: who is there, how busy, which tasks are slow, and whether anything is lost.

import { along, apiUrl, change, go, href, rangeOf, useAddress } from '../core/address';
import type { ProgressAnswer, TaskSummaryAnswer, TasksAnswer, TimelineAnswer, WorkersAnswer } from '../core/api';
import { fetchJson } from '../core/fetch';
import { asked, noteNow, nowMs, paused, useAnswer } from '../core/live';
import { count, digits, isLive, pinned, rangeWords, timeMs } from '../core/time';
import { Loading, NoData, Refused } from '../parts/Notes';
import { ProgressBars } from '../parts/ProgressBars';
import { TaskNames } from '../parts/TaskNames';
import { Tile } from '../parts/Tile';
import { Timeline } from '../parts/Timeline';
import { TaskStream } from '../stream/TaskStream';
import { concernsOf } from './concerns';

/** How much of the range the small task stream shows, and how many tasks at most. */
const STREAM_MS = 30_000;
const STREAM_ROWS = 2000;
/** Over how long "now" is measured. */
const NOW_S = 10;
const TASK_ROWS = 12;

export function StatusPage() {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const workers = params.getAll('worker').map((worker): [string, string] => ['worker', worker]);
  const key = `${range.from} ${range.to} ${workers} ${live && pausedAt}`;
  const question = (from: string, to: string, more: [string, string][] = []) =>
    new URLSearchParams([['from', from], ['to', to], ...workers, ...more]);

  const timeline = useAnswer<TimelineAnswer>(
    key,
    async (signal) => {
      const { from, to } = asked(range);
      const answer = await fetchJson<TimelineAnswer>(apiUrl('timeline', question(from, to)), signal);
      if (to === 'now') noteNow(answer.range.to_ns);
      return answer;
    },
    live,
  );
  const summary = useAnswer<TaskSummaryAnswer>(
    key,
    (signal) => {
      const { from, to } = asked(range);
      return fetchJson(apiUrl('tasks', question(from, to, [['summary', 'true']])), signal);
    },
    live,
  );
  const fleet = useAnswer<WorkersAnswer>(
    `workers ${workers}`,
    (signal) => fetchJson(apiUrl('workers', new URLSearchParams(workers)), signal),
    true,
  );
  const stream = useAnswer<TasksAnswer>(
    key,
    (signal) => {
      const now = pausedAt ?? nowMs();
      const to = live ? asked({ from: '-30s', to: 'now' }).to : range.to;
      const toMs = timeMs(to, now);
      const fromMs = Math.max(timeMs(range.from, now), toMs - STREAM_MS);
      return fetchJson(apiUrl('tasks', question(pinned(fromMs), to, [['limit', String(STREAM_ROWS)]])), signal);
    },
    live,
    3000,
  );

  const progress = useAnswer<ProgressAnswer>(
    key,
    (signal) => {
      const { from, to } = asked(range);
      return fetchJson(apiUrl('progress', question(from, to)), signal);
    },
    live,
  );

  const problem = [timeline, summary, fleet].find((answer) => answer.problem?.kind === 'request')?.problem;
  if (problem) return <Refused problem={problem} />;
  if (!timeline.value || !fleet.value) return <Loading problem={timeline.problem ?? fleet.problem} />;
  if (fleet.value.workers.length === 0) return <NoData />;
  const concerns = concernsOf(fleet.value);
  const running = summary.value?.names.reduce((sum, task) => sum + task.running, 0) ?? 0;
  const done = summary.value?.names.reduce((sum, task) => sum + (task.durations?.count ?? 0), 0) ?? 0;
  const failed =
    summary.value?.names.reduce((sum, task) => sum + task.outcomes.failed + task.outcomes.panicked, 0) ?? 0;
  const connected = fleet.value.workers.filter(({ epochs }) =>
    epochs.some((epoch) => epoch.state === 'connected'),
  ).length;
  const now = threadsNow(timeline.value, live);
  const to = asked(range).to;
  const streamTo = to === 'now' ? nowMs() : timeMs(to, nowMs());
  return (
    <>
      <ul class="tiles">
        <Tile
          name="Workers"
          value={`${connected}`}
          note={
            connected === fleet.value.workers.length ? 'all connected' : `of ${fleet.value.workers.length} connected`
          }
          to={href('workers', along())}
        />
        <Tile
          name="Processors busy"
          value={digits(now.cpu)}
          note={`mean of ${live ? `the last ${NOW_S} s` : 'the range'}`}
        />
        <Tile
          name="Ready, no processor"
          value={digits(now.runnable)}
          note={now.runnable > now.cpu ? 'threads: machines are overloaded' : 'threads'}
        />
        <Tile
          name="Tasks running"
          value={count(running)}
          note={`${count(done)} done, ${failed > 0 ? `✕ ${count(failed)} failed` : 'none failed'}`}
          to={href('tasks', along())}
        />
        <Tile
          name="Concerns"
          value={count(concerns.length)}
          note={concerns[0]?.text ?? 'no late worker, no loss'}
          alarm={concerns.length > 0}
          to={href('workers', along())}
        />
      </ul>
      <section>
        <h2>
          Processors busy, by task <small>drag to look into a part of {rangeWords(range, nowMs())}</small>
        </h2>
        <Timeline
          answer={timeline.value}
          measure="cpu"
          height={120}
          onSelect={(from, until) => go('profile', along({ from: pinned(from * 1000), to: pinned(until * 1000) }))}
        />
      </section>
      {progress.value && <ProgressBars names={progress.value.names} />}
      <section>
        <h2>
          Tasks <small>click one to see where its time goes</small>
        </h2>
        {summary.value && summary.value.names.length > 0 ? (
          <TaskNames names={summary.value.names} rowsMax={TASK_ROWS} />
        ) : (
          <p class="soft">
            No task ended or runs in this range.{' '}
            <button class="link" onClick={() => change({ from: '-15m', to: null })}>
              Look at 15 min
            </button>{' '}
            or see <a href={href('profile', along({ outside: '1' }))}>what ran outside tasks</a>.
          </p>
        )}
      </section>
      {stream.value && stream.value.tasks.length > 0 && (
        <section>
          <h2>
            Threads <small>{live ? 'just now' : 'at the end of the range'}</small>
          </h2>
          <TaskStream
            answer={stream.value}
            fromMs={streamTo - STREAM_MS}
            toMs={streamTo}
            heightMax={220}
            names={summary.value?.names}
          />
        </section>
      )}
    </>
  );
}

/** How many threads ran and wanted to, in the newest whole steps, or in all if the range is pinned. */
function threadsNow(answer: TimelineAnswer, live: boolean): { cpu: number; runnable: number } {
  const steps = answer.steps;
  // Nothing new for a while: nothing runs, as far as anybody knows.
  if (live && answer.range.to_ns - (answer.data?.to_ns ?? 0) > NOW_S * 1e9) return { cpu: 0, runnable: 0 };
  const full = Math.max(
    0,
    Math.min(steps, Math.floor(((answer.data?.to_ns ?? 0) - answer.first_ns) / answer.step_ns) - 1),
  );
  const first = Math.max(0, full - Math.max(1, Math.round((NOW_S * 1e9) / answer.step_ns)));
  const mean = (values: (i: number) => number) => {
    let sum = 0;
    for (let i = first; i < full; i++) sum += values(i);
    return full > first ? sum / (full - first) / answer.step_ns : 0;
  };
  const all = (pick: 'cpu_ns' | 'runnable_ns') =>
    mean((i) => answer.series.reduce((sum, series) => sum + series[pick][i], 0));
  return { cpu: all('cpu_ns'), runnable: all('runnable_ns') };
}
