// The task stream: what each thread worked on over time.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { navigate, setParams, sharedParams, useAddress } from '../core/address';
import type { Task, TaskName, TasksAnswer } from '../core/api';
import { nowMs } from '../core/clock';
import { busyShades, onTheme, phaseColor, taskColor } from '../core/colors';
import { safeText } from '../core/names';
import { usePan } from '../core/pan';
import { fitCanvas, useSize } from '../core/size';
import { bytes, clock, count, duration, isoTime, quantity } from '../core/time';
import { keyOf, keyOfRecord, type Stream, streamOf, type TaskColumns } from './columns';
import { AXIS_PX, drawStream, GUTTER_NARROW_PX, GUTTER_PX, type StreamView } from './draw';
import { firstEndingAfter, linesOf } from './lanes';

interface Properties {
  answer: TasksAnswer;
  /** All tasks of the range, if `answer` holds only the newest. */
  all?: Stream | undefined;
  /** Whether the tasks are in a file, so that nothing else can be requested. */
  isFile?: boolean;
  /** Requests full records of tasks in a time range, if `all` holds only columns. */
  recordsIn?(fromMs: number, toMs: number, signal: AbortSignal): Promise<Task[]>;
  /** The page's range in milliseconds, which spans the canvas. */
  fromMs: number;
  toMs: number;
  heightMax: number;
  /** Durations by name, to estimate when running tasks end. */
  names?: TaskName[];
}

/** The pointer's position in the window. */
type Pointer = Pick<MouseEvent, 'clientX' | 'clientY'>;

const LANE_PX = 17;
const LANE_PX_MIN = 4;
/** How near the pointer must be to a narrower task. */
const NEAR_PX = 3;
/** Tasks in the screen reader's table. */
const SPOKEN_TASKS = 15;
const LEGEND_PHASES_MAX = 10;
/**
 * Agents count samples in cycles of a second, and a cycle belongs to the wall-clock second in which it
 * began: a task's samples are in the second of its start or in the one before.
 */
const SECOND_MS = 1000;

/** The address lists collapsed workers by name, or this for all. */
const ALL_COLLAPSED = '*';
/** A view that stays for this long gets full records, if it draws at most this many tasks. */
const STILL_MS = 250;
const RECORDS_MAX = 3000;

type Instance = Pick<
  Task,
  'name' | 'worker' | 'start_ns' | 'stop_ns' | 'duration_ns' | 'thread_id' | 'thread_name' | 'key'
>;

/** The profile of a task's name on its worker and thread, in the task's time range. */
export function profileOf(task: Instance): URLSearchParams {
  const from = (Math.floor(task.start_ns / 1e9) - 1) * SECOND_MS;
  const to = task.stop_ns === null ? nowMs() : Math.max(task.stop_ns / 1e6, task.start_ns / 1e6 + 1);
  // Events of tasks have no thread.
  const thread = task.thread_name && {
    on: task.thread_name,
    on_id: String(task.thread_id),
    ran: String(task.duration_ns),
    key: task.key === UNKNOWN_KEY ? null : task.key,
  };
  return sharedParams({
    task: task.name,
    worker: task.worker,
    from: isoTime(from),
    to: isoTime(to),
    ...(thread || {}),
  });
}

/** The outcomes in the legend that occur. */
function badOutcomes({ outcome, outcomes }: TaskColumns): Set<string> {
  // A table instead of a set, because there may be a million tasks.
  const isPresent = new Uint8Array(outcomes.length);
  for (let task = 0; task < outcome.length; task++) isPresent[outcome[task]] = 1;
  const seen = new Set(outcomes.filter((_, i) => isPresent[i] === 1));
  if (seen.delete('panicked')) seen.add('failed');
  return new Set(['failed', 'cancelled', 'lost'].filter((name) => seen.has(name)));
}

