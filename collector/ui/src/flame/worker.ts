// Fetches and lays out profiles away from the page's own thread.

import { answered, Problem } from '../core/api';
import { compare, type Compared, type Scale } from './compare';
import { load, type Loaded, type Outside, type ProfileBody } from './load';
import { packed, type Parcel } from './parcel';

export interface Request {
  id: number;
  /** One profile, or two to be compared: the one before, and the one after. */
  urls: string[];
  outside: Outside;
  scale: Scale;
}

/** An answer with its texts packed. */
export type Sent<T> = Omit<T, 'functions'> & { functions: Parcel };

export type Reply =
  | { id: number; loaded: Sent<Loaded> | Sent<Compared> }
  | { id: number; problem: { kind: Problem['kind']; message: string; nearest: string[] } };

/** What is used of a worker's own scope: the page's types describe a window. */
interface Scope {
  onmessage: (event: MessageEvent<Request | { cancel: number }>) => void;
  postMessage(reply: Reply, transfer?: Transferable[]): void;
}

const scope = self as unknown as Scope;
const running = new Map<number, AbortController>();

scope.onmessage = async ({ data }) => {
  if ('cancel' in data) {
    running.get(data.cancel)?.abort();
    return;
  }
  const { id, urls, outside, scale } = data;
  const stop = new AbortController();
  running.set(id, stop);
  try {
    const bodies = await Promise.all(urls.map(async (url) => {
      const response = await answered(url, stop.signal);
      return (await response.json()) as ProfileBody;
    }));
    const loaded = bodies.length === 1 ? load(bodies[0], outside) : compare([bodies[0], bodies[1]], outside, scale);
    const sent = { ...loaded, functions: packed(loaded.functions) } as Sent<Loaded> | Sent<Compared>;
    const columns = [loaded.layout, loaded.functions, loaded].flatMap((part) => Object.values(part)).filter((value) => ArrayBuffer.isView(value));
    scope.postMessage({ id, loaded: sent }, columns.map((column) => column.buffer as ArrayBuffer));
  } catch (error) {
    const known = error instanceof Problem ? error : new Problem('connection', 'The answer broke off.');
    scope.postMessage({ id, problem: { kind: known.kind, message: known.message, nearest: known.nearest } });
  } finally {
    running.delete(id);
  }
};
