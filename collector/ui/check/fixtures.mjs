// Made answers of a collector: hostile names, many nodes, many tasks, no data.

const NS = 1e9;
let fixedMs;
let areOld = false;
const now = () => Math.floor((fixedMs ?? Date.now()) / 1000) * NS;

/** Sets the time of answers made from now on; without it they are made for the present. Old ones are sent now. */
export function fixTime(ms, { old = false } = {}) {
  fixedMs = ms;
  areOld = old;
}

export const HOSTILE_NAMES = [
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(2)>',
  "'; alert(3); //",
  '\u202egnp.exe\u2066 \u200bhidden\u0000',
  'javascript:alert(4)',
  `${'long'.repeat(1024)}`,
  '{{constructor.constructor("alert(5)")()}} &lt;b&gt; %3Cscript%3E',
  '\ud800 lone',
];

const totals = (ns) => ({
  cpu_ns: ns,
  runnable_ns: 0,
  lock_ns: 0,
  interpreter_ns: 0,
  sleep_ns: 0,
  network_ns: 0,
  disk_ns: 0,
  other_ns: 0,
  wait_ns: 0,
  total_ns: ns,
});
const timeText = (ns) => new Date(ns / 1e6).toISOString();
const range = () => {
  const to_ns = now();
  const from_ns = to_ns - 300 * NS;
  return { from: timeText(from_ns), to: timeText(to_ns), from_ns, to_ns };
};
const sampled = () => ({
  range: range(),
  filter: {},
  worker_seconds: 1,
  sampled_ns: NS,
  achieved_rate_hz: 100,
  achieved_share: 1,
  data: range(),
  corrupt_files: [],
});

export function node(parent, name, kind, selfNs, file) {
  return {
    parent,
    name,
    kind,
    file,
    line: 0,
    module: file,
    self: { cpu: selfNs, runnable: 0, wait: 0 },
    total: { cpu: selfNs, runnable: 0, wait: 0 },
  };
}

export function profile(nodes) {
  const sum = nodes.reduce((all, one) => all + one.self.cpu, 0);
  return {
    ...sampled(),
    by: 'function',
    workers: ['w'],
    worker_count: 1,
    totals: totals(sum),
    hidden: { outside_ns: 0, states: totals(0), functions_ns: 0, zoom_ns: 0, total_ns: 0 },
    unnamed: { total_ns: 0, pending: false, modules: [] },
    folded: 0,
    empty: sum === 0,
    profile: columns(nodes),
  };
}

/** Nodes in columns, as the API returns them. */
function columns(nodes) {
  const functions = { names: [], kinds: [], files: [], lines: [], modules: [] };
  const known = new Map();
  const numbers = nodes.map(({ name, kind, file, line, module }) => {
    const key = JSON.stringify([name, kind, file]);
    if (!known.has(key)) {
      known.set(key, known.size);
      for (const [column, value] of Object.entries({
        names: name,
        kinds: kind,
        files: file,
        lines: line,
        modules: module,
      }))
        functions[column].push(value);
    }
    return known.get(key);
  });
  const cpu = { nodes: [], ns: [] };
  let last = 0;
  nodes.forEach((one, i) => {
    if (one.self.cpu === 0) return;
    cpu.nodes.push(i + 1 - last);
    cpu.ns.push(one.self.cpu);
    last = i + 1;
  });
  return {
    unit: 'ns',
    pruned: 0,
    functions,
    parents: nodes.map(({ parent }, i) => i + 1 - parent),
    numbers,
    self: { cpu },
  };
}

/** A tree of `count` nodes, few wide and many narrow, from a fixed seed. */
export function nodesOf(count) {
  let seed = 7;
  const random = (below) => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % below;
  };
  const nodes = [node(0, 'load', 'task', 0, '')];
  const depth = [0, 1];
  for (let i = 2; i <= count; i++) {
    // Half of the nodes are below a recent one, so that stacks are deep.
    let parent = random(2) === 0 ? i - 1 - random(Math.min(i - 1, 8)) : 1 + random(i - 1);
    if (depth[parent] > 90) parent = 1;
    depth[i] = depth[parent] + 1;
    const fn = random(8000);
    nodes.push(
      node(parent, `function_${fn}`, 'function', (1 + random(1000)) * 1000, `/home/crate${fn % 40}/src/lib.rs`),
    );
  }
  return nodes;
}

export const manyNodes = (count) => profile(nodesOf(count));

