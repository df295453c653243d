// Fetches and lays out profiles, and tasks by the million, away from the page's own thread.

import type { TaskColumnsAnswer } from '../core/api';
import { ApiError, fetchOk } from '../core/fetch';
import { type Stream, streamOfColumns } from '../stream/rows';
import { type Compared, compare, type Scale } from './compare';
import { type Loaded, load, type Outside, type ProfileBody } from './load';
import { type Parcel, packed } from './parcel';

export interface Request {
  id: number;
  /** One profile, or two to be compared: the one before, and the one after. */
  urls: string[];
  outside: Outside;
  scale: Scale;
}

/** Tasks in columns. */
export interface StreamRequest {
  id: number;
  tasks: string;
}

/** An answer with its texts packed. */
export type Sent<T> = Omit<T, 'functions'> & { functions: Parcel };

export type Reply =
  | { id: number; loaded: Sent<Loaded> | Sent<Compared> }
  | { id: number; stream: Stream }
  | { id: number; problem: { kind: ApiError['kind']; message: string; nearest: string[] } };

/** What is used of a worker's own scope: the page's types describe a window. */
interface Scope {
  onmessage: (event: MessageEvent<Request | StreamRequest | { cancel: number }>) => void;
  postMessage(reply: Reply, transfer?: Transferable[]): void;
}

const scope = self as unknown as Scope;
const running = new Map<number, AbortController>();

scope.onmessage = async ({ data }) => {
  if ('cancel' in data) {
    running.get(data.cancel)?.abort();
    return;
  }
  const { id } = data;
  const stop = new AbortController();
  running.set(id, stop);
  try {
    if ('tasks' in data) {
      const stream = streamOfColumns(await bodyOf<TaskColumnsAnswer>(data.tasks, stop.signal));
      scope.postMessage({ id, stream }, buffersOf([stream.rows, ...stream.lanes]));
      return;
    }
    const { urls, outside, scale } = data;
    const bodies = await Promise.all(urls.map((url) => bodyOf<ProfileBody>(url, stop.signal)));
    const loaded = bodies.length === 1 ? load(bodies[0], outside) : compare([bodies[0], bodies[1]], outside, scale);
    const sent = { ...loaded, functions: packed(loaded.functions) } as Sent<Loaded> | Sent<Compared>;
    const texts = Object.values(sent.functions).filter((column) => 'numbers' in column);
    scope.postMessage({ id, loaded: sent }, buffersOf([loaded.layout, sent.functions, loaded, ...texts]));
  } catch (error) {
    const known = error instanceof ApiError ? error : new ApiError('connection', 'The answer broke off.');
    scope.postMessage({ id, problem: { kind: known.kind, message: known.message, nearest: known.nearest } });
  } finally {
    running.delete(id);
  }
};

async function bodyOf<T>(url: string, signal: AbortSignal): Promise<T> {
  return (await (await fetchOk(url, signal)).json()) as T;
}

/** What is handed over instead of being copied. */
function buffersOf(parts: object[]): ArrayBuffer[] {
  return parts
    .flatMap((part) => Object.values(part))
    .filter((value) => ArrayBuffer.isView(value))
    .map((column) => column.buffer as ArrayBuffer);
}
