// The fleet at a glance: connected workers, load, slow tasks, warnings.

import { Alerts } from '../components/Alerts';
import { InvalidRequest, Loading, NoData } from '../components/Messages';
import { Tile } from '../components/Tile';
import { Timeline } from '../components/Timeline';
import { ProgressBars } from '../components/tasks/ProgressBars';
import { SampledTasks, TaskSummary } from '../components/tasks/TaskSummary';
import { averagedSpan, meanOver, type Span, spanLengthNs } from '../components/timeline-mean';
import { apiUrl, href, navigate, rangeOf, setParams, sharedParams, useAddress } from '../core/address';
import type { ProgressAnswer, TaskSummaryAnswer, TasksAnswer, TimelineAnswer, WorkersAnswer } from '../core/api';
import { nowMs } from '../core/clock';
import { fetchJson } from '../core/fetch';
import { failedOf } from '../core/outcomes';
import { dismissed, pauseTime, requestRange, useQuery } from '../core/query';
import { count, digits, duration, isLive, isoTime, parseTimeMs, rangeText } from '../core/time';
import { TaskStream } from '../stream/TaskStream';
import { serverWarnings } from './servers';
import { ATTENTION_FIRST, warningsOf } from './warnings';

/** Length and task limit of the small task stream. */
const STREAM_MS = 30_000;
const STREAM_ROWS = 2000;
/** How long "now" is. */
const NOW_S = 10;
const TASK_ROWS = 12;
/** Without newer samples, it is unknown how many threads run. */
const RECENT_S = 60;