/** A name whose tasks took 100 ms before, and with this verdict twice as long after. */
export function comparedName(name, verdict) {
  const isSlower = verdict === 'slower';
  const hasBefore = verdict !== 'only_after';
  const ns = (ms) => ({ p50_ns: ms * 1e6, p90_ns: ms * 2e6, p99_ns: ms * 3e6 });
  const none = { p50_ns: null, p90_ns: null, p99_ns: null };
  const change = (ms) => ({
    change_ns: hasBefore ? (isSlower ? ms * 1e6 : 0) : null,
    ratio: hasBefore ? (isSlower ? 2 : 1) : null,
    p_value: hasBefore ? (isSlower ? 1e-9 : 0.6) : null,
    verdict: isSlower ? 'slower' : verdict === 'no_change' ? 'no_change' : 'too_few',
  });
  return {
    name,
    verdict,
    before: hasBefore ? { ended: 1000, failed: 0, ...ns(100) } : { ended: 0, failed: 0, ...none },
    after: { ended: 1200, failed: isSlower ? 60 : 0, ...ns(isSlower ? 200 : 100) },
    p50: change(100),
    p90: change(200),
    p99: change(300),
    failures: {
      before_share: hasBefore ? 0 : null,
      after_share: isSlower ? 0.05 : 0,
      p_value: isSlower ? 1e-9 : null,
      verdict: isSlower ? 'more' : 'no_change',
    },
  };
}

/** Answers of all endpoints, in which everything that has a name has one of `names`. */
export function answersNamed(names) {
  const steps = 300;
  const first = now() - steps * NS;
  const zeros = () => Array(steps).fill(0);
  const tasks = names.map((name, i) => ({
    worker: name,
    epoch: '1',
    id: i,
    name,
    key: name,
    thread_id: i,
    thread_name: name,
    parent: null,
    attempt: 2,
    result_bytes: 5,
    type_name: name,
    labels: { [name]: name },
    phases: [{ name, start_ns: now() - (20 - i) * NS, duration_ns: NS / 2, count: 1 }],
    start_ns: now() - (20 - i) * NS,
    stop_ns: i % 3 === 0 ? null : now() - (19 - i) * NS,
    duration_ns: NS,
    outcome: ['running', 'ok', 'failed', 'cancelled', 'lost'][i % 5],
    cause: name,
  }));
  const nodes = names.map((name) => node(0, name, 'task', 0, ''));
  names.forEach((name, i) => nodes.push(node(i + 1, name, 'phase', NS, '')));
  names.forEach((name, i) => nodes.push(node(names.length + i + 1, name, 'function', NS, name)));
  const account = {
    accepted_ns: NS,
    stored_ns: NS,
    lost_rejected_ns: 1,
    lost_by_collector_ns: 0,
    lost_queue_ns: 0,
    lost_unseen_ns: 0,
    lost_tasks: 1,
    unaccounted_ns: 0,
    balanced: true,
  };
  return {
    session: { role: 'operator', token: null, note: '', logged_in: false, sql: true, expires: null, expires_ns: null },
    profile: profile(nodes),
    timeline: {
      ...sampled(),
      first_ns: first,
      step_ns: NS,
      steps,
      others: 0,
      series: names.map((name) => ({
        kind: 'task',
        name,
        totals: totals(NS),
        cpu_ns: zeros().fill(1e8),
        runnable_ns: zeros(),
        wait_ns: zeros(),
      })),
    },
    tasks: { range: range(), total: tasks.length, truncated: false, aggregated: 0, tasks },
    summary: {
      range: null,
      aggregated: 0,
      names: names.map((name) => ({
        name,
        running: 1,
        outcomes: { ok: 1, failed: 1, cancelled: 1, panicked: 0, lost: 1 },
        durations: { count: 3, min_ns: 1, p50_ns: 1, p90_ns: 2, p99_ns: 3, max_ns: NS, mean_ns: 2, total_ns: 2 * NS },
        phases: [
          { name, tasks: 3, duration_ns: NS },
          { name: 'execute', tasks: 3, duration_ns: NS },
        ],
      })),
      sampled: names.map((name) => ({ name, cpu_ns: NS, runnable_ns: 0, wait_ns: 1 })),
    },
    compare: {
      before: range(),
      after: range(),
      false_alarms: 0.05,
      tests: 3 * names.length,
      corrupt_files: [],
      omitted: 0,
      names: names.map((name, i) => comparedName(name, ['slower', 'no_change', 'too_few', 'only_after'][i % 4])),
    },
    durations: {
      range: range(),
      step_ns: 10 * NS,
      corrupt_files: [],
      points: [0, 1, 2, 7, 8].map((step) => ({
        start_ns: first + step * 10 * NS,
        ended: 3,
        failed: 0,
        p50_ns: 1e8,
        p90_ns: 2e8,
        p99_ns: (3 + step) * 1e8,
      })),
    },
    names: {
      workers: names.map((name) => ({ worker: name, host: name })),
      omitted: 0,
      labels: names.map((name) => ({ label: `${name}=${name}`, workers: 1 })),
      labels_omitted: 0,
    },
    workers: {
      now_ns: now(),
      ingest: { open: false, reason: names[0] },
      omitted: 1,
      counts: { connected: names.length, away: 0, gone: 0, need_attention: names.length },
      services: names.map((name, i) => ({ name, series: 3, connected: i % 4, last_seen: new Date().toISOString() })),
      quotas: names.map((name, i) => ({
        identity: name,
        quota: i % 2 === 0 ? 'sessions' : name,
        value: i % 2 === 0 ? 100 : null,
        refused: i,
        delayed: 1,
        last: new Date().toISOString(),
      })),
      forwards: names.map((name, i) => ({
        url: `http://${name}`,
        protocol: i % 2 === 0 ? 'pyroscope' : name,
        unit: 'ns',
        accepted: 9e9,
        sent: 6e9,
        waiting: 2e9,
        waiting_bytes: 1000,
        lost_queue: 1e9,
        lost_rejected: 0,
        failed: 1,
        sent_at: i % 2 === 0 ? null : new Date().toISOString(),
        failure: i % 2 === 0 ? name : null,
      })),
      scrapes: names.map((name, i) => ({
        name,
        url: `http://${name}`,
        every_ns: 15 * NS,
        stored: i,
        stored_at: i % 2 === 0 ? null : new Date().toISOString(),
        failed: 1,
        failure: i % 2 === 0 ? name : null,
      })),
      stores: names.map((name, i) => ({
        name,
        read_at: i % 2 === 0 ? null : new Date().toISOString(),
        incomplete: i % 2 === 0 ? name : null,
      })),
      workers: names.map((name, i) => ({
        worker: name,
        epochs: [
          {
            epoch: String(i),
            labels: { [name]: name },
            host: name,
            pid: 1,
            agent_version: name,
            sampler_mode: name,
            signal_blocked_threads: 0,
            signal_blocked_since: null,
            first_seen: new Date().toISOString(),
            disconnect: null,
            interval_ns: 1e7,
            enabled: true,
            states: [],
            state: 'connected',
            connected: true,
            last_seen: new Date().toISOString(),
            clock: null,
            ticks: 1,
            ticks_expected: 1,
            ticks_throttled: 0,
            acked_seq: 1,
            account,
            rejected: 1,
            last_rejection: name,
            running_tasks: 1,
          },
        ],
      })),
    },
    ...moreAnswersNamed(names),
  };
}

