// @generated from the crate `emberline-api`: bodies of the collector's HTTP API. To regenerate:
// UPDATE_EXPECT=1 cargo test -p emberline-api

import type { State } from './states';

/** A half-open range of time. */
export type TimeRange = {
  /** Its start. */
  from: string,
  /** Its end, which is not part of it. */
  to: string,
  /** Its start, since the Unix epoch. */
  from_ns: number,
  /** Its end, since the Unix epoch. */
  to_ns: number,
};

/** The body of every answer that is no success. */
export type Failure = {
  /** The problem, and what is allowed. */
  error: string,
  /** Allowed values, if there is a list of them. */
  allowed?: Array<string>,
  /** Known names that are most like an unknown one. */
  nearest?: Array<string>,
};

/** Answer of `/api/v1/profile` as JSON, without its last member `profile`: the profile itself is as
 * documented at `flamegraph::ProfileJson` and `flamegraph::ProfileColumns`. */
export type ProfileAnswer = {
  /** The range of the answer: larger than requested where detail is no longer retained. */
  range: TimeRange,
  /** The query's parameters. */
  filter: Filter,
  /** Kind of the nodes: `function` or `line`. */
  by: string,
  /** Workers with samples in the range, by id; the first 1,000. */
  workers: Array<string>,
  /** Number of all of them. */
  worker_count: number,
  /** Thread time of the profile. */
  totals: Totals,
  /** Thread time that the request hides. */
  hidden: Hidden,
  /** Functions that are folded into their callers. */
  folded: number,
  /** Number of groups that are summed in `[other]`. */
  others: number,
  /** Whether there is no time in it. */
  empty: boolean,
  /** The span of all retained samples. */
  data: TimeRange | null,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** Time in functions without a name. */
  unnamed: Unnamed,
  /** Cycles of workers, each of about a second. */
  worker_seconds: number,
  /** Their total length. */
  sampled_ns: number,
  /** Ticks taken; each probes all threads. */
  ticks: number,
  /** Ticks due by the interval. */
  ticks_expected: number,
  /** Ticks skipped by agents to stay within their CPU limit. */
  ticks_throttled: number,
  /** Ticks neither taken nor throttled. */
  ticks_missed: number,
  /** Ticks per second and worker; `null` if nothing was sampled. */
  achieved_rate_hz: number | null,
  /** Share of the expected ticks that was taken; `null` if none was expected. */
  achieved_share: number | null,
};

/** Restrictions of a query. Empty lists restrict nothing. */
export type Filter = {
  /** Names of tasks. */
  tasks: Array<string>,
  /** Ids of workers. */
  workers: Array<string>,
  /** States of threads. */
  states: State[],
  /** Selected threads: `program`, `agent` or `all`. */
  threads: string,
};

/** Thread time of the selected tasks, phases, workers and threads that a profile does not show. Each time
 * is hidden for the first reason that applies, so the sums and the profile's totals add up to the whole. */
export type Hidden = {
  /** Outside of tasks. */
  outside_ns: number,
  /** In states that were not selected. */
  states: Totals,
  /** By `focus` and `hide`. */
  functions_ns: number,
  /** Not below the zoomed node. */
  zoom_ns: number,
  /** Sum of all. */
  total_ns: number,
};

/** Own time in functions that have no name, because neither their agent nor the collector has symbols. */
export type Unnamed = {
  /** All of it. */
  total_ns: number,
  /** Whether names are being looked up: a later answer has more. */
  pending: boolean,
  /** By module, those with the most time first; at most 20. */
  modules: Array<UnnamedModule>,
};

/** A module without symbols. */
export type UnnamedModule = {
  /** Path of the executable or library. */
  module: string,
  /** Its build id, in hexadecimal; empty if it has none. */
  build_id: string,
  /** Own time in it. */
  own_ns: number,
  /** `pending`, `no_file`, `no_function`, `no_segments`, `unusable` or `no_build_id`. */
  reason: string,
  /** The same in words, with what to do. */
  help: string,
};

/** How well a range was sampled. */
export type Sampling = {
  /** Cycles of workers, each of about a second. */
  worker_seconds: number,
  /** Their total length. */
  sampled_ns: number,
  /** Ticks taken; each probes all threads. */
  ticks: number,
  /** Ticks due by the interval. */
  ticks_expected: number,
  /** Ticks skipped by agents to stay within their CPU limit. */
  ticks_throttled: number,
  /** Ticks neither taken nor throttled. */
  ticks_missed: number,
  /** Ticks per second and worker; `null` if nothing was sampled. */
  achieved_rate_hz: number | null,
  /** Share of the expected ticks that was taken; `null` if none was expected. */
  achieved_share: number | null,
};

/** Thread time by state. */
export type Totals = {
  /** Running on a CPU. */
  cpu_ns: number,
  /** Ready, waiting for a CPU. */
  runnable_ns: number,
  /** Waiting for a lock or another thread. */
  lock_ns: number,
  /** Waiting for the lock of an interpreter, such as CPython's GIL. */
  interpreter_ns: number,
  /** Sleeping. */
  sleep_ns: number,
  /** Waiting for the network. */
  network_ns: number,
  /** Waiting for a file. */
  disk_ns: number,
  /** Waiting for anything else. */
  other_ns: number,
  /** Sum of `lock_ns` to `other_ns`. */
  wait_ns: number,
  /** Sum of all states. */
  total_ns: number,
};

