// Asks the worker: for profiles, for tasks in columns.

import { ApiError } from '../core/fetch';
import type { Stream } from '../stream/rows';
import type { Compared, Scale } from './compare';
import type { Loaded, Outside } from './load';
import { unpacked } from './parcel';
import type { Reply, Request, StreamRequest } from './worker';

interface Asked {
  done(answer: Loaded | Compared | Stream): void;
  failed(problem: ApiError): void;
}

const asked = new Map<number, Asked>();
let worker: Worker | undefined;
let next = 0;

function start(): Worker {
  const started = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
  started.onmessage = ({ data }: MessageEvent<Reply>) => {
    const asker = asked.get(data.id);
    asked.delete(data.id);
    if ('loaded' in data)
      asker?.done({ ...data.loaded, functions: unpacked(data.loaded.functions) } as Loaded | Compared);
    else if ('stream' in data) asker?.done(data.stream);
    else asker?.failed(new ApiError(data.problem.kind, data.problem.message, data.problem.nearest));
  };
  // It could not be loaded: most likely the collector was replaced or is away.
  started.onerror = () => {
    worker = undefined;
    for (const asker of asked.values()) asker.failed(new ApiError('connection', 'The collector cannot be reached.'));
    asked.clear();
  };
  return started;
}

export function askProfile(url: string, outside: Outside, signal: AbortSignal): Promise<Loaded> {
  return ask({ urls: [url], outside, scale: 'share' }, signal) as Promise<Loaded>;
}

export function askComparison(
  before: string,
  after: string,
  options: { outside: Outside; scale: Scale },
  signal: AbortSignal,
): Promise<Compared> {
  return ask({ urls: [before, after], ...options }, signal) as Promise<Compared>;
}

export function askStream(url: string, signal: AbortSignal): Promise<Stream> {
  return ask({ tasks: url }, signal) as Promise<Stream>;
}

function ask(
  question: Omit<Request, 'id'> | Omit<StreamRequest, 'id'>,
  signal: AbortSignal,
): Promise<Loaded | Compared | Stream> {
  worker ??= start();
  const to = worker;
  const id = next++;
  return new Promise((done, failed) => {
    asked.set(id, { done, failed });
    signal.addEventListener('abort', () => {
      to.postMessage({ cancel: id });
      asked.delete(id);
      failed(new DOMException('aborted', 'AbortError'));
    });
    to.postMessage({ id, ...question } satisfies Request | StreamRequest);
  });
}
