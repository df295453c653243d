// Repeated requests: when they are sent, when they are paused, and the state in between.

import { useEffect, useRef, useState } from 'preact/hooks';
import { apiUrl } from './address';
import type { Update } from './api';
import { nowMs, syncClock } from './clock';
import type { ApiError } from './fetch';
import { Observable } from './observable';
import { fetchSession, goToLogin } from './session';
import { store, stored } from './stored';
import { isLive, isoTime, parseTimeMs, type Range } from './time';

/** Minimum time between two requests of one kind. */
const INTERVAL_MS = 1500;
/**
 * Wait after a response, as a multiple of its duration: the page uses at most a tenth of the
 * collector's time and of its own.
 */
const REST_FACTOR = 9;
/**
 * A request is repeated after this time even without an update, because a late worker shows only by
 * silence.
 */
const QUIET_MS = 10_000;
/** Random delay after an update, so that open pages do not all request at the same moment. */
const SPREAD_MS = 400;
/** How long a page without the update stream polls before it reconnects. */
const RECONNECT_MS = 30_000;
const RETRY_MS = 1000;
const RETRY_MAX_MS = 15_000;

/** Flushes the collector has received, from its update stream; `null` without a connection. */
const flushCount = new Observable<number | null>(null);
/** Why the collector does not ingest, if it does not. */
export const ingestStopped = new Observable<string | null>(null);
let source: EventSource | undefined;

/** Listens to the update stream while the page is visible; browsers allow few connections. */
function listen(): void {
  if (document.hidden) {
    source?.close();
    source = undefined;
    flushCount.set(null);
  } else if (!source) {
    const opened = new EventSource(apiUrl('updates'));
    source = opened;
    opened.addEventListener('update', ({ data }: MessageEvent<string>) => {
      const { now_ns, flushes, ingest_stopped } = JSON.parse(data) as Update;
      ingestStopped.set(ingest_stopped);
      // It may have waited for this page.
      syncClock(now_ns, -Infinity);
      flushCount.set(flushes);
    });
    opened.onerror = () => {
      if (source !== opened) return;
      flushCount.set(null);
      // EventSource reconnects by itself, unless it was refused.
      if (opened.readyState !== EventSource.CLOSED) return;
      source = undefined;
      setTimeout(listen, RECONNECT_MS);
      // The login may have ended.
      void fetchSession();
    };
  }
}
document.addEventListener('visibilitychange', listen);
listen();

/** First responses to the requests of the first view, kept until all are there. `undefined` after that. */
let held: (() => void)[] | undefined = [];
let firstRequests = 0;
let setReleased: () => void;
/** Resolves when the first view has its responses, before they are rendered. */
export const firstView = new Promise<void>((done) => {
  setReleased = done;
});

/** Renders the responses that were kept; later ones are rendered as they arrive. */
export function releaseFirstView(): void {
  const kept = held;
  held = undefined;
  setReleased();
  kept?.forEach((show) => show());
}

/** Releases the first view if all its requests, which have been sent, have a response. */
export function checkFirstView(): void {
  if (held && held.length >= firstRequests) releaseFirstView();
}

/** When the user paused, by the collector's clock. */
export const pauseTime = new Observable<number | null>(null);
/** Since when the collector has not responded, by the browser's clock. */
export const disconnectedAt = new Observable<number | null>(null);

/** Lives whose bad end a person has seen, kept in the browser. */
const DISMISSED_KEY = 'emberline.dismissed';
const DISMISSED_MAX = 500;
export const dismissed = new Observable<string[]>(stored(DISMISSED_KEY).split(' '));

export function dismiss(lives: string[]): void {
  const kept = [...dismissed.value, ...lives].slice(-DISMISSED_MAX);
  dismissed.set(kept);
  store(DISMISSED_KEY, kept.join(' '));
}

export function togglePause(): void {
  pauseTime.set(pauseTime.value === null ? nowMs() : null);
}

