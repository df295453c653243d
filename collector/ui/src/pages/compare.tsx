// Compares two ranges, tasks, workers or runs: durations of task names, and functions as one graph and two tables.

import { useMemo } from 'preact/hooks';
import { type Side, SidePicker } from '../components/ComparisonSide';
import { useFleet } from '../components/FilterMenus';
import { SearchField, SearchSummary, useFunctionSearch } from '../components/FunctionSearch';
import { EmptyState, InvalidRequest, Loading, NoData } from '../components/Messages';
import { apiUrl, rangeOf, setParams, useAddress } from '../core/address';
import type { TaskComparisonAnswer } from '../core/api';
import { copyText } from '../core/clipboard';
import { nowMs } from '../core/clock';
import { changeColor } from '../core/colors';
import { fetchJson } from '../core/fetch';
import { useKeys } from '../core/keys';
import { safeText, shortFile } from '../core/names';
import { pauseTime, requestRange, useQuery } from '../core/query';
import {
  absoluteRange,
  digits,
  duration,
  isLive,
  isoTime,
  isRelative,
  parseTimeMs,
  percent,
  type Range,
} from '../core/time';
import { fetchComparison } from '../flame/client';
import { type Comparison, FULL_WEIGHT, type Scale } from '../flame/compare';
import { FlameGraph } from '../flame/FlameGraph';
import { labelOf } from '../flame/label';
import { AFTER, BEFORE, NO_FUNCTION, STATE_COUNT } from '../flame/layout';
import type { Action, NodeAction } from '../flame/NodeMenu';
import { type NodeTip, Tip } from '../flame/NodeTip';
import { findByPathId, pathId } from '../flame/path';
import { TaskComparison } from './compare/TaskComparison';
import { HiddenTime } from './profile/HiddenTime';
import { type Params, viewOf } from './profile/query';
import { StateChips } from './profile/StateChips';
import { chosenStates, stateParams, statesOf } from './profile/states';

/** Rows of each table. */
const ROWS = 12;
/** Longest name that is searched as a whole. */
const NAME_MAX = 400;
/** Smaller changes would be displayed as 0. */
const CHANGE_MIN = FULL_WEIGHT * 5e-5;
/** A comparison costs two profiles, and changes slowly. */
const EVERY_MS = 5000;

/** A time before now in the API's notation. */
function agoText(ms: number): string {
  const seconds = Math.round(ms / 1000);
  return seconds % 60 === 0 ? `-${seconds / 60}m` : `-${seconds}s`;
}

/** The range of equal length right before. */
function rangeBefore(range: Range): Range {
  const now = nowMs();
  const from = parseTimeMs(range.from, now);
  const to = parseTimeMs(range.to, now);
  if (!isLive(range)) return { from: isoTime(2 * from - to), to: range.from };
  // The range before a moving range moves too.
  return isRelative(range.from)
    ? { from: agoText(2 * (now - from)), to: range.from }
    : { from: isoTime(2 * from - now), to: range.from };
}

function sideOf(params: URLSearchParams, prefix: string, range: Range): Side {
  const own = { from: params.get(`${prefix}from`) ?? range.from, to: params.get(`${prefix}to`) ?? range.to };
  return {
    ...absoluteRange(own, nowMs()),
    run: params.get(`${prefix}run`),
    tasks: params.getAll(`${prefix}task`),
    workers: params.getAll(`${prefix}worker`),
    labels: params.getAll(`${prefix}label`),
    phases: params.getAll(`${prefix}phase`),
  };
}

/** The parameters of a side, their names after a prefix. */
function sideParams(side: Side, prefix = ''): Params {
  const { from, to } = requestRange(side);
  const many = (name: string, values: string[]) => values.map((value): [string, string] => [prefix + name, value]);
  return [
    ...(side.run === null ? [...many('from', [from]), ...many('to', [to])] : many('run', [side.run])),
    ...many('task', side.tasks),
    ...many('worker', side.workers),
    ...many('label', side.labels),
  ];
}

function queryOf(side: Side, view: Params): URLSearchParams {
  const phases = side.phases.map((phase): [string, string] => ['phase', phase]);
  return new URLSearchParams([['format', 'columns'], ...sideParams(side), ...phases, ...view]);
}

