// A report: one file with the page's views of one range, and the answers that they show.

import { type ComponentChildren, render } from 'preact';
import { useMemo } from 'preact/hooks';
import '../style.css';
import './report.css';
import { EmptyState } from '../components/Messages';
import { Tile } from '../components/Tile';
import { Timeline } from '../components/Timeline';
import { TaskSummary } from '../components/tasks/TaskSummary';
import { TaskTable } from '../components/tasks/TaskTable';
import { setParams, useAddress } from '../core/address';
import type { ThreadTime } from '../core/api';
import { phaseColor, taskColor } from '../core/colors';
import { safeText } from '../core/names';
import { clock, count, duration, percent, quantity } from '../core/time';
import { loadProfile } from '../flame/load';
import { EventRows } from '../pages/events';
import { Views } from '../pages/profile/Views';
import { Machines } from '../pages/resources';
import { Transfers } from '../pages/transfers';
import { streamOfColumns } from '../stream/columns';
import { TaskStream } from '../stream/TaskStream';
import { answerOf } from './answers';

const NAMES_MAX = 200;
const THREADS_MAX = 40;
const EVENTS_MAX = 200;
const BUILDS_MAX = 100;
const WORKERS_MAX = 200;

/** Title of a document, by its part. */
const TITLES = { profile: 'Profile', tasks: 'Tasks', resources: 'Resources' };

const PROFILES = [
  ['profile', 'Program, on CPU'],
  ['blocked', 'Program, waiting'],
  ['agent', 'Agent'],
] as const;

function Report() {
  const about = answerOf('about');
  const timeline = useMemo(() => answerOf('timeline'), []);
  if (!about || !timeline) return <EmptyState title="This file was cut off: it has no data" />;
  const { range } = timeline;
  const kind = about.part === null ? 'Report' : TITLES[about.part];
  const title = about.run === null ? kind : `${kind} of run ${safeText(about.run, 60)}`;
  document.title = `${title} · Emberline`;
  return (
    <>
      <header>
        <span class="brand">Emberline</span>
        <h1>
          <bdi>{title}</bdi>{' '}
          <small>
            {clock(range.from_ns / 1e6, true)} to {clock(range.to_ns / 1e6, true)},{' '}
            {duration(range.to_ns - range.from_ns)}
          </small>
        </h1>
      </header>
      <main>
        <Summary />
        <Processes />
        <Builds />
        <Tasks fromMs={range.from_ns / 1e6} toMs={range.to_ns / 1e6} />
        <Profiles />
        <Threads />
        <Resources />
        <TransferSection />
        <Events />
        <p class="soft">
          Written by <code>{safeText(about.command, 400)}</code>, version {safeText(about.version, 20)}. All times are
          the collector's, shown in this browser's time zone.
        </p>
      </main>
    </>
  );
}

