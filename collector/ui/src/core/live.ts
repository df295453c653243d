// Questions that are asked again and again: how often, when not, and what happens meanwhile.

import { useEffect, useRef, useState } from 'preact/hooks';
import { apiUrl } from './address';
import type { Update } from './api';
import type { ApiError } from './fetch';
import { isLive, pinned, type Range, timeMs } from './time';

/** Least time between two questions of one kind. */
const EVERY_MS = 1500;
/** A question is asked again after this many times what its answer took: the page takes at most a
 * tenth of the collector's time and of its own. */
const REST = 9;
/** A question is asked again after this long even if the collector tells of nothing new: what is late
 * is seen by nothing coming. */
const QUIET_MS = 10_000;
/** Pages that hear of something new at the same moment do not all ask at that moment. */
const SPREAD_MS = 400;
/** How long a page that could not be told of news asks by itself, before it tries again. */
const UNTOLD_MS = 30_000;
const RETRY_MS = 1000;
const RETRY_MAX_MS = 15_000;

/** Something that changes, and who wants to know. */
class Watched<T> {
  private readonly listeners = new Set<() => void>();
  constructor(public value: T) {}
  set(value: T): void {
    if (Object.is(this.value, value)) return;
    this.value = value;
    this.listeners.forEach((listener) => listener());
  }
  use(): T {
    const [value, setValue] = useState(this.value);
    useEffect(() => {
      const listener = () => setValue(() => this.value);
      this.listeners.add(listener);
      listener();
      return () => void this.listeners.delete(listener);
    }, []);
    return value;
  }
  on(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}

/** By how much the collector's clock is ahead of the browser's. */
let aheadMs = 0;

export function noteNow(collectorNs: number): void {
  aheadMs = collectorNs / 1e6 - Date.now();
}

/** The collector's now. */
export function nowMs(): number {
  return Date.now() + aheadMs;
}

/** How much the collector has taken in, by its own telling; `null` while it does not tell. */
const news = new Watched<number | null>(null);
/** Why the collector takes nothing in, if so. */
export const stopped = new Watched<string | null>(null);
let source: EventSource | undefined;

/** Listens to the collector, but not for a page that nobody sees: browsers keep few connections. */
function listen(): void {
  if (document.hidden) {
    source?.close();
    source = undefined;
    news.set(null);
  } else if (!source) {
    const opened = new EventSource(apiUrl('updates'));
    source = opened;
    opened.addEventListener('update', ({ data }: MessageEvent<string>) => {
      const { now_ns, flushes, ingest_stopped } = JSON.parse(data) as Update;
      stopped.set(ingest_stopped);
      noteNow(now_ns);
      news.set(flushes);
    });
    opened.onerror = () => {
      if (source !== opened) return;
      news.set(null);
      // It tries again by itself, unless it was refused.
      if (opened.readyState !== EventSource.CLOSED) return;
      source = undefined;
      setTimeout(listen, UNTOLD_MS);
    };
  }
}
document.addEventListener('visibilitychange', listen);
listen();

/** When the reader paused, by the collector's clock. */
export const paused = new Watched<number | null>(null);
/** Since when the collector cannot be reached, by the browser's clock. */
export const lost = new Watched<number | null>(null);

export function togglePause(): void {
  paused.set(paused.value === null ? nowMs() : null);
}

/** A range as it is asked for: while paused, a moving one stands still. */
export function asked(range: Range): Range {
  const at = paused.value;
  if (at === null || !isLive(range)) return range;
  return { from: pinned(timeMs(range.from, at)), to: pinned(at) };
}

/** The seconds that a paused page is behind, counted up. */
export function useBehindSeconds(): number | null {
  const since = paused.use();
  const [, tick] = useState(0);
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(() => tick((ticks) => ticks + 1), 1000);
    return () => clearInterval(timer);
  }, [since]);
  return since === null ? null : Math.max(0, Math.floor((nowMs() - since) / 1000));
}

export interface Answer<T> {
  value: T | undefined;
  /** What the value answers; differs from what is asked while the next answer is on its way. */
  key: string;
  problem: ApiError | undefined;
  /** No answer to this very question yet. */
  waiting: boolean;
}

/**
 * The newest answer to a question. It is asked at once when `key` changes, and again while `live`,
 * unless the reader paused or looks elsewhere. An older answer is kept until there is a newer one.
 */
export function useAnswer<T>(
  key: string,
  question: (signal: AbortSignal) => Promise<T>,
  live: boolean,
  everyMs = EVERY_MS,
): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ value: undefined, key: '', problem: undefined, waiting: true });
  const newest = useRef(question);
  newest.current = question;
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    let failures = 0;
    let due = false;
    let known = news.value;
    const later = (ms: number) => {
      timer = window.setTimeout(() => void step(false), ms);
    };
    const step = async (first: boolean, quiet = false) => {
      const idle = document.hidden || (paused.value !== null && live);
      if (!first && idle && failures === 0) {
        due = true;
        return;
      }
      if (!first && live && !quiet && failures === 0 && news.value !== null && news.value === known) {
        // Nothing is new: asked when there is, or when it was quiet for long.
        due = true;
        timer = window.setTimeout(() => void step(false, true), QUIET_MS);
        return;
      }
      due = false;
      known = news.value;
      const begun = performance.now();
      try {
        const value = await newest.current(stop.signal);
        failures = 0;
        lost.set(null);
        setAnswer({ value, key, problem: undefined, waiting: false });
        if (live) later(Math.max(everyMs, REST * (performance.now() - begun)));
      } catch (error) {
        if (stop.signal.aborted) return;
        const problem = error as ApiError;
        if (problem.kind === 'connection' && lost.value === null) lost.set(Date.now());
        setAnswer((old) => ({ value: old.value, key: old.key, problem, waiting: false }));
        if (problem.kind !== 'request' || live) later(Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** failures++));
      }
    };
    const wake = () => {
      if (due && !document.hidden && paused.value === null) {
        due = false;
        clearTimeout(timer);
        later(Math.random() * SPREAD_MS);
      }
    };
    const forgets = [paused.on(wake), news.on(wake)];
    document.addEventListener('visibilitychange', wake);
    setAnswer((old) => ({ ...old, problem: undefined, waiting: true }));
    void step(true);
    return () => {
      stop.abort();
      clearTimeout(timer);
      forgets.forEach((forget) => forget());
      document.removeEventListener('visibilitychange', wake);
    };
  }, [key, live, everyMs]);
  return answer;
}
