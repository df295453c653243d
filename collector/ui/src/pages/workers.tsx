// Who is there, how well each is seen, and whether anything of theirs was lost.

import { along, apiUrl, href, itemHref, useAddress } from '../core/address';
import type { WorkersAnswer } from '../core/api';
import { fetchJson } from '../core/fetch';
import { useAnswer } from '../core/live';
import { shown } from '../core/names';
import { count, duration, percent } from '../core/time';
import { Loading, NoData, Refused } from '../parts/Notes';
import { concernsOfEpoch, lostNs } from './concerns';

const ROWS_MAX = 100;

export function WorkersPage() {
  const { params } = useAddress();
  const only = params.getAll('worker').map((worker): [string, string] => ['worker', worker]);
  const answer = useAnswer<WorkersAnswer>(
    `workers ${only}`,
    (signal) => fetchJson(apiUrl('workers', new URLSearchParams(only)), signal),
    true,
  );
  if (answer.problem?.kind === 'request') return <Refused problem={answer.problem} />;
  if (!answer.value) return <Loading problem={answer.problem} />;
  if (answer.value.workers.length === 0) return <NoData />;
  const now = answer.value.now_ns;
  const rows = answer.value.workers
    .flatMap(({ worker, epochs }) =>
      epochs.map((epoch, i) => ({
        worker,
        epoch,
        isNewest: i === epochs.length - 1,
        concerns: concernsOfEpoch(epoch, now),
      })),
    )
    .filter(({ isNewest, epoch }) => isNewest || lostNs(epoch) > 0)
    .sort((a, b) => b.concerns.length - a.concerns.length);
  return (
    <section>
      <h2>
        Workers <small>those with concerns first</small>
      </h2>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Worker</th>
              <th>State</th>
              <th>Concerns</th>
              <th>Host</th>
              <th class="number">Sampled</th>
              <th class="number">Samplings made</th>
              <th class="number">Clock</th>
              <th class="number">Tasks running</th>
              <th>Labels</th>
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS_MAX).map(({ worker, epoch, isNewest, concerns }) => (
              <tr key={epoch.epoch}>
                <td>
                  <a href={itemHref('workers', worker, along({ worker: null }))} title="What does it do?">
                    <bdi>{shown(worker, 40)}</bdi>
                    {!isNewest && ' (before)'}
                  </a>
                  <a class="go" href={href('profile', along({ worker }))} title="Where does its time go?">
                    profile ›
                  </a>
                </td>
                <td>{epoch.state === 'connected' ? '● connected' : `○ ${epoch.state}`}</td>
                <td>
                  {concerns.length === 0 ? (
                    <span class="soft">none</span>
                  ) : (
                    concerns.map((text) => (
                      <div key={text} class="bad">
                        ⚠ {shown(text)}
                      </div>
                    ))
                  )}
                  {epoch.last_refusal && <small>{shown(epoch.last_refusal)}</small>}
                </td>
                <td>
                  <bdi>{shown(epoch.host, 30)}</bdi> <small>{epoch.pid}</small>
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
                    {shown(
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
        <p class="soft">{count(rows.length - ROWS_MAX)} more; choose workers on the profile page.</p>
      )}
    </section>
  );
}
