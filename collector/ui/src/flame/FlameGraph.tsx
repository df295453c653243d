// The flame graph: a canvas in a scrolling box, with outlines for the hovered and the selected node.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { onTheme } from '../core/colors';
import { useKeys } from '../core/keys';
import { type Interval, usePan } from '../core/pan';
import { fitCanvas, useSize } from '../core/size';
import { type Coloring, nodeAt, Painter, ROW_PX, type View } from './draw';
import { crateAt, type Functions, type Layout, NO_FUNCTION } from './layout';
import { ACTIONS, type Action, type NodeAction, NodeMenu } from './NodeMenu';
import { NodeTip } from './NodeTip';
import { findByPathId, pathId } from './path';

interface Properties {
  layout: Layout;
  functions: Functions;
  rootLabel: string;
  /** Describes the graph to screen readers. */
  label: string;
  /** The node that fills the width. */
  zoom: number;
  /** Inputs of the layout other than the data. Panning ends when they change. */
  shape?: string;
  upward: boolean;
  coloring: Coloring;
  matched?: Uint8Array;
  /** A node to reveal and outline, such as a search's next match. */
  shown?: number;
  /** The tooltip; a comparison has its own. */
  tip?: typeof NodeTip;
  /** Entries of a node's menu. */
  actions?: NodeAction[];
  onZoom(node: number): void;
  /** Actions on a node's function other than zooming. */
  onAction(action: Action, fn: number): void;
}

/** The shortest visible interval, in nanoseconds. */
const SHOWN_NS_MIN = 1000;

/** The visible part as shares of the zoomed node, so that a refreshed profile keeps it. */
interface Panned extends Interval {
  /** Key of the zoomed node and the layout that were panned. */
  of: string;
}

/** The pointer's position and the node there, or -1. */
interface PointerPosition {
  node: number;
  px: number;
  py: number;
}

