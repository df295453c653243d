// One task name: durations, phases, profile.

import { useMemo, useState } from 'preact/hooks';
import { lazy } from '../components/Lazy';
import { EmptyState, InvalidRequest, Loading } from '../components/Messages';
import { Tile } from '../components/Tile';
import { bucketsOf, Histogram } from '../components/tasks/Histogram';
import { PhaseBar } from '../components/tasks/PhaseBar';
import { TaskTable } from '../components/tasks/TaskTable';
import { apiUrl, href, rangeOf, setParams, sharedParams, useAddress } from '../core/address';
import type { TaskDurationsAnswer, TaskSummaryAnswer, TasksAnswer } from '../core/api';
import { nowMs } from '../core/clock';
import { taskColor } from '../core/colors';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { failedOf } from '../core/outcomes';
import { pauseTime, requestRange, useQuery } from '../core/query';
import { count, duration, isLive, percent, rangeText } from '../core/time';
import type { Params } from './profile/query';
import { useProfile } from './profile/useProfile';
import { Views } from './profile/Views';

// Charts are as large as all other scripts of this page.
const DurationTrend = lazy(async () => (await import('../components/tasks/DurationTrend')).DurationTrend);

/** Tasks in the histogram; of more, the newest. */
const ROWS = 5000;
const LISTED = 8;

export function TaskPage({ name }: { name: string }) {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const fixed: Params = [['task', name]];
  const workers = params.getAll('worker').map((worker): [string, string] => ['worker', worker]);
  const key = `${range.from} ${range.to} ${workers} ${live && pausedAt}`;
  const query = (more: Params) => {
    const { from, to } = requestRange(range);
    return new URLSearchParams([['from', from], ['to', to], ...fixed, ...workers, ...more]);
  };
  const summary = useQuery<TaskSummaryAnswer>(
    key,
    (signal) => fetchJson(apiUrl('tasks', query([['summary', 'true']])), signal),
    live,
  );
  const rows = useQuery<TasksAnswer>(
    key,
    (signal) => fetchJson(apiUrl('tasks', query([['limit', String(ROWS)]])), signal),
    live,
    3000,
  );
  const trend = useQuery<TaskDurationsAnswer>(
    key,
    (signal) => fetchJson(apiUrl('tasks/durations', query([])), signal),
    live,
    3000,
  );
  const profile = useProfile(fixed);

  const problem = summary.problem ?? rows.problem;
  if (problem?.kind === 'request') return <InvalidRequest problem={problem} />;
  if (!summary.value || !rows.value) return <Loading problem={problem} />;
  const task = summary.value.names.find((one) => one.name === name);
  const failed = task ? failedOf(task.outcomes) : 0;
  return (
    <>
      <h1>
        <i class="dot" style={{ background: taskColor(name) }} />
        <bdi>{safeText(name)}</bdi> <small>in {rangeText(range, pausedAt ?? nowMs())}</small>
      </h1>
      {!task || rows.value.total === 0 ? (
        <EmptyState title="No task of this name in this range">
          <button onClick={() => setParams({ from: '-1h', to: null })}>Show the last hour</button>
          <a href={href('tasks', sharedParams())}>All tasks</a>
        </EmptyState>
      ) : (
        <>
          <ul class="tiles">
            <Tile name="Ended" value={count(task.durations?.count ?? 0)} note={`${count(task.running)} running`} />
            <Tile
              name="Failed"
              value={count(failed)}
              note={failed > 0 ? percent(failed, (task.durations?.count ?? 0) + task.outcomes.lost) : 'none'}
              alarm={failed > 0}
            />
            <Tile
              name="Median"
              value={task.durations ? duration(task.durations.p50_ns) : '–'}
              note={task.durations ? `mean ${duration(task.durations.mean_ns)}` : 'none ended'}
            />
            <Tile
              name="p99"
              value={task.durations ? duration(task.durations.p99_ns) : '–'}
              note={task.durations ? `p90 ${duration(task.durations.p90_ns)}` : ''}
            />
            <Tile
              name="Slowest"
              value={task.durations ? duration(task.durations.max_ns) : '–'}
              note={task.durations ? `${duration(task.durations.total_ns)} in total` : ''}
            />
          </ul>
          {trend.value && trend.value.points.length > 0 && <DurationTrend answer={trend.value} />}
          <Durations answer={rows.value} name={name} />
          {task.phases && task.phases.length > 0 && (
            <section>
              <h2>
                By phase <small>all tasks combined</small>
              </h2>
              <PhaseBar task={name} parts={task.phases.map((phase) => ({ name: phase.name, ns: phase.duration_ns }))} />
            </section>
          )}
          <section>
            <h2>
              Profile{' '}
              <small>
                <a href={href('profile', sharedParams({ task: name }))}>open with timeline and filters ›</a>{' '}
                <a href={href('compare', sharedParams({ task: name }))}>compare with an earlier range ›</a>
              </small>
            </h2>
            {profile.value ? (
              <Views loaded={profile.value} isStale={profile.waiting} fixed={fixed} />
            ) : (
              <Loading problem={profile.problem} />
            )}
          </section>
        </>
      )}
    </>
  );
}

function Durations({ answer, name }: { answer: TasksAnswer; name: string }) {
  const [chosen, setChosen] = useState(-1);
  const ended = useMemo(() => answer.tasks.filter((task) => task.stop_ns !== null), [answer]);
  const buckets = useMemo(() => bucketsOf(ended.map((task) => task.duration_ns)), [ended]);
  const bucket = buckets[chosen];
  const listed = useMemo(() => {
    const fitting = bucket
      ? ended.filter(({ duration_ns }) => Math.max(1, duration_ns) >= bucket.fromNs && duration_ns < bucket.toNs)
      : [...answer.tasks];
    return fitting.sort((a, b) => b.duration_ns - a.duration_ns).slice(0, LISTED);
  }, [answer, bucket?.fromNs]);
  return (
    <section>
      <h2>
        Duration distribution{' '}
        <small>
          {answer.truncated && `the newest ${count(answer.tasks.length)} of ${count(answer.total)}; `}click a bar to
          list tasks
        </small>
      </h2>
      <Histogram buckets={buckets} color={taskColor(name)} chosen={chosen} onChoose={setChosen} />
      <h3>{bucket ? `${duration(bucket.fromNs)} to ${duration(bucket.toNs)}` : 'Slowest'}</h3>
      <TaskTable tasks={listed} />
    </section>
  );
}
