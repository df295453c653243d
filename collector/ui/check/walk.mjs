// Six questions of a tired engineer, answered on the page: clicks and seconds of each.
//   node walk.mjs http://127.0.0.1:4747 DIRECTORY
// walks through a live demo at three widths in both themes, writes a picture of each answer, and prints a
// table. It kills one of the demo's workers, so that there is a failure to find. EMBERLINE_TOKEN is an
// operator's token. The page's checks walk through made answers, and count clicks.

import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { answersNamed, mockApi, node, profile } from './fixtures.mjs';
import { Checks, open, proxy, settled, start, waitForFleet } from './harness.mjs';

const CLICKS_MAX = 3;
const WIDTHS = [1440, 1024, 390];
const THEMES = ['light', 'dark'];
/** How long the collector may take to miss a killed worker. */
const LOST_MS_MAX = 60_000;

/** A page, and the clicks on it. */
class User {
  clicks = 0;

  constructor(page) {
    this.page = page;
  }

  async click(selector) {
    this.clicks++;
    await this.page.locator(selector).first().click();
  }

  async select(selector, value) {
    this.clicks++;
    await this.page.selectOption(selector, value);
  }

  link(name) {
    return this.click(`nav[aria-label="Pages"] >> text=${name}`);
  }

  /** The text of an answer, once it is there. */
  async read(selector) {
    const text = await this.page.locator(selector).first().innerText();
    return text.replace(/\s+/g, ' ').trim();
  }
}

const HOTTEST = '.hottest li';

/** Each starts on the status page and returns the answer. */
const QUESTIONS = {
  'hottest function of the slowest task of the last minute': async (user) => {
    await user.select('.range select', '-1m');
    await user.link('Tasks');
    await user.click('section:has(> h2:has-text("Slowest")) tbody a');
    await settled(user.page);
    return user.read(HOTTEST);
  },
  'what a worker did between two clock times': async (user) => {
    await user.link('Workers');
    await user.click('main table tbody tr a');
    await user.select('.range select', 'pick');
    const clock = (seconds) => new Date(Date.now() - seconds * 1000).toTimeString().slice(0, 8);
    await user.page.fill('.range input[aria-label="from"]', clock(25));
    await user.page.fill('.range input[aria-label="to"]', clock(5));
    await user.page.keyboard.press('Enter');
    await user.page.waitForSelector('.live.pinned');
    return user.read(HOTTEST);
  },
  'slower than five minutes ago?': async (user) => {
    await user.link('Compare');
    return user.read('table.compared tbody tr');
  },
  'which task failed, and why': async (user) => {
    await user.link('Tasks');
    await user.click('.filters .chip >> text=failed');
    await user.page.waitForSelector('main th >> text=Cause');
    return user.read('section:has(> h2:has-text("Slowest")) tbody tr:has(b:text-matches("^(failed|lost|panicked)$"))');
  },
  'where time is wasted waiting': async (user) => {
    await user.link('Profile');
    await user.click('.chip >> text=waiting');
    await user.click('.chip >> text=on CPU');
    await user.page.waitForFunction(() => new URL(location.href).searchParams.getAll('state').join() === 'wait');
    await settled(user.page);
    return user.read(HOTTEST);
  },
  'save the flame graph': async (user) => {
    await user.link('Profile');
    await user.click('.download summary');
    const [download] = await Promise.all([
      user.page.waitForEvent('download'),
      user.click('.download a >> text=SVG flame graph'),
    ]);
    return download.suggestedFilename();
  },
};

/** Asks one question on the status page, which is open. */
async function ask(page, question) {
  const user = new User(page);
  const begun = performance.now();
  const answer = await QUESTIONS[question](user);
  return { clicks: user.clicks, seconds: (performance.now() - begun) / 1000, answer };
}