/** The range to request: while paused, a moving range is pinned. */
export function requestRange(range: Range): Range {
  const at = pauseTime.value;
  if (at === null || !isLive(range)) return range;
  return { from: isoTime(parseTimeMs(range.from, at)), to: isoTime(at) };
}

/** Seconds since the page was paused, updated each second. */
export function usePausedSeconds(): number | null {
  const since = pauseTime.use();
  const [, tick] = useState(0);
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(() => tick((ticks) => ticks + 1), 1000);
    return () => clearInterval(timer);
  }, [since]);
  return since === null ? null : Math.max(0, Math.floor((nowMs() - since) / 1000));
}

export interface QueryState<T> {
  value: T | undefined;
  /** The key of the value; differs from the requested key until the next response. */
  key: string;
  problem: ApiError | undefined;
  /** The current key has no response yet. */
  waiting: boolean;
}

/**
 * The newest response to a request. Sends it when `key` changes, and repeatedly while `live`, unless
 * the page is paused or hidden. Keeps the previous value until there is a newer one.
 */
export function useQuery<T>(
  key: string,
  query: (signal: AbortSignal) => Promise<T>,
  live: boolean,
  intervalMs = INTERVAL_MS,
): QueryState<T> {
  const [answer, setAnswer] = useState<QueryState<T>>({ value: undefined, key: '', problem: undefined, waiting: true });
  const newest = useRef(query);
  newest.current = query;
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let failures = 0;
    let due = false;
    let known = flushCount.value;
    let isHeld = held !== undefined;
    if (isHeld) firstRequests += 1;
    const show = (next: QueryState<T> | ((old: QueryState<T>) => QueryState<T>)) => {
      if (held && isHeld) {
        isHeld = false;
        held.push(() => setAnswer(next));
        checkFirstView();
      } else setAnswer(next);
    };
    const later = (ms: number) => {
      timer = window.setTimeout(() => void step(false), ms);
    };
    const step = async (first: boolean, quiet = false) => {
      const idle = document.hidden || (pauseTime.value !== null && live);
      if (!first && idle && failures === 0) {
        due = true;
        return;
      }
      if (!first && live && !quiet && failures === 0 && flushCount.value !== null && flushCount.value === known) {
        // Nothing is new: wait for an update, or until it was quiet for long.
        due = true;
        timer = window.setTimeout(() => void step(false, true), QUIET_MS);
        return;
      }
      due = false;
      known = flushCount.value;
      const begun = performance.now();
      try {
        const value = await newest.current(stop.signal);
        failures = 0;
        disconnectedAt.set(null);
        show({ value, key, problem: undefined, waiting: false });
        if (live) later(Math.max(intervalMs, REST_FACTOR * (performance.now() - begun)));
      } catch (error) {
        if (stop.signal.aborted) return;
        const problem = error as ApiError;
        if (problem.kind === 'login') goToLogin();
        if (problem.kind === 'connection' && disconnectedAt.value === null) disconnectedAt.set(Date.now());
        show((old) => ({ value: old.value, key: old.key, problem, waiting: false }));
        if (problem.kind !== 'request' || live) later(Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** failures++));
      }
    };
    const wake = () => {
      if (due && !document.hidden && pauseTime.value === null) {
        due = false;
        clearTimeout(timer);
        later(Math.random() * SPREAD_MS);
      }
    };
    const count = () => {
      // The first count arrives after the first request and says nothing new.
      known ??= flushCount.value;
      wake();
    };
    const forgets = [pauseTime.on(wake), flushCount.on(count)];
    document.addEventListener('visibilitychange', wake);
    setAnswer((old) => (old.waiting && !old.problem ? old : { ...old, problem: undefined, waiting: true }));
    void step(true);
    return () => {
      stop.abort();
      clearTimeout(timer);
      forgets.forEach((forget) => forget());
      document.removeEventListener('visibilitychange', wake);
    };
  }, [key, live, intervalMs]);
  return answer;
}
