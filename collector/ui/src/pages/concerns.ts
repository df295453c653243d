// What a person should know about the workers, the worst first.

import type { Epoch, WorkersAnswer } from '../core/api';
import { count, duration, percent } from '../core/time';

export interface Concern {
  worker: string;
  text: string;
}

/** A worker flushes each second; one that was not heard of for longer is late. */
export const LATE_NS = 5e9;
/** Times that are off by more may put a task into the wrong second. */
const CLOCK_ERROR_NS = 250e6;
/** Less than this share of samplings made is worth a word. */
const RATE_MIN = 0.5;

export function lostNs({ account }: Epoch): number {
  return account.lost_refused_ns + account.lost_by_collector_ns + account.lost_queue_ns;
}

export function concernsOfEpoch(epoch: Epoch, nowNs: number): string[] {
  const found: string[] = [];
  const silentNs = nowNs - Date.parse(epoch.last_seen) * 1e6;
  if (epoch.state === 'away') found.push(`away for ${duration(silentNs)}`);
  else if (epoch.state === 'connected' && silentNs > LATE_NS) found.push(`late: silent for ${duration(silentNs)}`);
  const lost = lostNs(epoch);
  if (lost > 0) found.push(`lost ${duration(lost)} of samples (${percent(lost, epoch.account.accepted_ns)})`);
  if (epoch.account.lost_tasks > 0) found.push(`lost ${count(epoch.account.lost_tasks)} tasks`);
  if (epoch.refused > 0) found.push(`${count(epoch.refused)} messages refused`);
  if (epoch.state === 'gone') return found;
  if (epoch.clock && epoch.clock.error_ns > CLOCK_ERROR_NS)
    found.push(`its clock is known to ±${duration(epoch.clock.error_ns)} only`);
  if (!epoch.enabled) found.push('sampling is off');
  else if ((epoch.sampler_mode ?? 'full') !== 'full') found.push(`sampler: ${epoch.sampler_mode}`);
  if (epoch.ticks_expected > 500 && epoch.ticks + epoch.ticks_throttled < RATE_MIN * epoch.ticks_expected)
    found.push(`only ${percent(epoch.ticks, epoch.ticks_expected)} of samplings made`);
  return found;
}

export function concernsOf({ workers, now_ns, ingest }: WorkersAnswer): Concern[] {
  const isNobody = workers.every(({ epochs }) => epochs.every((epoch) => epoch.state !== 'connected'));
  const all = [!ingest.open && `nothing is taken in: ${ingest.reason}`, isNobody && 'no worker is connected'];
  return all
    .flatMap((text): Concern[] => (text ? [{ worker: '', text }] : []))
    .concat(
      workers.flatMap(({ worker, epochs }) => {
        // Of earlier lives only what was lost matters.
        const newest = epochs[epochs.length - 1];
        return epochs.flatMap((epoch) =>
          concernsOfEpoch(epoch, now_ns)
            .filter((text) => epoch === newest || text.startsWith('lost'))
            .map((text) => ({ worker, text: `${worker}: ${text}` })),
        );
      }),
    );
}