/** Answer of `/api/v1/timeline`. */
export type TimelineAnswer = {
  /** The range of the answer. */
  range: TimeRange,
  /** The query's parameters. */
  filter: Filter,
  /** Start of the first step, since the Unix epoch. */
  first_ns: number,
  /** Length of a step. */
  step_ns: number,
  /** Number of steps. */
  steps: number,
  /** The heaviest first. */
  series: Array<Series>,
  /** Number of series that are summed in the last one. */
  others: number,
  /** The span of all retained samples. */
  data: TimeRange | null,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** Cycles of workers, each of about a second. */
  worker_seconds: number,
  /** Their total length. */
  sampled_ns: number,
  /** Ticks taken; each probes all threads. */
  ticks: number,
  /** Ticks due by the interval. */
  ticks_expected: number,
  /** Ticks skipped by agents to stay within their CPU limit. */
  ticks_throttled: number,
  /** Ticks neither taken nor throttled. */
  ticks_missed: number,
  /** Ticks per second and worker; `null` if nothing was sampled. */
  achieved_rate_hz: number | null,
  /** Share of the expected ticks that was taken; `null` if none was expected. */
  achieved_share: number | null,
};

/** Time of a task or other group, step by step. A kind of waiting that is 0 throughout is absent. */
export type Series = {
  /** `task`, `no_task`, `agent`, `overflow`, `group`, or `other` for the sum of several. */
  kind: string,
  /** Name of the task or group. */
  name: string,
  /** Sums of all steps. */
  totals: Totals,
  /** Running on a CPU, by step. */
  cpu_ns: Array<number>,
  /** Ready, waiting for a CPU, by step. */
  runnable_ns: Array<number>,
  /** Waiting for a lock or another thread, by step. */
  lock_ns?: Array<number>,
  /** Waiting for the lock of an interpreter, by step. */
  interpreter_ns?: Array<number>,
  /** Sleeping, by step. */
  sleep_ns?: Array<number>,
  /** Waiting for the network, by step. */
  network_ns?: Array<number>,
  /** Waiting for a file, by step. */
  disk_ns?: Array<number>,
  /** Waiting for anything else, by step. */
  other_ns?: Array<number>,
  /** Waiting of all kinds, by step. */
  wait_ns: Array<number>,
};

/** Answer of `/api/v1/thread-time`. */
export type ThreadTimeAnswer = {
  /** The range of the answer. */
  range: TimeRange,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** How long the worker that was sampled longest was sampled: the most that a thread can have. */
  elapsed_ns: number,
  /** By worker, the longest first. */
  threads: Array<ThreadTime>,
};

/** Time of a thread, or of all threads of a worker. */
export type ThreadTime = {
  /** Id of the worker. */
  worker: string,
  /** Name of the thread; `null` for a whole worker. */
  thread: string | null,
  /** The system's id of the thread; `null` where several threads are summed. */
  thread_id: number | null,
  /** Sum of the parts. */
  total_ns: number,
  /** Where it went. */
  parts: Array<ThreadTimePart>,
};

/** Time in one state of one phase of a task. */
export type ThreadTimePart = {
  /** Name of the task; `null` outside any. */
  task: string | null,
  /** Phase of the task; `null` outside any task. */
  phase: string | null,
  /** State of the thread. */
  state: State,
  /** Thread time. */
  time_ns: number,
};

/** Answer of `/api/v1/tasks`. */
export type TasksAnswer = {
  /** The requested range. */
  range: TimeRange,
  /** Number of tasks that match. */
  total: number,
  /** Whether that is more than are listed. */
  truncated: boolean,
  /** Tasks without a row, which are in sums only. */
  aggregated: number,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** The order of the tasks: `start`, the newest first, or `duration`, the longest first. */
  sort: 'start' | 'duration',
  /** In that order. */
  tasks: Array<Task>,
};

/** One task. */
export type Task = {
  /** Id of the worker. */
  worker: string,
  /** The worker's life, in hexadecimal. */
  epoch: string,
  /** Number of the task, unique in the worker's life. */
  id: number,
  /** Its name, shared by all tasks of its kind. */
  name: string,
  /** Its own key. */
  key: string,
  /** The system's id of its thread. */
  thread_id: number,
  /** Name of its thread. */
  thread_name: string,
  /** Number of the task that started it. */
  parent: number | null,
  /** When it started. */
  start: string,
  /** When it started, since the Unix epoch. */
  start_ns: number,
  /** When it stopped; `null` while it runs. */
  stop: string | null,
  /** When it stopped, since the Unix epoch. */
  stop_ns: number | null,
  /** Its length, of a running task so far. */
  duration_ns: number,
  /** `running`, `ok`, `failed`, `cancelled`, `panicked` or `lost`. */
  outcome: string,
  /** Why it ended that way. */
  cause: string,
  /** Number of the attempt. */
  attempt: number | null,
  /** Size of its result. */
  result_bytes: number | null,
  /** Type of its result. */
  type_name: string,
  /** Labels of the program. */
  labels: Record<string, string>,
  /** Its phases other than `execute`, by start. */
  phases: Array<Phase>,
};