/** The address with its default states: those of a task's duration if one is chosen, else time on CPU. */
function shownParams(params: URLSearchParams): URLSearchParams {
  if (params.get('name') === null || params.has('state')) return params;
  const shown = new URLSearchParams(params);
  shown.set('state', 'all');
  return shown;
}

/** The scale of the address: by default time per task, if tasks of the chosen name ended on both sides. */
function scaleOf(params: URLSearchParams, ended: number[]): Scale {
  const scale = params.get('scale');
  const isPerTask = ended.length > 0 && ended.every((count) => count > 0);
  return scale === 'time' ? 'time' : scale === 'share' || !isPerTask ? 'share' : 'task';
}

export function ComparePage() {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const after = sideOf(params, '', rangeOf(params));
  // The sides share filters by default. If the "before" side has its own, the default range is the
  // same.
  const hasOwn = [...params.keys()].some((name) => /^b\.(task|worker|label|phase|run|from|to)$/.test(name));
  const before = sideOf(params, 'b.', hasOwn && !params.has('b.from') ? rangeOf(params) : rangeBefore(rangeOf(params)));
  if (!hasOwn)
    Object.assign(before, { tasks: after.tasks, workers: after.workers, labels: after.labels, phases: after.phases });
  const live = pausedAt === null && [before, after].some((side) => side.run === null && isLive(side));
  // The task whose functions are compared.
  const name = params.get('name');
  const view = [...statesOf(shownParams(params)).map((state): [string, string] => ['state', state]), ...viewOf(params)];
  const key = JSON.stringify([before, after, pausedAt]);
  const tasks = useQuery<TaskComparisonAnswer>(
    key,
    (signal) => {
      const query = [...sideParams(after), ...sideParams(before, 'before_')];
      return fetchJson(apiUrl('tasks/compare', new URLSearchParams([...query, ['limit', '100']])), signal);
    },
    live,
    EVERY_MS,
  );
  const row = tasks.value?.names.find((one) => one.name === name);
  const ended = row ? [row.before.ended, row.after.ended] : [];
  const scale = scaleOf(params, ended);
  const answer = useQuery<Comparison>(
    JSON.stringify([key, name, view, scale]),
    (signal) => {
      const url = (side: Side) => apiUrl('profile', queryOf(name === null ? side : { ...side, tasks: [name] }, view));
      return fetchComparison([url(before), url(after)], scale, ended, signal);
    },
    live,
    EVERY_MS,
  );
  const fleet = useFleet();
  const { value, problem } = answer;
  return (
    <>
      <div class="sides">
        <SidePicker label="Before" prefix="b." side={before} fleet={fleet} />
        <SidePicker label="After" prefix="" side={after} fleet={fleet} />
      </div>
      {tasks.value && !problem && <TaskComparison answer={tasks.value} chosen={name} />}
      {problem?.kind === 'request' ? (
        <InvalidRequest problem={problem} />
      ) : !value ? (
        <Loading problem={problem} />
      ) : value.metadata.every(({ data }) => data === null) ? (
        <NoData />
      ) : (
        <ComparisonView comparison={value} isStale={answer.waiting} />
      )}
    </>
  );
}