/** Answers about transfers, resources, runs, events and thread dumps. */
function moreAnswersNamed(names) {
  const peer = (i) => names[(i + 1) % names.length];
  const sums = (i) => ({
    count: 3,
    failed: i % 2,
    bytes: (i + 1) * 1e6,
    compressed_bytes: i % 2 ? null : 1e5,
    duration_ns: NS,
    bandwidth: { mean: 1e6, p50: 1e6, p90: 2e6, p99: null },
  });
  return {
    transferSums: {
      range: range(),
      corrupt_files: [],
      types: names.map((name, i) => ({ type_name: name, ...sums(i) })),
      links: names.flatMap((name, i) =>
        ['incoming', 'outgoing'].map((direction) => ({ worker: name, peer: peer(i), direction, ...sums(i) })),
      ),
    },
    transfers: {
      range: range(),
      total: names.length,
      truncated: false,
      corrupt_files: [],
      transfers: names.map((name, i) => ({
        worker: name,
        epoch: '1',
        id: i,
        direction: 'incoming',
        peer: peer(i),
        keys: [name, name, name, name],
        more_keys: 2,
        type_name: name,
        bytes: 1e6,
        compressed_bytes: 5e5,
        start_ns: now(),
        duration_ns: NS,
        bandwidth: 1e6,
        outcome: i % 2 ? 'ok' : 'failed',
        cause: name,
      })),
    },
    resources: {
      range: range(),
      corrupt_files: [],
      step_ns: NS,
      series: names.flatMap((name, i) =>
        ['process_memory', 'cpu', name].map((measure) => ({
          worker: name,
          host: name,
          run: i % 2 ? name : null,
          measure,
          unit: measure === 'process_memory' ? 'bytes' : name,
          cumulative: false,
          points: Array.from({ length: 60 }, (_, at) => [
            now() - (60 - at) * NS,
            (i + 1) * 1e8 + at * 1e6,
            (i + 1) * 1e8 + at * 1e6,
          ]),
          peak: (i + 1) * 2e8,
        })),
      ),
    },
    progress: {
      now_ns: now(),
      names: names.map((name, i) => ({
        name,
        expected: i % 3 === 2 ? null : 40,
        done: 10,
        running: 2,
        failed: i % 2,
        lost: 0,
        cancelled: 0,
        rate_per_s: 1,
        remaining_ns: 30 * NS,
        state: i % 2 ? 'failed' : 'running',
      })),
    },
    runs: {
      runs: names.map((name, i) => ({
        id: String(i),
        name,
        worker: null,
        start_ns: now(),
        stop_ns: null,
        duration_ns: NS,
        open: true,
      })),
    },
    recent: {
      events: names.flatMap((name, i) =>
        ['worker_connected', 'worker_gone', 'run_started', 'corruption'].map((kind, at) => ({
          id: 4 * i + at,
          kind,
          at_ns: now(),
          data: {
            worker: name,
            name,
            outcome: 'failed',
            cause: name,
            file: name,
            duration_ns: NS,
            start_ns: now() - NS,
            stop_ns: now(),
          },
        })),
      ),
    },
    'thread-dump': {
      now_ns: now(),
      workers: names.map((name) => ({
        worker: name,
        epoch: '1',
        responded: false,
        reason: name,
        omitted: 0,
        groups: [
          {
            kind: 'task',
            task: name,
            state: 'cpu',
            stack: [{ name, module: name, file: name, line: 1, inlined: false, plumbing: false }],
            threads: [{ id: 1, name, blocked_ns: 0, age_ns: 1 }],
          },
        ],
      })),
    },
  };
}

