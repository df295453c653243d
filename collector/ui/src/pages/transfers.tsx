// Transfers between workers: bytes, bandwidth, types.

import { EmptyState, InvalidRequest, Loading } from '../components/Messages';
import { apiUrl, itemHref, rangeOf, setParams, sharedParams, useAddress } from '../core/address';
import type { Link, LinkSums, TransferSummaryAnswer, TransfersAnswer } from '../core/api';
import { nowMs } from '../core/clock';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { pauseTime, requestRange, useQuery } from '../core/query';
import { bytes, clock, count, digits, duration, isLive, rangeText } from '../core/time';

/** Workers in the matrix: those with the most bytes. */
const SIDE_MAX = 20;
const ROWS = 40;
const TYPES = 20;

/** Transfers too short to have a bandwidth have none. */
type Measure = [label: string, of: (sums: LinkSums) => number | undefined, written: (value: number) => string];
const MEASURES: Record<string, Measure> = {
  bytes: ['bytes', (sums) => sums.bytes, bytes],
  bandwidth: ['average bandwidth', (sums) => sums.bandwidth?.mean ?? undefined, (value) => `${bytes(value)}/s`],
  p50: ['median bandwidth', (sums) => sums.bandwidth?.p50 ?? undefined, (value) => `${bytes(value)}/s`],
  count: ['transfers', (sums) => sums.count, count],
};

export function TransfersPage() {
  const { params } = useAddress();
  const pausedAt = pauseTime.use();
  const range = rangeOf(params);
  const live = isLive(range);
  const filters = ['worker', 'peer', 'type', 'direction'].flatMap((name) =>
    params.getAll(name).map((value): [string, string] => [name, value]),
  );
  const key = `${range.from} ${range.to} ${JSON.stringify(filters)} ${live && pausedAt}`;
  const query = (more: [string, string][]) => {
    const { from, to } = requestRange(range);
    return apiUrl('transfers', new URLSearchParams([['from', from], ['to', to], ...filters, ...more]));
  };
  const sums = useQuery<TransferSummaryAnswer>(key, (signal) => fetchJson(query([['summary', 'true']]), signal), live);
  const rows = useQuery<TransfersAnswer>(
    key,
    (signal) => fetchJson(query([['limit', String(ROWS)]]), signal),
    live,
    3000,
  );
  const problem = sums.problem ?? rows.problem;
  if (problem?.kind === 'request') return <InvalidRequest problem={problem} />;
  if (!sums.value || !rows.value) return <Loading problem={problem} />;
  const chosen = filters.length > 0 && (
    <button onClick={() => setParams({ worker: null, peer: null, type: null, direction: null })}>
      only {safeText(filters.map(([, value]) => value).join(', '), 80)} ✕
    </button>
  );
  if (sums.value.links.length === 0) {
    return (
      <EmptyState title="No transfers in this range">
        <p>Transfers appear when programs report them to the agent.</p>
        {chosen} <button onClick={() => setParams({ from: '-1h', to: null })}>Show the last hour</button>
      </EmptyState>
    );
  }
  return (
    <>
      <Transfers sums={sums.value} range={rangeText(range, pausedAt ?? nowMs())} chosen={chosen} />
      <Newest answer={rows.value} />
    </>
  );
}

interface TransfersProperties {
  sums: TransferSummaryAnswer;
  range: string;
  /** Content at the end of the filters. */
  chosen?: preact.ComponentChildren;
}

/** Sums by worker and by type. */
export function Transfers({ sums, range, chosen }: TransfersProperties) {
  return (
    <>
      <Matrix links={sums.links} range={range} chosen={chosen} />
      <Types types={sums.types} />
    </>
  );
}

/**
 * Both ends may record a transfer. The incoming record counts if there is one, because it is what
 * arrived.
 */
function cellsOf(links: Link[]): Map<string, Map<string, Link>> {
  const cells = new Map<string, Map<string, Link>>();
  for (const link of links) {
    const [from, to] = link.direction === 'incoming' ? [link.peer, link.worker] : [link.worker, link.peer];
    let row = cells.get(from);
    if (!row) {
      row = new Map();
      cells.set(from, row);
    }
    if (link.direction === 'incoming' || !row.has(to)) row.set(to, link);
  }
  return cells;
}

