// One worker: its facts, its lanes, what its threads do now, and where its time goes.

import { along, apiUrl, href, rangeOf, useAddress } from '../core/address';
import type { Epoch, TasksAnswer, ThreadDumpAnswer, ThreadGroup, WorkersAnswer } from '../core/api';
import { stateColour, taskColour } from '../core/colours';
import { fetchJson } from '../core/fetch';
import { asked, nowMs, paused, useAnswer } from '../core/live';
import { shortFile, shown, withoutGenerics } from '../core/names';
import { count, duration, isLive, percent, timeMs } from '../core/time';
import { Empty, Loading, Refused } from '../parts/Notes';
import { TaskStream } from '../stream/TaskStream';
import { concernsOfEpoch, lostNs } from './concerns';
import { type Pairs, useProfile } from './profile/question';
import { Views } from './profile/Views';

const STREAM_ROWS = 5000;
/** Asking what threads do makes the agent look; once in a while is enough. */
const STACKS_EVERY_MS = 3000;
const GROUPS = 12;
const FRAMES = 30;

export function WorkerPage({ id }: { id: string }) {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const fixed: Pairs = [['worker', id]];
  const key = `${range.from} ${range.to} ${live && pausedAt}`;
  const facts = useAnswer<WorkersAnswer>(
    'facts',
    (signal) => fetchJson(apiUrl('workers', new URLSearchParams(fixed)), signal),
    true,
  );
  const rows = useAnswer<TasksAnswer>(
    key,
    (signal) => {
      const { from, to } = asked(range);
      return fetchJson(
        apiUrl('tasks', new URLSearchParams([['from', from], ['to', to], ['limit', String(STREAM_ROWS)], ...fixed])),
        signal,
      );
    },
    live,
    3000,
  );
  const stacks = useAnswer<ThreadDumpAnswer>(
    `stacks ${pausedAt}`,
    (signal) => fetchJson(apiUrl('thread-dump', new URLSearchParams(fixed)), signal),
    pausedAt === null,
    STACKS_EVERY_MS,
  );
  const profile = useProfile(fixed);

  if (facts.problem?.kind === 'request') return <Refused problem={facts.problem} />;
  if (!facts.value) return <Loading problem={facts.problem} />;
  const epochs = facts.value.workers.find(({ worker }) => worker === id)?.epochs ?? [];
  const newest = epochs[epochs.length - 1];
  if (!newest)
    return (
      <Empty title="This worker is not known any more">
        <a href={href('workers', along())}>All workers</a>
      </Empty>
    );
  const now = pausedAt ?? nowMs();
  return (
    <>
      <h1>
        <bdi>{shown(id)}</bdi> <small>{newest.state === 'connected' ? '● connected' : `○ ${newest.state}`}</small>
      </h1>
      <Facts epochs={epochs} nowNs={facts.value.now_ns} />
      <section>
        <h2>
          What its threads do now <small>{live && 'asked every few seconds; '}what runs comes first</small>
        </h2>
        <ThreadDump answer={stacks.value} problem={stacks.problem?.message} />
      </section>
      {rows.value && rows.value.tasks.length > 0 && (
        <section>
          <h2>
            Its threads{' '}
            <small>
              <a href={href('tasks', along({ worker: id }))}>all tasks ›</a>
            </small>
          </h2>
          <TaskStream
            answer={rows.value}
            fromMs={timeMs(range.from, now)}
            toMs={timeMs(range.to, now)}
            heightMax={260}
          />
        </section>
      )}
      <section>
        <h2>
          Where its time goes{' '}
          <small>
            <a href={href('profile', along({ worker: id }))}>with a timeline and filters ›</a>{' '}
            <a href={href('memory', along({ worker: id }))}>memory and processors ›</a>
          </small>
        </h2>
        {profile.value ? (
          <Views loaded={profile.value} isOld={profile.waiting} fixed={fixed} />
        ) : (
          <Loading problem={profile.problem} />
        )}
      </section>
    </>
  );
}

