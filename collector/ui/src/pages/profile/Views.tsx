// One profile, as a graph, a table or around one function; and what can be done with it.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { apiUrl, change, useAddress } from '../../core/address';
import { useKeys } from '../../core/keys';
import { shown } from '../../core/names';
import { count, duration, percent } from '../../core/time';
import { changeTree } from '../../flame/change';
import { COLOURINGS, type Colouring, labelOf } from '../../flame/draw';
import { FlameGraph } from '../../flame/FlameGraph';
import { NO_FUNCTION } from '../../flame/layout';
import type { Loaded } from '../../flame/load';
import type { Action } from '../../flame/NodeMenu';
import { findPath, pathName } from '../../flame/path';
import { search, totalBelow } from '../../flame/search';
import { Empty } from '../../parts/Notes';
import { addChange, Changes, changesOf, NO_CHANGES } from './Changes';
import { Costliest } from './Costliest';
import { FunctionTable, SpokenTable } from './FunctionTable';
import { Legend } from './Legend';
import { FILTERS, filtersOf, type Pairs } from './question';
import { SandwichView } from './SandwichView';
import { TreeView } from './TreeView';

const VIEWS = [
  ['icicle', 'Icicle'],
  ['flame', 'Flame'],
  ['table', 'Table'],
  ['tree', 'Tree'],
  ['sandwich', 'Sandwich'],
] as const;
type ViewName = (typeof VIEWS)[number][0];

/** How long typing may pause before the address follows. */
const TYPING_MS = 250;

interface Properties {
  loaded: Loaded;
  isOld: boolean;
  /** What the page is about, beside what its address says. */
  fixed?: Pairs;
}

