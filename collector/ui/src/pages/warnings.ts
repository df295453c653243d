// Warnings about workers.

import type { Disconnect, Epoch, TasksAnswer, WorkersAnswer } from '../core/api';
import { causeOf } from '../core/outcomes';
import { shellQuoted } from '../core/shell';
import { duration, percent, quantity } from '../core/time';

export interface Warning {
  worker: string;
  text: string;
}

/** Parameters of a request for workers: of a large fleet, those that need attention. */
export const ATTENTION_FIRST: [string, string][] = [
  ['sort', 'attention'],
  ['limit', '200'],
];

// The collector lists workers first from the same values on (`collector/query/src/workers.rs`).

/** Workers flush each second; one that is silent for longer is late. */
export const LATE_NS = 5e9;
/** Larger clock errors may put a task in the wrong second. */
const CLOCK_ERROR_NS = 250e6;
/** Smaller shares of the expected samples cause a warning. */
const RATE_MIN = 0.5;
/** Larger shares of samples that the agent's CPU limit skips cause a warning. At 10 ms it skips at most half. */
const THROTTLED_MAX = 0.25;
/** Before as many ticks are due, shares of them say nothing. */
const TICKS_MIN = 500;
/** The same for skipped samples: an agent that reads its symbols skips some in its first seconds. */
const THROTTLED_TICKS_MIN = 3000;

export function lostNs({ account }: Epoch): number {
  return account.lost_rejected_ns + account.lost_by_collector_ns + account.lost_queue_ns;
}

/** Whether a foreign profiler pushes it, each minute or more often. */
export function isPushed(epoch: Epoch): boolean {
  return epoch.sampler_mode?.startsWith('pushed ') ?? false;
}

function isThrottled({ ticks_expected, ticks_throttled }: Epoch): boolean {
  return ticks_expected > THROTTLED_TICKS_MIN && ticks_throttled > THROTTLED_MAX * ticks_expected;
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
  if (epoch.data_ahead_ns > 0)
    found.push(`its clock is ${duration(epoch.data_ahead_ns)} ahead of the collector's: set it (NTP)`);
  if (!epoch.enabled) found.push('sampling is off');
  else if ((epoch.sampler_mode ?? 'full') !== 'full' && !isPushed(epoch)) found.push(`sampler: ${epoch.sampler_mode}`);
  if (epoch.signal_blocked_since !== null)
    found.push(
      `${quantity(epoch.signal_blocked_threads, 'thread')} without stacks for ${duration(nowNs - Date.parse(epoch.signal_blocked_since) * 1e6)}: signal blocked`,
    );
  if (epoch.ticks_expected > TICKS_MIN && epoch.ticks + epoch.ticks_throttled < RATE_MIN * epoch.ticks_expected)
    found.push(`only ${percent(epoch.ticks, epoch.ticks_expected)} of expected samples taken`);
  if (isThrottled(epoch))
    found.push(`${percent(epoch.ticks_throttled, epoch.ticks_expected)} of samples skipped by its CPU limit`);
  return found;
}

/** How a life ended, in a word or two. */
export const endName = ({ reason }: Disconnect): string =>
  ({ crashed: 'crashed', silent: 'went silent', rejected: 'was rejected', unknown: 'did not return', clean: 'exited' })[
    reason
  ] ?? 'is gone';

/** Whether a worker is connected, and how its life ended if not. */
export function stateOf(epoch: Epoch): string {
  const { state, disconnect } = epoch;
  if (state === 'connected') return '● connected';
  if (isPushed(epoch) && disconnect?.reason === 'clean') return '○ no longer pushed';
  return state === 'gone' && disconnect ? `○ ${endName(disconnect)}` : `○ ${state}`;
}

/** The class of that text: an end that nobody asked for is loud. */
export const stateClass = ({ state, disconnect }: Epoch): string =>
  state === 'connected' ? '' : state === 'gone' && disconnect?.reason === 'clean' ? 'soft' : 'bad';

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

/** Bad news that stays on the page until it is dismissed. */
export interface Alert {
  /** Key of the dismissal, without blanks. An alert that got worse has another one. */
  id: string;
  /** The worker that it is about; none if it is about tasks. */
  worker?: string;
  /** The event, as text after the worker's name. */
  what: string;
  /** Since when, or at what time. */
  atMs: number;
  isSince?: boolean;
  cause: string;
  next: string;
  /** The time of the last sample of a life that ended. */
  lastSeenMs?: number;
}

/** Grows with the size of a loss: a dismissed alert returns when the loss has doubled. */
const magnitude = (value: number) => Math.floor(Math.log2(Math.max(1, value)));

const rejectedNext = (epoch: Epoch) =>
  isPushed(epoch)
    ? 'fix the cause: clients of other profilers may not send again what was refused'
    : 'compare the versions of agent and collector, and look into the log of the collector';

