// What changed: two ranges, tasks, workers or runs, made comparable, as one graph and two tables.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { apiUrl, change, rangeOf, useAddress } from '../core/address';
import { changeColour } from '../core/colours';
import { useKeys } from '../core/keys';
import { asked, nowMs, paused, useAnswer } from '../core/live';
import { shortFile, shown } from '../core/names';
import { digits, isLive, percent, pinned, type Range, timeMs } from '../core/time';
import { askComparison } from '../flame/ask';
import { type Compared, type Scale, WHOLE } from '../flame/compare';
import { labelOf } from '../flame/draw';
import { FlameGraph } from '../flame/FlameGraph';
import { AFTER, BEFORE, NO_FUNCTION, STATE_COUNT } from '../flame/layout';
import type { Action } from '../flame/NodeMenu';
import type { NodeTip } from '../flame/NodeTip';
import { findPath, pathName } from '../flame/path';
import { search } from '../flame/search';
import { useFleet } from '../parts/Menus';
import { Empty, Loading, NoData, Refused } from '../parts/Notes';
import { type Side, SidePicker } from '../parts/Sides';

/** Rows of what grew, and of what shrank. */
const ROWS = 12;
/** Less is not told as a change: it would be written as 0. */
const CHANGE_MIN = WHOLE * 5e-5;
/** Comparisons cost twice, and what changed does not change by the second. */
const EVERY_MS = 5000;

/** The same length of time right before. */
function rangeBefore(range: Range): Range {
  const now = nowMs();
  const [from, to] = [timeMs(range.from, now), timeMs(range.to, now)];
  if (!isLive(range)) return { from: pinned(2 * from - to), to: range.from };
  // A moving range has a moving one before it.
  return /^-/.test(range.from)
    ? { from: `-${Math.round((2 * (now - from)) / 1000)}s`, to: range.from }
    : { from: pinned(2 * from - now), to: range.from };
}

function sideOf(params: URLSearchParams, prefix: string, range: Range): Side {
  return {
    from: params.get(`${prefix}from`) ?? range.from,
    to: params.get(`${prefix}to`) ?? range.to,
    run: params.get(`${prefix}run`),
    tasks: params.getAll(`${prefix}task`),
    workers: params.getAll(`${prefix}worker`),
    labels: params.getAll(`${prefix}label`),
    phases: params.getAll(`${prefix}phase`),
  };
}

function questionOf(side: Side, states: string[]): URLSearchParams {
  const { from, to } = asked(side);
  const range: [string, string][] =
    side.run === null
      ? [
          ['from', from],
          ['to', to],
        ]
      : [['run', side.run]];
  const many = (name: string, values: string[]) => values.map((value): [string, string] => [name, value]);
  return new URLSearchParams([
    ['format', 'columns'],
    ...range,
    ...many('task', side.tasks),
    ...many('worker', side.workers),
    ...many('label', side.labels),
    ...many('phase', side.phases),
    ...many('state', states),
  ]);
}

export function ComparePage() {
  const { params } = useAddress();
  const pausedAt = paused.use();
  const after = sideOf(params, '', rangeOf(params));
  // What is not said of the other side is as on this one, but for what is compared: then.
  const hasOwn = [...params.keys()].some((name) => /^b\.(task|worker|label|phase|run|from|to)$/.test(name));
  const before = sideOf(params, 'b.', hasOwn && !params.has('b.from') ? rangeOf(params) : rangeBefore(rangeOf(params)));
  if (!hasOwn)
    Object.assign(before, { tasks: after.tasks, workers: after.workers, labels: after.labels, phases: after.phases });
  const live = pausedAt === null && [before, after].some((side) => side.run === null && isLive(side));
  const states = params.getAll('state');
  const scale: Scale = params.get('scale') === 'time' ? 'time' : 'share';
  const outside = params.get('outside') === '1' ? 'shown' : 'hidden';
  const key = JSON.stringify([before, after, states, scale, outside, pausedAt]);
  const answer = useAnswer<Compared>(
    key,
    (signal) => {
      const [one, other] = [before, after].map((side) => apiUrl('profile', questionOf(side, states)));
      return askComparison(one, other, { outside, scale }, signal);
    },
    live,
    EVERY_MS,
  );
  const fleet = useFleet();
  const { value, problem } = answer;
  return (
    <>
      <div class="sides">
        <SidePicker words="Before" prefix="b." side={before} fleet={fleet} />
        <SidePicker words="After" prefix="" side={after} fleet={fleet} />
      </div>
      {problem?.kind === 'request' ? (
        <Refused problem={problem} />
      ) : !value ? (
        <Loading problem={problem} />
      ) : value.about.every(({ data }) => data === null) ? (
        <NoData />
      ) : (
        <Comparison compared={value} isOld={answer.waiting} />
      )}
    </>
  );
}

