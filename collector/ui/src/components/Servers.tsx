// Tables of the servers that the collector forwards to and asks for profiles, and of the stores that it reads.

import type { ComponentChildren } from 'preact';
import type { Forward, Scrape, Store } from '../core/api';
import { safeText } from '../core/names';
import { count, duration } from '../core/time';
import { amountText, lostAmount } from '../pages/servers';

const PROTOCOLS: Record<string, string> = {
  pyroscope: 'Pyroscope',
  otlp: 'OTLP profiles',
  otlp_traces: 'OTLP traces',
};

interface Properties {
  forwards: Forward[];
  scrapes: Scrape[];
  stores: Store[];
  nowNs: number;
}

export function Servers({ forwards, scrapes, stores, nowNs }: Properties) {
  return (
    <>
      {forwards.length > 0 && (
        <Listing
          title="Forwarded to"
          note="since the collector started"
          name="forwards"
          columns={['Server', 'Protocol', 'State']}
          numbers={['Sent', 'Waiting', 'Lost']}
        >
          {forwards.map((forward) => (
            <tr key={`${forward.protocol} ${forward.url}`}>
              <td>
                <bdi>{safeText(forward.url, 80)}</bdi>
              </td>
              <td>{PROTOCOLS[forward.protocol] ?? safeText(forward.protocol, 30)}</td>
              <td>
                <State failure={forward.failure} at={forward.sent_at} nowNs={nowNs} />
              </td>
              <td class="number">{amountText(forward, forward.sent)}</td>
              <td class="number">{amountText(forward, forward.waiting)}</td>
              <td class={lostAmount(forward) > 0 ? 'number bad' : 'number'}>
                {amountText(forward, lostAmount(forward))}
              </td>
            </tr>
          ))}
        </Listing>
      )}
      {scrapes.length > 0 && (
        <Listing
          title="Asked for profiles"
          note="since the collector started"
          name="scrapes"
          columns={['Service', 'Address', 'State']}
          numbers={['Length', 'Stored', 'Failed']}
        >
          {scrapes.map(({ name, url, every_ns, stored, stored_at, failed, failure }) => (
            <tr key={name}>
              <td>
                <bdi>{safeText(name, 40)}</bdi>
              </td>
              <td>
                <bdi>{safeText(url, 80)}</bdi>
              </td>
              <td>
                <State failure={failure} at={stored_at} nowNs={nowNs} />
              </td>
              <td class="number">{duration(every_ns)}</td>
              <td class="number">{count(stored)}</td>
              <td class="number">{count(failed)}</td>
            </tr>
          ))}
        </Listing>
      )}
      {stores.length > 0 && (
        <Listing
          title="Answers for"
          note="the stores of these collectors"
          name="stores"
          columns={['Collector', 'Read']}
          numbers={[]}
        >
          {stores.map(({ name, read_at, incomplete }) => (
            <tr key={name}>
              <td>
                <bdi>{safeText(name, 64)}</bdi>
              </td>
              <td>
                <State failure={incomplete} at={read_at} nowNs={nowNs} />
              </td>
            </tr>
          ))}
        </Listing>
      )}
    </>
  );
}

interface ListingProperties {
  title: string;
  note: string;
  /** The table's class. */
  name: string;
  columns: string[];
  /** Columns of numbers, which come last. */
  numbers: string[];
  children: ComponentChildren;
}

function Listing({ title, note, name, columns, numbers, children }: ListingProperties) {
  return (
    <>
      <h3>
        {title} <small>{note}</small>
      </h3>
      <div class="scroll">
        <table class={name}>
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column}>{column}</th>
              ))}
              {numbers.map((column) => (
                <th key={column} class="number">
                  {column}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>{children}</tbody>
        </table>
      </div>
    </>
  );
}

/** Why the last attempt failed, or when the last one worked. */
function State({ failure, at, nowNs }: { failure: string | null; at: string | null; nowNs: number }) {
  if (failure !== null) return <span class="bad">⚠ {safeText(failure)}</span>;
  if (at === null) return <span class="soft">nothing yet</span>;
  return <>{duration(Math.max(0, nowNs - Date.parse(at) * 1e6))} ago</>;
}
