// The whole view is in the page's address: what is shown, of which range, filtered and zoomed how.

import { useEffect, useState } from 'preact/hooks';
import { RANGE_DEFAULT, type Range } from './time';

/** Where the page's files are; also works below a proxy's path. Scripts stand one folder deeper. */
const BASE = import.meta.env.DEV ? new URL('/', location.href) : new URL(/* @vite-ignore */ '..', import.meta.url);

/** An address: the page and its parameters, in the order in which they were given. */
export interface Address {
  /** `tasks`, or `tasks/~` for one of them. */
  page: string;
  /** What the page is of, if it is of one thing: a task's name, a worker's id. */
  item: string | null;
  params: URLSearchParams;
}

/** Names that a path cannot hold, or that a proxy might read otherwise, stand in the parameter `name`
 * of this item. */
const UNSPEAKABLE = '~';

/** Parameters that go along from page to page. */
const SHARED = ['from', 'to', 'worker'];

export function current(): Address {
  const path = location.pathname.startsWith(BASE.pathname)
    ? location.pathname.slice(BASE.pathname.length)
    : location.pathname.slice(1);
  const params = new URLSearchParams(location.search);
  const [page, item, ...rest] = path.replace(/\/$/, '').split('/');
  if (item === undefined) return { page, item: null, params };
  return {
    page: rest.length > 0 ? path : `${page}/~`,
    item: item === UNSPEAKABLE ? params.get('name') : decoded(item),
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

/** The URL of the page of one task's name or one worker. */
export function itemHref(page: 'tasks' | 'workers', item: string, params: URLSearchParams): string {
  const isPlain = /^[\w .:@+-]{1,200}$/.test(item) && !/^\.+$/.test(item);
  const query = new URLSearchParams(params);
  if (!isPlain) query.set('name', item);
  return href(`${page}/${isPlain ? encodeURIComponent(item) : UNSPEAKABLE}`, query);
}

/** The URL of a page; parameters without a value are left out. */
export function href(page: string, params?: URLSearchParams): string {
  const url = new URL(page, BASE);
  url.search = params?.toString() ?? '';
  return url.href;
}

/** The URL of a question to the collector. */
export function apiUrl(path: string, params?: URLSearchParams): string {
  return href(`api/v1/${path}`, params);
}

const listeners = new Set<() => void>();
const tell = () => listeners.forEach((listener) => listener());
window.addEventListener('popstate', tell);

/** Goes to an address; `replace` for what need not be gone back to, such as typing. */
export function go(page: string, params: URLSearchParams, replace = false): void {
  const to = href(page, params);
  if (to === location.href) return;
  if (replace) history.replaceState(null, '', to);
  else history.pushState(null, '', to);
  tell();
}

export function useAddress(): Address {
  const [address, setAddress] = useState(current);
  useEffect(() => {
    const listener = () => setAddress(current());
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return address;
}

/** Changes of parameters: `null` takes one away. */
export type Changes = Record<string, string | string[] | null>;

export function changed(params: URLSearchParams, changes: Changes): URLSearchParams {
  const next = new URLSearchParams(params);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    for (const one of value === null ? [] : [value].flat()) next.append(name, one);
  }
  return next;
}

/** Changes the current page's parameters. */
export function change(changes: Changes, replace = false): void {
  // Another range is no run's any more.
  if (('from' in changes || 'to' in changes) && !('run' in changes)) changes = { ...changes, run: null };
  const url = new URL(location.href);
  go(url.pathname.slice(BASE.pathname.length), changed(current().params, changes), replace);
}

/** The parameters that another page shares with the current one, and `changes`. */
export function along(changes: Changes = {}): URLSearchParams {
  const { params } = current();
  const shared = new URLSearchParams();
  for (const name of SHARED) for (const value of params.getAll(name)) shared.append(name, value);
  return changed(shared, changes);
}

export function rangeOf(params: URLSearchParams): Range {
  return {
    from: params.get('from') ?? RANGE_DEFAULT.from,
    to: params.get('to') ?? RANGE_DEFAULT.to,
  };
}