function Comparison({ compared, isOld }: { compared: Compared; isOld: boolean }) {
  const { params } = useAddress();
  const { layout, functions, about, scale } = compared;
  const zoomName = params.get('zoom');
  const zoom = useMemo(() => (zoomName ? findPath(layout, functions, zoomName) : 0), [layout, functions, zoomName]);
  const [text, setText] = useState(params.get('q') ?? '');
  const field = useRef<HTMLInputElement>(null);
  const found = useMemo(() => search(text, layout, functions), [text, layout, functions]);
  const byTotal = params.get('measure') === 'total';
  const [before, after] = byTotal
    ? [compared.totalBefore, compared.totalAfter]
    : [compared.selfBefore, compared.selfAfter];
  const setZoom = (node: number) => change({ zoom: node === 0 ? null : pathName(layout, functions, node) });
  const act = (action: Action, fn: number) => {
    if (action === 'copy') void navigator.clipboard?.writeText(functions.names[fn]);
    else if (action !== 'zoom') setText(functions.names[fn]);
  };
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text !== (params.get('q') ?? '')) change({ q: text || null }, true);
    }, 250);
    return () => clearTimeout(timer);
  }, [text]);
  useKeys((pressed) => {
    if (pressed === '/') field.current?.focus();
    else if (pressed === '0') setZoom(0);
    else if (pressed === 'Escape' && zoom !== 0) setZoom(layout.parent[zoom]);
    else return false;
    return true;
  });
  const empty = about.map((one) => one.empty);
  const none = about.map((_, side) => layout.states[side === 0 ? BEFORE : AFTER] === 0);
  if (none[0] || none[1]) {
    const which =
      none[0] && none[1]
        ? 'Neither side has samples'
        : none[0]
          ? 'There are no samples before'
          : 'There are no samples after';
    return (
      <Empty title={which}>
        <p>
          {empty[0] || empty[1]
            ? 'Choose a range in which workers reported.'
            : 'All that was sampled ran outside tasks.'}
        </p>
        <button
          onClick={() => change({ 'b.from': '-2m', 'b.to': '-1m', from: '-1m', to: null, 'b.run': null, run: null })}
        >
          Compare the last minute with the one before
        </button>
      </Empty>
    );
  }
  const order = Array.from(before.keys())
    .filter((fn) => before[fn] + after[fn] > 0)
    .sort((a, b) => after[b] - before[b] - (after[a] - before[a]));
  const grew = order.slice(0, ROWS).filter((fn) => after[fn] - before[fn] > CHANGE_MIN);
  const shrank = order
    .slice(-ROWS)
    .reverse()
    .filter((fn) => before[fn] - after[fn] > CHANGE_MIN);
  const table = { compared, before, after };
  return (
    <section class={isOld ? 'views old' : 'views'} aria-busy={isOld}>
      <div class="toolbar">
        <label class="search">
          <input
            ref={field}
            type="search"
            value={text}
            placeholder="Search (regex)  /"
            aria-label="Search functions"
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Escape') setText('');
            }}
          />
        </label>
        <span class="gap" />
        <label class="plain">
          made comparable by{' '}
          <select
            value={scale}
            onChange={(event) => change({ scale: event.currentTarget.value === 'time' ? 'time' : null })}
          >
            <option value="share">share of each side</option>
            <option value="time">threads a worker</option>
          </select>
        </label>
        <label class="plain">
          by{' '}
          <select
            value={byTotal ? 'total' : 'self'}
            onChange={(event) => change({ measure: event.currentTarget.value === 'total' ? 'total' : null })}
          >
            <option value="self">self time</option>
            <option value="total">total time</option>
          </select>
        </label>
      </div>
      <div class="sides">
        <ChangeTable {...table} words="Grew" rows={grew} onChoose={setText} />
        <ChangeTable {...table} words="Shrank" rows={shrank} onChoose={setText} />
      </div>
      <p class="legend">
        <span>
          <i class="dot" style={{ background: changeColour(1, 0) }} />
          gone
        </span>
        <span>
          <i class="dot" style={{ background: changeColour(2, 1) }} />
          less
        </span>
        <span>
          <i class="dot" style={{ background: changeColour(1, 1) }} />
          as before
        </span>
        <span>
          <i class="dot" style={{ background: changeColour(1, 2) }} />
          more
        </span>
        <span>
          <i class="dot" style={{ background: changeColour(0, 1) }} />
          new
        </span>
        <span class="soft">widths are both sides together; Esc goes up, 0 shows all</span>
      </p>
      <FlameGraph
        layout={layout}
        functions={functions}
        rootLabel="all"
        label="What changed, as a flame graph"
        zoom={zoom}
        upward={false}
        colouring="diff"
        found={found?.functions}
        tip={compared.scale === 'share' ? ShareTip : TimeTip}
        onZoom={setZoom}
        onAction={act}
      />
    </section>
  );
}

