// Addresses whose times do not move with the clock.

import { showsOneRun } from './runs';
import { isLive, isoTime, parseTimeMs, RANGE_DEFAULT } from './time';

/** Prefixes of the ranges in an address: that of the page, and the earlier one of a comparison. */
const PREFIXES = ['', 'b.'];

/** The address with all its ranges as they are at `atMs`. Times that cannot be read stay. */
export function pinnedAddress(url: URL, atMs: number): string {
  const pinned = new URL(url);
  const { searchParams } = pinned;
  // An open run ends when the link is opened, unlike what is displayed now.
  const isOpen = isLive({ ...RANGE_DEFAULT, to: searchParams.get('to') ?? RANGE_DEFAULT.to });
  if (isOpen && showsOneRun(url.pathname.split('/').pop() ?? '')) searchParams.delete('run');
  for (const prefix of PREFIXES) {
    // Without a range of its own, the earlier range follows from the later one.
    if (prefix !== '' && !searchParams.has(`${prefix}from`) && !searchParams.has(`${prefix}to`)) continue;
    for (const end of ['from', 'to'] as const) {
      const text = searchParams.get(prefix + end) ?? RANGE_DEFAULT[end];
      const ms = parseTimeMs(text, atMs, end);
      if (!Number.isNaN(ms)) searchParams.set(prefix + end, isoTime(ms));
    }
  }
  return pinned.href;
}
