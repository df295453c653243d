// The task stream: what every thread worked on, when.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { along, go } from '../core/address';
import type { Task, TaskName, TasksAnswer } from '../core/api';
import { onTheme, phaseColour, taskColour } from '../core/colours';
import { nowMs } from '../core/live';
import { shown } from '../core/names';
import { usePan } from '../core/pan';
import { bytes, clock, count, duration, pinned } from '../core/time';
import { AXIS_PX, drawStream, GUTTER_NARROW_PX, GUTTER_PX, type StreamView } from './draw';
import { firstEndingAfter, lanesOf } from './lanes';

interface Properties {
  answer: TasksAnswer;
  /** What the page's range is, in milliseconds: the canvas's width. */
  fromMs: number;
  toMs: number;
  heightMax: number;
  /** Durations by name, for when running tasks will end. */
  names?: TaskName[];
}

const LANE_PX = 17;
const LANE_PX_MIN = 4;
/** How near the pointer must be to a task that is narrower. */
const NEAR_PX = 3;
/** Tasks that are read to those who cannot see the lanes. */
const TOLD = 15;
const PHASES_TOLD = 10;
/** Agents count samples by the second: a task's are in seconds that began up to one before it. */
const CYCLE_MS = 1000;

/** The profile of one task's name on its worker, in the time in which the task ran. */
export function profileOf(task: Task): URLSearchParams {
  const from = task.start_ns / 1e6 - CYCLE_MS;
  const to = task.stop_ns === null ? nowMs() : Math.max(task.stop_ns / 1e6, task.start_ns / 1e6 + 1);
  return along({ task: task.name, worker: task.worker, from: pinned(from), to: pinned(to) });
}

