// The address holds the whole state of a view: page, range, filters and zoom.

import { useEffect, useState } from 'preact/hooks';
import { nowMs } from './clock';
import { absoluteRange, RANGE_DEFAULT, type Range } from './time';

/** The URL of the page's files, also below a proxy's path. Scripts are one directory deeper. */
const BASE = import.meta.env.DEV ? new URL('/', location.href) : new URL(/* @vite-ignore */ '..', import.meta.url);

/** A page and its parameters, in the order in which they were given. */
export interface Address {
  /** `tasks`, or `tasks/~` for one of them. */
  page: string;
  /** A task's name or a worker's id, on a page about one of them. */
  item: string | null;
  params: URLSearchParams;
}

/**
 * Stands for a name that a path cannot hold or that a proxy might rewrite; the name is in the
 * parameter `name` then.
 */
const NAME_IN_QUERY = '~';

/** Parameters that links carry to other pages. */
const SHARED = ['from', 'to', 'worker'];

let current: { href: string; address: Address } | undefined;

/** The address of the page. Many components ask for it, so it is parsed once. */
export function currentAddress(): Address {
  if (current?.href !== location.href) current = { href: location.href, address: parseLocation() };
  return current.address;
}

function parseLocation(): Address {
  const path = location.pathname.startsWith(BASE.pathname)
    ? location.pathname.slice(BASE.pathname.length)
    : location.pathname.slice(1);
  const params = new URLSearchParams(location.search);
  const [page, item, ...rest] = path.replace(/\/$/, '').split('/');
  if (item === undefined) return { page, item: null, params };
  return {
    page: rest.length > 0 ? path : `${page}/~`,
    item: item === NAME_IN_QUERY ? params.get('name') : decoded(item),
    params,
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The URL of the page about one task name or one worker. */
export function itemHref(page: 'tasks' | 'workers', item: string, params: URLSearchParams): string {
  const isPlain = /^[\w .:@+-]{1,200}$/.test(item) && !/^\.+$/.test(item);
  const query = new URLSearchParams(params);
  if (!isPlain) query.set('name', item);
  return href(`${page}/${isPlain ? encodeURIComponent(item) : NAME_IN_QUERY}`, query);
}

/** The URL of a page. */
export function href(page: string, params?: URLSearchParams): string {
  const url = new URL(page, BASE);
  url.search = params?.toString() ?? '';
  return url.href;
}

/** The URL of an API endpoint. */
export function apiUrl(path: string, params?: URLSearchParams): string {
  return href(`api/v1/${path}`, params);
}

const listeners = new Set<() => void>();
const notify = () => listeners.forEach((listener) => listener());
window.addEventListener('popstate', notify);

/** Navigates to an address. `replace` adds no history entry, for changes such as typing. */
export function navigate(page: string, params: URLSearchParams, replace = false): void {
  const to = href(page, params);
  if (to === location.href) return;
  if (replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  notify();
}

export function useAddress(): Address {
  const [address, setAddress] = useState(currentAddress);
  useEffect(() => {
    const listener = () => setAddress(currentAddress());
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return address;
}

/** Changes of parameters: `null` removes one. */
export type Changes = Record<string, string | string[] | null>;

export function withParams(params: URLSearchParams, changes: Changes): URLSearchParams {
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of value === null ? [] : [value].flat()) next.append(name, one);
  }
  return next;
}

/** Changes the current page's parameters. */
export function setParams(changes: Changes, replace = false): void {
  // Another range does not belong to the run any more.
  if (('from' in changes || 'to' in changes) && !('run' in changes)) changes = { ...changes, run: null };
  const url = new URL(location.href);
  navigate(url.pathname.slice(BASE.pathname.length), withParams(currentAddress().params, changes), replace);
}

/** The parameters that pages share, with `changes` applied. */
export function sharedParams(changes: Changes = {}): URLSearchParams {
  const { params } = currentAddress();
  const shared = new URLSearchParams();
  for (const name of SHARED) for (const value of params.getAll(name)) shared.append(name, value);
  return withParams(shared, changes);
}

/** The range of the address, as the API reads it. An invalid time stays: `resolveRange` explains it. */
export function rangeOf(params: URLSearchParams): Range {
  const from = params.get('from') ?? RANGE_DEFAULT.from;
  const to = params.get('to') ?? RANGE_DEFAULT.to;
  return absoluteRange({ from, to }, nowMs());
}
