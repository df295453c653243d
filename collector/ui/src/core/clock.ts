// The collector's clock.

/** How far it is ahead of the browser's. */
let aheadMs = 0;

export function syncClock(collectorNs: number): void {
  aheadMs = collectorNs / 1e6 - Date.now();
}

/** The current time of the collector's clock. */
export function nowMs(): number {
  return Date.now() + aheadMs;
}
