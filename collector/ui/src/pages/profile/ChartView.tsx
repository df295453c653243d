// The flame chart: stacks by second, from left to right.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { EmptyState } from '../../components/Messages';
import { rangeOf, setParams, useAddress } from '../../core/address';
import { nowMs } from '../../core/clock';
import { safeText } from '../../core/names';
import { pauseTime } from '../../core/query';
import { clock, duration, percent, quantity } from '../../core/time';
import { type Chart, COLUMN_MS, chartOf } from '../../flame/chart';
import type { Coloring } from '../../flame/draw';
import { FlameGraph } from '../../flame/FlameGraph';
import { NO_FUNCTION, STATE_COUNT } from '../../flame/layout';
import type { LoadedProfile } from '../../flame/load';
import type { Action } from '../../flame/NodeMenu';
import { type NodeTip, Tip } from '../../flame/NodeTip';
import { chartableEnd } from './query';

interface Properties {
  loaded: LoadedProfile;
  coloring: Coloring;
  matched?: Uint8Array;
  onAction(action: Action, fn: number): void;
}

export function ChartView({ loaded, coloring, matched, onAction }: Properties) {
  const { params } = useAddress();
  const chart = useMemo(() => chartOf(loaded), [loaded]);
  // Not in the address: boxes of one stack at two times have the same path.
  const [zoom, setZoom] = useState(0);
  useEffect(() => setZoom(0), [chart]);
  const tip = useMemo(() => chart && tipOf(chart), [chart]);
  if (!chart) {
    const end = chartableEnd(rangeOf(params), pauseTime.value ?? nowMs());
    if (end === null) return <EmptyState title="Reading single seconds…" />;
    return (
      <EmptyState title="A flame chart shows up to 10 minutes">
        <button onClick={() => setParams({ from: end.from, to: end.to })}>
          Show the last 10 minutes of this range
        </button>
      </EmptyState>
    );
  }
  const { startMs, columns, fullNs } = chart;
  const thread = params.get('only') === '0' ? null : params.get('on');
  const whose = thread === null ? 'all threads of this selection' : `the thread ${safeText(thread, 30)}`;
  const isSeveral = fullNs > 1.5e6 * COLUMN_MS;
  return (
    <>
      <p class="soft chart-note">
        Time runs from left to right: {clock(startMs)} to {clock(startMs + columns * COLUMN_MS)}, a column for each
        second of {whose}. Stacks are counted by second, so their order inside a column is not known: boxes are placed
        by weight, and equal neighbors are joined.
        {isSeveral && ` A full column is ${duration(fullNs)} of thread time, that of the busiest one.`} Blank is time in
        states that are not shown.
        {thread === null && ' To see one thread, click a task in a task stream.'}
      </p>
      <FlameGraph
        layout={chart.layout}
        functions={loaded.functions}
        rootLabel={`${clock(startMs)} … ${clock(startMs + columns * COLUMN_MS)}`}
        label={`Flame chart of ${quantity(columns, 'second')}`}
        zoom={zoom < chart.layout.count ? zoom : 0}
        upward={false}
        coloring={coloring}
        tip={tip}
        matched={matched}
        onZoom={setZoom}
        onAction={onAction}
      />
      <p class="chart-axis soft" aria-hidden="true">
        <span>{clock(startMs)}</span>
        {zoom !== 0 ? (
          <button class="link" onClick={() => setZoom(0)}>
            show all seconds
          </button>
        ) : (
          <span>{clock(startMs + (columns * COLUMN_MS) / 2)}</span>
        )}
        <span>{clock(startMs + columns * COLUMN_MS)}</span>
      </p>
    </>
  );
}

/** A tooltip with the time of a box. */
function tipOf({ startMs, fullNs }: Chart): typeof NodeTip {
  return ({ layout, functions, node, rootLabel, at }) => {
    const fn = layout.fn[node];
    const first = Math.floor(layout.x[node] / fullNs + 1e-6);
    const last = Math.ceil((layout.x[node] + layout.total[node]) / fullNs - 1e-6);
    let ns = 0;
    for (let s = 0; s < STATE_COUNT; s++) ns += layout.states[node * STATE_COUNT + s];
    const length = (last - first) * fullNs;
    return (
      <Tip name={fn === NO_FUNCTION ? rootLabel : functions.names[fn]} at={at}>
        <dl>
          <dt>time</dt>
          <dd>{clock(startMs + first * COLUMN_MS)}</dd>
          <dd>to {clock(startMs + last * COLUMN_MS)}</dd>
          <dd>{quantity(last - first, 'second')}</dd>
          <dt>total</dt>
          <dd>{duration(ns)}</dd>
          <dd>{percent(ns, length)} of these seconds</dd>
          <dd />
        </dl>
      </Tip>
    );
  };
}
