// The task stream: what every thread worked on, when.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { along, change, go, useAddress } from '../core/address';
import type { Task, TaskName, TasksAnswer } from '../core/api';
import { onTheme, phaseColour, taskColour } from '../core/colours';
import { nowMs } from '../core/live';
import { shown } from '../core/names';
import { usePan } from '../core/pan';
import { useSize } from '../core/size';
import { bytes, clock, count, duration, pinned } from '../core/time';
import { AXIS_PX, busyShade, drawStream, GUTTER_NARROW_PX, GUTTER_PX, type StreamView } from './draw';
import { firstEndingAfter, linesOf } from './lanes';
import { keyOf, keyOfRecord, type Stream, streamOf } from './rows';

interface Properties {
  answer: TasksAnswer;
  /** All tasks of the range, where the answer has the newest only. */
  all?: Stream | undefined;
  /** The records of tasks that ran then, of which `all` knows the outlines only. */
  recordsIn?(fromMs: number, toMs: number, signal: AbortSignal): Promise<Task[]>;
  /** What the page's range is, in milliseconds: the canvas's width. */
  fromMs: number;
  toMs: number;
  heightMax: number;
  /** Durations by name, for when running tasks will end. */
  names?: TaskName[];
}

/** Where the pointer is, in the window. */
type Pointer = Pick<MouseEvent, 'clientX' | 'clientY'>;

const LANE_PX = 17;
const LANE_PX_MIN = 4;
/** How near the pointer must be to a task that is narrower. */
const NEAR_PX = 3;
/** Tasks that are read to those who cannot see the lanes. */
const TOLD = 15;
const PHASES_TOLD = 10;
/** Agents count samples by cycles of a second, and a cycle counts to the clock's second in which it began:
 * a task's are in the second of its start, or in the one before. */
const SECOND_MS = 1000;

/** Which lines are closed stands in the address: workers' names, or this for all. */
const ALL_CLOSED = '*';
/** A part that stands still for so long is looked at more closely, if so few tasks are drawn one by one. */
const STILL_MS = 250;
const RECORDS_MAX = 3000;

/** The profile of one task's name on its worker, in the time in which the task ran. */
export function profileOf(task: Pick<Task, 'name' | 'worker' | 'start_ns' | 'stop_ns'>): URLSearchParams {
  const from = (Math.floor(task.start_ns / 1e9) - 1) * SECOND_MS;
  const to = task.stop_ns === null ? nowMs() : Math.max(task.stop_ns / 1e6, task.start_ns / 1e6 + 1);
  return along({ task: task.name, worker: task.worker, from: pinned(from), to: pinned(to) });
}