function Section({ id, title, children }: { id: string; title: string; children: ComponentChildren }) {
  return (
    <section id={id}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function Summary() {
  const program = answerOf('about')?.program;
  const threads = answerOf('threads');
  const summary = answerOf('summary');
  const timeline = answerOf('timeline');
  if (!summary || !timeline) return null;
  const ended = summary.names.reduce((sum, { durations }) => sum + (durations?.count ?? 0), 0);
  const failed = summary.names.reduce(
    (sum, { outcomes }) => sum + outcomes.failed + outcomes.panicked + outcomes.lost,
    0,
  );
  const phases = new Map<string, number>();
  for (const { name, duration_ns } of summary.names.flatMap((name) => name.phases))
    phases.set(name, (phases.get(name) ?? 0) + duration_ns);
  const total = [...phases.values()].reduce((sum, ns) => sum + ns, 0);
  return (
    <section id="summary">
      <ul class="tiles">
        <Tile
          name="Duration"
          value={duration(timeline.range.to_ns - timeline.range.from_ns)}
          note="length of the range"
        />
        {threads && (
          <Tile
            name="Workers"
            value={count(new Set(threads.threads.map(({ worker }) => worker)).size)}
            note="with samples in the range"
          />
        )}
        <Tile name="Tasks ended" value={count(ended)} note={quantity(summary.names.length, 'name')} />
        <Tile name="Failed or lost" value={count(failed)} note="failed, panicked or lost" alarm={failed > 0} />
        <Tile
          name="Samples taken"
          value={timeline.achieved_share === null ? '–' : percent(timeline.achieved_share, 1)}
          note="of those due"
        />
      </ul>
      {program && (
        <p class="soft">
          Program: <code>{safeText(program, 400)}</code>
        </p>
      )}
      {total > 0 && (
        <div class="scroll">
          <table>
            <caption class="visually-hidden">Time of tasks by phase</caption>
            <thead>
              <tr>
                <th>Phase</th>
                <th class="number">Time of all tasks</th>
                <th class="number">Share</th>
              </tr>
            </thead>
            <tbody>
              {[...phases]
                .sort((a, b) => b[1] - a[1])
                .map(([name, ns]) => (
                  <tr key={name}>
                    <td>
                      <i class="dot" style={{ background: phaseColor(name) }} />
                      <bdi>{safeText(name, 60)}</bdi>
                    </td>
                    <td class="number">{duration(ns)}</td>
                    <td class="number">{percent(ns, total)}</td>
                  </tr>
                ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** The workers of the range, as their agents introduced themselves; those do not send command lines. */
function Processes() {
  const workers = useMemo(() => {
    const sampled = new Set(answerOf('threads')?.threads.map(({ worker }) => worker));
    const known = answerOf('workers')?.workers ?? [];
    return known.filter(({ worker, epochs }) => sampled.has(worker) && epochs.length > 0);
  }, []);
  if (workers.length === 0) return null;
  return (
    <details>
      <summary>Host, process and labels of {quantity(workers.length, 'worker')}</summary>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Worker</th>
              <th>Host</th>
              <th class="number">Process</th>
              <th>Agent</th>
              <th>Labels</th>
            </tr>
          </thead>
          <tbody>
            {workers.slice(0, WORKERS_MAX).map(({ worker, epochs }) => {
              const { host, pid, agent_version, labels } = epochs[epochs.length - 1];
              const texts = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
              return (
                <tr key={worker}>
                  <td>
                    <bdi>{safeText(worker, 60)}</bdi>
                  </td>
                  <td>
                    <bdi>{safeText(host, 60)}</bdi>
                  </td>
                  <td class="number">{pid}</td>
                  <td>{safeText(agent_version, 20)}</td>
                  <td>
                    <bdi>{safeText(texts.join(', '), 200)}</bdi>
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** Builds that ran: the programs and libraries in the profile. */
function Builds() {
  const builds = useMemo(() => answerOf('profile')?.profile.builds ?? [], []);
  if (builds.length === 0) return null;
  return (
    <details>
      <summary>Build ids of {quantity(builds.length, 'module')}</summary>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>File</th>
              <th>Build id</th>
            </tr>
          </thead>
          <tbody>
            {builds.slice(0, BUILDS_MAX).map(({ module, build_id }) => (
              <tr key={`${module} ${build_id}`}>
                <td title={safeText(module, 400)}>
                  <bdi>{safeText(module.slice(module.lastIndexOf('/') + 1), 60)}</bdi>
                </td>
                <td>
                  <code>{safeText(build_id, 64)}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

function Tasks({ fromMs, toMs }: { fromMs: number; toMs: number }) {
  const tasks = useMemo(() => answerOf('tasks'), []);
  const columns = useMemo(() => answerOf('columns'), []);
  const all = useMemo(() => columns && streamOfColumns(columns), [columns]);
  const summary = useMemo(() => answerOf('summary'), []);
  if (!tasks) return null;
  if (tasks.total === 0)
    return (
      <Section id="tasks" title="Tasks by thread">
        <p class="soft">No tasks in this range.</p>
      </Section>
    );
  return (
    <Section id="tasks" title="Tasks by thread">
      <TaskStream answer={tasks} all={all} fromMs={fromMs} toMs={toMs} heightMax={380} names={summary?.names} isFile />
      <h2>Longest tasks</h2>
      <TaskTable tasks={answerOf('longest')?.tasks ?? []} />
      {summary && (
        <>
          <h2>By name</h2>
          <TaskSummary names={summary.names} rowsMax={NAMES_MAX} />
        </>
      )}
    </Section>
  );
}

function Profiles() {
  const { params } = useAddress();
  const present = useMemo(() => PROFILES.filter(([name]) => document.getElementById(`answer-${name}`)), []);
  const chosen = present.find(([name]) => name === params.get('which'))?.[0] ?? present[0]?.[0];
  const timeline = useMemo(() => answerOf('timeline'), []);
  const loaded = useMemo(() => {
    const body = chosen && answerOf(chosen);
    return body && loadProfile(body);
  }, [chosen]);
  if (!loaded) return null;
  return (
    <Section id="profile" title="Profile">
      {timeline?.data && (
        <Timeline answer={timeline} measure="total" onlyTasks height={80} onSelect={() => undefined} />
      )}
      {present.length > 1 && (
        <span class="segments" role="group" aria-label="Which profile">
          {present.map(([name, label]) => (
            <button
              key={name}
              aria-pressed={name === chosen}
              onClick={() => setParams({ which: name, zoom: null, focus: null, hide: null, merge: null })}
            >
              {label}
            </button>
          ))}
        </span>
      )}
      <Views loaded={loaded} isStale={false} isFile />
    </Section>
  );
}

function Threads() {
  const answer = useMemo(() => answerOf('threads'), []);
  if (!answer || answer.threads.length === 0) return null;
  const most = Math.max(1, ...answer.threads.map(({ total_ns }) => total_ns));
  return (
    <Section id="threads" title="Time by thread">
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Worker</th>
              <th>Thread</th>
              <th class="number">Sampled</th>
              <th class="wide">By task; pale is outside of tasks</th>
            </tr>
          </thead>
          <tbody>
            {answer.threads.slice(0, THREADS_MAX).map((one) => (
              <tr key={`${one.worker} ${one.thread_id} ${one.thread}`}>
                <td>
                  <bdi>{safeText(one.worker, 30)}</bdi>
                </td>
                <td>
                  <bdi>{safeText(one.thread ?? 'all', 30)}</bdi>
                </td>
                <td class="number">{duration(one.total_ns)}</td>
                <td class="wide">
                  <ThreadBar thread={one} most={most} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {answer.threads.length > THREADS_MAX && (
          <p class="soft">{count(answer.threads.length - THREADS_MAX)} more threads are in the JSON.</p>
        )}
      </div>
    </Section>
  );
}

function ThreadBar({ thread, most }: { thread: ThreadTime; most: number }) {
  const tasks = new Map<string | null, number>();
  for (const { task, time_ns } of thread.parts) tasks.set(task, (tasks.get(task) ?? 0) + time_ns);
  const sorted = [...tasks].sort((a, b) => b[1] - a[1]);
  return (
    <div class="split thread-bar" style={{ width: `${(100 * thread.total_ns) / most}%` }}>
      {sorted.map(([task, ns]) => (
        <i
          key={task}
          title={`${task === null ? 'outside of tasks' : safeText(task, 60)}: ${duration(ns)}`}
          style={{ flexGrow: ns, background: task === null ? 'var(--line)' : taskColor(task) }}
        />
      ))}
    </div>
  );
}

function Resources() {
  const answer = useMemo(() => answerOf('resources'), []);
  if (!answer) return null;
  const measures = new Set(answer.series.map(({ measure }) => measure));
  return (
    <Section id="resources" title="Resources">
      {answer.series.length === 0 ? (
        <p class="soft">No measurements in this range.</p>
      ) : (
        <Machines series={answer.series} isAligned={answer.align} isAlone={measures.size === 1} />
      )}
    </Section>
  );
}

function TransferSection() {
  const answer = useMemo(() => answerOf('transfers'), []);
  if (!answer || answer.links.length === 0) return null;
  return (
    <section id="transfers">
      <Transfers sums={answer} range="" />
    </section>
  );
}

function Events() {
  const answer = useMemo(() => answerOf('events'), []);
  const range = useMemo(() => answerOf('timeline')?.range, []);
  if (!answer || !range) return null;
  const events = answer.events
    .filter(({ at_ns }) => at_ns >= range.from_ns && at_ns < range.to_ns)
    .filter(({ kind, data }) => kind !== 'task_started' && (kind !== 'task_ended' || data.outcome !== 'ok'))
    .sort((a, b) => b.at_ns - a.at_ns || b.id - a.id);
  return (
    <Section id="workers" title="Warnings and events">
      {events.length === 0 ? (
        <p class="soft">None that the collector still holds.</p>
      ) : (
        <EventRows events={events} rowsMax={EVENTS_MAX} />
      )}
    </Section>
  );
}

render(<Report />, document.getElementById('page')!);
