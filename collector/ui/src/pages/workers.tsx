// Workers: state, sampling quality, losses.

import { Alerts } from '../components/Alerts';
import { InvalidRequest, Loading, NoData } from '../components/Messages';
import { Servers } from '../components/Servers';
import { Services } from '../components/Services';
import { apiUrl, href, itemHref, sharedParams, useAddress } from '../core/address';
import type { QuotaUse, WorkersAnswer } from '../core/api';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { useQuery } from '../core/query';
import { seriesNames } from '../core/series';
import { count, duration, percent, quantity } from '../core/time';
import { ATTENTION_FIRST, epochWarnings, lostNs, stateClass, stateOf } from './warnings';

const ROWS_MAX = 100;

export function WorkersPage() {
  const { params } = useAddress();
  const only = params.getAll('worker').map((worker): [string, string] => ['worker', worker]);
  const answer = useQuery<WorkersAnswer>(
    `workers ${only}`,
    (signal) => fetchJson(apiUrl('workers', new URLSearchParams([...only, ...ATTENTION_FIRST])), signal),
    true,
  );
  if (answer.problem?.kind === 'request') return <InvalidRequest problem={answer.problem} />;
  if (!answer.value) return <Loading problem={answer.problem} />;
  const { quotas, omitted, services, forwards, scrapes, stores } = answer.value;
  const now = answer.value.now_ns;
  if (answer.value.workers.length === 0)
    return (
      <>
        <NoData />
        <Quotas quotas={quotas} nowNs={now} />
        <Servers forwards={forwards} scrapes={scrapes} stores={stores} nowNs={now} />
      </>
    );
  const rows = answer.value.workers
    .flatMap(({ worker, epochs }) =>
      epochs.map((epoch, i) => ({
        worker,
        epoch,
        isNewest: i === epochs.length - 1,
        warnings: epochWarnings(epoch, now),
      })),
    )
    .filter(({ isNewest, epoch }) => isNewest || lostNs(epoch) > 0)
    .sort((a, b) => b.warnings.length - a.warnings.length);
  const names = seriesNames(answer.value.workers);
  return (
    <>
      <Alerts fleet={answer.value} workers={params.getAll('worker')} />
      <section>
        {only.length === 0 && <Services services={services} nowNs={now} />}
        <h2>
          Workers <small>workers with warnings first</small>
        </h2>
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Worker</th>
                <th>State</th>
                <th>Warnings</th>
                <th>Host</th>
                <th class="number">Sampled thread time</th>
                <th class="number">Sample rate</th>
                <th class="number">Clock</th>
                <th class="number">Running tasks</th>
                <th>Labels</th>
              </tr>
            </thead>
            <tbody>
              {rows.slice(0, ROWS_MAX).map(({ worker, epoch, isNewest, warnings }) => (
                <tr key={epoch.epoch}>
                  <td>
                    <a href={itemHref('workers', worker, sharedParams({ worker: null }))} title={safeText(worker)}>
                      <bdi>{safeText(names.get(worker) ?? worker, 40)}</bdi>
                      {!isNewest && ' (earlier session)'}
                    </a>
                    <a class="action" href={href('profile', sharedParams({ worker }))} title="Show the profile">
                      profile ›
                    </a>
                  </td>
                  <td class={stateClass(epoch)}>{stateOf(epoch)}</td>
                  <td>
                    {warnings.length === 0 ? (
                      <span class="soft">none</span>
                    ) : (
                      warnings.map((text) => (
                        <div key={text} class="bad">
                          ⚠ {safeText(text)}
                        </div>
                      ))
                    )}
                    {epoch.last_rejection && <small>{safeText(epoch.last_rejection)}</small>}
                  </td>
                  <td>
                    <bdi>{epoch.host === '' ? '–' : safeText(epoch.host, 30)}</bdi>{' '}
                    {epoch.pid > 0 && <small>{epoch.pid}</small>}
                  </td>
                  <td class="number">{duration(epoch.account.accepted_ns)}</td>
                  <td class="number">{percent(epoch.ticks, epoch.ticks_expected - epoch.ticks_throttled)}</td>
                  <td class="number">
                    {epoch.clock ? (
                      <>
                        {duration(epoch.clock.offset_ns)} <small>±{duration(epoch.clock.error_ns)}</small>
                      </>
                    ) : (
                      '–'
                    )}
                  </td>
                  <td class="number">{count(epoch.running_tasks)}</td>
                  <td class="soft">
                    <bdi>
                      {safeText(
                        Object.entries(epoch.labels)
                          .map(([name, value]) => `${name}=${value}`)
                          .join(' '),
                        80,
                      )}
                    </bdi>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        {rows.length > ROWS_MAX && (
          <p class="soft">{count(rows.length - ROWS_MAX)} more workers; filter them on the profile page.</p>
        )}
        {omitted > 0 && <p class="soft">{quantity(omitted, 'more worker')} not listed.</p>}
        <Quotas quotas={quotas} nowNs={now} />
        <Servers forwards={forwards} scrapes={scrapes} stores={stores} nowNs={now} />
      </section>
    </>
  );
}

const QUOTA_LABELS: Record<string, string> = {
  sessions: 'connected agents',
  bytes_per_second: 'bytes a second',
  decoded_bytes: 'messages in memory',
  nodes: 'distinct stacks',
  symbol_bytes: 'names and frames',
  running_bytes: 'running tasks',
  queries: 'queries at once',
  begun_bytes: 'unfinished messages',
  answer_bytes: 'unread answers',
  control_requests: 'requests to agents',
  event_streams: 'open pages',
  unsealed_bytes: 'data not stored yet',
};

/** Tokens, addresses and users that met a quota. */
function Quotas({ quotas, nowNs }: { quotas: QuotaUse[]; nowNs: number }) {
  if (quotas.length === 0) return null;
  return (
    <>
      <h3>
        Quotas reached <small>since the collector started</small>
      </h3>
      <div class="scroll">
        <table class="quotas">
          <thead>
            <tr>
              <th>Identity</th>
              <th>Quota</th>
              <th class="number">Value</th>
              <th class="number">Refused</th>
              <th class="number">Delayed</th>
              <th class="number">Last</th>
            </tr>
          </thead>
          <tbody>
            {quotas.map(({ identity, quota, value, refused, delayed, last }) => (
              <tr key={`${identity} ${quota}`}>
                <td>
                  <bdi>{safeText(identity, 60)}</bdi>
                </td>
                <td>{QUOTA_LABELS[quota] ?? safeText(quota, 30)}</td>
                <td class="number">{value === null ? 'fair share' : count(value)}</td>
                <td class={refused > 0 ? 'number bad' : 'number'}>{count(refused)}</td>
                <td class="number">{count(delayed)}</td>
                <td class="number">{duration(Math.max(0, nowNs - Date.parse(last) * 1e6))} ago</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="soft">
        Refused agents keep their samples and retry. An operator raises a quota with{' '}
        <code>emberline token new --quota</code> or <code>emberline serve --quota</code>.
      </p>
    </>
  );
}
