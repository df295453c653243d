// The views of one profile (graph, table, tree, sandwich) and their toolbar.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { EmptyState } from '../../components/Messages';
import { apiUrl, setParams, useAddress } from '../../core/address';
import { useKeys } from '../../core/keys';
import { safeText } from '../../core/names';
import { count, duration, percent, quantity } from '../../core/time';
import { COLORINGS, type Coloring, labelOf } from '../../flame/draw';
import { FlameGraph } from '../../flame/FlameGraph';
import { NO_FUNCTION } from '../../flame/layout';
import type { LoadedProfile } from '../../flame/load';
import type { Action } from '../../flame/NodeMenu';
import { findByPathId, pathId } from '../../flame/path';
import { search, totalBelow } from '../../flame/search';
import { transformTree } from '../../flame/transform';
import { AccessibleTable, FunctionTable } from './FunctionTable';
import { Hottest } from './Hottest';
import { Legend } from './Legend';
import { SandwichView } from './SandwichView';
import { addTransform, Changes, NO_TRANSFORMS, transformsOf } from './Transforms';
import { TreeView } from './TreeView';
import { FILTERS, filtersOf, type Params } from './useProfile';

const VIEWS = [
  ['icicle', 'Icicle'],
  ['flame', 'Flame'],
  ['table', 'Table'],
  ['tree', 'Tree'],
  ['sandwich', 'Sandwich'],
] as const;
type ViewName = (typeof VIEWS)[number][0];

/** Delay before typed text goes into the address. */
const TYPING_MS = 250;

interface Properties {
  loaded: LoadedProfile;
  isStale: boolean;
  /** Filters that the page sets, in addition to the address. */
  fixed?: Params;
}