export function TaskStream({ answer, fromMs, toMs, heightMax, names }: Properties) {
  const { tasks } = answer;
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [theme, setTheme] = useState(0);
  const [size, setSize] = useState({ width: 0, height: 0 });
  const [top, setTop] = useState(0);
  const [hover, setHover] = useState<{ task: number; px: number; py: number } | null>(null);
  const [free, setFree] = useState<{ from: number; to: number } | null>(null);
  const phases = useMemo(() => [...new Set(tasks.flatMap((task) => task.phases?.map(({ name }) => name) ?? []))].filter((name) => name !== 'execute').sort().slice(0, PHASES_TOLD), [tasks]);
  const lanes = useMemo(() => lanesOf(tasks, answer.range.to_ns), [tasks]);
  const lanePx = Math.max(LANE_PX_MIN, Math.min(LANE_PX, Math.floor((heightMax - AXIS_PX) / Math.max(1, lanes.lanes.length))));
  const gutterPx = size.width < 560 ? GUTTER_NARROW_PX : GUTTER_PX;
  // Before the first task there is nothing to see: it began later, or older rows are not here.
  const from = (free?.from ?? Math.max(fromMs, lanes.baseMs - 0.02 * (toMs - lanes.baseMs))) - lanes.baseMs;
  const to = (free?.to ?? toMs) - lanes.baseMs;
  const typicalMs = useMemo(() => new Map((names ?? []).flatMap(({ name, durations }) => (durations ? [[name, durations.p50_ns / 1e6] as const] : []))), [names]);
  const view: StreamView = { from, to, top, lanePx, gutterPx, typicalMs };
  const whole = AXIS_PX + lanes.lanes.length * lanePx + 4;

  useEffect(() => onTheme(() => setTheme((count) => count + 1)), []);
  useEffect(() => {
    const element = scroller.current!;
    const observer = new ResizeObserver(() => setSize({ width: element.clientWidth, height: element.clientHeight }));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const element = canvas.current!;
    const scale = devicePixelRatio || 1;
    const [width, height] = [Math.round(size.width * scale), Math.round(size.height * scale)];
    if (element.width !== width) element.width = width;
    if (element.height !== height) element.height = height;
    if (width > 0 && height > 0) element.dataset.rects = String(drawStream(element, lanes, tasks, view));
  }, [theme, size, lanes, from, to, top, lanePx, typicalMs]);

  function at(event: MouseEvent): number {
    const box = canvas.current!.getBoundingClientRect();
    const lane = lanes.lanes[Math.floor((event.clientY - box.top - AXIS_PX + top) / lanePx)];
    const perPx = (to - from) / (size.width - gutterPx);
    const px = event.clientX - box.left - gutterPx;
    if (!lane || px < 0 || event.clientY - box.top < AXIS_PX) return -1;
    const time = from + px * perPx;
    const i = firstEndingAfter(lane, time - NEAR_PX * perPx);
    return i < lane.starts.length && lane.starts[i] <= time + NEAR_PX * perPx ? lane.tasks[i] : -1;
  }

  const pan = usePan({
    box: scroller, leftPx: gutterPx, widthPx: size.width - gutterPx, shown: { from: lanes.baseMs + from, to: lanes.baseMs + to }, lengthMin: 1, isMovable: true,
    onMove: setFree,
    onHover: (event) => {
      const task = event ? at(event) : -1;
      setHover(task < 0 ? null : { task, px: event!.clientX, py: event!.clientY });
    },
  });

  function key(event: KeyboardEvent) {
    const shift = { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
    if (event.key === '+' || event.key === '=') pan.zoom(0.5, 0.5);
    else if (event.key === '-') pan.zoom(2, 0.5);
    else if (event.key === '0' || event.key === 'Escape') setFree(null);
    else if (shift) setFree({ from: lanes.baseMs + from + shift * (to - from), to: lanes.baseMs + to + shift * (to - from) });
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  return (
    <div class="stream-box">
      <div class="stream-tools">
        <button aria-label="zoom in" onClick={() => pan.zoom(0.5, 0.5)}>+</button>
        <button aria-label="zoom out" onClick={() => pan.zoom(2, 0.5)}>−</button>
        {free && <button onClick={() => setFree(null)}>whole range</button>}
        <small class="soft">
          {count(tasks.length)}{answer.truncated && <> newest of {count(answer.total)}</>} tasks
          {lanes.leftOut > 0 && <>, {count(lanes.leftOut)} that overlap too much not drawn</>}; drag moves, Ctrl + wheel zooms, a click shows the task's profile
        </small>
      </div>
      <div
        ref={scroller} class="stream" tabIndex={0} role="application" aria-label="Tasks by thread over time. Arrow keys move, plus and minus zoom."
        style={{ height: `${Math.min(whole, heightMax)}px`, cursor: hover ? 'pointer' : 'default' }}
        onScroll={(event) => { setTop(event.currentTarget.scrollTop); setHover(null); }}
        {...pan.handlers}
        onClick={(event) => {
          const task = pan.wasDrag() ? -1 : at(event);
          if (task >= 0) go('profile', profileOf(tasks[task]));
        }}
        onKeyDown={key}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <div class="outlines" style={{ height: `${whole}px` }} />
      </div>
      {phases.length > 0 && (
        <p class="legend">
          <span class="soft">a bar has its task's colour while it executes</span>
          {phases.map((name) => <span key={name}><i class="dot" style={{ background: phaseColour(name) }} /><bdi>{shown(name, 28)}</bdi></span>)}
          <span>✕ failed: black, or white in the dark</span>
        </p>
      )}
      <div class="unseen">
        <table>
          <caption>The newest tasks</caption>
          <thead><tr><th>Task</th><th>Outcome</th><th>Took</th><th>Worker</th><th>Thread</th></tr></thead>
          <tbody>
            {tasks.slice(0, TOLD).map((task) => (
              <tr key={`${task.worker} ${task.epoch} ${task.id}`}><td>{shown(task.name)}</td><td>{task.outcome}</td><td>{duration(task.duration_ns)}</td><td>{shown(task.worker)}</td><td>{shown(task.thread_name)}</td></tr>
            ))}
          </tbody>
        </table>
      </div>
      {hover && tasks[hover.task] && <TaskTip task={tasks[hover.task]} typicalMs={typicalMs.get(tasks[hover.task].name)} at={hover} />}
    </div>
  );
}

/** What is known of a task beside its name, where its agent told. */
function moreOf({ attempt, result_bytes, type_name, labels, phases }: Task): [string, string][] {
  const told: [string, string][] = [];
  const split = (phases ?? []).slice(0, 8).map((phase) => `${phase.name} ${duration(phase.duration_ns)}${phase.count > 1 ? ` (${count(phase.count)} times)` : ''}`);
  if (split.length > 0) told.push(['phases', split.join(', ')]);
  if (result_bytes !== null && result_bytes !== undefined) told.push(['result', `${bytes(result_bytes)} ${type_name ?? ''}`]);
  else if (type_name) told.push(['result', type_name]);
  if (attempt && attempt > 1) told.push(['attempt', count(attempt)]);
  const pairs = Object.entries(labels ?? {}).slice(0, 8);
  if (pairs.length > 0) told.push(['labels', pairs.map(([name, value]) => `${name}=${value}`).join(' ')]);
  return told;
}

function TaskTip({ task, typicalMs, at }: { task: Task; typicalMs: number | undefined; at: { px: number; py: number } }) {
  const more = typicalMs === undefined ? 0 : typicalMs * 1e6 - task.duration_ns;
  const place = {
    left: `${Math.min(at.px + 14, Math.max(8, innerWidth - 430))}px`,
    ...(at.py > innerHeight - 190 ? { bottom: `${innerHeight - at.py + 14}px` } : { top: `${at.py + 16}px` }),
  };
  return (
    <div class="tip floating" style={place} role="status">
      <b class="name"><i class="dot" style={{ background: taskColour(task.name) }} /><bdi>{shown(task.name)}</bdi></b>
      <dl>
        <dt>key</dt><dd class="rest"><bdi>{shown(task.key, 120)}</bdi></dd>
        <dt>outcome</dt><dd class="rest">{task.outcome} {task.cause && <bdi>{shown(task.cause, 200)}</bdi>}</dd>
        <dt>took</dt><dd class="rest">{duration(task.duration_ns)}{task.stop_ns === null && (more > 0 ? ` so far; mostly it is ${duration(more)} more` : typicalMs === undefined ? ' so far' : ` so far; mostly it is ${duration(typicalMs * 1e6)} in all`)}</dd>
        <dt>from</dt><dd class="rest">{clock(task.start_ns / 1e6, true)}{task.stop_ns !== null && ` to ${clock(task.stop_ns / 1e6, true)}`}</dd>
        <dt>on</dt><dd class="rest"><bdi>{shown(task.worker, 60)}</bdi>, <bdi>{shown(task.thread_name || String(task.thread_id), 60)}</bdi></dd>
        {moreOf(task).map(([name, value]) => <><dt>{name}</dt><dd class="rest"><bdi>{shown(value, 300)}</bdi></dd></>)}
      </dl>
    </div>
  );
}
