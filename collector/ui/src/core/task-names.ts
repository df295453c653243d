// The names of all tasks: each page asks for them first, for they decide the colours, and menus list them.

import { apiUrl } from './address';
import type { TaskSummaryAnswer } from './api';
import { fetchJson } from './fetch';

/** A page and its menus ask one after the other as it is loaded; one answer serves both. */
const SHARED_MS = 2000;

let asked: { answer: Promise<TaskSummaryAnswer>; ms: number } | undefined;

export function askNames(): Promise<TaskSummaryAnswer> {
  const ms = performance.now();
  if (!asked || ms - asked.ms > SHARED_MS) {
    asked = { answer: fetchJson<TaskSummaryAnswer>(apiUrl('tasks', new URLSearchParams({ summary: 'true' }))), ms };
  }
  return asked.answer;
}