function Matrix({ links, range, chosen }: { links: Link[]; range: string; chosen: preact.ComponentChildren }) {
  const { params } = useAddress();
  const name = Object.keys(MEASURES).find((one) => one === params.get('measure')) ?? 'bytes';
  const [, measure, written] = MEASURES[name];
  const cells = cellsOf(links);
  const sums = new Map<string, number>();
  cells.forEach((row, from) =>
    row.forEach((link, to) => {
      for (const end of [from, to]) sums.set(end, (sums.get(end) ?? 0) + link.bytes);
    }),
  );
  const ends = [...sums.keys()]
    .sort((a, b) => sums.get(b)! - sums.get(a)!)
    .slice(0, SIDE_MAX)
    .sort();
  const most = Math.max(
    1,
    ...[...cells.values()].flatMap((row) => [...row.values()].map((link) => measure(link) ?? 0)),
  );
  return (
    <section>
      <h2>
        Between workers <small>{range && `${range}; `}rows send, columns receive</small>
      </h2>
      <div class="filters">
        <label class="plain">
          show{' '}
          <select value={name} onChange={(event) => setParams({ measure: event.currentTarget.value })}>
            {Object.entries(MEASURES).map(([one, [label]]) => (
              <option key={one} value={one}>
                {label}
              </option>
            ))}
          </select>
        </label>
        {chosen}
        {sums.size > SIDE_MAX && (
          <span class="soft">
            {SIDE_MAX} of {count(sums.size)} with the most bytes
          </span>
        )}
      </div>
      <div class="scroll">
        <table class="matrix">
          <thead>
            <tr>
              <th scope="col">from \ to</th>
              {ends.map((to) => (
                <th key={to} scope="col" class="number">
                  <bdi>{safeText(to, 16)}</bdi>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {ends.map((from) => (
              <tr key={from}>
                <th scope="row">
                  <a href={itemHref('workers', from, sharedParams({ worker: null }))}>
                    <bdi>{safeText(from, 24)}</bdi>
                  </a>
                </th>
                {ends.map((to) => {
                  const link = cells.get(from)?.get(to);
                  if (!link)
                    return (
                      <td key={to} class="number soft">
                        ·
                      </td>
                    );
                  const value = measure(link);
                  const share = (value ?? 0) / most;
                  return (
                    <td
                      key={to}
                      class="number"
                      title={`${count(link.count)} transfers, ${bytes(link.bytes)}${link.failed > 0 ? `, ${count(link.failed)} failed` : ''}`}
                      style={{ background: `color-mix(in srgb, var(--ember) ${Math.round(45 * share)}%, transparent)` }}
                    >
                      {value === undefined ? '–' : written(value)}
                      {link.failed > 0 && <b class="bad"> ✕</b>}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** The compression ratio. */
function ratio(all: number, compressed: number | null): string {
  return compressed !== null && compressed > 0 ? `×${digits(all / compressed)}` : '–';
}

const perSecond = (value: number | null | undefined) =>
  value === null || value === undefined ? '–' : `${bytes(value)}/s`;

function Types({ types }: { types: TransferSummaryAnswer['types'] }) {
  const sorted = [...types].sort((a, b) => b.bytes - a.bytes).slice(0, TYPES);
  return (
    <section>
      <h2>By type</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="By type">
        <table>
          <thead>
            <tr>
              <th>Type</th>
              <th class="number">Transfers</th>
              <th class="number">Failed</th>
              <th class="number">Bytes</th>
              <th class="number">Compression</th>
              <th class="number">Time</th>
              <th class="number">Bandwidth</th>
              <th class="number">Median</th>
              <th class="number">p99</th>
            </tr>
          </thead>
          <tbody>
            {sorted.map((type) => (
              <tr key={type.type_name}>
                <td>
                  <bdi>{safeText(type.type_name || '(unknown)', 60)}</bdi>
                </td>
                <td class="number">{count(type.count)}</td>
                <td class="number">{type.failed > 0 ? <b class="bad">✕ {count(type.failed)}</b> : ''}</td>
                <td class="number">{bytes(type.bytes)}</td>
                <td class="number">{ratio(type.bytes, type.compressed_bytes)}</td>
                <td class="number">{duration(type.duration_ns)}</td>
                <td class="number">{perSecond(type.bandwidth?.mean)}</td>
                <td class="number">{perSecond(type.bandwidth?.p50)}</td>
                <td class="number">{perSecond(type.bandwidth?.p99)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Newest({ answer }: { answer: TransfersAnswer }) {
  return (
    <section>
      <h2>
        Newest{' '}
        <small>
          {count(answer.transfers.length)} of {count(answer.total)}
        </small>
      </h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Newest transfers">
        <table>
          <thead>
            <tr>
              <th>Start</th>
              <th>From</th>
              <th>To</th>
              <th>Keys</th>
              <th>Type</th>
              <th class="number">Bytes</th>
              <th class="number">Duration</th>
              <th class="number">Bandwidth</th>
              <th>Outcome</th>
            </tr>
          </thead>
          <tbody>
            {answer.transfers.map((transfer) => {
              const [from, to] =
                transfer.direction === 'incoming' ? [transfer.peer, transfer.worker] : [transfer.worker, transfer.peer];
              return (
                <tr key={`${transfer.worker} ${transfer.epoch} ${transfer.id}`}>
                  <td>{clock(transfer.start_ns / 1e6, true)}</td>
                  <td>
                    <bdi>{safeText(from, 24)}</bdi>
                  </td>
                  <td>
                    <bdi>{safeText(to, 24)}</bdi>
                  </td>
                  <td class="soft">
                    <bdi>{safeText(transfer.keys.slice(0, 3).join(', '), 60)}</bdi>
                    {transfer.keys.length - 3 + transfer.more_keys > 0 &&
                      ` and ${count(transfer.keys.length - 3 + transfer.more_keys)} more`}
                  </td>
                  <td class="soft">
                    <bdi>{safeText(transfer.type_name, 30)}</bdi>
                  </td>
                  <td
                    class="number"
                    title={transfer.compressed_bytes === null ? '' : `${bytes(transfer.compressed_bytes)} compressed`}
                  >
                    {bytes(transfer.bytes)}
                  </td>
                  <td class="number">{duration(transfer.duration_ns)}</td>
                  <td class="number">{perSecond(transfer.bandwidth)}</td>
                  <td title={safeText(transfer.cause)}>
                    {transfer.outcome === 'ok' ? 'ok' : <b>{safeText(transfer.outcome, 20)}</b>}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </section>
  );
}
