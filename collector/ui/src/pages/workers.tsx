// Workers: state, sampling quality, losses.

import { InvalidRequest, Loading, NoData } from '../components/Messages';
import { apiUrl, href, itemHref, sharedParams, useAddress } from '../core/address';
import type { WorkersAnswer } from '../core/api';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { useQuery } from '../core/query';
import { count, duration, percent } from '../core/time';
import { epochWarnings, lostNs } from './warnings';

const ROWS_MAX = 100;

export function WorkersPage() {
  const { params } = useAddress();
  const only = params.getAll('worker').map((worker): [string, string] => ['worker', worker]);
  const answer = useQuery<WorkersAnswer>(
    `workers ${only}`,
    (signal) => fetchJson(apiUrl('workers', new URLSearchParams(only)), signal),
    true,
  );
  if (answer.problem?.kind === 'request') return <InvalidRequest problem={answer.problem} />;
  if (!answer.value) return <Loading problem={answer.problem} />;
  if (answer.value.workers.length === 0) return <NoData />;
  const now = answer.value.now_ns;
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
  return (
    <section>
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
                  <a href={itemHref('workers', worker, sharedParams({ worker: null }))} title="Show this worker">
                    <bdi>{safeText(worker, 40)}</bdi>
                    {!isNewest && ' (earlier session)'}
                  </a>
                  <a class="action" href={href('profile', sharedParams({ worker }))} title="Show the profile">
                    profile ›
                  </a>
                </td>
                <td>{epoch.state === 'connected' ? '● connected' : `○ ${epoch.state}`}</td>
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
                  {epoch.last_refusal && <small>{safeText(epoch.last_refusal)}</small>}
                </td>
                <td>
                  <bdi>{safeText(epoch.host, 30)}</bdi> <small>{epoch.pid}</small>
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
    </section>
  );
}