export function Views({ loaded: whole, isStale, fixed = [] }: Properties) {
  const { params } = useAddress();
  const changes = JSON.stringify(transformsOf(params));
  const loaded = useMemo(() => transformTree(whole, JSON.parse(changes)), [whole, changes]);
  const { layout, functions } = loaded;
  const view = (VIEWS.find(([name]) => name === params.get('view'))?.[0] ?? 'icicle') as ViewName;
  const isSplit = useMemo(() => functions.kinds.includes('phase'), [functions]);
  const colors = COLORINGS.filter((name) => name !== 'diff' && (name !== 'phase' || isSplit));
  const coloring: Coloring = colors.find((name) => name === params.get('color')) ?? (isSplit ? 'phase' : 'crate');
  const zoomName = params.get('zoom');
  const zoom = useMemo(() => (zoomName ? findByPathId(layout, functions, zoomName) : 0), [layout, functions, zoomName]);
  const [text, setText] = useState(params.get('q') ?? '');
  const [match, setMatch] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const addressText = params.get('q') ?? '';
  useEffect(() => {
    if (document.activeElement !== field.current) setText(addressText);
  }, [addressText]);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text !== addressText) setParams({ q: text || null }, true);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const result = useMemo(() => search(text, layout, functions), [text, layout, functions]);
  useEffect(() => setMatch(-1), [result]);
  const setZoom = (node: number) => setParams({ zoom: node === 0 ? null : pathId(layout, functions, node) });
  const setView = (name: ViewName) => setParams({ view: name === 'icicle' ? null : name });
  const setFunction = (fn: number) =>
    setParams({ view: 'sandwich', fn: functions.names[fn], fnfile: functions.files[fn] || null });
  const act = (action: Action, fn: number) => {
    const name = functions.names[fn];
    if (action === 'focus' || action === 'hide' || action === 'merge') addTransform(action, name, params);
    else if (action === 'callers') setFunction(fn);
    else if (action === 'copy') void navigator.clipboard?.writeText(name);
  };

  useKeys((key) => {
    const next = VIEWS[(VIEWS.findIndex(([name]) => name === view) + 1) % VIEWS.length][0];
    if (key === '/') field.current?.focus();
    else if (key === '0') setZoom(0);
    else if (key === 'Escape' && zoom !== 0) setZoom(layout.parent[zoom]);
    else if (key === 'v') setView(next);
    else if (key === 's') setParams({ color: colors[(colors.indexOf(coloring) + 1) % colors.length] });
    else if (key === 'c') setParams({ recursion: params.get('recursion') === '1' ? null : '1', zoom: null });
    else if ((key === 'n' || key === 'N') && result && result.nodes.length > 0) {
      const matches = result.nodes.length;
      setMatch((match + (key === 'n' ? 1 : matches - 1) + (match < 0 && key === 'N' ? 1 : 0)) % matches);
    } else return false;
    return true;
  });

  if (whole.metadata.empty || whole.layout.total[0] === 0) return <NoSamples loaded={whole} />;
  if (layout.total[0] === 0) {
    return (
      <EmptyState title="All samples are hidden">
        <Changes hiddenNs={loaded.hiddenNs} />
        <button onClick={() => setParams(NO_TRANSFORMS)}>Show the whole profile</button>
      </EmptyState>
    );
  }
  const isGraph = view === 'icicle' || view === 'flame';
  return (
    <section class={isStale ? 'views stale' : 'views'} aria-busy={isStale}>
      <Hottest loaded={loaded} onSearch={setText} onFunction={setFunction} />
      <div class="toolbar">
        <span class="segments" role="group" aria-label="View">
          {VIEWS.map(([name, label]) => (
            <button key={name} aria-pressed={view === name} onClick={() => setView(name)}>
              {label}
            </button>
          ))}
        </span>
        <label class="search">
          <input
            ref={field}
            type="search"
            value={text}
            placeholder="Search (regex)  /"
            aria-label="Search functions"
            onInput={(event) => setText(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Escape') {
                setText('');
                field.current?.blur();
              }
              if (event.key === 'Enter') field.current?.blur();
            }}
          />
          {result && (
            <output>
              {percent(result.totalNs, layout.total[0])} of total
              {zoom !== 0 && (
                <>, {percent(totalBelow(layout, result.functions, zoom), layout.total[zoom])} of the view</>
              )}{' '}
              · {quantity(result.nodes.length, 'node')}
            </output>
          )}
        </label>
        <span class="gap" />
        <ParamCheckbox name="by" value="line" title="Split functions by line">
          by line
        </ParamCheckbox>
        <ParamCheckbox name="phases" value="1" title="Show each task's phases: queue, transfer, execute, …">
          split by phase
        </ParamCheckbox>
        <ParamCheckbox name="recursion" value="1" title="Merge recursive calls (c)">
          collapse recursion
        </ParamCheckbox>
        <label class="plain">
          color by{' '}
          <select value={coloring} onChange={(event) => setParams({ color: event.currentTarget.value })}>
            {colors.map((name) => (
              <option key={name} value={name}>
                {COLORING_LABELS[name]}
              </option>
            ))}
          </select>
        </label>
        <a href={svgUrl(params, fixed)} download="profile.svg">
          SVG
        </a>
      </div>
      <Changes hiddenNs={loaded.hiddenNs} />
      {isGraph && (
        <>
          <Breadcrumb loaded={loaded} zoom={zoom} onZoom={setZoom} />
          <FlameGraph
            layout={layout}
            functions={functions}
            rootLabel="all"
            label={`Flame graph of ${count(layout.count - 1)} stacks`}
            zoom={zoom}
            upward={view === 'flame'}
            coloring={coloring}
            matched={result?.functions}
            shown={match >= 0 ? result?.nodes[match] : undefined}
            onZoom={setZoom}
            onAction={act}
          />
          <Legend loaded={loaded} coloring={coloring} />
          <AccessibleTable loaded={loaded} matched={result?.functions} />
        </>
      )}
      {view === 'table' && <FunctionTable loaded={loaded} matched={result?.functions} onFunction={setFunction} />}
      {view === 'tree' && <TreeView loaded={loaded} matched={result?.functions} zoom={zoom} onFunction={setFunction} />}
      {view === 'sandwich' && (
        <SandwichView
          loaded={loaded}
          coloring={coloring}
          matched={result?.functions}
          onFunction={setFunction}
          onAction={act}
        />
      )}
    </section>
  );
}

