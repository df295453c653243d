// Names of all tasks. Each page requests them first, because they decide the colors and fill the
// menus.

import { apiUrl } from './address';
import type { TaskSummaryAnswer } from './api';
import { fetchJson } from './fetch';

/** A page and its menus request the names one after the other while loading; one response serves both. */
const SHARED_MS = 2000;

let latest: { answer: Promise<TaskSummaryAnswer>; ms: number } | undefined;

export function fetchTaskNames(): Promise<TaskSummaryAnswer> {
  const ms = performance.now();
  if (!latest || ms - latest.ms > SHARED_MS) {
    latest = { answer: fetchJson<TaskSummaryAnswer>(apiUrl('tasks', new URLSearchParams({ summary: 'true' }))), ms };
  }
  return latest.answer;
}
