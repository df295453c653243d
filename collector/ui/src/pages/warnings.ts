// Warnings about workers.

import type { Disconnect, Epoch, WorkersAnswer } from '../core/api';
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
  return account.lost_rejected_ns + account.lost_by_collector_ns + account.lost_queue_ns;
}

/** Whether a foreign profiler pushes it, each minute or more often. */
export function isPushed(epoch: Epoch): boolean {
  return epoch.sampler_mode?.startsWith('pushed ') ?? false;
}

export function epochWarnings(epoch: Epoch, nowNs: number): string[] {
  const found: string[] = [];
  const silentNs = nowNs - Date.parse(epoch.last_seen) * 1e6;
  if (epoch.state === 'away') found.push(`away for ${duration(silentNs)}: ${epoch.disconnect?.cause ?? ''}`);
  else if (epoch.state === 'connected' && silentNs > LATE_NS && !isPushed(epoch))
    found.push(`late: no data for ${duration(silentNs)}`);
  const lost = lostNs(epoch);
  if (lost > 0) found.push(`lost ${duration(lost)} of samples (${percent(lost, epoch.account.accepted_ns)})`);
  if (epoch.account.lost_tasks > 0) found.push(`lost ${quantity(epoch.account.lost_tasks, 'task')}`);
  if (epoch.rejected > 0) found.push(`${quantity(epoch.rejected, 'message')} rejected`);
  if (epoch.state === 'gone') return found;
  if (epoch.clock && epoch.clock.error_ns > CLOCK_ERROR_NS)
    found.push(`clock error ±${duration(epoch.clock.error_ns)}`);
  if (!epoch.enabled) found.push('sampling is off');
  else if ((epoch.sampler_mode ?? 'full') !== 'full' && !isPushed(epoch)) found.push(`sampler: ${epoch.sampler_mode}`);
  if (epoch.signal_blocked_since !== null)
    found.push(
      `${quantity(epoch.signal_blocked_threads, 'thread')} without stacks for ${duration(nowNs - Date.parse(epoch.signal_blocked_since) * 1e6)}: signal blocked`,
    );
  if (epoch.ticks_expected > 500 && epoch.ticks + epoch.ticks_throttled < RATE_MIN * epoch.ticks_expected)
    found.push(`only ${percent(epoch.ticks, epoch.ticks_expected)} of expected samples taken`);
  return found;
}

/** How a life ended, in a word or two. */
export const endName = ({ reason }: Disconnect): string =>
  ({ crashed: 'crashed', silent: 'went silent', rejected: 'was rejected', unknown: 'did not return', clean: 'exited' })[
    reason
  ] ?? 'is gone';

/** Whether a worker is connected, and how its life ended if not. */
export function stateOf({ state, disconnect }: Epoch): string {
  if (state === 'connected') return '● connected';
  return state === 'gone' && disconnect ? `○ ${endName(disconnect)}` : `○ ${state}`;
}

/**
 * The lives that ended badly, newest first, without the dismissed ones. A life of which nothing is known
 * matters only if its worker has no newer one.
 */
export function badEnds({ workers }: WorkersAnswer, dismissed: string[]) {
  return workers
    .flatMap(({ worker, epochs }) =>
      epochs.flatMap((epoch) => {
        const { disconnect } = epoch;
        const isBad =
          epoch.state === 'gone' &&
          disconnect &&
          disconnect.reason !== 'clean' &&
          (disconnect.reason !== 'unknown' || epoch === epochs[epochs.length - 1]) &&
          !dismissed.includes(epoch.epoch);
        return isBad ? [{ worker, epoch, disconnect }] : [];
      }),
    )
    .sort((a, b) => b.disconnect.at_ns - a.disconnect.at_ns);
}

export function warningsOf(fleet: WorkersAnswer, dismissed: string[]): Warning[] {
  const { workers, now_ns, ingest } = fleet;
  const isNobody = workers.every(({ epochs }) => epochs.every((epoch) => epoch.state !== 'connected'));
  const all = [!ingest.open && `ingestion stopped: ${ingest.reason}`, isNobody && 'no worker is connected'];
  return all
    .flatMap((text): Warning[] => (text ? [{ worker: '', text }] : []))
    .concat(
      badEnds(fleet, dismissed).map(({ worker, disconnect }) => ({ worker, text: `${worker} ${endName(disconnect)}` })),
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
