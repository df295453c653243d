// Fetches and lays out profiles away from the page's own thread.

import { answered, Problem } from '../core/api';
import { load, type Loaded, type Outside, type ProfileBody } from './load';

export interface Request {
  id: number;
  url: string;
  outside: Outside;
}

export type Reply =
  | { id: number; loaded: Loaded }
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
  const { id, url, outside } = data;
  const stop = new AbortController();
  running.set(id, stop);
  try {
    const response = await answered(url, stop.signal);
    const loaded = load((await response.json()) as ProfileBody, outside);
    const { layout, fnSelf, fnTotal } = loaded;
    const columns = [...Object.values(layout), fnSelf, fnTotal, loaded.functions.lines].filter(ArrayBuffer.isView);
    scope.postMessage({ id, loaded }, columns.map((column) => column.buffer as ArrayBuffer));
  } catch (error) {
    const known = error instanceof Problem ? error : new Problem('connection', 'The answer broke off.');
    scope.postMessage({ id, problem: { kind: known.kind, message: known.message, nearest: known.nearest } });
  } finally {
    running.delete(id);
  }
};
