// The collector's clock. Every answer says by it when it was sent.

/** The header of an answer with its time in Unix nanoseconds. */
export const NOW_HEADER = 'x-emberline-now-ns';

/** How far it is ahead of the browser's. */
let aheadMs = 0;

/**
 * Learns the clock from something that was sent at `sentNs`, after `requestedMs` and before now by the browser's
 * clock. Changes it by no more than this proves, so that a slow answer moves no time.
 */
export function syncClock(sentNs: number, requestedMs: number): void {
  const sentMs = sentNs / 1e6;
  aheadMs = Math.min(Math.max(aheadMs, sentMs - Date.now()), sentMs - requestedMs);
}

/** The current time of the collector's clock. */
export function nowMs(): number {
  return Date.now() + aheadMs;
}
