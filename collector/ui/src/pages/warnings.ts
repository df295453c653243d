// Warnings about workers.

import type { Epoch, WorkersAnswer } from '../core/api';
import { duration, percent, quantity } from '../core/time';

export interface Warning {
  worker: string;
  text: string;
}

/** Workers flush each second; one that is silent for longer is late. */
export const LATE_NS = 5e9;
/** Larger clock errors may put a task in the wrong second. */
const CLOCK_ERROR_NS = 250e6;
/** Smaller shares of the expected samples cause a warning. */
const RATE_MIN = 0.5;

export function lostNs({ account }: Epoch): number {
  return account.lost_refused_ns + account.lost_by_collector_ns + account.lost_queue_ns;
}

export function epochWarnings(epoch: Epoch, nowNs: number): string[] {
  const found: string[] = [];
  const silentNs = nowNs - Date.parse(epoch.last_seen) * 1e6;
  if (epoch.state === 'away') found.push(`away for ${duration(silentNs)}`);
  else if (epoch.state === 'connected' && silentNs > LATE_NS) found.push(`late: no data for ${duration(silentNs)}`);
  const lost = lostNs(epoch);
  if (lost > 0) found.push(`lost ${duration(lost)} of samples (${percent(lost, epoch.account.accepted_ns)})`);
  if (epoch.account.lost_tasks > 0) found.push(`lost ${quantity(epoch.account.lost_tasks, 'task')}`);
  if (epoch.refused > 0) found.push(`${quantity(epoch.refused, 'message')} rejected`);
  if (epoch.state === 'gone') return found;
  if (epoch.clock && epoch.clock.error_ns > CLOCK_ERROR_NS)
    found.push(`clock error ±${duration(epoch.clock.error_ns)}`);
  if (!epoch.enabled) found.push('sampling is off');
  else if ((epoch.sampler_mode ?? 'full') !== 'full') found.push(`sampler: ${epoch.sampler_mode}`);
  if (epoch.ticks_expected > 500 && epoch.ticks + epoch.ticks_throttled < RATE_MIN * epoch.ticks_expected)
    found.push(`only ${percent(epoch.ticks, epoch.ticks_expected)} of expected samples taken`);
  return found;
}

export function warningsOf({ workers, now_ns, ingest }: WorkersAnswer): Warning[] {
  const isNobody = workers.every(({ epochs }) => epochs.every((epoch) => epoch.state !== 'connected'));
  const all = [!ingest.open && `ingestion stopped: ${ingest.reason}`, isNobody && 'no worker is connected'];
  return all
    .flatMap((text): Warning[] => (text ? [{ worker: '', text }] : []))
    .concat(
      workers.flatMap(({ worker, epochs }) => {
        // Of earlier sessions, only losses matter.
        const newest = epochs[epochs.length - 1];
        return epochs.flatMap((epoch) =>
          epochWarnings(epoch, now_ns)
            .filter((text) => epoch === newest || text.startsWith('lost'))
            .map((text) => ({ worker, text: `${worker}: ${text}` })),
        );
      }),
    );
}
