// Events, newest first: workers, runs, failed tasks, corruption.

import { EmptyState, InvalidRequest, Loading } from '../components/Messages';
import { apiUrl, href, itemHref, setParams, sharedParams, useAddress } from '../core/address';
import type { Disconnect, EventsAnswer, FleetEvent, Task, TasksAnswer } from '../core/api';
import { taskColor } from '../core/colors';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { FAILED } from '../core/outcomes';
import { pauseTime, useQuery } from '../core/query';
import { clock, count, duration, isoTime } from '../core/time';
import { profileOf } from '../stream/TaskStream';
import { endName } from './warnings';

const ASKED = 1000;
const ROWS = 150;
const KIND_LABELS: Record<string, string> = {
  task_ended: 'task failed',
  worker_connected: 'worker connected',
  worker_away: 'worker away',
  worker_gone: 'worker gone',
  worker_duplicated: '⚠ worker id used twice',
  run_started: 'run started',
  run_stopped: 'run stopped',
  corruption: '⚠ data corruption',
  ingest_stopped: '⚠ ingestion stopped',
  ingest_resumed: 'ingestion resumed',
  missed: 'events missed',
};
/** Hidden unless chosen: they would crowd out everything else. */
const QUIET = ['run_started', 'run_stopped'];
/** Tasks have no events that are kept: the failed ones come from the ledger. */
const FAILED_QUERY: [string, string][] = [
  ...FAILED.map((outcome): [string, string] => ['outcome', outcome]),
  ['from', '-24h'],
  ['limit', String(ROWS)],
];

export function EventsPage() {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const kinds = params.getAll('kind');
  const answer = useQuery<EventsAnswer>(
    `events ${pausedAt}`,
    (signal) => fetchJson(apiUrl('events/recent', new URLSearchParams({ limit: String(ASKED) })), signal),
    pausedAt === null,
  );
  const failed = useQuery<TasksAnswer>(
    `failed ${pausedAt}`,
    (signal) => fetchJson(apiUrl('tasks', new URLSearchParams(FAILED_QUERY)), signal),
    pausedAt === null,
    3000,
  );
  const problem = answer.problem ?? failed.problem;
  if (problem?.kind === 'request') return <InvalidRequest problem={problem} />;
  if (!answer.value || !failed.value) return <Loading problem={problem} />;
  const events = [...answer.value.events, ...failed.value.tasks.map(endOfTask)];
  const counts = new Map<string, number>();
  for (const { kind } of events) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const fitting = events
    .filter((event) => (kinds.length > 0 ? kinds.includes(event.kind) : !QUIET.includes(event.kind)))
    .sort((a, b) => b.at_ns - a.at_ns || b.id - a.id);
  const hidesRuns = kinds.length === 0 && QUIET.some((kind) => counts.has(kind));
  const toggle = (kind: string) =>
    setParams({ kind: kinds.includes(kind) ? kinds.filter((one) => one !== kind) : [...kinds, kind] });
  return (
    <section>
      <h2>
        Events{' '}
        <small>
          newest {count(fitting.length)}, with failed tasks of the last 24 h{hidesRuns && '; runs are hidden'}
        </small>
      </h2>
      <div class="chips" role="group" aria-label="Kinds of events">
        {Object.keys(KIND_LABELS)
          .concat([...counts.keys()].filter((kind) => !(kind in KIND_LABELS)).slice(0, 5))
          .map((kind) => (
            <button key={kind} class="chip" aria-pressed={kinds.includes(kind)} onClick={() => toggle(kind)}>
              {KIND_LABELS[kind] ?? safeText(kind, 30)} <small>{count(counts.get(kind) ?? 0)}</small>
            </button>
          ))}
        {kinds.length > 0 && (
          <button class="chip" onClick={() => setParams({ kind: null })}>
            defaults
          </button>
        )}
      </div>
      {fitting.length === 0 ? (
        <EmptyState title={events.length === 0 ? 'No events yet' : 'No recent events of this kind'}>
          <p>Worker connections, runs, failed tasks and data corruption appear here as they happen.</p>
          {kinds.length > 0 && <button onClick={() => setParams({ kind: null })}>Show defaults</button>}
        </EmptyState>
      ) : (
        <EventRows events={fitting} rowsMax={ROWS} />
      )}
    </section>
  );
}

