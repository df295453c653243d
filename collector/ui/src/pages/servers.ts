// Servers that the collector forwards to or asks for profiles, and stores of other collectors that it reads.

import type { Forward, WorkersAnswer } from '../core/api';
import { duration, quantity } from '../core/time';
import type { Warning } from './warnings';

/** An amount of what a server receives. */
export function amountText({ unit }: Forward, amount: number): string {
  return unit === 'tasks' ? quantity(amount, 'task') : duration(amount);
}

export function lostAmount({ lost_queue, lost_rejected }: Forward): number {
  return lost_queue + lost_rejected;
}

export function serverWarnings({ forwards, scrapes, stores }: WorkersAnswer): Warning[] {
  const texts = [
    ...forwards.flatMap((forward) => {
      const { url, failure, waiting } = forward;
      const lost = lostAmount(forward);
      const parts = [
        failure !== null && `forwarding to ${url} fails: ${failure}; ${amountText(forward, waiting)} waiting`,
        lost > 0 && `forwarding to ${url} lost ${amountText(forward, lost)}`,
      ];
      return parts.filter((part) => part !== false);
    }),
    ...scrapes.flatMap(({ name, failure }) => (failure === null ? [] : [`no profile from ${name}: ${failure}`])),
    ...stores.flatMap(({ name, incomplete }) =>
      incomplete === null ? [] : [`answers are incomplete: ${name}: ${incomplete}`],
    ),
    ...stores.flatMap(({ name, clock_warning }) => (clock_warning === null ? [] : [`${name}: ${clock_warning}`])),
  ];
  return texts.map((text) => ({ worker: '', text }));
}