/** Alerts of one life of a worker. */
function epochAlerts(worker: string, epoch: Epoch, isNewest: boolean, nowNs: number): Alert[] {
  const { account } = epoch;
  const seenMs = Date.parse(epoch.last_seen);
  const startedMs = Date.parse(epoch.first_seen);
  const process = isPushed(epoch) ? 'pushed by another profiler' : `process ${epoch.pid} on ${epoch.host}`;
  const alerts: Alert[] = [];
  const silentNs = nowNs - seenMs * 1e6;
  if (isNewest && epoch.state === 'connected' && silentNs > LATE_NS && !isPushed(epoch))
    alerts.push({
      id: `late_${epoch.epoch}_${seenMs}`,
      worker,
      what: 'sends no data',
      atMs: seenMs,
      isSince: true,
      cause: `${process} is connected, but its agent has been silent for ${duration(silentNs)}`,
      next: 'check whether the process is stopped or its machine is overloaded or unreachable',
    });
  const lost = lostNs(epoch);
  if (lost > 0 || account.lost_tasks > 0) {
    const parts = [
      lost > 0 && `${duration(lost)} of samples`,
      account.lost_tasks > 0 && quantity(account.lost_tasks, 'task record'),
    ].filter((part) => part !== false);
    const isRejected = account.lost_rejected_ns > 0;
    const isUnseen = account.lost_unseen_ns > 0;
    const isQueue = account.lost_queue_ns > account.lost_unseen_ns || lost === 0;
    const causes = [
      isRejected && `the collector rejected messages (${epoch.last_rejection ?? 'the reason is not known'})`,
      account.lost_by_collector_ns > 0 && 'a collector that had acknowledged them lost its data',
      isQueue && "the agent's queue was full",
      isUnseen && 'the sampler came too late',
    ].filter((part) => part !== false);
    alerts.push({
      id: `lost_${epoch.epoch}_${magnitude(lost)}_${magnitude(account.lost_tasks)}`,
      worker,
      what: `lost ${parts.join(' and ')}`,
      atMs: startedMs,
      isSince: true,
      cause: `${causes.join('; ')} (${process})`,
      next: isRejected
        ? rejectedNext(epoch)
        : isUnseen && !isQueue
          ? 'begin tasks in short threads, or give the worker more processor time'
          : isQueue
            ? 'check that the collector runs, is reachable and has room on its disk'
            : 'run the collector with --data, so that it keeps what it acknowledged',
    });
  }
  if (epoch.rejected > 0 && account.lost_rejected_ns === 0)
    alerts.push({
      id: `rejected_${epoch.epoch}_${magnitude(epoch.rejected)}`,
      worker,
      what: `sent ${quantity(epoch.rejected, 'message')} that the collector rejected, whole or in part`,
      atMs: startedMs,
      isSince: true,
      cause: `${epoch.last_rejection ?? 'the reason is not known'} (${process})`,
      next: rejectedNext(epoch),
    });
  if (!isNewest || epoch.state === 'gone' || isPushed(epoch)) return alerts;
  const mode = epoch.sampler_mode ?? 'full';
  if (epoch.enabled && mode !== 'full')
    alerts.push({
      id: `mode_${epoch.epoch}_${mode.replace(/\W+/g, '_')}`,
      worker,
      what: 'is sampled in part',
      atMs: startedMs,
      isSince: true,
      cause: mode,
      next: `run \`emberline doctor\` as the user of ${process}`,
    });
  if (epoch.signal_blocked_since !== null)
    alerts.push({
      id: `signal_${epoch.epoch}`,
      worker,
      what: `has ${quantity(epoch.signal_blocked_threads, 'thread')} without stacks`,
      atMs: Date.parse(epoch.signal_blocked_since),
      isSince: true,
      cause: `they block the signal of the sampler (${process})`,
      next: 'unblock SIGURG in these threads',
    });
  if (isThrottled(epoch))
    alerts.push({
      id: `throttled_${epoch.epoch}_${magnitude((100 * epoch.ticks_throttled) / epoch.ticks_expected)}`,
      worker,
      what: `is sampled less often: ${percent(epoch.ticks_throttled, epoch.ticks_expected)} of samples skipped`,
      atMs: startedMs,
      isSince: true,
      cause: `the sampler of ${process} reached its CPU limit; times stay true, stacks are coarser`,
      next: `\`emberline workers set ${shellQuoted(worker)} --interval 20ms\`, or a larger cpu_limit at its start`,
    });
  return alerts;
}

/** The tasks that failed, as one alert. It returns when twice as many have failed, or in another hour. */
function failedAlert({ total, tasks }: TasksAnswer): Alert[] {
  const [newest] = tasks;
  if (!newest) return [];
  const atMs = (newest.stop_ns ?? newest.start_ns) / 1e6;
  const key = newest.key === '' ? '' : ` (${newest.key})`;
  return [
    {
      id: `failed_${magnitude(total)}_${Math.floor(atMs / 3_600_000)}`,
      what: `${quantity(total, 'task')} failed in the last 24 h`,
      atMs,
      cause: `the newest is ${newest.name}${key} on ${newest.worker}: ${causeOf(newest) || 'without a cause'}`,
      next: 'read their causes',
    },
  ];
}

/** Alerts of all kinds: ends of workers, silence, losses, poor sampling, failed tasks; newest first. */
export function alertsOf(fleet: WorkersAnswer, failed: TasksAnswer | undefined, dismissed: string[]): Alert[] {
  const ends = badEnds(fleet, dismissed).map(
    ({ worker, epoch, disconnect }): Alert => ({
      id: epoch.epoch,
      worker,
      what: endName(disconnect),
      atMs: disconnect.at_ns / 1e6,
      cause: `process ${epoch.pid} on ${epoch.host}: ${disconnect.cause}`,
      next: disconnect.next_step ?? '',
      lastSeenMs: Date.parse(epoch.last_seen),
    }),
  );
  const states = fleet.workers.flatMap(({ worker, epochs }) =>
    epochs.flatMap((epoch, i) => epochAlerts(worker, epoch, i === epochs.length - 1, fleet.now_ns)),
  );
  return [...ends, ...states, ...(failed ? failedAlert(failed) : [])]
    .filter(({ id }) => !dismissed.includes(id))
    .sort((a, b) => b.atMs - a.atMs);
}

export function warningsOf(fleet: WorkersAnswer, dismissed: string[]): Warning[] {
  const { workers, now_ns, ingest, counts } = fleet;
  // Nobody expects a service to push on.
  const isNobody = counts.connected === 0 && !workers.some(({ epochs }) => epochs.some(isPushed));
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