export function FlameGraph(properties: Properties) {
  const { layout, functions, rootLabel, zoom, upward, coloring, matched, actions = ACTIONS } = properties;
  const scroller = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [theme, setTheme] = useState(0);
  const size = useSize(scroller);
  const [top, setTop] = useState(0);
  const [hover, setHover] = useState<PointerPosition | null>(null);
  const [picked, setPicked] = useState(-1);
  const [lastPanned, setPanned] = useState<Panned | null>(null);
  // Menu of the selected node.
  const [menu, setMenu] = useState<{ px: number; py: number } | null>(null);
  const pickedPath = useRef('');
  // Height of the graph below the visible part.
  const belowPx = useRef(0);
  const rows = layout.rowStarts.length - 1;
  const painter = useMemo(() => new Painter(functions, rootLabel), [functions, rootLabel, theme]);
  const of = `${pathId(layout, functions, zoom)} ${properties.shape ?? ''}`;
  const panned = lastPanned?.of === of ? lastPanned : null;
  const from = layout.x[zoom] + (panned?.from ?? 0) * layout.total[zoom];
  const to = layout.x[zoom] + (panned?.to ?? 1) * layout.total[zoom];
  const view: View = { from, to: Math.max(to, from + 1), top, upward, coloring, matched };

  useEffect(() => onTheme(() => setTheme((count) => count + 1)), []);
  // Finds the selected node again in a newer profile.
  useLayoutEffect(() => {
    const node = pickedPath.current === '' ? 0 : findByPathId(layout, functions, pickedPath.current);
    setPicked(node > 0 ? node : -1);
    if (node === 0) setMenu(null);
    // The pointer may rest over another node now.
    setHover((was) => was && over(positionOf({ clientX: was.px, clientY: was.py })));
  }, [layout]);
  // The root of an upward graph is at the bottom, and stays there when rows come and go.
  useLayoutEffect(() => {
    const element = scroller.current!;
    element.scrollTop = upward ? element.scrollHeight : 0;
    setTop(element.scrollTop);
    belowPx.current = 0;
  }, [upward]);
  useLayoutEffect(() => {
    if (!upward) return;
    const element = scroller.current!;
    element.scrollTop = element.scrollHeight - element.clientHeight - belowPx.current;
    setTop(element.scrollTop);
  }, [rows]);
  useLayoutEffect(() => {
    const element = canvas.current!;
    if (fitCanvas(element, size)) {
      element.dataset.rects = String(painter.draw(element, size, layout, view));
      element.dataset.share = String((view.to - view.from) / Math.max(1, layout.total[0]));
    }
  }, [painter, layout, size, view.from, view.to, top, upward, coloring, matched]);
  useEffect(() => {
    if (properties.shown !== undefined && properties.shown > 0) reveal(properties.shown);
  }, [properties.shown]);

  const line = (node: number) => (upward ? rows - 1 - layout.depth[node] : layout.depth[node]);

  function pick(node: number) {
    pickedPath.current = node > 0 ? pathId(layout, functions, node) : '';
    setPicked(node);
  }

  function reveal(node: number) {
    pick(node);
    const element = scroller.current!;
    const y = line(node) * ROW_PX;
    if (y < element.scrollTop) element.scrollTop = y;
    if (y + ROW_PX > element.scrollTop + element.clientHeight) element.scrollTop = y + ROW_PX - element.clientHeight;
  }

  function positionOf(event: { clientX: number; clientY: number }): PointerPosition {
    const box = canvas.current!.getBoundingClientRect();
    const px = event.clientX - box.left;
    const py = event.clientY - box.top;
    return { node: nodeAt(layout, view, size.width, px, py), px: event.clientX, py: event.clientY };
  }

  function panTo({ from, to }: Interval) {
    const length = Math.min(to - from, layout.total[0]);
    const start = Math.max(0, Math.min(from, layout.total[0] - length));
    const share = (at: number) => (at - layout.x[zoom]) / Math.max(1, layout.total[zoom]);
    setPanned({ of, from: share(start), to: share(start + length) });
  }

  const pan = usePan({
    box: scroller,
    leftPx: 0,
    widthPx: size.width,
    shown: view,
    lengthMin: SHOWN_NS_MIN,
    isMovable: view.to - view.from < layout.total[0],
    onMove: panTo,
    onHover: (event) => setHover(event && over(positionOf(event))),
  });

  function zoomTo(node: number) {
    setPanned(null);
    properties.onZoom(node);
  }

  // Escape undoes panning first, 0 undoes it together with the zoom.
  useKeys((key) => {
    if (!panned || menu || (key !== 'Escape' && key !== '0')) return false;
    setPanned(null);
    return key === 'Escape';
  }, true);

  function key(event: KeyboardEvent) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const node = picked < 0 ? zoom : picked;
    const inward = upward ? 'ArrowUp' : 'ArrowDown';
    const outward = upward ? 'ArrowDown' : 'ArrowUp';
    const next =
      event.key === inward
        ? firstChild(layout, node)
        : event.key === outward
          ? layout.parent[node]
          : event.key === 'ArrowLeft'
            ? sibling(layout, node, -1)
            : event.key === 'ArrowRight'
              ? sibling(layout, node, 1)
              : -1;
    const action = actions.find(([, letter]) => letter === event.key)?.[0];
    if (next >= 0) reveal(next);
    else if (action) act(action, node);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function act(action: Action, node: number) {
    setMenu(null);
    if (action === 'zoom') zoomTo(node);
    else if (layout.fn[node] !== NO_FUNCTION) properties.onAction(action, layout.fn[node]);
  }

  function outline(node: number, name: string) {
    const perNs = size.width / (view.to - view.from);
    const left = Math.max(0, (layout.x[node] - view.from) * perNs);
    const right = Math.min(size.width, (layout.x[node] + layout.total[node] - view.from) * perNs);
    if (right <= left) return null;
    return (
      <div
        class={`outline ${name}`}
        style={{
          left: `${left}px`,
          width: `${Math.max(2, right - left)}px`,
          top: `${line(node) * ROW_PX}px`,
          height: `${ROW_PX - 1}px`,
        }}
      />
    );
  }

  const described = hover?.node ?? picked;
  const Tip = properties.tip ?? NodeTip;
  return (
    <div class="flame-box">
      <div
        ref={scroller}
        class="flame"
        tabIndex={0}
        role="application"
        aria-label={`${properties.label}. Arrow keys move, Enter zooms in, Escape zooms out.`}
        style={{ height: `${rows * ROW_PX}px` }}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          belowPx.current = scrollHeight - clientHeight - scrollTop;
          setTop(scrollTop);
          setHover(null);
        }}
        {...pan.handlers}
        onClick={(event) => {
          if (pan.wasDrag()) return;
          const { node } = positionOf(event);
          if (node >= 0) {
            pick(node);
            zoomTo(node);
          }
        }}
        onContextMenu={(event) => {
          const position = positionOf(event);
          if (position.node <= 0) return;
          event.preventDefault();
          pick(position.node);
          setHover(null);
          setMenu(position);
        }}
        onKeyDown={key}
      >
        <canvas ref={canvas} aria-hidden="true" />
        <div class="outlines" style={{ height: `${rows * ROW_PX}px` }}>
          {hover && outline(hover.node, 'at')}
          {picked > 0 && picked < layout.count && outline(picked, 'picked')}
        </div>
      </div>
      {menu && picked > 0 && picked < layout.count && (
        <NodeMenu
          actions={actions}
          name={functions.names[layout.fn[picked]]}
          crate={crateAt(functions, layout.fn[picked])}
          at={menu}
          onAction={(action) => act(action, picked)}
          onClose={() => {
            setMenu(null);
            scroller.current?.focus();
          }}
        />
      )}
      {described >= 0 && described < layout.count && !menu && (
        <Tip
          layout={layout}
          functions={functions}
          node={described}
          rootLabel={rootLabel}
          viewNs={view.to - view.from}
          at={hover}
        />
      )}
    </div>
  );
}

const over = (position: PointerPosition) => (position.node < 0 ? null : position);

function firstChild(layout: Layout, node: number): number {
  return layout.end[node] > node + 1 ? node + 1 : -1;
}

/** The neighbor of a node in its row, regardless of its parent. */
function sibling(layout: Layout, node: number, step: number): number {
  const row = layout.depth[node];
  const nodes = layout.rowNodes.subarray(layout.rowStarts[row], layout.rowStarts[row + 1]);
  // Nodes are numbered depth first, so a row's nodes ascend.
  let [low, high] = [0, nodes.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (nodes[middle] < node) low = middle + 1;
    else high = middle;
  }
  return nodes[low + step] ?? -1;
}