function Facts({ epochs, nowNs }: { epochs: Epoch[]; nowNs: number }) {
  const epoch = epochs[epochs.length - 1];
  const concerns = epochs.flatMap((one) =>
    concernsOfEpoch(one, nowNs).filter((text) => one === epoch || text.startsWith('lost')),
  );
  const lost = epochs.reduce((sum, one) => sum + lostNs(one), 0);
  const facts: [string, string][] = [
    ['host', `${epoch.host}, process ${epoch.pid}`],
    ['sampler', epoch.enabled ? `${epoch.sampler_mode ?? '–'}, every ${duration(epoch.interval_ns)}` : 'off'],
    ['samplings made', `${percent(epoch.ticks, epoch.ticks_expected - epoch.ticks_throttled)} of those due`],
    [
      'clock',
      epoch.clock
        ? `${duration(epoch.clock.offset_ns)} off, known to ±${duration(epoch.clock.error_ns)}`
        : 'not known yet',
    ],
    [
      'samples',
      `${duration(epoch.account.accepted_ns)} of thread time, ${lost > 0 ? `${duration(lost)} lost` : 'none lost'}`,
    ],
    ['tasks running', count(epoch.running_tasks)],
    ['lives', epochs.length === 1 ? 'the first' : `the newest of ${count(epochs.length)}`],
    ['agent', epoch.agent_version],
    ...Object.entries(epoch.labels).slice(0, 20),
  ];
  return (
    <section>
      {concerns.map((text) => (
        <p key={text} class="bad">
          ⚠ {shown(text)}
        </p>
      ))}
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>
              <bdi>{shown(name, 60)}</bdi>
            </dt>
            <dd>
              <bdi>{shown(value, 120)}</bdi>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function ThreadDump({ answer, problem }: { answer: ThreadDumpAnswer | undefined; problem: string | undefined }) {
  if (!answer) return <p class="soft">{problem ? shown(problem) : 'Asking the agent…'}</p>;
  const groups = answer.workers.flatMap((worker) => worker.groups);
  const silent = answer.workers.find((worker) => !worker.responded);
  return (
    <>
      {silent && (
        <p class="soft">
          It did not answer: <bdi>{shown(silent.reason ?? '')}</bdi>
        </p>
      )}
      {groups.slice(0, GROUPS).map((group) => (
        <Group key={`${group.state} ${group.threads[0]?.id}`} group={group} />
      ))}
      {groups.length > GROUPS && <p class="soft">{count(groups.length - GROUPS)} more places.</p>}
    </>
  );
}

function Group({ group }: { group: ThreadGroup }) {
  const { task, state, stack, threads } = group;
  const top = stack[0];
  const longest = Math.max(0, ...threads.map((thread) => thread.blocked_ns));
  return (
    <details class="stack">
      <summary>
        <span>
          <i class="dot" style={{ background: state ? stateColour(state) : undefined }} />
          {state ?? 'not seen yet'}
        </span>
        <span class="soft">
          {threads.length === 1 ? (
            <bdi>{shown(threads[0].name || String(threads[0].id), 30)}</bdi>
          ) : (
            `${count(threads.length)} threads`
          )}
        </span>
        {task && (
          <span>
            <i class="dot" style={{ background: taskColour(task) }} />
            <bdi>{shown(task, 40)}</bdi>
          </span>
        )}
        <code>
          <bdi>{top ? shown(withoutGenerics(top.name), 90) : 'no stack'}</bdi>
        </code>
        {longest > 1e9 && <span class="soft">for {duration(longest)}</span>}
      </summary>
      <ol>
        {stack.slice(0, FRAMES).map((frame, index) => (
          <li key={index}>
            <code>
              <bdi>{shown(frame.name, 200)}</bdi>
            </code>{' '}
            <small>
              <bdi>{frame.file && `${shown(shortFile(frame.file), 80)}${frame.line > 0 ? `:${frame.line}` : ''}`}</bdi>
            </small>
          </li>
        ))}
        {stack.length > FRAMES && <li class="soft">{count(stack.length - FRAMES)} more</li>}
      </ol>
    </details>
  );
}