/** An interval of a task, or the sum of several. */
export type Phase = {
  /** Its name. */
  name: string,
  /** When it started, since the Unix epoch. */
  start_ns: number,
  /** Its length. */
  duration_ns: number,
  /** Number of intervals summed here; usually 1. */
  count: number,
};

/** Answer of `/api/v1/tasks?format=columns`. */
export type TaskColumnsAnswer = {
  /** The requested range. */
  range: TimeRange,
  /** Number of tasks that match. */
  total: number,
  /** Whether that is more than are listed. */
  truncated: boolean,
  /** Tasks without a row, which are in sums only. */
  aggregated: number,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** Outcomes, by the index that the columns have. */
  outcomes: Array<string>,
  /** Names of tasks, by index. */
  names: Array<string>,
  /** Threads, by index. */
  threads: Array<TaskThread>,
  /** Start of the first listed task, since the Unix epoch. */
  first_ns: number | null,
  /** One number per task in each. */
  columns: TaskVectors,
};

/** A thread that ran tasks. */
export type TaskThread = {
  /** Id of the worker. */
  worker: string,
  /** The worker's life, in hexadecimal. */
  epoch: string,
  /** The system's id of the thread. */
  id: number,
  /** Its name. */
  name: string,
};

/** Tasks in columns, the newest first. */
export type TaskVectors = {
  /** Index of the name. */
  name: Array<number>,
  /** Index of the thread. */
  thread: Array<number>,
  /** Number of the task. */
  id: Array<number>,
  /** How much earlier than its predecessor in the list it started. */
  earlier_us: Array<number>,
  /** Its length. */
  duration_us: Array<number>,
  /** Index of the outcome. */
  outcome: Array<number>,
};

/** Answer of `/api/v1/tasks?summary=true`. */
export type TaskSummaryAnswer = {
  /** The range that was summed; `null` for all retained data. */
  range: TimeRange | null,
  /** Tasks without a row, which are in sums only. */
  aggregated: number,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** By name. */
  names: Array<TaskName>,
  /** Tasks with samples in the range of which none ended or runs there, the most time first, at most 1,000: clients of
   * other profilers report no starts and ends. */
  sampled: Array<SampledTask>,
};

/** Thread time of the samples of a task. */
export type SampledTask = {
  /** The name. */
  name: string,
  /** Time on a processor. */
  cpu_ns: number,
  /** Time waiting for a processor. */
  runnable_ns: number,
  /** Time blocked. */
  wait_ns: number,
};

/** The tasks of one name. */
export type TaskName = {
  /** The name. */
  name: string,
  /** Tasks that run. */
  running: number,
  /** Tasks that ended, by outcome. */
  outcomes: Record<'ok' | 'failed' | 'cancelled' | 'panicked' | 'lost', number>,
  /** Of the tasks whose end was reported. */
  durations: Durations | null,
  /** The longest first. */
  phases: Array<PhaseSum>,
};

/** All intervals of one phase. */
export type PhaseSum = {
  /** Name of the phase. */
  name: string,
  /** How often tasks were in it. */
  tasks: number,
  /** Time of all of them. */
  duration_ns: number,
};

/** A distribution of durations. */
export type Durations = {
  /** Number of durations. */
  count: number,
  /** The shortest. */
  min_ns: number,
  /** The median. */
  p50_ns: number,
  /** The 90th percentile. */
  p90_ns: number,
  /** The 99th percentile. */
  p99_ns: number,
  /** The longest. */
  max_ns: number,
  /** The mean, exact. */
  mean_ns: number,
  /** The sum, exact. */
  total_ns: number,
};

/** Answer of `/api/v1/progress`. */
export type ProgressAnswer = {
  /** By the collector's clock. */
  now: string,
  /** By the collector's clock, since the Unix epoch. */
  now_ns: number,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** By name. */
  names: Array<Progress>,
  /** Number of names that are not counted: too many are expected since different times, and these
   * since the earliest. */
  omitted: number,
};

/** Progress of the tasks of one name. */
export type Progress = {
  /** The name. */
  name: string,
  /** Number of tasks that workers expect. */
  expected: number | null,
  /** Tasks that ended well. */
  done: number,
  /** Tasks that run. */
  running: number,
  /** Tasks that failed or panicked. */
  failed: number,
  /** Tasks whose worker is gone. */
  lost: number,
  /** Tasks that were cancelled. */
  cancelled: number,
  /** Since when they are counted. */
  since: string,
  /** Since when they are counted, since the Unix epoch. */
  since_ns: number,
  /** Tasks that end per second. */
  rate_per_s: number | null,
  /** Time until all expected tasks have ended, at that rate. */
  remaining_ns: number | null,
  /** `running`, `done` or `failed`. */
  state: 'running' | 'done' | 'failed',
};

