// CPU time of the page:
//   node bench.mjs http://127.0.0.1:4747
//
// Times are CPU times of the page's main thread as the kernel counts them, so that a busy machine does
// not change them. Answers are prepared and served by plain HTTP. During a measurement only a
// readiness check runs in the page, each quarter second.

import fs from 'node:fs';
import { answersNamed, emptyAnswers, manyNodes, manyOutlines, manyTasks, nodesOf, respond } from './fixtures.mjs';
import { Checks, open, proxy, start } from './harness.mjs';
import { servePeers } from './peers.mjs';

const [, , target] = process.argv;
/** Rounds of each load; the median is printed. */
const ROUNDS = Number(process.env.EMBERLINE_ROUNDS ?? 5);
// A spare renderer's CPU time would be counted with the page's.
const browser = await start({ args: ['--disable-features=SpareRendererForSitePerProcess'] });
const session = await browser.newBrowserCDPSession();
const RANGE = `from=${new Date(Date.now() - 300_000).toISOString()}&to=${new Date().toISOString()}`;
/** A page has settled when it used less CPU time than this in each of two intervals of STRETCH_MS. */
const QUIET_MS = 3;
const STRETCH_MS = 300;
/** Limit on settling. */
const SETTLE_MS_MAX = 120_000;
/** Interval of the readiness check. */
const LOOK_MS = 250;

/** CPU milliseconds of the open page's main thread and web workers. */
async function threads() {
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  const times = { main: 0, workers: 0 };
  for (const { id } of processInfo.filter(({ type }) => type === 'renderer')) {
    for (const thread of read(() => fs.readdirSync(`/proc/${id}/task`), [])) {
      const isMain = Number(thread) === id;
      // Threads may end meanwhile.
      if (
        !isMain &&
        !read(() => fs.readFileSync(`/proc/${id}/task/${thread}/comm`, 'utf8'), '').startsWith('DedicatedWorker')
      )
        continue;
      const ms =
        Number(read(() => fs.readFileSync(`/proc/${id}/task/${thread}/schedstat`, 'utf8'), '0').split(' ')[0]) / 1e6;
      times[isMain ? 'main' : 'workers'] += ms;
    }
  }
  return times;
}

function read(from, otherwise) {
  try {
    return from();
  } catch {
    return otherwise;
  }
}

const later = (ms) => new Promise((done) => setTimeout(done, ms));

async function measured(work) {
  const before = await threads();
  await work();
  const after = await threads();
  return { main: after.main - before.main, workers: Math.max(0, after.workers - before.workers) };
}

