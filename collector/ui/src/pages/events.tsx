// What happened, the newest first: workers that came and went, runs, tasks that ended badly, damage.

import { along, apiUrl, change, href, itemHref, useAddress } from '../core/address';
import type { EventsAnswer, FleetEvent, Task } from '../core/api';
import { taskColour } from '../core/colours';
import { fetchJson } from '../core/fetch';
import { paused, useAnswer } from '../core/live';
import { shown } from '../core/names';
import { clock, count, duration, pinned } from '../core/time';
import { Empty, Loading, Refused } from '../parts/Notes';
import { profileOf } from '../stream/TaskStream';

const ASKED = 1000;
const ROWS = 150;
const WORDS: Record<string, string> = {
  task_started: 'task started',
  task_ended: 'task ended',
  worker_connected: 'worker connected',
  worker_away: 'worker away',
  worker_gone: 'worker gone',
  run_started: 'run started',
  run_stopped: 'run stopped',
  corruption: '⚠ data corruption',
  ingest_stopped: '⚠ nothing taken in',
  ingest_resumed: 'taken in again',
  missed: 'events missed',
};
/** Where nothing is chosen, starts and good ends of tasks would hide all else. */
const QUIET = ['task_started'];

export function EventsPage() {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const kinds = params.getAll('kind');
  const answer = useAnswer<EventsAnswer>(
    `events ${pausedAt}`,
    (signal) => fetchJson(apiUrl('events/recent', new URLSearchParams({ limit: String(ASKED) })), signal),
    pausedAt === null,
  );
  if (answer.problem?.kind === 'request') return <Refused problem={answer.problem} />;
  if (!answer.value) return <Loading problem={answer.problem} />;
  const { events } = answer.value;
  const counts = new Map<string, number>();
  for (const { kind } of events) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const isBad = (event: FleetEvent) => event.kind !== 'task_ended' || event.data.outcome !== 'ok';
  const fitting = events
    .filter((event) => (kinds.length > 0 ? kinds.includes(event.kind) : !QUIET.includes(event.kind) && isBad(event)))
    .sort((a, b) => b.at_ns - a.at_ns || b.id - a.id);
  const toggle = (kind: string) =>
    change({ kind: kinds.includes(kind) ? kinds.filter((one) => one !== kind) : [...kinds, kind] });
  return (
    <section>
      <h2>
        Events{' '}
        <small>
          of the newest {count(events.length)}
          {kinds.length === 0 && '; tasks only where they failed'}
        </small>
      </h2>
      <div class="chips" role="group" aria-label="Kinds of events">
        {Object.keys(WORDS)
          .concat([...counts.keys()].filter((kind) => !(kind in WORDS)).slice(0, 5))
          .map((kind) => (
            <button key={kind} class="chip" aria-pressed={kinds.includes(kind)} onClick={() => toggle(kind)}>
              {WORDS[kind] ?? shown(kind, 30)} <small>{count(counts.get(kind) ?? 0)}</small>
            </button>
          ))}
        {kinds.length > 0 && (
          <button class="chip" onClick={() => change({ kind: null })}>
            what matters
          </button>
        )}
      </div>
      {fitting.length === 0 ? (
        <Empty title={events.length === 0 ? 'Nothing has happened yet' : 'Nothing of this kind has happened lately'}>
          <p>Workers that come and go, runs, tasks and damaged files of the store are told here as they happen.</p>
          {kinds.length > 0 && <button onClick={() => change({ kind: null })}>Show what matters</button>}
          {kinds.length === 0 && events.length > 0 && (
            <button onClick={() => change({ kind: 'task_ended' })}>Show all tasks that ended</button>
          )}
        </Empty>
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>When</th>
                <th>What</th>
                <th>Of</th>
                <th>More</th>
              </tr>
            </thead>
            <tbody>
              {fitting.slice(0, ROWS).map((event) => (
                <EventRow key={event.id} event={event} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {fitting.length > ROWS && <p class="soft">{count(fitting.length - ROWS)} older ones are not shown.</p>}
    </section>
  );
}

const text = (value: unknown) => (typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '');

function EventRow({ event }: { event: FleetEvent }) {
  const { kind, data } = event;
  const [worker, name] = [text(data.worker), text(data.name)];
  const isTask = kind.startsWith('task_');
  const took = typeof data.duration_ns === 'number' && !kind.endsWith('_started') ? duration(data.duration_ns) : '';
  const more = [
    text(data.outcome),
    took,
    text(data.cause),
    text(data.file),
    text(data.reason),
    kind === 'missed' ? `${text(data.count)} events` : '',
  ]
    .filter((part) => part !== '')
    .join(', ');
  return (
    <tr>
      <td>{clock(event.at_ns / 1e6, true)}</td>
      <td>
        {kind === 'corruption' || (data.outcome && data.outcome !== 'ok') ? (
          <b>{WORDS[kind] ?? shown(kind, 30)}</b>
        ) : (
          (WORDS[kind] ?? shown(kind, 30))
        )}
      </td>
      <td>
        {isTask && (
          <a href={href('profile', profileOf(data as unknown as Task))}>
            <i class="dot" style={{ background: taskColour(name) }} />
            <bdi>{shown(name, 40)}</bdi>
            <span class="go">profile ›</span>
          </a>
        )}
        {!isTask && name !== '' && <bdi>{shown(name, 60)}</bdi>}
        {kind === 'run_stopped' && typeof data.start_ns === 'number' && typeof data.stop_ns === 'number' && (
          <a
            class="go"
            href={href('profile', along({ from: pinned(data.start_ns / 1e6), to: pinned(data.stop_ns / 1e6) }))}
          >
            profile ›
          </a>
        )}
        {worker !== '' && (
          <>
            {' '}
            <a class="soft" href={itemHref('workers', worker, along({ worker: null }))}>
              <bdi>{shown(worker, 40)}</bdi>
            </a>
          </>
        )}
      </td>
      <td class="soft">
        <bdi>{shown(more, 200)}</bdi>
      </td>
    </tr>
  );
}