/**
 * Two profiles, before and after: `same` stays, `more` doubles, `less` halves, and each side has a
 * function of its own.
 */
export function twoProfiles() {
  const of = (weights) =>
    profile([
      node(0, 'load', 'task', 0, ''),
      ...Object.entries(weights).map(([name, ms]) => node(1, name, 'function', ms * 1e6, '/home/made/src/lib.rs')),
    ]);
  const before = of({ same: 400, more: 200, less: 300, gone: 100 });
  const after = of({ same: 400, more: 400, less: 150, fresh: 50 });
  return {
    ...answersNamed(['load']),
    runs: { runs: [] },
    profile: (url) => (url.searchParams.get('from') === '-10m' ? before : after),
  };
}

/** Answers of a collector that has never received data. */
export function emptyAnswers() {
  const answers = answersNamed([]);
  const empty = { data: null, worker_seconds: 0, achieved_rate_hz: null, achieved_share: null };
  return {
    ...answers,
    profile: { ...answers.profile, ...empty, workers: [], worker_count: 0 },
    timeline: { ...answers.timeline, ...empty },
  };
}

/**
 * Returns the answer to a request; `undefined` if it is not for the API. An answer may be a function
 * of the URL.
 */
export function respond(answers) {
  const texts = Object.fromEntries(
    Object.entries(answers).map(([name, value]) => [name, typeof value === 'function' ? value : JSON.stringify(value)]),
  );
  return (url) => {
    if (!url.pathname.includes('/api/v1/')) return undefined;
    const name = url.pathname.split('/').pop();
    // A stream with one update that ends; the page polls then.
    if (name === 'updates')
      return {
        contentType: 'text/event-stream',
        body: `retry: 600000\nevent: update\ndata: {"now_ns":${now()},"data_to_ns":null,"flushes":1,"ingest_stopped":${JSON.stringify(answers.stopped ?? null)}}\n\n`,
      };
    if (name === 'tasks' && url.searchParams.get('format') === 'columns')
      return { contentType: 'application/json', body: texts.taskColumns };
    const isList = name === 'tasks' && !url.searchParams.has('summary');
    if (isList && url.searchParams.has('outcome') && typeof answers.tasks === 'object') {
      const outcomes = url.searchParams.getAll('outcome');
      const tasks = answers.tasks.tasks.filter(({ outcome }) => outcomes.includes(outcome));
      const limit = Number(url.searchParams.get('limit') ?? tasks.length);
      const found = { ...answers.tasks, total: tasks.length, tasks: tasks.slice(0, limit) };
      return { contentType: 'application/json', body: JSON.stringify(found) };
    }
    const summary = name === 'transfers' ? 'transferSums' : 'summary';
    const body = texts[url.searchParams.has('summary') ? summary : name];
    return { contentType: 'application/json', body: typeof body === 'function' ? JSON.stringify(body(url)) : body };
  };
}