/** Waits until the page is idle, so that drawing in slices is measured to the end. */
async function quiet() {
  const begun = Date.now();
  for (let calm = 0; calm < 2 && Date.now() - begun < SETTLE_MS_MAX; ) {
    const { main } = await measured(() => later(STRETCH_MS));
    calm = main < QUIET_MS ? calm + 1 : 0;
  }
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const ms = (values) =>
  `${median(values).toFixed(1)} ms (${Math.min(...values).toFixed(1)}–${Math.max(...values).toFixed(1)})`;
const say = (what, values, more = '') => console.log(`${what}: ${ms([values].flat())}${more}`);

/** A page at `url`, and its CPU time until `ready` exists and everything is drawn. */
async function load(url, blank, ready) {
  const page = await open(browser, new Checks(), { expected: /GL Driver Message/ });
  const view = await page.context().newCDPSession(page);
  await page.goto(blank);
  await quiet();
  const begun = Date.now();
  const took = await measured(async () => {
    await page.goto(url, { waitUntil: 'commit' });
    for (;;) {
      await later(LOOK_MS);
      const { result } = await view.send('Runtime.evaluate', {
        expression: `document.querySelector(${JSON.stringify(ready)}) !== null`,
      });
      if (result.value === true || Date.now() - begun > SETTLE_MS_MAX) break;
    }
    await quiet();
  });
  return { page, view, took };
}

/** Loads the page of `path` with these answers `ROUNDS` times; the last one stays open. */
async function loads(what, answers, path, ready) {
  const served = await proxy(target, '/', { made: respond(answers) });
  const all = [];
  let opened;
  for (let round = 0; round < ROUNDS; round++) {
    await opened?.page.context().close();
    opened = await load(`${served.url}${path}?${RANGE}`, `${served.url}livez`, ready);
    all.push(opened.took);
  }
  const workers = median(all.map((one) => one.workers));
  say(
    `${what}: load`,
    all.map((one) => one.main),
    workers > 0 ? `, and ${workers.toFixed(0)} ms in a worker in parallel` : '',
  );
  const close = async () => {
    await opened.page.context().close();
    served.close();
  };
  return { ...opened, main: median(all.map((one) => one.main)), close };
}

/** CPU time per event of `count` events, each in a frame of its own. */
async function each(page, count, selector, type) {
  const act = () =>
    page.evaluate(
      async ({ count, selector, type }) => {
        const element = document.querySelector(selector);
        const box = element.getBoundingClientRect();
        for (let i = 0; i < count; i++) {
          const at = {
            clientX: box.left + box.width * (0.15 + 0.1 * (i % 7)),
            clientY: box.top + 60,
            bubbles: true,
            cancelable: true,
          };
          if (type === 'wheel')
            element.dispatchEvent(new WheelEvent('wheel', { ...at, deltaY: i % 20 < 10 ? -60 : 60, ctrlKey: true }));
          else if (type === 'move')
            element.dispatchEvent(new PointerEvent('pointermove', { ...at, clientY: box.top + 30 + 19 * (i % 10) }));
          await new Promise(requestAnimationFrame);
        }
      },
      { count, selector, type },
    );
  // The first round compiles the code.
  await act();
  const rounds = [];
  for (let round = 0; round < 3; round++) rounds.push((await measured(act)).main / count);
  return rounds;
}

/**
 * Clicks that zoom in, one row deeper each time: CPU time, and time to the next frame as the browser's
 * event timing reports it, in steps of 8 ms.
 */
async function clicks(page) {
  await page.evaluate(() => {
    window.shownAfter = [];
    new PerformanceObserver((list) =>
      list.getEntries().forEach((entry) => {
        if (entry.name === 'click') window.shownAfter.push(entry.duration);
      }),
    ).observe({ type: 'event', durationThreshold: 16 });
  });
  const box = await page.locator('.flame').boundingBox();
  const cpu = [];
  for (let row = 1; row <= 6; row++) {
    const { main } = await measured(async () => {
      await page.mouse.click(box.x + 30, box.y + 19 * row + 8);
      await later(400);
    });
    cpu.push(main);
  }
  // Events under the threshold of 16 ms are not reported.
  const reported = await page.evaluate(() => window.shownAfter);
  return { cpu, shown: [...reported, ...Array(Math.max(0, cpu.length - reported.length)).fill(16)] };
}

/** CPU time of typing a word, until its matches are shown and in the address. */
async function search(view) {
  const type = (text) =>
    view.send('Runtime.evaluate', {
      expression: `{ const field = document.querySelector('.search input'); field.value = ${JSON.stringify(text)}; field.dispatchEvent(new Event('input', { bubbles: true })); }`,
    });
  const all = [];
  for (let round = 0; round < ROUNDS; round++) {
    all.push(
      (
        await measured(async () => {
          await type(`function_1${round}`);
          await quiet();
        })
      ).main,
    );
    await type('');
    await quiet();
  }
  return all;
}

const domNodes = (page) => page.evaluate(() => document.querySelectorAll('*').length);

await (await loads('a page of one word, for comparison', emptyAnswers(), 'livez', 'body')).close();
await (await loads('a page without samples', emptyAnswers(), 'profile', '.empty h2')).close();
const NODES = [1000, 100_000, 1_000_000];
const ours = new Map();
for (const count of NODES) {
  const words = `${count} nodes`;
  const { page, view, main, close } = await loads(
    words,
    { ...answersNamed(['load']), profile: manyNodes(count) },
    'profile',
    '.flame canvas[data-rects]',
  );
  ours.set(count, main);
  console.log(
    `${words}: ${await page.getAttribute('.flame canvas', 'data-rects')} rectangles, ${await domNodes(page)} DOM nodes`,
  );
  say(`${words}: a frame of zooming`, await each(page, 60, '.flame', 'wheel'));
  say(`${words}: a frame of hovering`, await each(page, 60, '.flame', 'move'));
  await page.keyboard.press('0');
  say(`${words}: a search`, await search(view));
  const { cpu, shown } = await clicks(page);
  say(`${words}: a click, on a processor`, cpu);
  say(`${words}: from a click to its frame`, shown);
  await close();
}
for (const count of [5000, 100_000, 1_000_000]) {
  const answers = {
    ...answersNamed(['load']),
    tasks: manyTasks(count, 5000),
    ...(count > 5000 && { taskColumns: manyOutlines(count) }),
  };
  const words = `${count} tasks`;
  const ready = count > 5000 ? `.stream canvas[data-tasks="${count}"]` : '.stream canvas[data-rects]';
  const { page, close } = await loads(words, answers, 'tasks', ready);
  console.log(
    `${words}: ${await page.getAttribute('.stream canvas', 'data-rects')} rectangles, ${await domNodes(page)} DOM nodes`,
  );
  say(`${words}: a frame of zooming`, await each(page, 60, '.stream', 'wheel'));
  await page.click('text=one row per worker');
  await quiet();
  say(`${words}: a frame of zooming, one line a worker`, await each(page, 60, '.stream', 'wheel'));
  await close();
}
for (const count of [1000, 100_000]) {
  const { peers, blank, close } = await servePeers(nodesOf(count));
  for (const { name, url, ready } of peers) {
    const { page, took } = await load(url, blank, ready);
    console.log(
      `${count} nodes: load in ${name}: ${took.main.toFixed(0)} ms, ${(took.main / ours.get(count)).toFixed(1)} times ours, ${await domNodes(page)} DOM nodes`,
    );
    await page.context().close();
  }
  close();
}
await browser.close();
process.exit(0);
