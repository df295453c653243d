// The tooltip of a node: next to the pointer, or below the graph for keyboard and touch.

import type { ComponentChildren } from 'preact';
import { stateColor } from '../core/colors';
import { safeText, shortFile } from '../core/names';
import { STATES, stateLabel } from '../core/states';
import { duration, percent } from '../core/time';
import { crateAt, type Functions, type Layout, NO_FUNCTION, STATE_COUNT } from './layout';

interface Pointer {
  px: number;
  py: number;
}

interface Properties {
  layout: Layout;
  functions: Functions;
  node: number;
  rootLabel: string;
  viewNs: number;
  at: Pointer | null;
  /** Whether self time ends paths, as in an inverted tree: then it is not that of the node's function. */
  isInverted?: boolean;
}

/** The tooltip of a node of an inverted tree. */
export const InvertedTip = (properties: Properties) => <NodeTip {...properties} isInverted />;

export function NodeTip({ layout, functions, node, rootLabel, viewNs, at, isInverted = false }: Properties) {
  const fn = layout.fn[node];
  const total = layout.total[node];
  const self = layout.self[node];
  const line = fn !== NO_FUNCTION && functions.lines[fn] > 0 ? `:${functions.lines[fn]}` : '';
  const file = fn === NO_FUNCTION ? '' : functions.files[fn];
  const module = fn === NO_FUNCTION ? '' : (functions.modules[fn].split('/').pop() ?? '');
  const origin = [fn === NO_FUNCTION ? '' : (crateAt(functions, fn) ?? ''), module].filter((part) => part !== '');
  const states = STATES.map((state, s) => ({ state, ns: layout.states[node * STATE_COUNT + s] })).filter(
    ({ ns }) => ns > 0,
  );
  return (
    <Tip name={fn === NO_FUNCTION ? rootLabel : functions.names[fn]} at={at}>
      {file && (
        <div class="file" title={safeText(file, 1000)}>
          <bdi>{safeText(shortFile(file)) + line}</bdi>
        </div>
      )}
      {origin.length > 0 && (
        <div class="file">
          <bdi>{safeText(origin.join(' in '), 120)}</bdi>
        </div>
      )}
      <dl>
        <dt>total</dt>
        <dd>{duration(total)}</dd>
        <dd>{percent(total, layout.total[0])} of total</dd>
        <dd>{percent(total, viewNs)} of the view</dd>
        {!isInverted && (
          <>
            <dt>self</dt>
            <dd>{duration(self)}</dd>
            <dd>{percent(self, layout.total[0])} of total</dd>
            <dd>{percent(self, total)} of its total</dd>
          </>
        )}
      </dl>
      <div class="split" aria-hidden="true">
        {states.map(({ state, ns }) => (
          <i key={state} style={{ flexGrow: ns / total, background: stateColor(state) }} />
        ))}
      </div>
      <div class="states">
        {states.map(({ state, ns }) => (
          <span key={state}>
            <i style={{ background: stateColor(state) }} />
            {stateLabel(state)} {percent(ns, total)}
          </span>
        ))}
      </div>
    </Tip>
  );
}

interface TipProperties {
  name: string;
  /** Position of the pointer. Without it the tooltip is below the graph. */
  at: Pointer | null;
  children: ComponentChildren;
}

/** A tooltip about the function of this name. */
export function Tip({ name, at, children }: TipProperties) {
  const place = at && {
    left: `${Math.min(at.px + 14, Math.max(8, innerWidth - 430))}px`,
    ...(at.py > innerHeight - 190 ? { bottom: `${innerHeight - at.py + 14}px` } : { top: `${at.py + 16}px` }),
  };
  return (
    <div class={at ? 'tip floating' : 'tip'} style={place ?? {}} role="status">
      <b class="name">
        <bdi>{safeText(name)}</bdi>
      </b>
      {children}
    </div>
  );
}
