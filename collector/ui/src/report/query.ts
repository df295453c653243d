// Replaces `core/query` in a report, which sends no request.

import { Observable } from '../core/observable';

export const pauseTime = new Observable<number | null>(null);
export const disconnectedAt = new Observable<number | null>(null);
export const ingestStopped = new Observable<string | null>(null);
export const dismissed = new Observable<string[]>([]);
export const dismiss = (): void => undefined;
export const requestRange = <T>(range: T): T => range;
export const useQuery = () => ({ value: undefined, key: '', problem: undefined, waiting: false });
export interface QueryState<T> {
  value: T | undefined;
  key: string;
  problem: undefined;
  waiting: boolean;
}