function ComparisonView({ comparison, isStale }: { comparison: Comparison; isStale: boolean }) {
  const { params } = useAddress();
  const { layout, functions, metadata, scale } = comparison;
  const zoomName = params.get('zoom');
  const zoom = useMemo(() => (zoomName ? findByPathId(layout, functions, zoomName) : 0), [layout, functions, zoomName]);
  const { result, ...search } = useFunctionSearch(layout, functions);
  const byTotal = params.get('measure') === 'total';
  const [before, after] = byTotal
    ? [comparison.totalBefore, comparison.totalAfter]
    : [comparison.selfBefore, comparison.selfAfter];
  const setZoom = (node: number) => setParams({ zoom: node === 0 ? null : pathId(layout, functions, node) });
  const act = (action: Action, fn: number) => {
    if (action === 'copy') void copyText(functions.names[fn], 'name');
    else search.setText(searchOf(functions.names[fn]));
  };
  const tip = useMemo(() => tipOf(comparison), [comparison]);
  useKeys((pressed) => {
    if (pressed === '/') search.field.current?.focus();
    else if (pressed === '0') setZoom(0);
    else if (pressed === 'Escape' && zoom !== 0) setZoom(layout.parent[zoom]);
    else return false;
    return true;
  });
  const empty = metadata.map((one) => one.empty);
  const none = metadata.map((_, side) => layout.states[side === 0 ? BEFORE : AFTER] === 0);
  if (none[0] || none[1]) {
    const which =
      none[0] && none[1]
        ? 'No samples in either range'
        : none[0]
          ? 'No samples in the "Before" range'
          : 'No samples in the "After" range';
    return (
      <EmptyState title={which}>
        <p>{empty[0] || empty[1] ? 'Choose a range with data.' : 'All samples are outside tasks.'}</p>
        <button
          onClick={() => setParams({ 'b.from': '-2m', 'b.to': '-1m', from: '-1m', to: null, 'b.run': null, run: null })}
        >
          Compare the last minute with the one before
        </button>
      </EmptyState>
    );
  }
  const order = Array.from(before.keys())
    .filter((fn) => before[fn] + after[fn] > 0)
    .sort((a, b) => after[b] - before[b] - (after[a] - before[a]));
  const increased = order.slice(0, ROWS).filter((fn) => after[fn] - before[fn] > CHANGE_MIN);
  const decreased = order
    .slice(-ROWS)
    .reverse()
    .filter((fn) => before[fn] - after[fn] > CHANGE_MIN);
  const table = { comparison, before, after };
  const name = params.get('name');
  return (
    <section class={isStale ? 'views stale' : 'views'} aria-busy={isStale}>
      <h2>
        What changed{' '}
        <small>
          {name === null ? (
            'in all tasks; choose a task above for its own'
          ) : (
            <>
              in <bdi>{safeText(name, 60)}</bdi>{' '}
              <button class="link" onClick={() => setParams({ name: null, zoom: null })}>
                all tasks
              </button>
            </>
          )}
        </small>
      </h2>
      <div class="toolbar">
        <SearchField {...search}>
          {result && <SearchSummary text={search.text} result={result} total={layout.total[0]} />}
        </SearchField>
        <span class="gap" />
        <label class="plain">
          normalize by{' '}
          <select value={scale} onChange={(event) => setParams({ scale: event.currentTarget.value })}>
            {name !== null && <option value="task">time per task</option>}
            <option value="share">share of total</option>
            <option value="time">threads per worker</option>
          </select>
        </label>
        <label class="plain">
          by{' '}
          <select
            value={byTotal ? 'total' : 'self'}
            onChange={(event) => setParams({ measure: event.currentTarget.value === 'total' ? 'total' : null })}
          >
            <option value="self">self time</option>
            <option value="total">total time</option>
          </select>
        </label>
      </div>
      <StateChips
        chosen={chosenStates(shownParams(params))}
        onChange={(states) => setParams({ state: stateParams(states) ?? ['cpu'], zoom: null })}
      />
      <p>
        After: <HiddenTime hidden={metadata[1].hidden} />
      </p>
      <div class="sides">
        <ChangeTable {...table} title="Increased" rows={increased} onChoose={search.setText} />
        <ChangeTable {...table} title="Decreased" rows={decreased} onChoose={search.setText} />
      </div>
      <p class="legend">
        <span>
          <i class="dot" style={{ background: changeColor(1, 0) }} /> removed
        </span>
        <span>
          <i class="dot" style={{ background: changeColor(2, 1) }} />
          less
        </span>
        <span>
          <i class="dot" style={{ background: changeColor(1, 1) }} /> unchanged
        </span>
        <span>
          <i class="dot" style={{ background: changeColor(1, 2) }} />
          more
        </span>
        <span>
          <i class="dot" style={{ background: changeColor(0, 1) }} />
          new
        </span>
        <span class="soft">widths are the sum of both sides; Esc zooms out, 0 resets the zoom</span>
      </p>
      <FlameGraph
        layout={layout}
        functions={functions}
        rootLabel="all"
        label="Differences as a flame graph"
        zoom={zoom}
        upward={false}
        coloring="diff"
        matched={result?.functions}
        tip={tip}
        actions={ACTIONS}
        onZoom={setZoom}
        onAction={act}
      />
    </section>
  );
}