export function walkChecks({ browser, checks, open, at }) {
  async function walk() {
    for (const size of ['wide', 'phone']) {
      const page = await open(browser, checks, { size });
      await mockApi(page, answersNamed(['alpha', 'beta', 'gamma', 'delta', 'epsilon']));
      for (const question of Object.keys(QUESTIONS)) {
        await page.goto(at(''));
        await settled(page);
        const { clicks, answer } = await ask(page, question);
        checks.expect(clicks <= CLICKS_MAX, `clicks (${size}): ${question}`, String(clicks));
        checks.expect(answer.length > 3, `the answer is on the page (${size}): ${question}`, answer);
      }
      await page.context().close();
    }
  }

  /** The first rows of the graph are on the first screen of a phone, and high up on a wide one. */
  async function graphAboveTheFold() {
    for (const [size, topMax] of [
      ['phone', 560],
      // The toolbar takes two rows at this width.
      ['wide', 352],
    ]) {
      const page = await open(browser, checks, { size });
      await mockApi(page, answersNamed(['alpha', 'beta', 'gamma']));
      await page.goto(at('profile'));
      await settled(page);
      const { y } = await page.locator('.flame canvas').boundingBox();
      checks.expect(y <= topMax, `the graph is above the fold (${size})`, `it starts at ${y} px`);
      await page.context().close();
    }
  }

  /** The profile of one task without time on CPU shows where it waited. Time without stacks is no function. */
  async function taskThatOnlyWaited() {
    const page = await open(browser, checks);
    const waits = profile([
      node(0, 'load', 'task', 0, ''),
      node(1, 'receive', 'function', 3e8, '/home/made/src/lib.rs'),
      node(1, '[threads not told apart]', 'no_stack', 4e8, ''),
    ]);
    const onCpu = profile([node(0, 'load', 'task', 0, '')]);
    Object.assign(onCpu.hidden.states, { network_ns: 7e8, wait_ns: 7e8, total_ns: 7e8 });
    onCpu.hidden.total_ns = 7e8;
    const answer = (url) => (url.searchParams.getAll('state').join() === 'all' ? waits : onCpu);
    await mockApi(page, { ...answersNamed(['load']), profile: answer });
    await page.goto(at('profile?task=load&on=pool-1&on_id=1'));
    await page.waitForSelector(HOTTEST);
    const text = await page.locator('.hottest ol').innerText();
    checks.expect(/receive/.test(text) && !/told apart/.test(text), 'a task that only waited shows where', text);
    await page.context().close();
  }

  return { mocked: [walk, graphAboveTheFold, taskThatOnlyWaited], live: [] };
}

/** Kills a worker of the demo and waits until its tasks are lost. */
async function failSomething(apiUrl) {
  const json = async (address) => (await fetch(apiUrl(address))).json();
  const { workers } = await json('workers');
  const { epochs } = workers.find(({ worker }) => worker.endsWith('1')) ?? workers[0];
  process.kill(epochs[epochs.length - 1].pid, 'SIGKILL');
  const begun = Date.now();
  while ((await json('tasks?outcome=lost&outcome=failed&limit=1')).total === 0) {
    if (Date.now() - begun > LOST_MS_MAX) throw new Error('no task was lost with its worker');
    await new Promise((later) => setTimeout(later, 500));
  }
}

async function main([target, folder]) {
  const checks = new Checks();
  const browser = await start();
  const { url, close } = await proxy(target, '/', { token: process.env.EMBERLINE_TOKEN });
  const apiUrl = (address) => `${url}api/v1/${address}`;
  await waitForFleet(apiUrl);
  await failSomething(apiUrl);
  console.log('| question | width | clicks | seconds | answer |\n|---|---|---|---|---|');
  for (const question of Object.keys(QUESTIONS)) {
    for (const width of WIDTHS) {
      const seconds = [];
      let last;
      for (const theme of THEMES) {
        const page = await open(browser, checks, { theme });
        await page.setViewportSize({ width, height: width < 500 ? 844 : 900 });
        await page.goto(url);
        await settled(page);
        last = await ask(page, question);
        seconds.push(last.seconds.toFixed(1));
        await settled(page);
        const name = `${question.replace(/\W+/g, '-')}-${width}-${theme}.png`;
        await page.screenshot({ path: path.join(folder, name) });
        await page.context().close();
      }
      console.log(`| ${question} | ${width} | ${last.clicks} | ${seconds.join(', ')} | ${last.answer.slice(0, 90)} |`);
    }
  }
  await browser.close();
  close();
  process.exit(checks.failed > 0 ? 1 : 0);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main(process.argv.slice(2));