/** Answers the page's API requests with `answers`. */
export async function mockApi(page, answers) {
  const answer = respond(answers);
  const sentMs = () => (areOld ? undefined : fixedMs) ?? Date.now();
  const headers = () => ({ 'x-emberline-now-ns': String(sentMs() * 1e6) });
  await page
    .context()
    .route('**/api/v1/**', (route) => route.fulfill({ headers: headers(), ...answer(new URL(route.request().url())) }));
}

/** `count` tasks on 100 threads of 10 workers, one after the other, newest first. */
function tasksOf(count) {
  const until = Array(100).fill(now() - 290 * NS);
  const tasks = Array.from({ length: count }, (_, i) => {
    const thread = i % 100;
    const duration = (((i * 7919) % 1000) / 1000) * ((560 * NS) / (count / 100));
    const start = until[thread];
    until[thread] += duration;
    return { i, thread, name: (i * 31) % 12, start, duration: duration * 0.9 };
  });
  return tasks.sort((a, b) => b.start - a.start);
}

const THREADS = Array.from({ length: 100 }, (_, thread) => ({
  worker: `worker-${thread % 10}`,
  epoch: '1',
  id: thread,
  name: `pool-${thread}`,
}));

/** The tasks as rows; of more than `limit`, the newest. */
export function manyTasks(count, limit = count) {
  const tasks = tasksOf(count)
    .slice(0, limit)
    .map(({ i, thread, name, start, duration }) => ({
      worker: THREADS[thread].worker,
      epoch: '1',
      id: i,
      name: `task-${name}`,
      key: `key-${i}`,
      thread_id: thread,
      thread_name: THREADS[thread].name,
      parent: null,
      start_ns: start,
      stop_ns: start + duration,
      duration_ns: duration,
      outcome: 'ok',
      cause: '',
      attempt: null,
      result_bytes: null,
      type_name: '',
      labels: {},
      phases: [],
    }));
  return { range: range(), total: count, truncated: limit < count, aggregated: 0, tasks };
}

/** The tasks in columns. */
export function manyOutlines(count) {
  const tasks = tasksOf(count);
  const us = (ns) => Math.round(ns / 1000);
  return {
    range: range(),
    total: count,
    truncated: false,
    aggregated: 0,
    corrupt_files: [],
    outcomes: ['running', 'ok', 'failed', 'cancelled', 'panicked', 'lost'],
    names: Array.from({ length: 12 }, (_, i) => `task-${i}`),
    threads: THREADS,
    first_ns: tasks[0].start,
    columns: {
      name: tasks.map(({ name }) => name),
      thread: tasks.map(({ thread }) => thread),
      id: tasks.map(({ i }) => i),
      earlier_us: tasks.map(({ start }, at) =>
        at === 0 ? 0 : us(tasks[0].start - start) - us(tasks[0].start - tasks[at - 1].start),
      ),
      duration_us: tasks.map(({ duration }) => us(duration)),
      outcome: tasks.map(() => 1),
    },
  };
}

/**
 * Ten seconds of two threads: a task that spends a second in each of three phases and then executes,
 * and one that failed.
 */
export function phasedTasks() {
  const from = Math.floor(Date.now() / 1000) - 60;
  const answers = answersNamed(['load']);
  const phases = ['serialize', 'transfer', 'disk-read'].map((name, i) => ({
    name,
    start_ns: (from + i) * NS,
    duration_ns: NS,
    count: 1,
  }));
  const task = (thread_id, outcome, more) => ({
    ...answers.tasks.tasks[0],
    id: thread_id,
    name: 'load',
    thread_id,
    thread_name: `pool-${thread_id}`,
    start_ns: from * NS,
    stop_ns: (from + 10) * NS,
    duration_ns: 10 * NS,
    outcome,
    ...more,
  });
  const tasks = [task(1, 'ok', { phases }), task(2, 'failed', { phases: [] })];
  return {
    from: String(from),
    to: String(from + 10),
    answers: { ...answers, tasks: { ...answers.tasks, total: 2, tasks } },
  };
}