/** Answer of `/api/v1/tasks/compare`. */
export type TaskComparisonAnswer = {
  /** The range of the side before. */
  before: TimeRange,
  /** The range of the side after. */
  after: TimeRange,
  /** Largest expected share of false alarms among the changes that exceed noise. */
  false_alarms: number,
  /** Number of changes that had enough tasks to exceed noise. */
  tests: number,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** Those that got slower first. */
  names: Array<NameComparison>,
  /** Number of names past the limit. */
  omitted: number,
};

/** The tasks of one name on both sides of a comparison. */
export type NameComparison = {
  /** The name. */
  name: string,
  /** About its durations: `slower`, `faster`, `mixed` (one quantile slower, another one faster),
   * `no_change` (none beyond noise), `too_few`, `only_before` or `only_after`. */
  verdict: 'slower' | 'faster' | 'mixed' | 'no_change' | 'too_few' | 'only_before' | 'only_after',
  /** The tasks that ended before. */
  before: TaskStatistics,
  /** The tasks that ended after. */
  after: TaskStatistics,
  /** Change of the median. */
  p50: DurationChange,
  /** Change of the 90th percentile. */
  p90: DurationChange,
  /** Change of the 99th percentile. */
  p99: DurationChange,
  /** Change of the share of failures. */
  failures: FailureChange,
};

/** Tasks that ended on one side of a comparison. */
export type TaskStatistics = {
  /** Number of tasks that ended. */
  ended: number,
  /** Of these, failed, panicked or lost ones. */
  failed: number,
  /** The median; `null` without durations. */
  p50_ns: number | null,
  /** The 90th percentile. */
  p90_ns: number | null,
  /** The 99th percentile. */
  p99_ns: number | null,
};

/** Change of one quantile of durations. */
export type DurationChange = {
  /** After minus before; `null` if a side has no durations. */
  change_ns: number | null,
  /** After by before; `null` without a duration before. */
  ratio: number | null,
  /** Probability of such a difference between equal sides; `null` if a side has no durations. */
  p_value: number | null,
  /** `slower` or `faster` if it exceeds noise, else `no_change` or `too_few`. */
  verdict: 'slower' | 'faster' | 'no_change' | 'too_few',
};

/** Change of the share of failures. */
export type FailureChange = {
  /** Failed of ended tasks before; `null` without any. */
  before_share: number | null,
  /** Failed of ended tasks after; `null` without any. */
  after_share: number | null,
  /** Probability of such a difference between equal sides; `null` without failures. */
  p_value: number | null,
  /** `more` or `fewer` if it exceeds noise, else `no_change` or `too_few`. */
  verdict: 'more' | 'fewer' | 'no_change' | 'too_few',
};

/** Answer of `/api/v1/tasks/durations`. */
export type TaskDurationsAnswer = {
  /** The range of the answer. */
  range: TimeRange,
  /** Length of a step. */
  step_ns: number,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** Steps in which tasks ended, in order. */
  points: Array<DurationPoint>,
};

/** The tasks that ended in one step. */
export type DurationPoint = {
  /** Start of the step, since the Unix epoch. */
  start_ns: number,
  /** Number of tasks that ended. */
  ended: number,
  /** Of these, failed, panicked or lost ones. */
  failed: number,
  /** The median; `null` without durations. */
  p50_ns: number | null,
  /** The 90th percentile. */
  p90_ns: number | null,
  /** The 99th percentile. */
  p99_ns: number | null,
};

/** Answer of `/api/v1/workers`. */
export type WorkersAnswer = {
  /** By the collector's clock. */
  now: string,
  /** By the collector's clock, since the Unix epoch. */
  now_ns: number,
  /** Whether flushes are accepted. */
  ingest: IngestStatus,
  /** By id, or those that need attention first. */
  workers: Array<WorkerEpochs>,
  /** Number of further workers, after the last one that is listed. */
  omitted: number,
  /** All these workers, listed or not. */
  counts: WorkerCounts,
  /** The services whose profiles are pushed or scraped, those with most series first, at most 1,000. */
  services: Array<Service>,
  /** Quotas that were met since the collector started, those with the most refusals first. */
  quotas: Array<QuotaUse>,
  /** Pushes of foreign profilers since the collector started, by source. */
  pushes: Array<PushCounts>,
  /** The services that the collector scrapes, by name. */
  scrapes: Array<Scrape>,
  /** The servers to which the collector forwards. */
  forwards: Array<Forward>,
  /** The stores that the server reads, by name; empty if it is a collector itself. */
  stores: Array<Store>,
  /** Data that the collector retains. */
  retained: Retained,
};

/** Number of workers, by the state of their newest life. */
export type WorkerCounts = {
  /** Those with a connected agent. */
  connected: number,
  /** Those whose agent may come back. */
  away: number,
  /** The others. */
  gone: number,
  /** Of all these, those that need attention: what `sort=attention` lists first. */
  need_attention: number,
};

/** Answer of `/api/v1/workers/names`: what menus offer. */
export type WorkerNamesAnswer = {
  /** By id. */
  workers: Array<WorkerName>,
  /** Number of further workers with the text. */
  omitted: number,
  /** Those that most workers have first. */
  labels: Array<LabelCount>,
  /** Number of further labels with the text. */
  labels_omitted: number,
};

