// The hottest functions as a table, because a graph is a picture.

import { useMemo } from 'preact/hooks';
import { indicesOfLargest } from '../../core/largest';
import { safeText } from '../../core/names';
import { duration, percent } from '../../core/time';
import type { LoadedProfile } from '../../flame/load';

const ROWS = 20;

/** A short table for screen readers. */
export function AccessibleTable({ loaded, matched }: { loaded: LoadedProfile; matched: Uint8Array | undefined }) {
  const { functions, fnSelf, fnTotal, layout } = loaded;
  const order = useMemo(() => indicesOfLargest(fnSelf, ROWS, (fn) => !matched || matched[fn] === 1), [fnSelf, matched]);
  const timeAndShare = (ns: number) => `${duration(ns)} ${percent(ns, layout.total[0])}`;
  return (
    <div class="visually-hidden">
      <table>
        <caption>Hottest functions</caption>
        <thead>
          <tr>
            <th>Self</th>
            <th>Total</th>
            <th>Function</th>
          </tr>
        </thead>
        <tbody>
          {order.map((fn) => (
            <tr key={fn}>
              <td>{timeAndShare(fnSelf[fn])}</td>
              <td>{timeAndShare(fnTotal[fn])}</td>
              <td>{safeText(functions.names[fn])}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
