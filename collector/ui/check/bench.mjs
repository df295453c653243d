// What the page costs its reader's processor: node bench.mjs http://127.0.0.1:4747
//
// Times are those of the page's main thread on a processor, as the kernel counts them, so that a
// busy machine does not change them. Prints a line for each figure.

import fs from 'node:fs';
import { Checks, open, start } from './harness.mjs';
import { answerWith, hostile, manyNodes, manyTasks, nodesOf } from './made.mjs';
import { servePeers } from './peers.mjs';

const [, , target] = process.argv;
const browser = await start();
const session = await browser.newBrowserCDPSession();
const RANGE = `from=${new Date(Date.now() - 300_000).toISOString()}&to=${new Date().toISOString()}`;
/** A page has settled when it used less than this in each of two stretches of this length. */
const QUIET_MS = 3;
const STRETCH_MS = 300;
/** How long one may take to settle. */
const SETTLE_MS_MAX = 120_000;

/** Milliseconds on a processor of the main thread of the one page that is open. */
async function mainThread() {
  const { processInfo } = await session.send('SystemInfo.getProcessInfo');
  const times = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => {
    try {
      return Number(fs.readFileSync(`/proc/${id}/task/${id}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
    } catch {
      return 0;
    }
  });
  return times.reduce((sum, ms) => sum + ms, 0);
}

async function measured(work) {
  const before = await mainThread();
  await work();
  return (await mainThread()) - before;
}

/** Waits until nothing is being drawn any more: who draws in slices is measured to the end. */
async function quiet() {
  const begun = Date.now();
  for (let calm = 0; calm < 2 && Date.now() - begun < SETTLE_MS_MAX; ) {
    const ms = await measured(() => new Promise((done) => setTimeout(done, STRETCH_MS)));
    calm = ms < QUIET_MS ? calm + 1 : 0;
  }
}

const say = (what, ms) => console.log(`${what}: ${ms.toFixed(1)} ms`);
/** A frame was shown after what was done before. */
const frame = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));

async function load(made, path, ready) {
  const page = await open(browser, new Checks());
  await answerWith(page, made);
  await page.goto(target.replace(/\/?$/, '/') + 'licenses');
  await page.waitForSelector('pre');
  const ms = await measured(async () => {
    await page.goto(`${target.replace(/\/?$/, '/')}${path}?${RANGE}`);
    await page.waitForSelector(ready);
    await quiet();
  });
  return { page, ms };
}

/** Of `count` events, each in a frame of its own, what one costs. */
async function each(page, count, selector, type) {
  const act = () => page.evaluate(async ({ count, selector, type }) => {
    const element = document.querySelector(selector);
    const box = element.getBoundingClientRect();
    for (let i = 0; i < count; i++) {
      const at = { clientX: box.left + box.width * (0.15 + 0.1 * (i % 7)), clientY: box.top + 60, bubbles: true, cancelable: true };
      if (type === 'wheel') element.dispatchEvent(new WheelEvent('wheel', { ...at, deltaY: i % 20 < 10 ? -60 : 60, ctrlKey: true }));
      else if (type === 'move') element.dispatchEvent(new PointerEvent('pointermove', { ...at, clientY: box.top + 30 + 19 * (i % 10) }));
      await new Promise(requestAnimationFrame);
    }
  }, { count, selector, type });
  return (await measured(act)) / count;
}

{
  const { page, ms } = await load(hostile(['load']), 'licenses', 'pre');
  say('a page of text: load', ms);
  await page.context().close();
}
const NODES = [1000, 100_000, 1_000_000];
const loads = new Map();
for (const count of NODES) {
  const { page, ms } = await load({ ...hostile(['load']), profile: manyNodes(count) }, 'profile', '.flame canvas[data-rects]');
  loads.set(count, ms);
  say(`${count} nodes: load`, ms);
  say(`${count} nodes: a frame of zooming`, await each(page, 60, '.flame', 'wheel'));
  say(`${count} nodes: a frame of hovering`, await each(page, 60, '.flame', 'move'));
  say(`${count} nodes: a search`, await measured(async () => {
    await page.fill('.search input', 'function_12');
    await page.waitForSelector('.search output');
    await quiet();
  }));
  console.log(`${count} nodes: ${await page.getAttribute('.flame canvas', 'data-rects')} rectangles, ${await page.evaluate(() => document.querySelectorAll('*').length)} DOM nodes`);
  await page.context().close();
}
for (const count of [5000, 100_000]) {
  const { page, ms } = await load({ ...hostile(['load']), tasks: manyTasks(count) }, 'tasks', '.stream canvas[data-rects]');
  say(`${count} tasks: load`, ms);
  say(`${count} tasks: a frame of zooming`, await each(page, 60, '.stream', 'wheel'));
  await page.context().close();
}
for (const count of [1000, 100_000]) {
  const { peers, close } = await servePeers(nodesOf(count));
  for (const { name, url, ready } of peers) {
    const page = await open(browser, new Checks(), { expected: /GL Driver Message/ });
    page.setDefaultTimeout(SETTLE_MS_MAX);
    const ms = await measured(async () => {
      await page.goto(url);
      await page.waitForSelector(ready);
      await quiet();
    });
    console.log(`${count} nodes: load in ${name}: ${ms.toFixed(0)} ms, ${(ms / loads.get(count)).toFixed(1)} times ours, ${await page.evaluate(() => document.querySelectorAll('*').length)} DOM nodes`);
    await page.context().close();
  }
  close();
}
await browser.close();
process.exit(0);
