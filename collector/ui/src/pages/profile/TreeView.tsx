// The call tree as expandable rows, the heaviest first.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { safeText, shortFile } from '../../core/names';
import { count, duration, percent } from '../../core/time';
import { labelOf } from '../../flame/label';
import { type Layout, NO_FUNCTION } from '../../flame/layout';
import type { LoadedProfile } from '../../flame/load';
import { pathId } from '../../flame/path';

interface Properties {
  loaded: LoadedProfile;
  matched?: Uint8Array;
  /** The root of the displayed tree. */
  zoom: number;
  /** An inverted tree has no self times: its first level has them as totals. */
  isInverted: boolean;
  onFunction(fn: number): void;
}

/** Limit on rows; others are reached by collapsing or zooming. */
const ROWS_MAX = 120;
/** Children per node until more are requested. */
const CHILDREN = 12;
/** A child with at least this share of its parent is expanded initially. */
const OPEN_SHARE = 0.5;
const OPEN_DEPTH = 24;

interface Row {
  node: number;
  depth: number;
  /** Children of `node` that are not listed. */
  more: number;
}

export function TreeView({ loaded, matched, zoom, isInverted, onFunction }: Properties) {
  const { layout, functions } = loaded;
  // By path id, so that expanded nodes stay expanded in the next response.
  const [toggled, setToggled] = useState(new Map<string, boolean>());
  const [unlimited, setUnlimited] = useState(new Set<string>());
  const [at, setAt] = useState(0);
  const body = useRef<HTMLTableSectionElement>(null);
  const initiallyOpen = useMemo(() => heaviestPath(layout, zoom), [layout, zoom]);
  const name = (node: number) => (node === 0 ? '0' : pathId(layout, functions, node));
  const isOpen = (node: number) =>
    (toggled.size > 0 ? toggled.get(name(node)) : undefined) ?? (node === zoom || initiallyOpen.has(node));
  const { rows, cut } = rowsOf(layout, zoom, isOpen, (node) => unlimited.has(name(node)));
  useEffect(() => setAt(0), [zoom]);
  const toggle = (node: number, open: boolean) => setToggled(new Map(toggled).set(name(node), open));

  function key(event: KeyboardEvent) {
    const { node } = rows[at] ?? rows[0];
    const parent = rows.findIndex((row) => row.node === layout.parent[node] && row.more === 0);
    if (event.key === 'ArrowDown') move(Math.min(at + 1, rows.length - 1));
    else if (event.key === 'ArrowUp') move(Math.max(at - 1, 0));
    else if (event.key === 'ArrowRight') toggle(node, true);
    else if (event.key === 'ArrowLeft' && isOpen(node) && hasChildren(layout, node)) toggle(node, false);
    else if (event.key === 'ArrowLeft' && parent >= 0) move(parent);
    else if (event.key === 'Enter' && layout.fn[node] !== NO_FUNCTION) onFunction(layout.fn[node]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  function move(index: number) {
    setAt(index);
    (body.current?.children[index] as HTMLElement | undefined)?.focus();
  }

  return (
    <div class="scroll">
      <table class="functions tree" role="treegrid" aria-label="Call tree">
        <thead>
          <tr>
            <th class="number">Total</th>
            {!isInverted && <th class="number">Self</th>}
            <th>Function</th>
            <th>File</th>
          </tr>
        </thead>
        <tbody ref={body} onKeyDown={key}>
          {rows.map(({ node, depth, more }, index) => {
            const fn = layout.fn[node];
            const open = isOpen(node);
            if (more > 0) {
              return (
                <tr key={`${node} more`} tabIndex={index === at ? 0 : -1} aria-level={depth + 1}>
                  <td colSpan={isInverted ? 3 : 4}>
                    <button
                      class="link"
                      style={{ marginLeft: `${indent(depth) + 160}px` }}
                      onClick={() => setUnlimited(new Set(unlimited).add(name(node)))}
                    >
                      {count(more)} more
                    </button>
                  </td>
                </tr>
              );
            }
            return (
              <tr
                key={node}
                tabIndex={index === at ? 0 : -1}
                aria-level={depth + 1}
                aria-expanded={hasChildren(layout, node) ? open : undefined}
                class={matched && fn !== NO_FUNCTION && matched[fn] === 1 ? 'match' : undefined}
                onFocus={() => setAt(index)}
              >
                <td class="number">
                  <i class="bar" style={{ width: `${(100 * layout.total[node]) / layout.total[0]}%` }} />
                  {duration(layout.total[node])} <small>{percent(layout.total[node], layout.total[0])}</small>
                </td>
                {!isInverted && (
                  <td class="number">
                    {layout.self[node] > 0 && (
                      <>
                        {duration(layout.self[node])} <small>{percent(layout.self[node], layout.total[0])}</small>
                      </>
                    )}
                  </td>
                )}
                <td class="wide">
                  <div style={{ paddingLeft: `${indent(depth)}px` }}>
                    <button
                      class="toggle"
                      tabIndex={-1}
                      aria-label={open ? 'collapse' : 'expand'}
                      disabled={!hasChildren(layout, node)}
                      onClick={() => toggle(node, !open)}
                    >
                      {hasChildren(layout, node) ? (open ? '▾' : '▸') : '·'}
                    </button>
                    {fn === NO_FUNCTION ? (
                      'all'
                    ) : (
                      <button
                        class="link"
                        tabIndex={-1}
                        title={safeText(functions.names[fn], 600)}
                        onClick={() => onFunction(fn)}
                      >
                        <bdi>{labelOf(functions, fn)}</bdi>
                      </button>
                    )}
                  </div>
                </td>
                <td class="soft path" title={fn === NO_FUNCTION ? undefined : safeText(functions.files[fn], 300)}>
                  <bdi>{fn === NO_FUNCTION ? '' : safeText(shortFile(functions.files[fn]), 60)}</bdi>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {cut && <p class="soft">Too many rows are expanded: collapse some, or zoom in the graph first.</p>}
    </div>
  );
}

/** Deep trees must stay within the window. */
const indent = (depth: number) => 14 * Math.min(depth, 16) + 4 * Math.max(0, Math.min(depth, 60) - 16);

const hasChildren = (layout: Layout, node: number) => layout.end[node] > node + 1;

function heaviestPath(layout: Layout, from: number): Set<number> {
  const path = new Set<number>();
  let node = from;
  for (let depth = 0; depth < OPEN_DEPTH && hasChildren(layout, node); depth++) {
    path.add(node);
    const child = node + 1; // The heaviest stands first.
    if (layout.total[child] < OPEN_SHARE * layout.total[node] && depth > 0) break;
    node = child;
  }
  return path;
}

function rowsOf(
  layout: Layout,
  from: number,
  isOpen: (node: number) => boolean,
  isLong: (node: number) => boolean,
): { rows: Row[]; cut: boolean } {
  const rows: Row[] = [];
  const stack: Row[] = [{ node: from, depth: 0, more: 0 }];
  while (stack.length > 0 && rows.length < ROWS_MAX) {
    const row = stack.pop()!;
    rows.push(row);
    if (row.more > 0 || !hasChildren(layout, row.node) || !isOpen(row.node)) continue;
    const children: Row[] = [];
    let more = 0;
    for (let child = row.node + 1; child < layout.end[row.node]; child = layout.end[child]) {
      if (children.length < CHILDREN || (isLong(row.node) && children.length < ROWS_MAX))
        children.push({ node: child, depth: row.depth + 1, more: 0 });
      else more++;
    }
    if (more > 0) children.push({ node: row.node, depth: row.depth + 1, more });
    stack.push(...children.reverse());
  }
  return { rows, cut: stack.length > 0 };
}