export function TaskStream({ answer, all, recordsIn, fromMs, toMs, heightMax, names }: Properties) {
  const { params } = useAddress();
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [theme, setTheme] = useState(0);
  const size = useSize(scroller);
  const [top, setTop] = useState(0);
  const [pointer, setPointer] = useState<Pointer | null>(null);
  const [drawn, setDrawn] = useState(0);
  const [free, setFree] = useState<{ from: number; to: number } | null>(null);
  const stream = useMemo(() => all ?? streamOf(answer), [all, answer]);
  const { rows, lanes, leftOut } = stream;
  const [told, setTold] = useState<Task[]>([]);
  const records = useMemo(
    () => new Map([...answer.tasks, ...told].map((task) => [keyOfRecord(task), task])),
    [answer, told],
  );
  const record = (task: number) => stream.records?.[task] ?? records.get(keyOf(stream, task));
  const phases = useMemo(
    () =>
      [...new Set(answer.tasks.flatMap((task) => task.phases?.map(({ name }) => name) ?? []))]
        .filter((name) => name !== 'execute')
        .sort()
        .slice(0, PHASES_TOLD),
    [answer],
  );
  const closed = params.getAll('closed');
  const isAllClosed = closed.includes(ALL_CLOSED);
  const lines = useMemo(
    () => linesOf(lanes, (worker) => isAllClosed || closed.includes(worker)),
    [lanes, closed.join('\n')],
  );
  const lanePx = Math.max(
    LANE_PX_MIN,
    Math.min(LANE_PX, Math.floor((heightMax - AXIS_PX) / Math.max(1, lines.length))),
  );
  const gutterPx = size.width < 560 ? GUTTER_NARROW_PX : GUTTER_PX;
  // Before the first task there is nothing to see: it began later, or older rows are not here.
  const from = (free?.from ?? Math.max(fromMs, rows.baseMs - 0.02 * (toMs - rows.baseMs))) - rows.baseMs;
  const to = (free?.to ?? toMs) - rows.baseMs;
  const typicalMs = useMemo(
    () =>
      new Map(
        (names ?? []).flatMap(({ name, durations }) => (durations ? [[name, durations.p50_ns / 1e6] as const] : [])),
      ),
    [names],
  );
  /** Whether the records of what is shown are asked for: phases are only in these. */
  const isTold = free !== null && drawn > 0 && drawn <= RECORDS_MAX;
  const view: StreamView = { from, to, top, lanePx, gutterPx, typicalMs };
  const whole = AXIS_PX + lines.length * lanePx + 4;

  useEffect(() => onTheme(() => setTheme((count) => count + 1)), []);
  useLayoutEffect(() => {
    const element = canvas.current!;
    const scale = devicePixelRatio || 1;
    const [width, height] = [Math.round(size.width * scale), Math.round(size.height * scale)];
    if (element.width !== width) element.width = width;
    if (element.height !== height) element.height = height;
    if (width === 0 || height === 0) return;
    const drawn = drawStream(element, { size, lines, rows, record }, view);
    element.dataset.rects = String(drawn.rects);
    element.dataset.tasks = String(rows.count);
    element.dataset.lines = String(lines.length);
    setDrawn(drawn.tasks);
  }, [theme, size, lines, records, from, to, top, lanePx, typicalMs]);
  useEffect(() => {
    if (!all || !recordsIn || !isTold) return;
    const stop = new AbortController();
    // Without them there are outlines; what is wrong is told by the page itself.
    const timer = setTimeout(
      () => recordsIn(rows.baseMs + from, rows.baseMs + to, stop.signal).then(setTold, () => {}),
      STILL_MS,
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [all, free, isTold]);

  function lineAt({ clientY }: Pointer) {
    const y = clientY - canvas.current!.getBoundingClientRect().top;
    return y < AXIS_PX ? undefined : lines[Math.floor((y - AXIS_PX + top) / lanePx)];
  }

  function at(place: Pointer): number {
    const box = canvas.current!.getBoundingClientRect();
    const line = lineAt(place);
    const perPx = (to - from) / (size.width - gutterPx);
    const px = place.clientX - box.left - gutterPx;
    if (!line || line.isClosed || px < 0) return -1;
    const [lane] = line.lanes;
    const time = from + px * perPx;
    const i = firstEndingAfter(lane, time - NEAR_PX * perPx);
    return i < lane.starts.length && lane.starts[i] <= time + NEAR_PX * perPx ? lane.tasks[i] : -1;
  }

  /** Closes a worker's lanes to one line, or opens them. */
  function turn(worker: string) {
    const workers = [...new Set(lanes.map((one) => one.worker))];
    const before = isAllClosed ? workers : closed;
    const after = before.includes(worker) ? before.filter((one) => one !== worker) : [...before, worker];
    change({ closed: after.length === workers.length ? ALL_CLOSED : after });
  }

  const pan = usePan({
    box: scroller,
    leftPx: gutterPx,
    widthPx: size.width - gutterPx,
    shown: { from: rows.baseMs + from, to: rows.baseMs + to },
    lengthMin: 1,
    isMovable: true,
    onMove: setFree,
    onHover: (event) => setPointer(event && { clientX: event.clientX, clientY: event.clientY }),
  });
  // What is there now, and so what a click would open: tasks come and move below a pointer that rests.
  const hovered = pointer ? at(pointer) : -1;

  function key(event: KeyboardEvent) {
    const shift = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    if (event.key === '+' || event.key === '=') pan.zoom(0.5, 0.5);
    else if (event.key === '-') pan.zoom(2, 0.5);
    else if (event.key === '0' || event.key === 'Escape') setFree(null);
    else if (shift)
      setFree({ from: rows.baseMs + from + shift * (to - from), to: rows.baseMs + to + shift * (to - from) });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  return (
    <div class="stream-box">
      <div class="stream-tools">
        <button aria-label="zoom in" onClick={() => pan.zoom(0.5, 0.5)}>
          +
        </button>
        <button aria-label="zoom out" onClick={() => pan.zoom(2, 0.5)}>
          −
        </button>
        {free && <button onClick={() => setFree(null)}>whole range</button>}
        <button aria-pressed={isAllClosed} onClick={() => change({ closed: isAllClosed ? null : ALL_CLOSED })}>
          one line a worker
        </button>
        <small class="soft">
          {count(rows.count)}
          {rows.count < stream.total && <> newest of {count(stream.total)}</>} tasks
          {leftOut > 0 && <>, {count(leftOut)} that overlap too much not drawn</>}; drag moves,{' '}
          <span class="by-mouse">Ctrl + wheel zooms</span>
          <span class="by-touch">two fingers zoom</span>, a click shows the task's profile, one on a worker's name
          closes it
        </small>
      </div>
      <div
        ref={scroller}
        class="stream"
        tabIndex={0}
        role="application"
        aria-label="Tasks by thread over time. Arrow keys move, plus and minus zoom."
        style={{ height: `${Math.min(whole, heightMax)}px`, cursor: hovered >= 0 ? 'pointer' : 'default' }}
        onScroll={(event) => {
          setTop(event.currentTarget.scrollTop);
          setPointer(null);
        }}
        {...pan.handlers}
        onClick={(event) => {
          if (pan.wasDrag()) return;
          const task = at(event);
          const line = lineAt(event);
          if (task >= 0) go('profile', profileOf(outlineOf(stream, task)));
          else if (line && event.clientX - canvas.current!.getBoundingClientRect().left < gutterPx) turn(line.worker);
        }}
        onKeyDown={key}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <div class="outlines" style={{ height: `${whole}px` }} />
      </div>
      {(phases.length > 0 || drawn < rows.count) && (
        <p class="legend">
          <span class="soft">a bar has its task's colour while it executes</span>
          {drawn < rows.count && (
            <span>
              <i class="dot" style={{ background: busyShade() }} />
              tasks too short to draw: the stronger, the busier
            </span>
          )}
          {all && !isTold && (
            <span class="soft">
              phases are shown of the newest {count(answer.tasks.length)}; zoom in to see those of others
            </span>
          )}
          {phases.map((name) => (
            <span key={name}>
              <i class="dot" style={{ background: phaseColour(name) }} />
              <bdi>{shown(name, 28)}</bdi>
            </span>
          ))}
          <span>✕ failed: black, or white in the dark</span>
        </p>
      )}
      <div class="unseen">
        <table>
          <caption>The newest tasks</caption>
          <thead>
            <tr>
              <th>Task</th>
              <th>Outcome</th>
              <th>Took</th>
              <th>Worker</th>
              <th>Thread</th>
            </tr>
          </thead>
          <tbody>
            {answer.tasks.slice(0, TOLD).map((task) => (
              <tr key={`${task.worker} ${task.epoch} ${task.id}`}>
                <td>{shown(task.name)}</td>
                <td>{task.outcome}</td>
                <td>{duration(task.duration_ns)}</td>
                <td>{shown(task.worker)}</td>
                <td>{shown(task.thread_name)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {pointer && hovered >= 0 && (
        <TaskTip
          task={record(hovered) ?? outlineOf(stream, hovered)}
          typicalMs={typicalMs.get(rows.names[rows.name[hovered]])}
          at={pointer}
        />
      )}
    </div>
  );
}

export const UNKNOWN_KEY = '…';

/** As much of a task as its outline tells. */
export function outlineOf({ rows }: Stream, task: number): Task {
  const { worker, epoch, id: thread_id, name: thread_name } = rows.threads[rows.thread[task]];
  const outcome = rows.outcomes[rows.outcome[task]];
  const [start_ns, end_ns] = [rows.starts, rows.ends].map((times) => (rows.baseMs + times[task]) * 1e6);
  return {
    worker,
    epoch,
    thread_id,
    thread_name,
    outcome,
    id: rows.ids[task],
    name: rows.names[rows.name[task]],
    key: UNKNOWN_KEY,
    cause: '',
    parent: null,
    attempt: null,
    result_bytes: null,
    type_name: '',
    labels: {},
    phases: [],
    start: '',
    stop: null,
    start_ns,
    stop_ns: outcome === 'running' ? null : end_ns,
    duration_ns: end_ns - start_ns,
  };
}

/** What is known of a task beside its name, where its agent told. */
function moreOf({ attempt, result_bytes, type_name, labels, phases }: Task): [string, string][] {
  const told: [string, string][] = [];
  const split = phases
    .slice(0, 8)
    .map(
      (phase) =>
        `${phase.name} ${duration(phase.duration_ns)}${phase.count > 1 ? ` (${count(phase.count)} times)` : ''}`,
    );
  if (split.length > 0) told.push(['phases', split.join(', ')]);
  if (result_bytes !== null) told.push(['result', `${bytes(result_bytes)} ${type_name}`]);
  else if (type_name) told.push(['result', type_name]);
  if (attempt && attempt > 1) told.push(['attempt', count(attempt)]);
  const pairs = Object.entries(labels).slice(0, 8);
  if (pairs.length > 0) told.push(['labels', pairs.map(([name, value]) => `${name}=${value}`).join(' ')]);
  return told;
}

function TaskTip({ task, typicalMs, at }: { task: Task; typicalMs: number | undefined; at: Pointer }) {
  const more = typicalMs === undefined ? 0 : typicalMs * 1e6 - task.duration_ns;
  const place = {
    left: `${Math.min(at.clientX + 14, Math.max(8, innerWidth - 430))}px`,
    ...(at.clientY > innerHeight - 190
      ? { bottom: `${innerHeight - at.clientY + 14}px` }
      : { top: `${at.clientY + 16}px` }),
  };
  return (
    <div class="tip floating" style={place} role="status">
      <b class="name">
        <i class="dot" style={{ background: taskColour(task.name) }} />
        <bdi>{shown(task.name)}</bdi>
      </b>
      <dl>
        <dt>key</dt>
        <dd class="rest">
          <bdi>{shown(task.key, 120)}</bdi>
        </dd>
        <dt>outcome</dt>
        <dd class="rest">
          {task.outcome} {task.cause && <bdi>{shown(task.cause, 200)}</bdi>}
        </dd>
        <dt>took</dt>
        <dd class="rest">
          {duration(task.duration_ns)}
          {task.stop_ns === null &&
            (more > 0
              ? ` so far; mostly it is ${duration(more)} more`
              : typicalMs === undefined
                ? ' so far'
                : ` so far; mostly it is ${duration(typicalMs * 1e6)} in all`)}
        </dd>
        <dt>from</dt>
        <dd class="rest">
          {clock(task.start_ns / 1e6, true)}
          {task.stop_ns !== null && ` to ${clock(task.stop_ns / 1e6, true)}`}
        </dd>
        <dt>on</dt>
        <dd class="rest">
          <bdi>{shown(task.worker, 60)}</bdi>, <bdi>{shown(task.thread_name || String(task.thread_id), 60)}</bdi>
        </dd>
        {moreOf(task).map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd class="rest">
              <bdi>{shown(value, 300)}</bdi>
            </dd>
          </>
        ))}
      </dl>
    </div>
  );
}
