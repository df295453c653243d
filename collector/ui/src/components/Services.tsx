// Services whose profiles are pushed or scraped.

import { href, sharedParams } from '../core/address';
import type { Service } from '../core/api';
import { safeText } from '../core/names';
import { SERVICE_LABEL } from '../core/series';
import { count, duration } from '../core/time';

const ROWS_MAX = 100;

export function Services({ services, nowNs }: { services: Service[]; nowNs: number }) {
  if (services.length === 0) return null;
  return (
    <>
      <h2>
        Services <small>of other profilers, by series</small>
      </h2>
      <div class="scroll">
        <table class="services">
          <thead>
            <tr>
              <th>Service</th>
              <th class="number">Series</th>
              <th class="number">Pushed lately</th>
              <th class="number">Newest push</th>
            </tr>
          </thead>
          <tbody>
            {services.slice(0, ROWS_MAX).map(({ name, series, connected, last_seen }) => (
              <tr key={name}>
                <td class="wide">
                  {name === '' ? (
                    <span class="soft">without a name</span>
                  ) : (
                    <a
                      href={href('profile', sharedParams({ label: `${SERVICE_LABEL}=${name}`, worker: null }))}
                      title="Show the profile"
                    >
                      <bdi>{safeText(name, 60)}</bdi>
                      <span class="action">profile ›</span>
                    </a>
                  )}
                </td>
                <td class="number">{count(series)}</td>
                <td class="number">{count(connected)}</td>
                <td class="number">{duration(Math.max(0, nowNs - Date.parse(last_seen) * 1e6))} ago</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {services.length > ROWS_MAX && <p class="soft">{count(services.length - ROWS_MAX)} more</p>}
    </>
  );
}
