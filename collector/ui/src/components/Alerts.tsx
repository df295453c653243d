// Bad news. An alert stays until it is dismissed, in this browser.

import { apiUrl, href, itemHref, sharedParams } from '../core/address';
import type { TasksAnswer, WorkersAnswer } from '../core/api';
import { fetchJson } from '../core/fetch';
import { safeText } from '../core/names';
import { FAILED } from '../core/outcomes';
import { dismiss, dismissed, useQuery } from '../core/query';
import { clock, count, isoTime, quantity } from '../core/time';
import { type Alert, alertsOf } from '../pages/warnings';

const SHOWN = 5;
/** How much of a life's end its profile shows. */
const PROFILE_MS = 60_000;
/** How far back failed tasks are alerts, and how often they are looked for. */
const FAILED_FROM = '-24h';
const FAILED_INTERVAL_MS = 10_000;

const outcomes = FAILED.map((outcome): [string, string] => ['outcome', outcome]);

interface Properties {
  fleet: WorkersAnswer;
  /** The workers that the page is about; none: all. */
  workers: string[];
}

export function Alerts({ fleet, workers }: Properties) {
  const known = dismissed.use();
  const only = workers.map((worker): [string, string] => ['worker', worker]);
  const failed = useQuery<TasksAnswer>(
    `failed ${only}`,
    (signal) => {
      const query = [['from', FAILED_FROM], ['limit', '1'], ...outcomes, ...only] as [string, string][];
      return fetchJson(apiUrl('tasks', new URLSearchParams(query)), signal);
    },
    true,
    FAILED_INTERVAL_MS,
  );
  const alerts = alertsOf(fleet, failed.value, known);
  // Not all are listed if there are many.
  const more = Math.max(0, fleet.counts.need_attention - fleet.workers.length);
  if (alerts.length + more === 0) return null;
  return (
    <section class="alerts" aria-label="Alerts" role="status">
      {alerts.slice(0, SHOWN).map((alert) => (
        <Row key={alert.id} alert={alert} only={only} />
      ))}
      {alerts.length > 1 && (
        <p>
          {alerts.length > SHOWN && `${count(alerts.length - SHOWN)} more alerts. `}
          <button class="link" onClick={() => dismiss(alerts.map(({ id }) => id))}>
            Dismiss all
          </button>
        </p>
      )}
      {more > 0 && <p>{quantity(more, 'more worker')} need attention.</p>}
    </section>
  );
}

function Row({ alert, only }: { alert: Alert; only: [string, string][] }) {
  const { worker, lastSeenMs } = alert;
  return (
    <p>
      <button class="link" onClick={() => dismiss([alert.id])}>
        Dismiss
      </button>
      <b class="bad">
        ⚠{' '}
        {worker !== undefined && (
          <a href={itemHref('workers', worker, sharedParams({ worker: null }))}>
            <bdi>{safeText(worker, 40)}</bdi>
          </a>
        )}{' '}
        {alert.what}
      </b>{' '}
      {alert.isSince ? 'since' : 'at'} {clock(alert.atMs)}: <bdi>{safeText(alert.cause, 300)}</bdi>
      {lastSeenMs !== undefined && `, last seen ${clock(lastSeenMs)}`}. Next:{' '}
      <Commands text={safeText(alert.next, 300)} />.{' '}
      {worker !== undefined && lastSeenMs !== undefined && (
        <a
          href={href(
            'profile',
            sharedParams({ worker, from: isoTime(lastSeenMs - PROFILE_MS), to: isoTime(lastSeenMs) }),
          )}
        >
          its last minute ›
        </a>
      )}
      {worker === undefined && (
        <a href={href('tasks', new URLSearchParams([...only, ['from', FAILED_FROM], ...outcomes]))}>failed tasks ›</a>
      )}
    </p>
  );
}

/** A text whose commands are between backticks. */
function Commands({ text }: { text: string }) {
  return <>{text.split('`').map((part, i) => (i % 2 === 1 ? <code key={part}>{part}</code> : part))}</>;
}
