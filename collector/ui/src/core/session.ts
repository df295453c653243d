// The session of the login, and what its role allows.

import { apiUrl, href } from './address';
import type { SessionAnswer } from './api';
import { type ApiError, fetchJson } from './fetch';
import { Observable } from './observable';

/** `null` until it is known. */
export const session = new Observable<SessionAnswer | null>(null);

/** Asks who is logged in; leaves for the login if nobody is. Other errors are shown by the queries. */
export async function fetchSession(): Promise<void> {
  try {
    session.set(await fetchJson<SessionAnswer>(apiUrl('session')));
  } catch (error) {
    if ((error as ApiError).kind === 'login') goToLogin();
  }
}

let isLeaving = false;

/** Leaves for the login, which returns to this view: its whole state is in the address. */
export function goToLogin(): void {
  if (isLeaving) return;
  isLeaving = true;
  const login = new URL(href('login'));
  const view = location.href.slice(href('').length).replace(/#.*/, '');
  if (view !== '') login.searchParams.set('next', view);
  location.assign(login);
}

/** Whether settings, runs and thread dumps are allowed: hides what the collector would reject. */
export function useIsOperator(): boolean {
  const known = session.use();
  return known === null || known.role === 'operator';
}

/** Ends the session and goes to the login. */
export async function logOut(): Promise<void> {
  // Requests that are rejected from now on must not lead back to this view.
  isLeaving = true;
  // Without a connection, the login's page says so.
  await fetch(href('logout'), { method: 'POST' }).catch(() => undefined);
  location.assign(href('login'));
}