/** A weight as text: a share of its side, threads per worker, or time per task. */
function weightText(weight: number, { scale, taskNs }: Comparison): string {
  const part = weight / FULL_WEIGHT;
  return { share: percent(part, 1), time: digits(part), task: duration(part * taskNs) }[scale];
}

function changeText(before: number, after: number, comparison: Comparison): string {
  const change = Math.abs(after - before);
  const size = comparison.scale === 'share' ? digits((100 * change) / FULL_WEIGHT) : weightText(change, comparison);
  return (after > before ? '+' : '−') + size;
}

/** Units of changes, and the same as titles of a column. */
const UNITS: Record<Scale, [unit: string, title: string]> = {
  share: ['pp', 'pp'],
  time: ['threads per worker', 'Threads'],
  task: ['per task', 'Per task'],
};

/** Entries of a node's menu. Functions of both sides cannot be filtered. */
const ACTIONS: NodeAction[] = [
  ['zoom', 'Enter', 'Zoom'],
  ['find', 'f', 'Find in the graph'],
  ['copy', 'y', 'Copy name'],
];

interface TableProperties {
  title: string;
  comparison: Comparison;
  before: Float64Array;
  after: Float64Array;
  rows: number[];
  onChoose(text: string): void;
}

function ChangeTable({ title, comparison, before, after, rows, onChoose }: TableProperties) {
  const { functions, scale } = comparison;
  const most = Math.max(1, ...rows.map((fn) => Math.abs(after[fn] - before[fn])));
  return (
    <div class="scroll">
      <table class="functions">
        <caption>{title}</caption>
        <thead>
          <tr>
            <th class="number">{UNITS[scale][1]}</th>
            <th class="number">Before</th>
            <th class="number">After</th>
            <th>Function</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((fn) => (
            <tr key={fn}>
              <td class="number">
                <i class="bar" style={{ width: `${(100 * Math.abs(after[fn] - before[fn])) / most}%` }} />
                <b>{changeText(before[fn], after[fn], comparison)}</b>
              </td>
              <td class="number">{weightText(before[fn], comparison)}</td>
              <td class="number">{weightText(after[fn], comparison)}</td>
              <td class="wide">
                <button
                  class="link"
                  title={`${safeText(functions.names[fn], 600)}\nfind in the graph`}
                  onClick={() => onChoose(searchOf(functions.names[fn]))}
                >
                  <bdi>{labelOf(functions, fn)}</bdi>
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length === 0 && <p class="soft">None.</p>}
    </div>
  );
}

/** A search for exactly one name, or for the start of a long one. */
function searchOf(name: string): string {
  if (name.length > NAME_MAX) return name.slice(0, NAME_MAX);
  return `re:^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
}

/** A tooltip with both sides. */
function tipOf(comparison: Comparison): typeof NodeTip {
  const { scale } = comparison;
  return ({ layout, functions, node, rootLabel, at }) => {
    const fn = layout.fn[node];
    const [before, after] = [BEFORE, AFTER].map((side) => layout.states[node * STATE_COUNT + side]);
    return (
      <Tip name={fn === NO_FUNCTION ? rootLabel : functions.names[fn]} at={at}>
        {fn !== NO_FUNCTION && (
          <div class="file">
            <bdi>{safeText(shortFile(functions.files[fn]))}</bdi>
          </div>
        )}
        <dl>
          <dt>before</dt>
          <dd class="rest">{weightText(before, comparison)}</dd>
          <dt>after</dt>
          <dd class="rest">{weightText(after, comparison)}</dd>
          <dt>change</dt>
          <dd class="rest">
            <b>{changeText(before, after, comparison)}</b> {UNITS[scale][0]}
            {before > 0 && after > 0 && `, × ${digits(after / before)}`}
          </dd>
        </dl>
      </Tip>
    );
  };
}
