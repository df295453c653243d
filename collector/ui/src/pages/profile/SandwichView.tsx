// The sandwich view: callers of a function above, callees below.

import { useMemo } from 'preact/hooks';
import { EmptyState } from '../../components/Messages';
import { useAddress } from '../../core/address';
import { safeText, shortFile } from '../../core/names';
import { duration, percent } from '../../core/time';
import type { Coloring } from '../../flame/draw';
import { FlameGraph } from '../../flame/FlameGraph';
import { labelOf } from '../../flame/label';
import type { LoadedProfile } from '../../flame/load';
import type { Action } from '../../flame/NodeMenu';
import { sandwich } from '../../flame/sandwich';
import { FunctionTable } from './FunctionTable';

interface Properties {
  loaded: LoadedProfile;
  coloring: Coloring;
  matched?: Uint8Array;
  onFunction(fn: number): void;
  onAction(action: Action, fn: number): void;
}

/** The number of the function in the address, or -1. */
export function chosenFunction(loaded: LoadedProfile, params: URLSearchParams): number {
  const name = params.get('fn');
  if (name === null) return -1;
  const file = params.get('fnfile') ?? '';
  const { names, files } = loaded.functions;
  const exact = names.findIndex((one, fn) => one === name && files[fn] === file);
  return exact >= 0 ? exact : names.indexOf(name);
}

export function SandwichView({ loaded, coloring, matched, onFunction, onAction }: Properties) {
  const { params } = useAddress();
  const fn = chosenFunction(loaded, params);
  const { layout, functions, fnSelf, fnTotal } = loaded;
  const halves = useMemo(() => (fn < 0 ? undefined : sandwich(layout, fn)), [layout, fn]);
  if (!halves) {
    return (
      <>
        <EmptyState title={params.has('fn') ? 'Function not found in this profile' : 'Choose a function'}>
          <p>Its callers and callees are shown here.</p>
        </EmptyState>
        <FunctionTable loaded={loaded} matched={matched} onFunction={onFunction} />
      </>
    );
  }
  const whole = layout.total[0];
  const graph = { functions, rootLabel: 'all', zoom: 0, shape: functions.names[fn], coloring, matched };
  const choose = (half: typeof halves.callers) => (node: number) => {
    if (node > 0) onFunction(half.fn[node]);
  };
  return (
    <div class="sandwich">
      <h2>
        <bdi>{safeText(functions.names[fn])}</bdi>
      </h2>
      <p class="soft">
        {functions.files[fn] !== '' && (
          <>
            <bdi>{safeText(shortFile(functions.files[fn]))}</bdi> ·{' '}
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
