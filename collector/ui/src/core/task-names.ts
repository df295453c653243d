// Names of all tasks. Each page requests them first, because they decide the colors and fill the
// menus.

import { apiUrl } from './address';
import type { TaskSummaryAnswer } from './api';
import { fetchJson } from './fetch';

/** A page and its menus request the names one after the other while loading; one response serves both. */
const SHARED_MS = 2000;

let asked: { answer: Promise<TaskSummaryAnswer>; ms: number } | undefined;

export function fetchTaskNames(): Promise<TaskSummaryAnswer> {
  const ms = performance.now();
  if (!asked || ms - asked.ms > SHARED_MS) {
    asked = { answer: fetchJson<TaskSummaryAnswer>(apiUrl('tasks', new URLSearchParams({ summary: 'true' }))), ms };
  }
  return asked.answer;
}
