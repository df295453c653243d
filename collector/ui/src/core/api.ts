// Bodies of the HTTP API's responses (docs/API.md).

import type { State } from './states';

export interface Span {
  from_ns: number;
  to_ns: number;
}

export interface Totals {
  cpu_ns: number;
  runnable_ns: number;
  wait_ns: number;
  total_ns: number;
}

export interface Sampled {
  range: Span;
  data: Span | null;
  achieved_share: number | null;
  achieved_rate_hz: number | null;
  worker_seconds: number;
}

export interface Series {
  kind: string;
  name: string;
  totals: Totals;
  cpu_ns: number[];
  runnable_ns: number[];
  wait_ns: number[];
}

export interface TimelineAnswer extends Sampled {
  first_ns: number;
  step_ns: number;
  steps: number;
  series: Series[];
  others: number;
}

export interface Task {
  worker: string;
  epoch: string;
  id: number;
  name: string;
  key: string;
  thread_id: number;
  thread_name: string;
  start_ns: number;
  stop_ns: number | null;
  duration_ns: number;
  outcome: string;
  cause: string;
  // Since agents tell of phases.
  attempt?: number | null;
  result_bytes?: number | null;
  type_name?: string;
  labels?: Record<string, string>;
  phases?: { name: string; start_ns: number; duration_ns: number; count: number }[];
}

export interface TasksAnswer {
  range: Span;
  total: number;
  truncated: boolean;
  aggregated: number;
  tasks: Task[];
}

export interface Durations {
  count: number;
  p50_ns: number;
  p90_ns: number;
  p99_ns: number;
  max_ns: number;
  mean_ns: number;
  total_ns: number;
}

export interface TaskName {
  name: string;
  running: number;
  outcomes: Record<'ok' | 'failed' | 'cancelled' | 'panicked' | 'lost', number>;
  durations: Durations | null;
  phases?: { name: string; tasks: number; duration_ns: number }[];
}

export interface SummaryAnswer {
  names: TaskName[];
}

export interface Epoch {
  epoch: string;
  labels: Record<string, string>;
  host: string;
  pid: number;
  agent_version: string;
  sampler_mode: string | null;
  interval_ns: number;
  enabled: boolean;
  states: State[];
  state: 'connected' | 'away' | 'gone';
  last_seen: string;
  clock: { offset_ns: number; error_ns: number } | null;
  ticks: number;
  ticks_expected: number;
  ticks_throttled: number;
  account: {
    accepted_ns: number;
    lost_refused_ns: number;
    lost_by_collector_ns: number;
    lost_queue_ns: number;
    lost_tasks: number;
    unaccounted_ns: number;
    balanced: boolean;
  };
  refused: number;
  last_refusal: string | null;
  running_tasks: number;
}

export interface WorkersAnswer {
  now_ns: number;
  ingest: { open: boolean; reason: string | null };
  workers: { worker: string; epochs: Epoch[] }[];
}

export interface StackGroup {
  kind: string;
  task: string | null;
  state: State;
  stack: { name: string; file: string; line: number; inlined: boolean }[];
  threads: { id: number; name: string; blocked_ns: number; age_ns: number }[];
}

export interface StacksAnswer {
  workers: { worker: string; epoch: string; responded: boolean; reason: string | null; omitted: number; groups: StackGroup[] }[];
}

export interface LinkSums {
  count: number;
  failed: number;
  bytes: number;
  compressed_bytes: number | null;
  duration_ns: number;
  /** Bytes a second. */
  bandwidth: { mean: number | null; p50: number | null; p90: number | null; p99: number | null } | null;
}

export interface Link extends LinkSums {
  worker: string;
  peer: string;
  direction: 'incoming' | 'outgoing';
}

export interface TransferSums {
  links: Link[];
  types: ({ type_name: string } & LinkSums)[];
}

export interface Transfer {
  worker: string;
  epoch: string;
  id: number;
  direction: 'incoming' | 'outgoing';
  peer: string;
  keys: string[];
  more_keys: number;
  type_name: string;
  bytes: number;
  compressed_bytes: number | null;
  start_ns: number;
  duration_ns: number;
  bandwidth: number | null;
  outcome: string;
  cause: string;
}

export interface TransfersAnswer {
  total: number;
  truncated: boolean;
  transfers: Transfer[];
}

export interface ResourceSeries {
  worker: string;
  host: string;
  run: string | null;
  measure: string;
  unit: string;
  /** Time, mean, most and least; nanoseconds since 1970, or since the start of the run. */
  points: [number, number, number, number][];
  peak: number | null;
}

export interface ResourcesAnswer {
  step_ns: number;
  series: ResourceSeries[];
}

export interface FleetEvent {
  id: number;
  kind: string;
  at_ns: number;
  data: Record<string, unknown>;
}

export interface EventsAnswer {
  events: FleetEvent[];
}

export interface Progress {
  name: string;
  expected: number | null;
  done: number;
  running: number;
  failed: number;
  lost: number;
  cancelled: number;
  remaining_ns: number | null;
  state: 'running' | 'done' | 'failed';
}

export interface ProgressAnswer {
  names: Progress[];
}

export interface Run {
  id: string;
  name: string;
  worker: string | null;
  start_ns: number;
  stop_ns: number | null;
  duration_ns: number;
  open: boolean;
  lost: boolean;
}

export interface RunsAnswer {
  runs: Run[];
}