/** A weight in words: a share of its side, or how many threads of each worker. */
function weightWords(weight: number, scale: Scale): string {
  return scale === 'share' ? percent(weight, WHOLE) : digits(weight / WHOLE);
}

function changeWords(before: number, after: number, scale: Scale): string {
  const change = after - before;
  const sign = change > 0 ? '+' : '−';
  return scale === 'share'
    ? `${sign}${digits((100 * Math.abs(change)) / WHOLE)}`
    : `${sign}${digits(Math.abs(change) / WHOLE)}`;
}

interface TableProperties {
  words: string;
  compared: Compared;
  before: Float64Array;
  after: Float64Array;
  rows: number[];
  onChoose(text: string): void;
}

function ChangeTable({ words, compared, before, after, rows, onChoose }: TableProperties) {
  const { functions, scale } = compared;
  const most = Math.max(1, ...rows.map((fn) => Math.abs(after[fn] - before[fn])));
  return (
    <div class="scroll">
      <table class="functions">
        <caption>{words}</caption>
        <thead>
          <tr>
            <th class="number">{scale === 'share' ? 'Points' : 'Threads'}</th>
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
                <b>{changeWords(before[fn], after[fn], scale)}</b>
              </td>
              <td class="number">{weightWords(before[fn], scale)}</td>
              <td class="number">{weightWords(after[fn], scale)}</td>
              <td class="wide">
                <button
                  class="link"
                  title={`${shown(functions.names[fn], 600)}\nfind it below`}
                  onClick={() => onChoose(literal(functions.names[fn]))}
                >
                  <bdi>{labelOf(functions, fn)}</bdi>
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length === 0 && <p class="soft">Nothing did.</p>}
    </div>
  );
}

/** A name as a pattern that finds it and nothing else. */
function literal(name: string): string {
  return name.length > 400
    ? name.slice(0, 400).replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
    : `^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
}

type TipProperties = Parameters<typeof NodeTip>[0];
const ShareTip = (properties: TipProperties) => <ChangeTip {...properties} scale="share" />;
const TimeTip = (properties: TipProperties) => <ChangeTip {...properties} scale="time" />;

function ChangeTip({ layout, functions, node, rootLabel, at, scale }: TipProperties & { scale: Scale }) {
  const fn = layout.fn[node];
  const [before, after] = [BEFORE, AFTER].map((side) => layout.states[node * STATE_COUNT + side]);
  const place = at && {
    left: `${Math.min(at.px + 14, Math.max(8, innerWidth - 430))}px`,
    ...(at.py > innerHeight - 190 ? { bottom: `${innerHeight - at.py + 14}px` } : { top: `${at.py + 16}px` }),
  };
  return (
    <div class={at ? 'tip floating' : 'tip'} style={place ?? {}} role="status">
      <b class="name">
        <bdi>{fn === NO_FUNCTION ? rootLabel : shown(functions.names[fn])}</bdi>
      </b>
      {fn !== NO_FUNCTION && (
        <div class="file">
          <bdi>{shown(shortFile(functions.files[fn]))}</bdi>
        </div>
      )}
      <dl>
        <dt>before</dt>
        <dd class="rest">{weightWords(before, scale)}</dd>
        <dt>after</dt>
        <dd class="rest">{weightWords(after, scale)}</dd>
        <dt>change</dt>
        <dd class="rest">
          <b>{changeWords(before, after, scale)}</b> {scale === 'share' ? 'points' : 'threads a worker'}
          {before > 0 && after > 0 && `, ${digits(after / before)} times`}
        </dd>
      </dl>
    </div>
  );
}