export function Views({ loaded: whole, isOld, fixed = [] }: Properties) {
  const { params } = useAddress();
  const changes = JSON.stringify(changesOf(params));
  const loaded = useMemo(() => changeTree(whole, JSON.parse(changes)), [whole, changes]);
  const { layout, functions } = loaded;
  const view = (VIEWS.find(([name]) => name === params.get('view'))?.[0] ?? 'icicle') as ViewName;
  const isSplit = useMemo(() => functions.kinds.includes('phase'), [functions]);
  const colours = COLOURINGS.filter((name) => name !== 'diff' && (name !== 'phase' || isSplit));
  const colouring: Colouring = colours.find((name) => name === params.get('colour')) ?? (isSplit ? 'phase' : 'crate');
  const zoomName = params.get('zoom');
  const zoom = useMemo(() => (zoomName ? findPath(layout, functions, zoomName) : 0), [layout, functions, zoomName]);
  const [text, setText] = useState(params.get('q') ?? '');
  const [match, setMatch] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const asked = params.get('q') ?? '';
  useEffect(() => {
    if (document.activeElement !== field.current) setText(asked);
  }, [asked]);
  useEffect(() => {
    const timer = setTimeout(() => {
      if (text !== asked) change({ q: text || null }, true);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const found = useMemo(() => search(text, layout, functions), [text, layout, functions]);
  useEffect(() => setMatch(-1), [found]);
  const setZoom = (node: number) => change({ zoom: node === 0 ? null : pathName(layout, functions, node) });
  const setView = (name: ViewName) => change({ view: name === 'icicle' ? null : name });
  const setFunction = (fn: number) =>
    change({ view: 'sandwich', fn: functions.names[fn], fnfile: functions.files[fn] || null });
  const act = (action: Action, fn: number) => {
    const name = functions.names[fn];
    if (action === 'focus' || action === 'drop' || action === 'merge') addChange(action, name, params);
    else if (action === 'callers') setFunction(fn);
    else if (action === 'copy') void navigator.clipboard?.writeText(name);
  };

  useKeys((key) => {
    const next = VIEWS[(VIEWS.findIndex(([name]) => name === view) + 1) % VIEWS.length][0];
    if (key === '/') field.current?.focus();
    else if (key === '0') setZoom(0);
    else if (key === 'Escape' && zoom !== 0) setZoom(layout.parent[zoom]);
    else if (key === 'v') setView(next);
    else if (key === 's') change({ colour: colours[(colours.indexOf(colouring) + 1) % colours.length] });
    else if (key === 'c') change({ recursion: params.get('recursion') === '1' ? null : '1', zoom: null });
    else if ((key === 'n' || key === 'N') && found && found.nodes.length > 0) {
      const matches = found.nodes.length;
      setMatch((match + (key === 'n' ? 1 : matches - 1) + (match < 0 && key === 'N' ? 1 : 0)) % matches);
    } else return false;
    return true;
  });

  if (whole.about.empty || whole.layout.total[0] === 0) return <NoSamples loaded={whole} />;
  if (layout.total[0] === 0) {
    return (
      <Empty title="Nothing is left of this profile">
        <Changes leftOutNs={loaded.leftOutNs} />
        <button onClick={() => change(NO_CHANGES)}>Show the whole profile</button>
      </Empty>
    );
  }
  const isGraph = view === 'icicle' || view === 'flame';
  return (
    <section class={isOld ? 'views old' : 'views'} aria-busy={isOld}>
      <Costliest loaded={loaded} onSearch={setText} onFunction={setFunction} />
      <div class="toolbar">
        <span class="segments" role="group" aria-label="View">
          {VIEWS.map(([name, words]) => (
            <button key={name} aria-pressed={view === name} onClick={() => setView(name)}>
              {words}
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
          {found && (
            <output>
              {percent(found.totalNs, layout.total[0])} of all
              {zoom !== 0 && (
                <>, {percent(totalBelow(layout, found.functions, zoom), layout.total[zoom])} of the view</>
              )}{' '}
              · {count(found.nodes.length)} places
            </output>
          )}
        </label>
        <span class="gap" />
        <Tick name="by" value="line" title="Count the lines of a function one by one">
          lines
        </Tick>
        <Tick name="phases" value="1" title="Below each task, its phases: queue, transfer, execute, …">
          split by phase
        </Tick>
        <Tick name="recursion" value="1" title="A function that calls itself is one (c)">
          collapse recursion
        </Tick>
        <label class="plain">
          colour by{' '}
          <select value={colouring} onChange={(event) => change({ colour: event.currentTarget.value })}>
            {colours.map((name) => (
              <option key={name} value={name}>
                {COLOUR_WORDS[name]}
              </option>
            ))}
          </select>
        </label>
        <a href={svgUrl(params, fixed)} download="profile.svg">
          SVG
        </a>
      </div>
      <Changes leftOutNs={loaded.leftOutNs} />
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
            colouring={colouring}
            found={found?.functions}
            shown={match >= 0 ? found?.nodes[match] : undefined}
            onZoom={setZoom}
            onAction={act}
          />
          <Legend loaded={loaded} colouring={colouring} />
          <SpokenTable loaded={loaded} found={found?.functions} />
        </>
      )}
      {view === 'table' && <FunctionTable loaded={loaded} found={found?.functions} onFunction={setFunction} />}
      {view === 'tree' && <TreeView loaded={loaded} found={found?.functions} zoom={zoom} onFunction={setFunction} />}
      {view === 'sandwich' && (
        <SandwichView
          loaded={loaded}
          colouring={colouring}
          found={found?.functions}
          onFunction={setFunction}
          onAction={act}
        />
      )}
    </section>
  );
}

const COLOUR_WORDS: Record<Colouring, string> = { crate: 'crate', state: 'state', phase: 'phase', diff: 'change' };

/** A parameter of the address that is there or not. A zoom may lead elsewhere then, so it goes. */
function Tick({ name, value, title, children }: { name: string; value: string; title: string; children: string }) {
  const { params } = useAddress();
  return (
    <label class="plain" title={title}>
      <input
        type="checkbox"
        checked={params.get(name) === value}
        onChange={(event) => change({ [name]: event.currentTarget.checked ? value : null, zoom: null })}
      />{' '}
      {children}
    </label>
  );
}

/** The same profile as a file that opens anywhere. */
function svgUrl(params: URLSearchParams, fixed: Pairs): string {
  const own = ['from', 'to', 'by'].flatMap((name) =>
    params.getAll(name).map((value): [string, string] => [name, value]),
  );
  return apiUrl('profile', new URLSearchParams([['format', 'svg'], ...own, ...filtersOf(params, fixed)]));
}

function Breadcrumb({ loaded, zoom, onZoom }: { loaded: Loaded; zoom: number; onZoom(node: number): void }) {
  const { layout, functions } = loaded;
  const path: number[] = [];
  for (let node = zoom; ; node = layout.parent[node]) {
    path.unshift(node);
    if (node === 0) break;
  }
  // The middle of a deep path tells least.
  const ends = path.length > 9 ? [...path.slice(0, 3), -1, ...path.slice(-5)] : path;
  return (
    <nav class="crumbs" aria-label="Zoom">
      {ends.map((node, index) =>
        node < 0 ? (
          <span key="rest">… {path.length - 8} …</span>
        ) : (
          <button key={node} aria-current={index === ends.length - 1 ? 'true' : undefined} onClick={() => onZoom(node)}>
            <bdi>
              {node === 0 || layout.fn[node] === NO_FUNCTION ? 'all' : shown(labelOf(functions, layout.fn[node]), 40)}
            </bdi>
          </button>
        ),
      )}
      {zoom !== 0 && (
        <small>
          {duration(layout.total[zoom])}, {percent(layout.total[zoom], layout.total[0])} of all
        </small>
      )}
    </nav>
  );
}

function NoSamples({ loaded }: { loaded: Loaded }) {
  const { params } = useAddress();
  const filtered = FILTERS.some((name) => params.has(name));
  const { data } = loaded.about;
  return (
    <Empty title="No samples here">
      <p>
        {filtered ? 'Nothing in this range fits all filters.' : 'Nothing was sampled in this range.'} There is data of{' '}
        {data ? duration(data.to_ns - data.from_ns) : 'no time'} in all.
      </p>
      {loaded.outsideNs > 0 && (
        <button onClick={() => change({ outside: '1' })}>Show the {duration(loaded.outsideNs)} outside tasks</button>
      )}
      {filtered && (
        <button onClick={() => change(Object.fromEntries(FILTERS.map((name) => [name, null])))}>
          Drop the filters
        </button>
      )}
      {data && <button onClick={() => change({ from: null, to: null })}>Show the last 5 min</button>}
      {data && (
        <button
          onClick={() =>
            change({ from: String(Math.floor(data.from_ns / 1e9)), to: String(Math.ceil(data.to_ns / 1e9)) })
          }
        >
          Show all data
        </button>
      )}
    </Empty>
  );
}
