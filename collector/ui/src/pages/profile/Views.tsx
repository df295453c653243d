// The views of one profile (graph, table, tree, sandwich) and their toolbar.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { Disclosure } from '../../components/Disclosure';
import { SearchField, SearchSummary, useFunctionSearch } from '../../components/FunctionSearch';
import { lazy } from '../../components/Lazy';
import { EmptyState } from '../../components/Messages';
import { setParams, useAddress } from '../../core/address';
import { copyText } from '../../core/clipboard';
import { useKeys } from '../../core/keys';
import { safeText } from '../../core/names';
import { count, duration, percent } from '../../core/time';
import { COLORINGS, type Coloring } from '../../flame/draw';
import { FlameGraph } from '../../flame/FlameGraph';
import { invertTree } from '../../flame/invert';
import { labelOf } from '../../flame/label';
import { crateAt, NO_FUNCTION } from '../../flame/layout';
import type { LoadedProfile } from '../../flame/load';
import type { Action } from '../../flame/NodeMenu';
import { InvertedTip, NodeTip } from '../../flame/NodeTip';
import { findByPathId, pathId } from '../../flame/path';
import { pictureOf } from '../../flame/picture';
import { totalBelow } from '../../flame/search';
import { crateSelector, transformSelector } from '../../flame/select';
import { transformTree } from '../../flame/transform';
import { AccessibleTable } from './AccessibleTable';
import { ANY_TASK, Coverage } from './Coverage';
import { Downloads } from './Downloads';
import { HiddenTime } from './HiddenTime';
import { Hottest } from './Hottest';
import { Legend } from './Legend';
import { FILTERS, type Params } from './query';
import { addTransform, Changes, NO_TRANSFORMS, transformsOf } from './Transforms';
import { UnnamedTime } from './UnnamedTime';

// The graph is shown first; the script of the other views is loaded when one of them is shown.
const others = () => import('./other-views');
const ChartView = lazy(async () => (await others()).ChartView);
const FunctionTable = lazy(async () => (await others()).FunctionTable);
const SandwichView = lazy(async () => (await others()).SandwichView);
const TreeView = lazy(async () => (await others()).TreeView);

const VIEWS = [
  ['icicle', 'Icicle'],
  ['flame', 'Flame'],
  ['table', 'Table'],
  ['tree', 'Tree'],
  ['sandwich', 'Sandwich'],
  ['chart', 'Chart'],
] as const;
type ViewName = (typeof VIEWS)[number][0];

interface Properties {
  loaded: LoadedProfile;
  isStale: boolean;
  /** Filters that the page sets, in addition to the address. */
  fixed?: Params;
  /** Whether the profile is in a file, so that no other one can be requested. */
  isFile?: boolean;
}