const COLORING_LABELS: Record<Coloring, string> = { crate: 'crate', state: 'state', phase: 'phase', diff: 'change' };

/** A checkbox for a parameter of the address. Resets the zoom, because its node may be gone. */
function ParamCheckbox({
  name,
  value,
  title,
  children,
}: {
  name: string;
  value: string;
  title: string;
  children: string;
}) {
  const { params } = useAddress();
  return (
    <label class="plain" title={title}>
      <input
        type="checkbox"
        checked={params.get(name) === value}
        onChange={(event) => setParams({ [name]: event.currentTarget.checked ? value : null, zoom: null })}
      />{' '}
      {children}
    </label>
  );
}

/** The same profile as an SVG file. */
function svgUrl(params: URLSearchParams, fixed: Params): string {
  const own = ['from', 'to', 'by'].flatMap((name) =>
    params.getAll(name).map((value): [string, string] => [name, value]),
  );
  return apiUrl('profile', new URLSearchParams([['format', 'svg'], ...own, ...filtersOf(params, fixed)]));
}

function Breadcrumb({ loaded, zoom, onZoom }: { loaded: LoadedProfile; zoom: number; onZoom(node: number): void }) {
  const { layout, functions } = loaded;
  const path: number[] = [];
  for (let node = zoom; ; node = layout.parent[node]) {
    path.unshift(node);
    if (node === 0) break;
  }
  // The middle of a long path is elided.
  const ends = path.length > 9 ? [...path.slice(0, 3), -1, ...path.slice(-5)] : path;
  return (
    <nav class="crumbs" aria-label="Zoom">
      {ends.map((node, index) =>
        node < 0 ? (
          <span key="rest">… {path.length - 8} …</span>
        ) : (
          <button key={node} aria-current={index === ends.length - 1 ? 'true' : undefined} onClick={() => onZoom(node)}>
            <bdi>
              {node === 0 || layout.fn[node] === NO_FUNCTION
                ? 'all'
                : safeText(labelOf(functions, layout.fn[node]), 40)}
            </bdi>
          </button>
        ),
      )}
      {zoom !== 0 && (
        <small>
          {duration(layout.total[zoom])}, {percent(layout.total[zoom], layout.total[0])} of total
        </small>
      )}
    </nav>
  );
}

function NoSamples({ loaded }: { loaded: LoadedProfile }) {
  const { params } = useAddress();
  const filtered = FILTERS.some((name) => params.has(name));
  const { data } = loaded.metadata;
  return (
    <EmptyState title="No samples">
      <p>
        {filtered ? 'No samples in this range match the filters.' : 'Nothing was sampled in this range.'}{' '}
        {data && `The collector has ${duration(data.to_ns - data.from_ns)} of data.`}
      </p>
      {loaded.outsideNs > 0 && (
        <button onClick={() => setParams({ outside: '1' })}>Show the {duration(loaded.outsideNs)} outside tasks</button>
      )}
      {filtered && (
        <button onClick={() => setParams(Object.fromEntries(FILTERS.map((name) => [name, null])))}>
          Clear filters
        </button>
      )}
      {data && <button onClick={() => setParams({ from: null, to: null })}>Show the last 5 min</button>}
      {data && (
        <button
          onClick={() =>
            setParams({ from: String(Math.floor(data.from_ns / 1e9)), to: String(Math.ceil(data.to_ns / 1e9)) })
          }
        >
          Show all data
        </button>
      )}
    </EmptyState>
  );
}
