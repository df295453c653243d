// Requests to the collector's HTTP API.

import type { Failure } from './api';
import { NOW_HEADER, syncClock } from './clock';

/** Why a request failed: no connection, a busy collector, an ended login, or an invalid request. */
export class ApiError extends Error {
  constructor(
    readonly kind: 'connection' | 'busy' | 'login' | 'request',
    message: string,
    /** Known names near the one that was not found. */
    readonly nearest: string[] = [],
  ) {
    super(message);
  }
}

/** Requests `url` and parses the response as JSON. */
export async function fetchJson<T>(url: string, signal?: AbortSignal): Promise<T> {
  const response = await fetchOk(url, signal);
  return (await response.json()) as T;
}

/** Requests `url`, or posts `body` to it; throws an [`ApiError`] unless the response is a success. */
export async function fetchOk(url: string, signal?: AbortSignal, body?: object): Promise<Response> {
  let response: Response;
  const requestedMs = Date.now();
  const headers: Record<string, string> = { accept: 'application/json' };
  if (body) headers['content-type'] = 'application/json';
  const post = body ? { method: 'POST', body: JSON.stringify(body) } : {};
  try {
    response = await fetch(url, { signal: signal ?? null, headers, ...post });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError('connection', 'The collector cannot be reached.');
  }
  const sentNs = response.headers.get(NOW_HEADER);
  if (sentNs !== null) syncClock(Number(sentNs), requestedMs);
  if (response.ok) return response;
  const failure = (await response.json().catch(() => ({}))) as Partial<Failure>;
  const message = failure.error ?? `The collector responded with ${response.status} ${response.statusText}.`;
  throw new ApiError(kindOf(response.status), message, failure.nearest);
}

function kindOf(status: number): ApiError['kind'] {
  if (status === 503 || status === 429) return 'busy';
  if (status === 401) return 'login';
  // 502 and 504 come from a proxy that cannot reach the collector.
  return status >= 500 ? 'connection' : 'request';
}