/** A worker in a menu. */
export type WorkerName = {
  /** Its id. */
  worker: string,
  /** The machine of its latest agent. */
  host: string,
};

/** A label in a menu. */
export type LabelCount = {
  /** `KEY=VALUE`. */
  label: string,
  /** Number of workers whose latest agent has it. */
  workers: number,
};

/** How often an identity met one of its quotas. */
export type QuotaUse = {
  /** An address, `token 3f9a2c01`, `user 1000` or `certificate of w-1`. */
  identity: string,
  /** Name of the quota, such as `bytes_per_second`. */
  quota: string,
  /** Its value; `null` if it is a fair share of what all identities use. */
  value: number | null,
  /** Streams and requests that were refused or ended, and dictionaries and tasks that lost detail. */
  refused: number,
  /** Messages that had to wait. */
  delayed: number,
  /** When that was last. */
  last: string,
};

/** Outcomes of pushes by foreign profilers. */
export type PushCounts = {
  /** The protocol: `pyroscope` or `otlp`; `scrape` if the collector fetched them. */
  source: string,
  /** Series of which something came in the last minutes. */
  series: number,
  /** Requests that were stored. */
  stored: number,
  /** Time in them. */
  stored_ns: number,
  /** Requests without samples. */
  empty: number,
  /** Requests whose profiles do not measure time, which are dropped. */
  without_time: number,
  /** Requests that were refused. */
  rejected: number,
  /** Why the last one was. */
  last_rejection: string | null,
};

/** A service that the collector scrapes. */
export type Scrape = {
  /** Its name. Its worker is `scrape:NAME`. */
  name: string,
  /** Its address, without a password. */
  url: string,
  /** Length of each profile. */
  every_ns: number,
  /** Profiles that were stored. */
  stored: number,
  /** When the last one was stored. */
  stored_at: string | null,
  /** Attempts without a profile. */
  failed: number,
  /** Why there is none since the last one. */
  failure: string | null,
};

/** The series of a service: workers without an agent whose label `service_name` is the same. */
export type Service = {
  /** The value of the label; empty if series have none. */
  name: string,
  /** Number of series. */
  series: number,
  /** Of these, the ones that were pushed lately. */
  connected: number,
  /** When the newest push came. */
  last_seen: string,
};

/** A server to which the collector forwards, and the outcome: accepted is the sum of sent, waiting and lost. */
export type Forward = {
  /** Its address, without a password. */
  url: string,
  /** `pyroscope` or `otlp` for profiles, `otlp_traces` for tasks. */
  protocol: string,
  /** Unit of the counts: `ns` of thread time, or `tasks`. */
  unit: string,
  /** Everything that was to be sent. */
  accepted: number,
  /** Accepted by the server. */
  sent: number,
  /** In the queue. */
  waiting: number,
  /** Size of the queue. */
  waiting_bytes: number,
  /** Found no room in the queue. */
  lost_queue: number,
  /** Rejected by the server. */
  lost_rejected: number,
  /** Attempts that failed. */
  failed: number,
  /** When the server accepted the last message. */
  sent_at: string | null,
  /** Why the last attempt failed, or why the server rejected a part of it. */
  failure: string | null,
};

/** The store of a collector, as another server reads it. */
export type Store = {
  /** Of its collector. */
  name: string,
  /** When it was last found to be as it is in answers; `null` if it was never read. */
  read_at: string | null,
  /** Why a part of it is missing from answers; `null` if nothing is. */
  incomplete: string | null,
  /** How far the clock of its collector is ahead of that of the store's server, in nanoseconds; `null` until the
   * collector has sealed data while this server reads its store. */
  clock_ahead_ns: number | null,
  /** Warning about that difference, if it is large. */
  clock_warning: string | null,
};

/** Whether flushes are accepted; all but `open` is `null` if they are. */
export type IngestStatus = {
  /** Whether flushes are accepted. */
  open: boolean,
  /** `disk_full`, `behind` or `log_failed`. */
  cause: string | null,
  /** The cause in words. */
  reason: string | null,
  /** Since when. */
  since: string | null,
  /** Since when, since the Unix epoch. */
  since_ns: number | null,
  /** Folder of the full disk. */
  folder: string | null,
  /** Free room of that disk. */
  free_bytes: number | null,
  /** Size of that disk. */
  disk_bytes: number | null,
  /** Free room below which nothing is accepted. */
  needed_bytes: number | null,
};

/** A worker that has reported. */
export type WorkerEpochs = {
  /** Its id. */
  worker: string,
  /** Lives of its agent, the newest last. */
  epochs: Array<Epoch>,
};