/** The end of a task, as an event. */
function endOfTask(task: Task, i: number): FleetEvent {
  return { id: -1 - i, kind: 'task_ended', at: '', at_ns: task.stop_ns ?? task.start_ns, data: { ...task } };
}

/** A table of the first events. */
export function EventRows({ events, rowsMax }: { events: FleetEvent[]; rowsMax: number }) {
  return (
    <>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Time</th>
              <th>Event</th>
              <th>Source</th>
              <th>Details</th>
            </tr>
          </thead>
          <tbody>
            {events.slice(0, rowsMax).map((event) => (
              <EventRow key={event.id} event={event} />
            ))}
          </tbody>
        </table>
      </div>
      {events.length > rowsMax && <p class="soft">{count(events.length - rowsMax)} older events are not shown.</p>}
    </>
  );
}

/** The process of a worker; nothing for what other profilers push. */
function processOf({ pid, host }: FleetEvent['data']): string {
  return pid === 0 ? '' : `process ${text(pid)} on ${text(host)}`;
}

/** How a worker's life ended, with the process and what to do. */
function endOf(data: FleetEvent['data']): string {
  if (!data.disconnect) return '';
  const { cause, next_step } = data.disconnect as Disconnect;
  const seen = typeof data.last_seen === 'string' ? `last seen ${clock(Date.parse(data.last_seen))}` : '';
  const facts = [processOf(data), seen].filter((fact) => fact !== '').join(', ');
  return `${cause}${facts && ` (${facts})`}${next_step ? `. Next: ${next_step}` : ''}`;
}

/** Further series of which an event is true. */
function othersOf({ others, other_workers }: FleetEvent['data']): string {
  if (typeof others !== 'number' || others === 0) return '';
  const names = Array.isArray(other_workers) ? other_workers.map(text) : [];
  const rest = others - names.length;
  return `also ${names.join(', ')}${rest > 0 ? ` and ${count(rest)} more` : ''}`;
}

const text = (value: unknown) => (typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '');

function EventRow({ event }: { event: FleetEvent }) {
  const { kind, data } = event;
  const worker = text(data.worker);
  const name = text(data.name);
  const isTask = kind.startsWith('task_');
  const took = typeof data.duration_ns === 'number' && !kind.endsWith('_started') ? duration(data.duration_ns) : '';
  const end = data.disconnect as Disconnect | undefined;
  const isLost = kind === 'worker_gone' && end !== undefined && end.reason !== 'clean';
  const isLoud = isLost || kind === 'corruption' || (data.outcome && data.outcome !== 'ok');
  const more = [
    text(data.outcome),
    took,
    text(data.cause),
    text(data.file),
    text(data.reason),
    endOf(data),
    kind === 'worker_connected' ? processOf(data) : '',
    othersOf(data),
    kind === 'missed' ? `${text(data.count)} events` : '',
  ]
    .filter((part) => part !== '')
    .join(', ');
  return (
    <tr>
      <td>{clock(event.at_ns / 1e6, true)}</td>
      <td>
        {isLoud ? (
          <b>{isLost ? `⚠ worker ${endName(end)}` : (KIND_LABELS[kind] ?? safeText(kind, 30))}</b>
        ) : (
          (KIND_LABELS[kind] ?? safeText(kind, 30))
        )}
      </td>
      <td>
        {isTask && (
          <a href={href('profile', profileOf(data as unknown as Task))}>
            <i class="dot" style={{ background: taskColor(name) }} />
            <bdi>{safeText(name, 40)}</bdi>
            <span class="action">profile ›</span>
          </a>
        )}
        {!isTask && name !== '' && <bdi>{safeText(name, 60)}</bdi>}
        {kind === 'run_stopped' && typeof data.start_ns === 'number' && typeof data.stop_ns === 'number' && (
          <a
            class="action"
            href={href(
              'profile',
              sharedParams({ from: isoTime(data.start_ns / 1e6), to: isoTime(data.stop_ns / 1e6) }),
            )}
          >
            profile ›
          </a>
        )}
        {worker !== '' && (
          <>
            {' '}
            <a class="soft" href={itemHref('workers', worker, sharedParams({ worker: null }))}>
              <bdi>{safeText(worker, 40)}</bdi>
            </a>
          </>
        )}
      </td>
      <td class="soft">
        <bdi>{safeText(more, 400)}</bdi>
      </td>
    </tr>
  );
}
