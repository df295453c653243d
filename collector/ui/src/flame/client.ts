// Requests to the web worker, for profiles and for tasks in columns.

import { ApiError } from '../core/fetch';
import type { Stream } from '../stream/columns';
import type { Comparison, Scale } from './compare';
import type { LoadedProfile } from './load';
import { fromTransferable } from './transferable';
import type { Reply, Request, StreamRequest } from './worker';

interface PendingRequest {
  done(answer: LoadedProfile | Comparison | Stream): void;
  failed(problem: ApiError): void;
}

const pending = new Map<number, PendingRequest>();
let worker: Worker | undefined;
let next = 0;

function start(): Worker {
  const started = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
  started.onmessage = ({ data }: MessageEvent<Reply>) => {
    const request = pending.get(data.id);
    pending.delete(data.id);
    if ('loaded' in data)
      request?.done({ ...data.loaded, functions: fromTransferable(data.loaded.functions) } as
        | LoadedProfile
        | Comparison);
    else if ('stream' in data) request?.done(data.stream);
    else request?.failed(new ApiError(data.problem.kind, data.problem.message, data.problem.nearest));
  };
  // The worker could not be loaded: probably the collector was replaced or is unreachable.
  started.onerror = () => {
    worker = undefined;
    for (const request of pending.values())
      request.failed(new ApiError('connection', 'The collector cannot be reached.'));
    pending.clear();
  };
  return started;
}

export function fetchProfile(url: string, signal: AbortSignal): Promise<LoadedProfile> {
  return ask({ urls: [url], scale: 'share', counts: [] }, signal) as Promise<LoadedProfile>;
}

export function fetchComparison(
  urls: [before: string, after: string],
  scale: Scale,
  counts: number[],
  signal: AbortSignal,
): Promise<Comparison> {
  return ask({ urls, scale, counts }, signal) as Promise<Comparison>;
}

export function fetchTaskColumns(url: string, signal: AbortSignal): Promise<Stream> {
  return ask({ tasks: url }, signal) as Promise<Stream>;
}

function ask(
  query: Omit<Request, 'id'> | Omit<StreamRequest, 'id'>,
  signal: AbortSignal,
): Promise<LoadedProfile | Comparison | Stream> {
  worker ??= start();
  const to = worker;
  const id = next++;
  return new Promise((done, failed) => {
    pending.set(id, { done, failed });
    signal.addEventListener('abort', () => {
      to.postMessage({ cancel: id });
      pending.delete(id);
      failed(new DOMException('aborted', 'AbortError'));
    });
    to.postMessage({ id, ...query } satisfies Request | StreamRequest);
  });
}
