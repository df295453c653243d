// One worker: details, current stacks, task stream, profile.

import { lazy } from '../components/Lazy';
import { EmptyState, InvalidRequest, Loading } from '../components/Messages';
import { apiUrl, href, rangeOf, sharedParams, useAddress } from '../core/address';
import type { Epoch, TasksAnswer, ThreadDumpAnswer, WorkersAnswer } from '../core/api';
import { nowMs } from '../core/clock';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { pauseTime, requestRange, useQuery } from '../core/query';
import { useIsOperator } from '../core/session';
import { count, duration, isLive, parseTimeMs, percent } from '../core/time';
import { TaskStream } from '../stream/TaskStream';
import type { Params } from './profile/query';
import { useProfile } from './profile/useProfile';
import { Views } from './profile/Views';
import { epochWarnings, lostNs, stateOf } from './warnings';

/** Separate, because this page has the graph and the task stream too. */
const Alerts = lazy(async () => (await import('../components/Alerts')).Alerts);
const ThreadDump = lazy(async () => (await import('../components/ThreadDump')).ThreadDump);

const STREAM_ROWS = 5000;
/** A thread dump costs the agent time, so it is requested rarely. */
const STACKS_EVERY_MS = 3000;

export function WorkerPage({ id }: { id: string }) {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const fixed: Params = [['worker', id]];
  const key = `${range.from} ${range.to} ${live && pausedAt}`;
  const facts = useQuery<WorkersAnswer>(
    'facts',
    (signal) => fetchJson(apiUrl('workers', new URLSearchParams(fixed)), signal),
    true,
  );
  const rows = useQuery<TasksAnswer>(
    key,
    (signal) => {
      const { from, to } = requestRange(range);
      return fetchJson(
        apiUrl('tasks', new URLSearchParams([['from', from], ['to', to], ['limit', String(STREAM_ROWS)], ...fixed])),
        signal,
      );
    },
    live,
    3000,
  );
  const profile = useProfile(fixed);
  const isOperator = useIsOperator();

  if (facts.problem?.kind === 'request') return <InvalidRequest problem={facts.problem} />;
  if (!facts.value) return <Loading problem={facts.problem} />;
  const epochs = facts.value.workers.find(({ worker }) => worker === id)?.epochs ?? [];
  const newest = epochs[epochs.length - 1];
  if (!newest)
    return (
      <EmptyState title="Worker not found">
        <a href={href('workers', sharedParams())}>All workers</a>
      </EmptyState>
    );
  const now = pausedAt ?? nowMs();
  return (
    <>
      <h1>
        <bdi>{safeText(id)}</bdi> <small>{stateOf(newest)}</small>
      </h1>
      <Alerts fleet={facts.value} workers={[id]} />
      <Facts epochs={epochs} nowNs={facts.value.now_ns} />
      <section>
        <h2>
          Current stacks <small>{live && 'updated every few seconds; '}running first</small>
        </h2>
        {isOperator ? <CurrentStacks id={id} /> : <p class="soft">Thread dumps need a token of role operator.</p>}
      </section>
      {rows.value && rows.value.tasks.length > 0 && (
        <section>
          <h2>
            Threads{' '}
            <small>
              <a href={href('tasks', sharedParams({ worker: id }))}>all tasks ›</a>
            </small>
          </h2>
          <TaskStream
            answer={rows.value}
            fromMs={parseTimeMs(range.from, now)}
            toMs={parseTimeMs(range.to, now)}
            heightMax={260}
          />
        </section>
      )}
      <section>
        <h2>
          Profile{' '}
          <small>
            <a href={href('profile', sharedParams({ worker: id }))}>open with timeline and filters ›</a>{' '}
            <a href={href('resources', sharedParams({ worker: id }))}>resources ›</a>
          </small>
        </h2>
        {profile.value ? (
          <Views loaded={profile.value} isStale={profile.waiting} fixed={fixed} />
        ) : (
          <Loading problem={profile.problem} />
        )}
      </section>
    </>
  );
}

function Facts({ epochs, nowNs }: { epochs: Epoch[]; nowNs: number }) {
  const epoch = epochs[epochs.length - 1];
  const warnings = epochs.flatMap((one) =>
    epochWarnings(one, nowNs).filter((text) => one === epoch || text.startsWith('lost')),
  );
  const lost = epochs.reduce((sum, one) => sum + lostNs(one), 0);
  const facts: [string, string][] = [
    ['host', `${epoch.host}, process ${epoch.pid}`],
    ['sampler', epoch.enabled ? `${epoch.sampler_mode ?? '–'}, every ${duration(epoch.interval_ns)}` : 'off'],
    ['sample rate achieved', percent(epoch.ticks, epoch.ticks_expected - epoch.ticks_throttled)],
    [
      'clock',
      epoch.clock
        ? `offset ${duration(epoch.clock.offset_ns)} ± ${duration(epoch.clock.error_ns)}`
        : 'not measured yet',
    ],
    [
      'samples',
      `${duration(epoch.account.accepted_ns)} of thread time, ${lost > 0 ? `${duration(lost)} lost` : 'none lost'}`,
    ],
    ['running tasks', count(epoch.running_tasks)],
    ['restarts', count(epochs.length - 1)],
    ['agent', epoch.agent_version],
    ...Object.entries(epoch.labels).slice(0, 20),
  ];
  return (
    <section>
      {warnings.map((text) => (
        <p key={text} class="bad">
          ⚠ {safeText(text)}
        </p>
      ))}
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>
              <bdi>{safeText(name, 60)}</bdi>
            </dt>
            <dd>
              <bdi>{safeText(value, 120)}</bdi>
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function CurrentStacks({ id }: { id: string }) {
  const pausedAt = pauseTime.use();
  const stacks = useQuery<ThreadDumpAnswer>(
    `stacks ${pausedAt}`,
    (signal) => fetchJson(apiUrl('thread-dump', new URLSearchParams({ worker: id })), signal),
    pausedAt === null,
    STACKS_EVERY_MS,
  );
  return <ThreadDump answer={stacks.value} problem={stacks.problem?.message} />;
}
