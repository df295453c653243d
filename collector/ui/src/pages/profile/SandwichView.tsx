// One function: all that call it above, all that it calls below.

import { useMemo } from 'preact/hooks';
import { useAddress } from '../../core/address';
import { shortFile, shown } from '../../core/names';
import { duration, percent } from '../../core/time';
import { type Colouring, labelOf } from '../../flame/draw';
import { FlameGraph } from '../../flame/FlameGraph';
import type { Loaded } from '../../flame/load';
import type { Action } from '../../flame/NodeMenu';
import { sandwich } from '../../flame/sandwich';
import { Empty } from '../../parts/Notes';
import { FunctionTable } from './FunctionTable';

interface Properties {
  loaded: Loaded;
  colouring: Colouring;
  found?: Uint8Array;
  onFunction(fn: number): void;
  onAction(action: Action, fn: number): void;
}

/** The number of the function that the address names. */
export function chosenFunction(loaded: Loaded, params: URLSearchParams): number {
  const name = params.get('fn');
  if (name === null) return -1;
  const file = params.get('fnfile') ?? '';
  const { names, files } = loaded.functions;
  const exact = names.findIndex((one, fn) => one === name && files[fn] === file);
  return exact >= 0 ? exact : names.indexOf(name);
}

export function SandwichView({ loaded, colouring, found, onFunction, onAction }: Properties) {
  const { params } = useAddress();
  const fn = chosenFunction(loaded, params);
  const { layout, functions, fnSelf, fnTotal } = loaded;
  const halves = useMemo(() => (fn < 0 ? undefined : sandwich(layout, fn)), [layout, fn]);
  if (!halves) {
    return (
      <>
        <Empty title={params.has('fn') ? 'This function is not in this profile' : 'Choose a function'}>
          <p>Its callers and callees are shown here.</p>
        </Empty>
        <FunctionTable loaded={loaded} found={found} onFunction={onFunction} />
      </>
    );
  }
  const whole = layout.total[0];
  const graph = { functions, rootLabel: 'all', zoom: 0, colouring, found };
  const choose = (half: typeof halves.callers) => (node: number) => {
    if (node > 0) onFunction(half.fn[node]);
  };
  return (
    <div class="sandwich">
      <h2>
        <bdi>{shown(functions.names[fn])}</bdi>
      </h2>
      <p class="soft">
        {functions.files[fn] !== '' && (
          <>
            <bdi>{shown(shortFile(functions.files[fn]))}</bdi> ·{' '}
          </>
        )}
        self {duration(fnSelf[fn])} ({percent(fnSelf[fn], whole)}), total {duration(fnTotal[fn])} (
        {percent(fnTotal[fn], whole)})
      </p>
      <h3>Called by</h3>
      <FlameGraph
        {...graph}
        layout={halves.callers}
        label={`Callers of ${labelOf(functions, fn)}`}
        upward
        onZoom={choose(halves.callers)}
        onAction={onAction}
      />
      <h3>Calls</h3>
      <FlameGraph
        {...graph}
        layout={halves.callees}
        label={`Callees of ${labelOf(functions, fn)}`}
        upward={false}
        onZoom={choose(halves.callees)}
        onAction={onAction}
      />
    </div>
  );
}
