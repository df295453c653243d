// The web worker: fetches and lays out profiles, and tasks by the million, off the main thread.

import type { TaskColumnsAnswer } from '../core/api';
import { ApiError, fetchOk } from '../core/fetch';
import { type Stream, streamOfColumns } from '../stream/columns';
import { type Comparison, compare, type Scale } from './compare';
import { type LoadedProfile, loadProfile, type ProfileBody } from './load';
import { type TransferableFunctions, toTransferable } from './transferable';

export interface Request {
  id: number;
  /** One profile, or two to compare: before and after. */
  urls: string[];
  scale: Scale;
  /** Tasks that ended on each side. */
  counts: number[];
}

/** Requests tasks in columns. */
export interface StreamRequest {
  id: number;
  tasks: string;
}

/** A response with encoded functions. */
export type Transferred<T> = Omit<T, 'functions'> & { functions: TransferableFunctions };

export type Reply =
  | { id: number; loaded: Transferred<LoadedProfile> | Transferred<Comparison> }
  | { id: number; stream: Stream }
  | { id: number; problem: { kind: ApiError['kind']; message: string; nearest: string[] } };

/** The part of the worker's global scope that is used; the page's types describe a window. */
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
    const { urls, scale, counts } = data;
    const bodies = await Promise.all(urls.map((url) => bodyOf<ProfileBody>(url, stop.signal)));
    const loaded = bodies.length === 1 ? loadProfile(bodies[0]) : compare([bodies[0], bodies[1]], scale, counts);
    const sent = { ...loaded, functions: toTransferable(loaded.functions) } as
      | Transferred<LoadedProfile>
      | Transferred<Comparison>;
    const texts = Object.values(sent.functions).filter((column) => 'numbers' in column);
    scope.postMessage({ id, loaded: sent }, buffersOf([loaded.layout, sent.functions, loaded, ...texts]));
  } catch (error) {
    const known = error instanceof ApiError ? error : new ApiError('connection', 'The response was cut off.');
    scope.postMessage({ id, problem: { kind: known.kind, message: known.message, nearest: known.nearest } });
  } finally {
    running.delete(id);
  }
};

async function bodyOf<T>(url: string, signal: AbortSignal): Promise<T> {
  return (await (await fetchOk(url, signal)).json()) as T;
}

/** Buffers that are transferred instead of copied. */
function buffersOf(parts: object[]): ArrayBuffer[] {
  return parts
    .flatMap((part) => Object.values(part))
    .filter((value) => ArrayBuffer.isView(value))
    .map((column) => column.buffer as ArrayBuffer);
}
