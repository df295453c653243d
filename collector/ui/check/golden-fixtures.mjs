// Fixed answers for golden pictures: the same numbers at each run.

import { answersNamed, node, nodesOf, profile, respond } from './fixtures.mjs';

const NS = 1e9;
const NAMES = ['compress', 'merge', 'qr', 'stack-qr', 'tokenize'];
const NODES = 2500;
const PHASES = ['queue', 'transfer', 'deserialize', 'disk-read', 'serialize'];

/** Numbers from 0 up to `below` from a fixed seed. */
function randomFrom(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 8) % below;
  };
}

/** A tree of several tasks. */
function profileOf(weight) {
  const nodes = NAMES.map((name) => node(0, name, 'task', 0, ''));
  nodesOf(NODES).forEach((one, i) => {
    const parent = one.parent === 0 ? 0 : one.parent === 1 ? 1 + (i % NAMES.length) : one.parent + NAMES.length - 1;
    if (i > 0) nodes.push({ ...one, parent, self: { ...one.self, cpu: weight(one, i) } });
  });
  return profile(nodes);
}

/** Three workers with three threads: long tasks with phases, short ones, and each outcome. */
function streamTasks(model, to_ns) {
  const random = randomFrom(11);
  const tasks = [];
  for (let thread = 0; thread < 9; thread++) {
    const isShort = thread % 3 === 2;
    for (let at = to_ns - 300 * NS, i = 0; at < to_ns - 2 * NS; i++) {
      const duration_ns = isShort ? (1 + random(400)) * 1e6 : (2 + random(24)) * NS;
      const stop_ns = Math.min(to_ns, at + duration_ns);
      const phase = PHASES[random(PHASES.length)];
      const outcome = ['ok', 'ok', 'ok', 'ok', 'failed', 'cancelled', 'lost'][isShort ? 0 : random(7)];
      tasks.push({
        ...model,
        worker: `worker-${Math.floor(thread / 3)}`,
        id: tasks.length,
        name: NAMES[(thread + i) % NAMES.length],
        thread_id: thread,
        thread_name: `pool-${thread}`,
        start_ns: at,
        stop_ns,
        duration_ns: stop_ns - at,
        outcome,
        phases: isShort ? [] : [{ name: phase, start_ns: at, duration_ns: (stop_ns - at) / 3, count: 1 }],
      });
      at = stop_ns + (isShort ? random(300) * 1e6 : random(3) * NS);
    }
  }
  return tasks.sort((a, b) => b.start_ns - a.start_ns);
}

/** Threads over time that rise and fall. */
function timeline(model) {
  const wave = (i) => (_, step) => 4e8 * (1 + Math.sin(step / (9 + 5 * i)));
  const series = model.series.map((one, i) => ({ ...one, cpu_ns: one.cpu_ns.map(wave(i)) }));
  return { ...model, series };
}

/** One machine with two workers, and a limit. */
function resources(model, to_ns) {
  const [one] = model.series;
  const points = (scale, value) =>
    Array.from({ length: 120 }, (_, at) => [to_ns - (120 - at) * 2 * NS, value(at) * scale, value(at) * scale]);
  const series = [
    ['worker-0', 'host_cpu', (at) => 1 + 0.8 * Math.sin(at / 9)],
    ['worker-0', 'host_cpus', () => 2],
    ['worker-0', 'process_cpu', (at) => 0.4 + 0.3 * Math.sin(at / 5)],
    ['worker-1', 'process_cpu', (at) => 0.5 + 0.4 * Math.cos(at / 7)],
  ].map(([worker, measure, value]) => {
    return { ...one, worker, host: 'host', run: null, measure, unit: 'cores', points: points(1, value), peak: 2 };
  });
  return { ...model, series };
}

/** Answers API requests of the page. */
export function goldenAnswers() {
  const answers = answersNamed(NAMES);
  const { to_ns } = answers.tasks.range;
  const whole = profileOf((one) => one.self.cpu);
  const changed = profileOf((one, i) => one.self.cpu * (i % 3));
  const tasks = streamTasks(answers.tasks.tasks[0], to_ns);
  for (const { epochs } of answers.workers.workers)
    for (const epoch of epochs) {
      epoch.sampler_mode = 'full';
      epoch.rejected = 0;
      epoch.account = { ...epoch.account, lost_rejected_ns: 0, lost_tasks: 0 };
    }
  const workers = { ...answers.workers, forwards: [], scrapes: [], stores: [] };
  const answer = respond({
    ...answers,
    workers,
    summary: { ...answers.summary, sampled: [] },
    profile: (url) => (url.searchParams.get('from') === '-10m' ? changed : whole),
    timeline: timeline(answers.timeline),
    tasks: { ...answers.tasks, total: tasks.length, tasks },
    resources: resources(answers.resources, to_ns),
  });
  return (route) => {
    const url = new URL(route.request().url());
    // Failed tasks would be alerts, which may come after the picture is taken.
    if (url.searchParams.getAll('outcome').length === 3)
      return route.fulfill({ json: { ...answers.tasks, total: 0, tasks: [] } });
    return route.fulfill(answer(url));
  };
}
