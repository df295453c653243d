// Workers whose lives ended badly. An alert stays until it is dismissed, in this browser.

import { href, itemHref, sharedParams } from '../core/address';
import type { WorkersAnswer } from '../core/api';
import { safeText } from '../core/names';
import { dismiss, dismissed } from '../core/query';
import { clock, count, isoTime } from '../core/time';
import { badEnds, endName } from '../pages/warnings';

const SHOWN = 5;
/** How much of a life's end its profile shows. */
const PROFILE_MS = 60_000;

export function Alerts({ fleet }: { fleet: WorkersAnswer }) {
  const known = dismissed.use();
  const ends = badEnds(fleet, known);
  if (ends.length === 0) return null;
  return (
    <section class="alerts" aria-label="Lost workers" role="status">
      {ends.slice(0, SHOWN).map(({ worker, epoch, disconnect }) => {
        const seenMs = Date.parse(epoch.last_seen);
        return (
          <p key={epoch.epoch}>
            <b class="bad">
              ⚠{' '}
              <a href={itemHref('workers', worker, sharedParams({ worker: null }))}>
                <bdi>{safeText(worker, 40)}</bdi>
              </a>{' '}
              {endName(disconnect)}
            </b>{' '}
            at {clock(disconnect.at_ns / 1e6)}, process {epoch.pid} on <bdi>{safeText(epoch.host, 40)}</bdi>, last seen{' '}
            {clock(seenMs)}: {safeText(disconnect.cause)}. Next: {safeText(disconnect.next_step ?? '', 300)}.{' '}
            <a
              href={href('profile', sharedParams({ worker, from: isoTime(seenMs - PROFILE_MS), to: isoTime(seenMs) }))}
            >
              its last minute ›
            </a>{' '}
            <button onClick={() => dismiss([epoch.epoch])}>Dismiss</button>
          </p>
        );
      })}
      {ends.length > 1 && (
        <p>
          {ends.length > SHOWN && `${count(ends.length - SHOWN)} more workers were lost. `}
          <button onClick={() => dismiss(ends.map(({ epoch }) => epoch.epoch))}>Dismiss all</button>
        </p>
      )}
    </section>
  );
}