/** One life of a worker's agent. */
export type Epoch = {
  /** Its number, in hexadecimal. */
  epoch: string,
  /** Labels of the worker. */
  labels: Record<string, string>,
  /** Name of the machine. */
  host: string,
  /** Process id. */
  pid: number,
  /** Version of the agent. */
  agent_version: string,
  /** How the sampler works there, and why it is degraded; `null` if not yet reported. */
  sampler_mode: string | null,
  /** Threads that block the sampler's signal and so have no stacks while they run. */
  signal_blocked_threads: number,
  /** When the first of them was noticed; `null` if there are none. */
  signal_blocked_since: string | null,
  /** Time between two samples. */
  interval_ns: number,
  /** Whether threads are sampled. */
  enabled: boolean,
  /** States whose time is recorded. */
  states: State[],
  /** Whether the agent has yet to apply the desired settings. */
  settings_pending: boolean,
  /** When the agent started, by its own clock. */
  started_at: string,
  /** `connected`, `away` or `gone`. */
  state: 'connected' | 'away' | 'gone',
  /** Whether it is connected. */
  connected: boolean,
  /** When it connected first. */
  first_seen: string,
  /** When it was last heard of. */
  last_seen: string,
  /** How its stream ended; `null` while it is connected. */
  disconnect: Disconnect | null,
  /** Its clock compared with the collector's; `null` before its first flush. */
  clock: Clock | null,
  /** How far the end of its last data was ahead of the collector's clock: its clock is; 0 below 2 s. */
  data_ahead_ns: number,
  /** Ticks taken. */
  ticks: number,
  /** Ticks due by the interval. */
  ticks_expected: number,
  /** Ticks skipped to stay within the CPU limit. */
  ticks_throttled: number,
  /** Number of the last acknowledged flush. */
  acked_seq: number,
  /** Sampled data, against stored and lost data. */
  account: LossAccount,
  /** Messages that were rejected, whole or in part, since the collector started. */
  rejected: number,
  /** Why the last one was. */
  last_rejection: string | null,
  /** Tasks that run. */
  running_tasks: number,
};

/** How the stream of an agent ended. */
export type Disconnect = {
  /** `clean`, `crashed` (the connection closed without a clean disconnect), `silent` (messages
   * stopped), `rejected` (by the collector) or `unknown` (the collector was restarted). */
  reason: 'clean' | 'crashed' | 'silent' | 'rejected' | 'unknown',
  /** The reason in words. */
  cause: string,
  /** Recommended action; `null` if there is none. */
  next_step: string | null,
  /** When the stream ended. */
  at: string,
  /** When the stream ended, since the Unix epoch. */
  at_ns: number,
};

/** A worker's clock compared with the collector's. */
export type Clock = {
  /** How far it is off. */
  offset_ns: number,
  /** How far the offset may be wrong. */
  error_ns: number,
};

/** Data that an agent sampled, against the data that the collector stored and that either counted as lost. */
export type LossAccount = {
  /** Thread time that the agent sampled. */
  accepted_ns: number,
  /** Thread time that the collector stored. */
  stored_ns: number,
  /** Thread time of rejected flushes. */
  lost_rejected_ns: number,
  /** Thread time of flushes that the collector acknowledged in a life whose data it no longer has. */
  lost_by_collector_ns: number,
  /** Thread time that the agent lost: its queue had no room for it, or its sampler did not count it. */
  lost_queue_ns: number,
  /** Thread time in `lost_queue_ns` that the sampler did not count, since the collector started. */
  lost_unseen_ns: number,
  /** Records of tasks that were lost. */
  lost_tasks: number,
  /** Transfers and resource samples that were lost. */
  lost_telemetry: number,
  /** Tasks that came as sums, without rows. */
  aggregated_tasks: number,
  /** `accepted_ns` − `stored_ns` − what was lost. */
  unaccounted_ns: number,
  /** Whether that is 0. */
  balanced: boolean,
};

/** Data that the collector retains. */
export type Retained = {
  /** The span of all samples. */
  data: TimeRange | null,
  /** Windows in memory that are in no table yet. */
  unsealed_windows: number,
  /** Their size. */
  unsealed_bytes: number,
  /** Files of tables. */
  files: number,
  /** Their size. */
  file_bytes: number,
  /** Nodes of the tree of stacks. */
  nodes: number,
  /** Tasks in memory. */
  task_rows: number,
  /** Tasks that are in sums only. */
  task_rows_aggregated: number,
};

/** Body of `PUT /api/v1/workers/settings`: `null` changes nothing. */
export type SettingsChange = {
  /** Time between two samples, 1 to 1000. */
  interval_ms: number | null,
  /** Whether threads are sampled. */
  enabled: boolean | null,
  /** States whose time is recorded. */
  states: Array<string> | null,
};

/** Answer of `PUT /api/v1/workers/settings`. */
export type SettingsAnswer = {
  /** The workers that were to change. */
  workers: Array<WorkerSettings>,
};

/** Settings of a worker. */
export type WorkerSettings = {
  /** Id of the worker. */
  worker: string,
  /** Its life, in hexadecimal; `null` if it is not connected. */
  epoch: string | null,
  /** Whether it is connected. */
  connected: boolean,
  /** Whether its agent confirmed the settings. */
  applied: boolean,
  /** Time between two samples. */
  interval_ns: number | null,
  /** Whether threads are sampled. */
  enabled: boolean | null,
  /** States whose time is recorded. */
  states: State[] | null,
};

/** Answer of `/api/v1/thread-dump`. */
export type ThreadDumpAnswer = {
  /** By the collector's clock. */
  now: string,
  /** By the collector's clock, since the Unix epoch. */
  now_ns: number,
  /** The workers that were asked. */
  workers: Array<WorkerThreads>,
};

