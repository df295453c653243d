// A sortable table of functions with self and total time.

import { useMemo, useState } from 'preact/hooks';
import { setParams, useAddress } from '../../core/address';
import { indicesOfLargest } from '../../core/largest';
import { safeText, shortFile } from '../../core/names';
import { count, duration, percent } from '../../core/time';
import { labelOf } from '../../flame/label';
import { crateAt } from '../../flame/layout';
import type { LoadedProfile } from '../../flame/load';

interface Properties {
  loaded: LoadedProfile;
  matched?: Uint8Array;
  onFunction(fn: number): void;
}

const ROWS = 50;
type Column = 'self' | 'total' | 'name';

export function FunctionTable({ loaded, matched, onFunction }: Properties) {
  const { params } = useAddress();
  const { functions, fnSelf, fnTotal, layout } = loaded;
  const column = (params.get('sort') ?? 'self') as Column;
  const [rows, setRows] = useState(ROWS);
  const fitting = useMemo(
    () => (matched ? matched.reduce((sum, one) => sum + one, 0) : fnSelf.length),
    [fnSelf, matched],
  );
  const shownRows = useMemo(() => {
    const isKept = (fn: number) => !matched || matched[fn] === 1;
    if (column !== 'name') return indicesOfLargest(column === 'total' ? fnTotal : fnSelf, rows, isKept);
    return Array.from(fnSelf.keys())
      .filter(isKept)
      .sort((a, b) => (functions.names[a] < functions.names[b] ? -1 : 1))
      .slice(0, rows);
  }, [fnSelf, matched, column, rows]);
  const whole = layout.total[0];
  const head = (name: Column, label: string) => (
    <th
      class={name === 'name' ? '' : 'number'}
      aria-sort={column === name ? (name === 'name' ? 'ascending' : 'descending') : undefined}
    >
      <button onClick={() => setParams({ sort: name === 'self' ? null : name }, true)}>
        {label}
        {column === name ? ' ▾' : ''}
      </button>
    </th>
  );
  return (
    <div class="scroll">
      <table class="functions with-files">
        <thead>
          <tr>
            {head('self', 'Self')}
            {head('total', 'Total')}
            {head('name', 'Function')}
            <th>Crate</th>
            <th>File</th>
            <th>Module</th>
          </tr>
        </thead>
        <tbody>
          {shownRows.map((fn) => (
            <tr key={fn}>
              <td class="number">
                <i class="bar" style={{ width: `${(100 * fnSelf[fn]) / whole}%` }} />
                {duration(fnSelf[fn])} <small>{percent(fnSelf[fn], whole)}</small>
              </td>
              <td class="number">
                {duration(fnTotal[fn])} <small>{percent(fnTotal[fn], whole)}</small>
              </td>
              <td class="wide">
                <button class="link" title={safeText(functions.names[fn], 600)} onClick={() => onFunction(fn)}>
                  <bdi>{labelOf(functions, fn)}</bdi>
                </button>
              </td>
              <td class="soft">
                <bdi>{safeText(crateAt(functions, fn) ?? '', 30)}</bdi>
              </td>
              <td class="soft path" title={safeText(functions.files[fn], 300)}>
                <bdi>
                  {safeText(shortFile(functions.files[fn]), 60)}
                  {functions.lines[fn] > 0 && `:${functions.lines[fn]}`}
                </bdi>
              </td>
              <td class="soft" title={safeText(functions.modules[fn], 300)}>
                <bdi>{safeText(functions.modules[fn].split('/').pop() ?? '', 30)}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {fitting > rows && (
        <button onClick={() => setRows(rows + ROWS)}>
          Show {ROWS} more of {count(fitting)}
        </button>
      )}
      {fitting === 0 && <p class="soft">No function matches.</p>}
    </div>
  );
}