export function TaskStream({ answer, all, isFile = false, recordsIn, fromMs, toMs, heightMax, names }: Properties) {
  const { params } = useAddress();
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [theme, setTheme] = useState(0);
  const size = useSize(scroller);
  const [top, setTop] = useState(0);
  const [pointer, setPointer] = useState<Pointer | null>(null);
  const [drawn, setDrawn] = useState(0);
  const [panned, setPanned] = useState<{ from: number; to: number } | null>(null);
  const stream = useMemo(() => all ?? streamOf(answer), [all, answer]);
  const { rows, lanes, omitted } = stream;
  const [fetchedRecords, setFetchedRecords] = useState<Task[]>([]);
  const records = useMemo(
    () => new Map([...answer.tasks, ...fetchedRecords].map((task) => [keyOfRecord(task), task])),
    [answer, fetchedRecords],
  );
  const record = (task: number) => stream.records?.[task] ?? records.get(keyOf(stream, task));
  const phases = useMemo(
    () =>
      [...new Set(answer.tasks.flatMap((task) => task.phases?.map(({ name }) => name) ?? []))]
        .filter((name) => name !== 'execute')
        .sort()
        .slice(0, LEGEND_PHASES_MAX),
    [answer],
  );
  const outcomes = useMemo(() => badOutcomes(rows), [rows]);
  const collapsed = params.getAll('collapsed');
  const isAllCollapsed = collapsed.includes(ALL_COLLAPSED);
  const lines = useMemo(
    () => linesOf(lanes, (worker) => isAllCollapsed || collapsed.includes(worker)),
    [lanes, collapsed.join('\n')],
  );
  const lanePx = Math.max(
    LANE_PX_MIN,
    Math.min(LANE_PX, Math.floor((heightMax - AXIS_PX) / Math.max(1, lines.length))),
  );
  const gutterPx = size.width < 560 ? GUTTER_NARROW_PX : GUTTER_PX;
  // Skip the empty time before the first task: it started later, or older rows were aggregated.
  const from = (panned?.from ?? Math.max(fromMs, rows.baseMs - 0.02 * (toMs - rows.baseMs))) - rows.baseMs;
  const to = (panned?.to ?? toMs) - rows.baseMs;
  const typicalMs = useMemo(
    () =>
      new Map(
        (names ?? []).flatMap(({ name, durations }) => (durations ? [[name, durations.p50_ns / 1e6] as const] : [])),
      ),
    [names],
  );
  /** Whether to request full records of the visible tasks; only these have phases. */
  const wantsRecords = panned !== null && drawn > 0 && drawn <= RECORDS_MAX;
  const view: StreamView = { from, to, top, lanePx, gutterPx, typicalMs };
  const whole = AXIS_PX + lines.length * lanePx + 4;

  useEffect(() => onTheme(() => setTheme((count) => count + 1)), []);
  useLayoutEffect(() => {
    const element = canvas.current!;
    if (!fitCanvas(element, size)) return;
    const drawn = drawStream(element, { size, lines, rows, record }, view);
    element.dataset.rects = String(drawn.rects);
    element.dataset.tasks = String(rows.count);
    element.dataset.lines = String(lines.length);
    setDrawn(drawn.tasks);
  }, [theme, size, lines, records, from, to, top, lanePx, typicalMs]);
  useEffect(() => {
    if (!all || !recordsIn || !wantsRecords) return;
    const stop = new AbortController();
    // Without records the columns are drawn; the page shows the error.
    const timer = setTimeout(
      () => recordsIn(rows.baseMs + from, rows.baseMs + to, stop.signal).then(setFetchedRecords, () => {}),
      STILL_MS,
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [all, panned, wantsRecords]);

  function lineAt({ clientY }: Pointer) {
    const y = clientY - canvas.current!.getBoundingClientRect().top;
    return y < AXIS_PX ? undefined : lines[Math.floor((y - AXIS_PX + top) / lanePx)];
  }

  function taskAt(position: Pointer): number {
    const box = canvas.current!.getBoundingClientRect();
    const line = lineAt(position);
    const perPx = (to - from) / (size.width - gutterPx);
    const px = position.clientX - box.left - gutterPx;
    if (!line || line.isCollapsed || px < 0) return -1;
    const [lane] = line.lanes;
    const time = from + px * perPx;
    const i = firstEndingAfter(lane, time - NEAR_PX * perPx);
    return i < lane.starts.length && lane.starts[i] <= time + NEAR_PX * perPx ? lane.tasks[i] : -1;
  }

  /** Collapses a worker's lanes to one line, or expands them. */
  function toggleWorker(worker: string) {
    const workers = [...new Set(lanes.map((one) => one.worker))];
    const before = isAllCollapsed ? workers : collapsed;
    const after = before.includes(worker) ? before.filter((one) => one !== worker) : [...before, worker];
    setParams({ collapsed: after.length === workers.length ? ALL_COLLAPSED : after });
  }

  const pan = usePan({
    box: scroller,
    leftPx: gutterPx,
    widthPx: size.width - gutterPx,
    shown: { from: rows.baseMs + from, to: rows.baseMs + to },
    lengthMin: 1,
    isMovable: true,
    onMove: setPanned,
    onHover: (event) => setPointer(event && { clientX: event.clientX, clientY: event.clientY }),
  });
  // The task that a click would open now: tasks move under a resting pointer.
  const hovered = pointer ? taskAt(pointer) : -1;

  function key(event: KeyboardEvent) {
    const shift = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    if (event.key === '+' || event.key === '=') pan.zoom(0.5, 0.5);
    else if (event.key === '-') pan.zoom(2, 0.5);
    else if (event.key === '0' || event.key === 'Escape') setPanned(null);
    else if (shift)
      setPanned({ from: rows.baseMs + from + shift * (to - from), to: rows.baseMs + to + shift * (to - from) });
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
        {panned && <button onClick={() => setPanned(null)}>whole range</button>}
        <button
          aria-pressed={isAllCollapsed}
          onClick={() => setParams({ collapsed: isAllCollapsed ? null : ALL_COLLAPSED })}
        >
          one row per worker
        </button>
        <small class="soft">
          {rows.count < stream.total && <>newest {count(rows.count)} of </>}
          {quantity(stream.total, 'task')}
          {omitted > 0 && <>, {count(omitted)} with too many overlaps not drawn</>}. Drag to pan,{' '}
          <span class="by-mouse">Ctrl+scroll to zoom</span>
          <span class="by-touch">pinch to zoom</span>
          {!isFile && <>, click a task for its profile</>}, click a worker to collapse it
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
          const task = taskAt(event);
          const line = lineAt(event);
          if (task >= 0) navigate('profile', profileOf(outlineOf(stream, task)));
          else if (line && event.clientX - canvas.current!.getBoundingClientRect().left < gutterPx)
            toggleWorker(line.worker);
        }}
        onKeyDown={key}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <div class="outlines" style={{ height: `${whole}px` }} />
      </div>
      {(phases.length > 0 || outcomes.size > 0 || drawn < rows.count) && (
        <p class="legend">
          <span class="soft">Bars: task color = executing</span>
          {drawn < rows.count && (
            <span>
              <i class="dot" style={{ background: busyShades()[4] }} />
              short tasks, aggregated (darker = busier)
            </span>
          )}
          {all && !wantsRecords && (
            <span class="soft">
              phases are shown for the newest {count(answer.tasks.length)}
              {!isFile && <>; zoom in to see others</>}
            </span>
          )}
          {phases.map((name) => (
            <span key={name}>
              <i class="dot" style={{ background: phaseColor(name) }} />
              <bdi>{safeText(name, 28)}</bdi>
            </span>
          ))}
          {outcomes.has('failed') && <span>✕ failed</span>}
          {['cancelled', 'lost']
            .filter((outcome) => outcomes.has(outcome))
            .map((outcome) => (
              <span key={outcome}>
                <i class={`dot ${outcome}`} />
                {outcome}
              </span>
            ))}
        </p>
      )}
      <div class="visually-hidden">
        <table>
          <caption>Newest tasks</caption>
          <thead>
            <tr>
              <th>Task</th>
              <th>Outcome</th>
              <th>Duration</th>
              <th>Worker</th>
              <th>Thread</th>
            </tr>
          </thead>
          <tbody>
            {answer.tasks.slice(0, SPOKEN_TASKS).map((task) => (
              <tr key={`${task.worker} ${task.epoch} ${task.id}`}>
                <td>{safeText(task.name)}</td>
                <td>{task.outcome}</td>
                <td>{duration(task.duration_ns)}</td>
                <td>{safeText(task.worker)}</td>
                <td>{safeText(task.thread_name)}</td>
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

/** A task from its columns. */
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

/** Optional details of a task. */
function detailsOf({ attempt, result_bytes, type_name, labels, phases }: Task): [string, string][] {
  const details: [string, string][] = [];
  const split = phases
    .slice(0, 8)
    .map(
      (phase) =>
        `${phase.name} ${duration(phase.duration_ns)}${phase.count > 1 ? ` (${count(phase.count)} times)` : ''}`,
    );
  if (split.length > 0) details.push(['phases', split.join(', ')]);
  if (result_bytes !== null) details.push(['result', `${bytes(result_bytes)} ${type_name}`]);
  else if (type_name) details.push(['result', type_name]);
  if (attempt && attempt > 1) details.push(['attempt', count(attempt)]);
  const pairs = Object.entries(labels).slice(0, 8);
  if (pairs.length > 0) details.push(['labels', pairs.map(([name, value]) => `${name}=${value}`).join(' ')]);
  return details;
}

function TaskTip({ task, typicalMs, at }: { task: Task; typicalMs: number | undefined; at: Pointer }) {
  const more = typicalMs === undefined ? 0 : typicalMs * 1e6 - task.duration_ns;
  const position = {
    left: `${Math.min(at.clientX + 14, Math.max(8, innerWidth - 430))}px`,
    ...(at.clientY > innerHeight - 190
      ? { bottom: `${innerHeight - at.clientY + 14}px` }
      : { top: `${at.clientY + 16}px` }),
  };
  return (
    <div class="tip floating" style={position} role="status">
      <b class="name">
        <i class="dot" style={{ background: taskColor(task.name) }} />
        <bdi>{safeText(task.name)}</bdi>
      </b>
      <dl>
        <dt>key</dt>
        <dd class="rest">
          <bdi>{safeText(task.key, 120)}</bdi>
        </dd>
        <dt>outcome</dt>
        <dd class="rest">
          {task.outcome} {task.cause && <bdi>{safeText(task.cause, 200)}</bdi>}
        </dd>
        <dt>took</dt>
        <dd class="rest">
          {duration(task.duration_ns)}
          {task.stop_ns === null &&
            (more > 0
              ? ` so far; typically ${duration(more)} more`
              : typicalMs === undefined
                ? ' so far'
                : ` so far; typically ${duration(typicalMs * 1e6)} in total`)}
        </dd>
        <dt>from</dt>
        <dd class="rest">
          {clock(task.start_ns / 1e6, true)}
          {task.stop_ns !== null && ` to ${clock(task.stop_ns / 1e6, true)}`}
        </dd>
        <dt>on</dt>
        <dd class="rest">
          <bdi>{safeText(task.worker, 60)}</bdi>, <bdi>{safeText(task.thread_name || String(task.thread_id), 60)}</bdi>
        </dd>
        {detailsOf(task).map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd class="rest">
              <bdi>{safeText(value, 300)}</bdi>
            </dd>
          </>
        ))}
      </dl>
    </div>
  );
}