/** The threads of one worker. */
export type WorkerThreads = {
  /** Id of the worker. */
  worker: string,
  /** Its life, in hexadecimal; `null` if it is not connected. */
  epoch: string | null,
  /** Whether its agent responded. */
  responded: boolean,
  /** Why not. */
  reason: string | null,
  /** Threads that are not listed, because there are too many. */
  omitted: number,
  /** Running threads first, then the largest groups. */
  groups: Array<ThreadGroup>,
};

/** Threads with the same stack in the same state. */
export type ThreadGroup = {
  /** `task`, `no_task`, `agent`, `overflow`, or `not_seen` for threads that are too young. */
  kind: string,
  /** Name of the task that they run. */
  task: string | null,
  /** Their state; `null` if not seen yet. */
  state: State | null,
  /** The innermost function first. */
  stack: Array<StackFrame>,
  /** The threads. */
  threads: Array<ThreadSnapshot>,
};

/** A call on a stack. */
export type StackFrame = {
  /** Name of the function. */
  name: string,
  /** Path of the program or library that has it; empty if unknown. */
  module: string,
  /** Path of its source file; empty if unknown. */
  file: string,
  /** Line in that file; 0 if unknown. */
  line: number,
  /** Whether the compiler put it into its caller. */
  inlined: boolean,
  /** Whether it says nothing about the program: how threads start, and how calls pass through the
   * language and runtimes. */
  plumbing: boolean,
};

/** A thread as last observed. */
export type ThreadSnapshot = {
  /** The system's id. */
  id: number,
  /** Its name; empty if it has ended. */
  name: string,
  /** For how long it has been observed blocked there; 0 if it runs. */
  blocked_ns: number,
  /** Age of the observation. */
  age_ns: number,
};

/** Answer of `/api/v1/transfers`. */
export type TransfersAnswer = {
  /** The requested range. */
  range: TimeRange,
  /** Number of transfers that match. */
  total: number,
  /** Whether that is more than are listed. */
  truncated: boolean,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** The last to end first. */
  transfers: Array<Transfer>,
};

/** A transfer as one end of it reported it. */
export type Transfer = {
  /** Id of the worker that reported it. */
  worker: string,
  /** The worker's life, in hexadecimal. */
  epoch: string,
  /** Number of the transfer, unique in the worker's life. */
  id: number,
  /** `incoming` or `outgoing`, as the worker sees it. */
  direction: 'incoming' | 'outgoing',
  /** The other end. */
  peer: string,
  /** Keys of what was moved. */
  keys: Array<string>,
  /** Number of keys that are not listed. */
  more_keys: number,
  /** Type of what was moved. */
  type_name: string,
  /** Its size in memory. */
  bytes: number,
  /** Its size on the wire. */
  compressed_bytes: number | null,
  /** When it started. */
  start: string,
  /** When it started, since the Unix epoch. */
  start_ns: number,
  /** When it stopped. */
  stop: string,
  /** When it stopped, since the Unix epoch. */
  stop_ns: number,
  /** Its length. */
  duration_ns: number,
  /** Bytes on the wire per second. */
  bandwidth: number | null,
  /** Number of the task that did it. */
  task_id: number | null,
  /** The system's id of the thread that did it. */
  thread_id: number,
  /** `ok`, `failed` or `cancelled`. */
  outcome: string,
  /** Why it ended that way. */
  cause: string,
};

/** Answer of `/api/v1/transfers?summary=true`. */
export type TransferSummaryAnswer = {
  /** The range that was summed. */
  range: TimeRange,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** By worker, other end and direction. */
  links: Array<Link>,
  /** By type. */
  types: Array<TransferType>,
};

/** Transfers between two workers in one direction. */
export type Link = {
  /** Id of the worker that reported them. */
  worker: string,
  /** The other end. */
  peer: string,
  /** `incoming` or `outgoing`, as the worker sees it. */
  direction: 'incoming' | 'outgoing',
  /** Number of transfers. */
  count: number,
  /** Those that failed. */
  failed: number,
  /** Their size in memory. */
  bytes: number,
  /** Their size on the wire. */
  compressed_bytes: number,
  /** Sum of their lengths. */
  duration_ns: number,
  /** Distribution of their speed. */
  bandwidth: Bandwidth | null,
  /** Distribution of their lengths. */
  durations: Durations | null,
};

/** Transfers of one type. */
export type TransferType = {
  /** The type. */
  type_name: string,
  /** Number of transfers. */
  count: number,
  /** Those that failed. */
  failed: number,
  /** Their size in memory. */
  bytes: number,
  /** Their size on the wire. */
  compressed_bytes: number,
  /** Sum of their lengths. */
  duration_ns: number,
  /** Distribution of their speed. */
  bandwidth: Bandwidth | null,
  /** Distribution of their lengths. */
  durations: Durations | null,
};

/** Sums of transfers. */
export type LinkSums = {
  /** Number of transfers. */
  count: number,
  /** Those that failed. */
  failed: number,
  /** Their size in memory. */
  bytes: number,
  /** Their size on the wire. */
  compressed_bytes: number,
  /** Sum of their lengths. */
  duration_ns: number,
  /** Distribution of their speed. */
  bandwidth: Bandwidth | null,
  /** Distribution of their lengths. */
  durations: Durations | null,
};