export function Views({ loaded: whole, isStale, fixed = [], isFile = false }: Properties) {
  const { params } = useAddress();
  const changes = JSON.stringify(transformsOf(params));
  const loaded = useMemo(() => transformTree(whole, JSON.parse(changes)), [whole, changes]);
  // A file has no single seconds.
  const views = VIEWS.filter(([name]) => name !== 'chart' || !isFile);
  const view = (views.find(([name]) => name === params.get('view'))?.[0] ?? 'icicle') as ViewName;
  const isGraph = view === 'icicle' || view === 'flame';
  // Tables have no direction, and a sandwich has both.
  const isInverted = params.get('invert') === '1' && (isGraph || view === 'tree');
  const shown = useMemo(() => (isInverted ? invertTree(loaded) : loaded), [loaded, isInverted]);
  const { layout, functions } = shown;
  const isSplit = useMemo(() => functions.kinds.includes('phase'), [functions]);
  const colors = COLORINGS.filter((name) => name !== 'diff' && (name !== 'phase' || isSplit));
  const coloring: Coloring = colors.find((name) => name === params.get('color')) ?? (isSplit ? 'phase' : 'crate');
  const zoomName = params.get('zoom');
  const zoom = useMemo(() => (zoomName ? findByPathId(layout, functions, zoomName) : 0), [layout, functions, zoomName]);
  const { result, ...search } = useFunctionSearch(layout, functions);
  const [match, setMatch] = useState(-1);
  useEffect(() => setMatch(-1), [result]);
  const setZoom = (node: number) => setParams({ zoom: node === 0 ? null : pathId(layout, functions, node) });
  const rootLabel = isInverted ? 'all, by the function that ran' : 'all';
  const picture = () => {
    const from = layout.x[zoom];
    const to = Math.max(from + layout.total[zoom], from + 1);
    const upward = view === 'flame';
    return pictureOf(layout, functions, rootLabel, { from, to, upward, coloring, matched: result?.functions });
  };
  const setView = (name: ViewName) => setParams({ view: name === 'icicle' ? null : name });
  const setFunction = (fn: number) =>
    setParams({ view: 'sandwich', fn: functions.names[fn], fnfile: functions.files[fn] || null });
  const hideCrate = (fn: number) => {
    const crate = crateAt(functions, fn);
    if (crate !== undefined) addTransform('hide', crateSelector(crate), params);
  };
  const act = (action: Action, fn: number) => {
    const name = functions.names[fn];
    if (action === 'focus' || action === 'hide' || action === 'merge') addTransform(action, name, params);
    else if (action === 'crate') hideCrate(fn);
    else if (action === 'callers') setFunction(fn);
    else if (action === 'copy') void copyText(name, 'name');
  };

  useKeys((key) => {
    const next = views[(views.findIndex(([name]) => name === view) + 1) % views.length][0];
    if (key === '/') search.field.current?.focus();
    else if (key === '0') setZoom(0);
    else if (key === 'Escape' && zoom !== 0) setZoom(layout.parent[zoom]);
    else if (key === 'v') setView(next);
    else if (key === 's') setParams({ color: colors[(colors.indexOf(coloring) + 1) % colors.length] });
    else if (key === 'i') setParams({ invert: params.get('invert') === '1' ? null : '1', zoom: null });
    else if (key === 'c') setParams({ recursion: params.get('recursion') === '1' ? null : '1', zoom: null });
    else if ((key === 'n' || key === 'N') && result && result.nodes.length > 0) {
      const matches = result.nodes.length;
      setMatch((match + (key === 'n' ? 1 : matches - 1) + (match < 0 && key === 'N' ? 1 : 0)) % matches);
    } else return false;
    return true;
  });

  const stacks = params.get('stacks') ?? 'simple';
  const hasPython = stacks === 'python' || stacks === 'native' || whole.functions.modules.includes('python');

  if (whole.metadata.empty || whole.layout.total[0] === 0)
    return (
      <>
        <Coverage loaded={whole} />
        <NoSamples loaded={whole} />
      </>
    );
  if (layout.total[0] === 0) {
    return (
      <EmptyState title="All samples are hidden">
        <Changes hiddenNs={loaded.hiddenNs} />
        <button onClick={() => setParams(NO_TRANSFORMS)}>Show the whole profile</button>
      </EmptyState>
    );
  }
  return (
    <section class={isStale ? 'views stale' : 'views'} aria-busy={isStale} data-total-ns={layout.total[zoom]}>
      <Coverage loaded={loaded} />
      <UnnamedTime loaded={loaded} />
      <Hottest loaded={loaded} onSearch={search.setText} onFunction={setFunction} />
      <div class="toolbar">
        <span class="segments" role="group" aria-label="View">
          {views.map(([name, label]) => (
            <button key={name} aria-pressed={view === name} onClick={() => setView(name)}>
              {label}
            </button>
          ))}
        </span>
        <SearchField {...search}>
          {result && (
            <SearchSummary
              result={result}
              total={layout.total[0]}
              viewShare={
                zoom === 0 ? undefined : percent(totalBelow(layout, result.functions, zoom), layout.total[zoom])
              }
              text={search.text}
              onTransform={(kind) => {
                addTransform(kind, transformSelector(search.text, functions), params);
                search.setText('');
              }}
            />
          )}
        </SearchField>
        <span class="gap" />
        <Disclosure label="Options">
          {!isFile && (
            <>
              <ParamCheckbox name="by" value="line" title="Split functions by line">
                by line
              </ParamCheckbox>
              <ParamCheckbox name="phases" value="1" title="Show each task's phases: queue, transfer, execute, …">
                split by phase
              </ParamCheckbox>
            </>
          )}
          <ParamCheckbox name="recursion" value="1" title="Merge recursive calls (c)">
            collapse recursion
          </ParamCheckbox>
          <ParamCheckbox
            name="invert"
            value="1"
            title="Bottom-up: the functions that ran are the roots, and their callers are below them (i)"
          >
            inverted
          </ParamCheckbox>
          {!isFile && (
            <label
              class="plain"
              title="Functions of the language and of runtimes, or of all dependencies, are folded into their callers, which get their time"
            >
              stacks{' '}
              <select
                value={stacks}
                onChange={(event) => {
                  const { value } = event.currentTarget;
                  setParams({ stacks: value === 'simple' ? null : value, zoom: null });
                }}
              >
                <option value="simple">simplified</option>
                <option value="own">own code only</option>
                <option value="full">full</option>
                {hasPython && <option value="python">Python only</option>}
                {hasPython && <option value="native">native only</option>}
              </select>
              {whole.metadata.folded > 0 && <span class="soft"> {count(whole.metadata.folded)} folded</span>}
            </label>
          )}
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
        </Disclosure>
        {!isFile && <Downloads loaded={whole} fixed={fixed} picture={isGraph ? picture : undefined} />}
      </div>
      <Changes hiddenNs={loaded.hiddenNs} />
      {isGraph && (
        <>
          <FlameGraph
            layout={layout}
            functions={functions}
            rootLabel={rootLabel}
            label={`${isInverted ? 'Inverted flame graph' : 'Flame graph'} of ${count(layout.count - 1)} stacks`}
            zoom={zoom}
            shape={`${changes} ${isInverted}`}
            upward={view === 'flame'}
            coloring={coloring}
            tip={isInverted ? InvertedTip : NodeTip}
            matched={result?.functions}
            shown={match >= 0 ? result?.nodes[match] : undefined}
            onZoom={setZoom}
            onAction={act}
          />
          {/* Below the graph: its rows stay where they are when someone zooms. */}
          <Breadcrumb loaded={shown} zoom={zoom} onZoom={setZoom} />
          <Legend loaded={loaded} coloring={coloring} />
          <AccessibleTable loaded={loaded} matched={result?.functions} />
        </>
      )}
      {view === 'table' && <FunctionTable loaded={loaded} matched={result?.functions} onFunction={setFunction} />}
      {view === 'tree' && (
        <TreeView
          loaded={shown}
          matched={result?.functions}
          zoom={zoom}
          isInverted={isInverted}
          onFunction={setFunction}
        />
      )}
      {view === 'chart' && (
        <>
          <ChartView loaded={loaded} coloring={coloring} matched={result?.functions} onAction={act} />
          <Legend loaded={loaded} coloring={coloring} />
          <AccessibleTable loaded={loaded} matched={result?.functions} />
        </>
      )}
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
  const filtered = FILTERS.some((name) => params.has(name)) || params.has('on');
  const { data, hidden } = loaded.metadata;
  // The default is time on CPU, and one task may have none: then it is shown where it waited.
  const hasOnlyWaited =
    params.has('on') && !params.has('state') && hidden.states.runnable_ns + hidden.states.wait_ns > 0;
  useEffect(() => {
    if (hasOnlyWaited) setParams({ state: ['all'] }, true);
  }, [hasOnlyWaited]);
  return (
    <EmptyState title={hidden.total_ns > 0 ? 'No samples in this view' : 'No samples'}>
      <p>
        {filtered ? 'No samples in this range match the filters.' : 'Nothing was sampled in this range.'}{' '}
        {data && `The collector has ${duration(data.to_ns - data.from_ns)} of data.`}
      </p>
      <p>
        <HiddenTime hidden={loaded.metadata.hidden} />
      </p>
      {filtered && (
        <button onClick={() => setParams({ ...Object.fromEntries(FILTERS.map((name) => [name, null])), ...ANY_TASK })}>
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
