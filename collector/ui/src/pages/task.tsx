// One task's name: how long its tasks took, in which phases, and where the time went.

import { useMemo, useState } from 'preact/hooks';
import { along, apiUrl, change, href, rangeOf, useAddress } from '../core/address';
import type { TaskSummaryAnswer, TasksAnswer } from '../core/api';
import { taskColour } from '../core/colours';
import { fetchJson } from '../core/fetch';
import { asked, nowMs, paused, useAnswer } from '../core/live';
import { shown } from '../core/names';
import { count, duration, isLive, percent, rangeWords } from '../core/time';
import { bucketsOf, Histogram } from '../parts/Histogram';
import { Empty, Loading, Refused } from '../parts/Notes';
import { PhaseBar } from '../parts/PhaseBar';
import { TaskRows } from '../parts/TaskRows';
import { Tile } from '../parts/Tile';
import { type Pairs, useProfile } from './profile/question';
import { Views } from './profile/Views';

/** Tasks of the histogram; of more, the newest. */
const ROWS = 5000;
const LISTED = 8;

export function TaskPage({ name }: { name: string }) {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const fixed: Pairs = [['task', name]];
  const workers = params.getAll('worker').map((worker): [string, string] => ['worker', worker]);
  const key = `${range.from} ${range.to} ${workers} ${live && pausedAt}`;
  const question = (more: Pairs) => {
    const { from, to } = asked(range);
    return new URLSearchParams([['from', from], ['to', to], ...fixed, ...workers, ...more]);
  };
  const summary = useAnswer<TaskSummaryAnswer>(
    key,
    (signal) => fetchJson(apiUrl('tasks', question([['summary', 'true']])), signal),
    live,
  );
  const rows = useAnswer<TasksAnswer>(
    key,
    (signal) => fetchJson(apiUrl('tasks', question([['limit', String(ROWS)]])), signal),
    live,
    3000,
  );
  const profile = useProfile(fixed);

  const problem = summary.problem ?? rows.problem;
  if (problem?.kind === 'request') return <Refused problem={problem} />;
  if (!summary.value || !rows.value) return <Loading problem={problem} />;
  const task = summary.value.names.find((one) => one.name === name);
  const failed = task ? task.outcomes.failed + task.outcomes.panicked : 0;
  return (
    <>
      <h1>
        <i class="dot" style={{ background: taskColour(name) }} />
        <bdi>{shown(name)}</bdi> <small>in {rangeWords(range, pausedAt ?? nowMs())}</small>
      </h1>
      {!task || rows.value.total === 0 ? (
        <Empty title="No such task ran in this range">
          <button onClick={() => change({ from: '-1h', to: null })}>Look at the last hour</button>
          <a href={href('tasks', along())}>All tasks</a>
        </Empty>
      ) : (
        <>
          <ul class="tiles">
            <Tile name="Done" value={count(task.durations?.count ?? 0)} note={`${count(task.running)} running`} />
            <Tile
              name="Failed"
              value={count(failed)}
              note={failed > 0 ? percent(failed, task.durations?.count ?? 0) : 'none'}
              alarm={failed > 0}
            />
            <Tile
              name="Median"
              value={task.durations ? duration(task.durations.p50_ns) : '–'}
              note={task.durations ? `mean ${duration(task.durations.mean_ns)}` : 'none has ended'}
            />
            <Tile
              name="p99"
              value={task.durations ? duration(task.durations.p99_ns) : '–'}
              note={task.durations ? `p90 ${duration(task.durations.p90_ns)}` : ''}
            />
            <Tile
              name="Slowest"
              value={task.durations ? duration(task.durations.max_ns) : '–'}
              note={task.durations ? `${duration(task.durations.total_ns)} in all` : ''}
            />
          </ul>
          <Durations answer={rows.value} name={name} />
          {task.phases && task.phases.length > 0 && (
            <section>
              <h2>
                By phase <small>all of them together</small>
              </h2>
              <PhaseBar task={name} parts={task.phases.map((phase) => ({ name: phase.name, ns: phase.duration_ns }))} />
            </section>
          )}
          <section>
            <h2>
              Where its time goes{' '}
              <small>
                <a href={href('profile', along({ task: name }))}>with a timeline and filters ›</a>{' '}
                <a href={href('compare', along({ task: name }))}>compare with before ›</a>
              </small>
            </h2>
            {profile.value ? (
              <Views loaded={profile.value} isOld={profile.waiting} fixed={fixed} />
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
        How long they took{' '}
        <small>
          {answer.truncated && `the newest ${count(answer.tasks.length)} of ${count(answer.total)}; `}a bar lists its
          tasks
        </small>
      </h2>
      <Histogram buckets={buckets} colour={taskColour(name)} chosen={chosen} onChoose={setChosen} />
      <h3>{bucket ? `${duration(bucket.fromNs)} to ${duration(bucket.toNs)}` : 'The slowest'}</h3>
      <TaskRows tasks={listed} />
    </section>
  );
}