export function StatusPage() {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const dismissedEnds = dismissed.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const workers = params.getAll('worker').map((worker): [string, string] => ['worker', worker]);
  const key = `${range.from} ${range.to} ${workers} ${live && pausedAt}`;
  const query = (from: string, to: string, more: [string, string][] = []) =>
    new URLSearchParams([['from', from], ['to', to], ...workers, ...more]);

  const timeline = useQuery<TimelineAnswer>(
    key,
    (signal) => {
      const { from, to } = requestRange(range);
      return fetchJson(apiUrl('timeline', query(from, to)), signal);
    },
    live,
  );
  const summary = useQuery<TaskSummaryAnswer>(
    key,
    (signal) => {
      const { from, to } = requestRange(range);
      return fetchJson(apiUrl('tasks', query(from, to, [['summary', 'true']])), signal);
    },
    live,
  );
  const fleet = useQuery<WorkersAnswer>(
    `workers ${workers}`,
    (signal) => fetchJson(apiUrl('workers', new URLSearchParams([...workers, ...ATTENTION_FIRST])), signal),
    true,
  );
  const stream = useQuery<TasksAnswer>(
    key,
    (signal) => {
      const now = pausedAt ?? nowMs();
      const to = live ? requestRange({ from: '-30s', to: 'now' }).to : range.to;
      const toMs = parseTimeMs(to, now);
      const fromMs = Math.max(parseTimeMs(range.from, now), toMs - STREAM_MS);
      return fetchJson(apiUrl('tasks', query(isoTime(fromMs), to, [['limit', String(STREAM_ROWS)]])), signal);
    },
    live,
    3000,
  );

  const progress = useQuery<ProgressAnswer>(
    key,
    (signal) => {
      // Progress is since tasks were expected. Only in a fixed range is it of that range.
      const { from, to } = requestRange(range);
      const parameters = query(from, to);
      for (const end of live ? ['from', 'to'] : []) parameters.delete(end);
      return fetchJson(apiUrl('progress', parameters), signal);
    },
    live,
  );

  const problem = [timeline, summary, fleet].find((answer) => answer.problem?.kind === 'request')?.problem;
  if (problem) return <InvalidRequest problem={problem} />;
  if (!timeline.value || !fleet.value) return <Loading problem={timeline.problem ?? fleet.problem} />;
  if (fleet.value.workers.length === 0) return <NoData />;
  const warnings = [...warningsOf(fleet.value, dismissedEnds), ...serverWarnings(fleet.value)];
  const running = summary.value?.names.reduce((sum, task) => sum + task.running, 0) ?? 0;
  const ended = summary.value?.names.reduce((sum, task) => sum + (task.durations?.count ?? 0), 0) ?? 0;
  const failed = summary.value?.names.reduce((sum, task) => sum + failedOf(task.outcomes), 0) ?? 0;
  const { connected, away, gone, need_attention } = fleet.value.counts;
  const all = connected + away + gone;
  const hasMore = need_attention > fleet.value.workers.length;
  const now = threadsNow(timeline.value, live);
  const to = requestRange(range).to;
  const streamTo = to === 'now' ? nowMs() : parseTimeMs(to, nowMs());
  return (
    <>
      <Alerts fleet={fleet.value} workers={params.getAll('worker')} />
      <ul class="tiles">
        <Tile
          name="Workers"
          value={count(connected)}
          note={connected === all ? 'all connected' : `of ${count(all)} connected`}
          to={href('workers', sharedParams())}
        />
        <Tile
          name="CPU cores in use"
          value={now ? digits(now.cpu) : '–'}
          note={now ? averageNote(timeline.value, live) : 'no samples in the last minute'}
        />
        <Tile
          name="Runnable (waiting for CPU)"
          value={now ? digits(now.runnable) : '–'}
          note={now && now.runnable > now.cpu ? 'threads: hosts are overloaded' : 'threads'}
        />
        <Tile
          name="Running tasks"
          value={count(running)}
          note={`${count(ended)} ended, ${failed > 0 ? `✕ ${count(failed)} failed` : 'none failed'}`}
          to={href('tasks', sharedParams())}
        />
        <Tile
          name="Warnings"
          value={`${count(warnings.length)}${hasMore ? '+' : ''}`}
          note={warnings[0]?.text ?? 'no late workers, no data loss'}
          alarm={warnings.length > 0}
          to={href('workers', sharedParams())}
        />
      </ul>
      <section>
        <h2>
          CPU cores in use by task <small>drag to select a part of {rangeText(range, nowMs())}</small>
        </h2>
        <Timeline
          answer={timeline.value}
          measure="cpu"
          height={120}
          onSelect={(from, until) =>
            navigate('profile', sharedParams({ from: isoTime(from * 1000), to: isoTime(until * 1000) }))
          }
        />
      </section>
      {progress.value && <ProgressBars names={progress.value.names} />}
      <section>
        <h2>
          Tasks <small>click a task for its profile</small>
        </h2>
        {summary.value && summary.value.names.length > 0 ? (
          <TaskSummary names={summary.value.names} rowsMax={TASK_ROWS} />
        ) : summary.value && summary.value.sampled.length > 0 ? null : (
          <p class="soft">
            No tasks in this range.{' '}
            <button class="link" onClick={() => setParams({ from: '-15m', to: null })}>
              Show the last 15 min
            </button>{' '}
            or see <a href={href('profile', sharedParams({ outside: '1' }))}>what runs outside tasks</a>.
          </p>
        )}
        <SampledTasks tasks={summary.value?.sampled ?? []} />
      </section>
      {stream.value && stream.value.tasks.length > 0 && (
        <section>
          <h2>
            Threads <small>{live ? 'now' : 'at the end of the range'}</small>
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

/** Average threads running and runnable over the newest seconds, or over a pinned range. */
function threadsNow(answer: TimelineAnswer, live: boolean): { cpu: number; runnable: number } | undefined {
  const known = averagedSpan(answer);
  // Clients of other profilers push every 10 s or more rarely.
  if (live && answer.range.to_ns - known.toNs > RECENT_S * 1e9) return undefined;
  const span = live ? newestOf(known) : known;
  const mean = (pick: 'cpu_ns' | 'runnable_ns') => {
    const sum = new Float64Array(answer.steps);
    for (const series of answer.series) series[pick].forEach((ns, i) => (sum[i] += ns / answer.step_ns));
    return meanOver(answer, sum, span);
  };
  return { cpu: mean('cpu_ns'), runnable: mean('runnable_ns') };
}

/** The newest seconds of data, without the last one: not all workers have sent it. */
function newestOf({ fromNs, toNs }: Span): Span {
  const end = Math.max(toNs - 1e9, Math.min(toNs, fromNs + 1e9));
  return { fromNs: Math.max(fromNs, end - NOW_S * 1e9), toNs: end };
}

/** The time that an average of the card is over. */
function averageNote(answer: TimelineAnswer, live: boolean): string {
  if (live) return `average over the newest ${NOW_S} s`;
  const lengthNs = spanLengthNs(averagedSpan(answer));
  const isWhole = lengthNs === answer.range.to_ns - answer.range.from_ns;
  return isWhole ? 'average over the range' : `average over the ${duration(lengthNs)} of the range with data`;
}