/** A distribution of speeds, in bytes per second. */
export type Bandwidth = {
  /** All bytes by all time. */
  mean: number,
  /** The median. */
  p50: number,
  /** The 90th percentile. */
  p90: number,
  /** The 99th percentile. */
  p99: number,
};

/** Answer of `/api/v1/resources`. */
export type ResourcesAnswer = {
  /** The requested range. */
  range: TimeRange,
  /** Files of the store that could not be read. */
  corrupt_files: Array<string>,
  /** Time between two points. */
  step_ns: number,
  /** Whether times count from the start of each run. */
  align: boolean,
  /** By worker, run and measure. */
  series: Array<ResourceSeries>,
};

/** One measure of one worker. */
export type ResourceSeries = {
  /** Id of the worker. */
  worker: string,
  /** Name of its machine. */
  host: string,
  /** The run that it is of. */
  run: string | null,
  /** Name of the measure. */
  measure: string,
  /** Unit of its values. */
  unit: string,
  /** Whether the system counts it up, so that values are its growth. */
  cumulative: boolean,
  /** Time, mean, maximum and minimum; nanoseconds since the Unix epoch, or since the run's start. */
  points: Array<[number, number, number, number]>,
  /** The largest value. */
  peak: number,
};

/** Body of `POST /api/v1/runs` and `POST /api/v1/runs/stop`. */
export type RunName = {
  /** Name of the run. */
  name: string,
};

/** Answer of `/api/v1/runs`. */
export type RunsAnswer = {
  /** The newest first. */
  runs: Array<Run>,
};

/** A named range of time. */
export type Run = {
  /** Tells apart runs of one name. */
  id: string,
  /** Its name. */
  name: string,
  /** Id of the worker that marked it; `null` if it was started through the API. */
  worker: string | null,
  /** When it started. */
  start: string,
  /** When it started, since the Unix epoch. */
  start_ns: number,
  /** When it stopped; `null` while it is open. */
  stop: string | null,
  /** When it stopped, since the Unix epoch. */
  stop_ns: number | null,
  /** Its length, of an open run so far. */
  duration_ns: number,
  /** Whether it is open. */
  open: boolean,
  /** Whether it stopped because its worker is gone. */
  lost: boolean,
};

/** Answer of `/api/v1/events/recent`. */
export type EventsAnswer = {
  /** The newest first. */
  events: Array<FleetEvent>,
};

/** Something that happened. */
export type FleetEvent = {
  /** Its number, from 1 in each life of the collector. */
  id: number,
  /** Such as `task_ended` or `worker_gone`. */
  kind: string,
  /** When the collector learned of it. */
  at: string,
  /** When the collector learned of it, since the Unix epoch. */
  at_ns: number,
  /** Its subject. */
  data: Record<string, unknown>,
};

/** Payload of the event `update` of `/api/v1/updates`. */
export type Update = {
  /** By the collector's clock, since the Unix epoch. */
  now_ns: number,
  /** End of the samples, since the Unix epoch. */
  data_to_ns: number | null,
  /** Flushes accepted since the collector started: changes with any new data. */
  flushes: number,
  /** Why ingestion stopped; `null` if it has not. */
  ingest_stopped: string | null,
};

/** Answer of `/api/v1/session`. */
export type SessionAnswer = {
  /** `reader` or `operator`; `operator` too if the collector needs no token. */
  role: string,
  /** Id of the caller's token; `null` without one. */
  token: string | null,
  /** Note of the token. */
  note: string,
  /** Whether the token is that of a browser's login, which a logout ends. */
  logged_in: boolean,
  /** Whether the caller may ask in SQL, and the collector answers. */
  sql: boolean,
  /** When the token or the login expires; `null`: never. */
  expires: string | null,
  /** When the token or the login expires, since the Unix epoch. */
  expires_ns: number | null,
};

/** The body of `POST /api/v1/sql`. */
export type SqlRequest = {
  /** One statement that reads. */
  query: string,
  /** Form of the answer; default: `json`. */
  format: SqlFormat,
  /** Most rows of the answer; default: 10,000. */
  rows?: number,
};

/** The form of the rows. */
export type SqlFormat = "json" | "csv" | "parquet";

/** The rows of a query. */
export type SqlAnswer = {
  /** The columns, in the order of the cells. */
  columns: Array<SqlColumn>,
  /** The cells of each row. Times are texts in RFC 3339. */
  rows: Array<Array<SqlCell>>,
  /** Whether there are more rows. */
  truncated: boolean,
  /** When the version of the tables was published: it has no later data. */
  data_until: string,
  /** The same in nanoseconds since the Unix epoch. */
  data_until_ns: number,
  /** Files that are damaged or lost: their rows are missing. */
  corrupt_files: Array<string>,
};

/** A value of a row. */
export type SqlCell = null | boolean | number | number | number | string;

/** A column of an answer. */
export type SqlColumn = {
  /** The name, which may repeat. */
  name: string,
  /** The type, as SQL calls it. */
  type: string,
};
