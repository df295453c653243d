// Checks the page in a real browser against a collector with a live fleet:
//   node run.mjs http://127.0.0.1:4747 [folder for screenshots]

import { checkAccess, checkForm, Checks, open, proxy, SIZES, start } from './harness.mjs';
import { answerWith, ATTACKS, hostile, manyNodes, nothing } from './made.mjs';

const [, , target, pictures] = process.argv;
const PAGES = ['', 'profile', 'profile?colour=state&view=flame', 'profile?view=table', 'profile?view=sandwich', 'tasks', 'workers', 'licenses'];
const checks = new Checks();
const browser = await start();
// All checks look through a proxy, below a path: what works there works at the root too.
const below = await proxy(target, '/behind/a-proxy/');
const at = (path) => below.url + path;
const parameter = (page, name) => new URL(page.url()).searchParams.get(name);
const graph = '.flame canvas[data-rects]';

/** How long a fleet may take until each kind of its tasks was seen. */
const FLEET_MS_MAX = 120_000;

async function fleetIsThere() {
  const begun = Date.now();
  for (;;) {
    const answer = await fetch(new URL('api/v1/tasks?summary=true', below.url)).then((response) => response.json());
    const seen = new Set(answer.names.filter(({ durations }) => durations).map(({ name }) => name));
    if (seen.has('qr') && seen.has('compress')) return;
    if (Date.now() - begun > FLEET_MS_MAX) throw new Error(`the fleet has shown only ${[...seen]}`);
    await new Promise((later) => setTimeout(later, 500));
  }
}

async function everyPage() {
  for (const size of Object.keys(SIZES)) {
    for (const theme of ['light', 'dark']) {
      const page = await open(browser, checks, { size, theme });
      for (const path of PAGES) {
        const what = `${path || 'status'} ${size} ${theme}`;
        await page.goto(at(path));
        await page.waitForSelector('main table, main canvas, main pre');
        await page.waitForLoadState('networkidle').catch(() => {});
        await checkForm(page, checks, what);
        await checkAccess(page, checks, what);
        if (pictures) await page.screenshot({ path: `${pictures}/${what.replace(/\W+/g, '-')}.png` });
      }
      await page.context().close();
    }
  }
  const page = await open(browser, checks);
  await page.goto(target.replace(/\/?$/, '/'));
  await page.waitForSelector('.tile');
  await page.context().close();
}

async function fromStatusToTheCostliestFunction() {
  const page = await open(browser, checks);
  await page.goto(at(''));
  await page.click('table.names tbody tr:first-child a');
  await page.waitForSelector('.costliest li:first-child button');
  checks.expect(parameter(page, 'task') !== null, 'the slowest task is asked for', page.url());
  const text = await page.textContent('.costliest li:first-child');
  checks.expect(/costs most.*\d %/.test(text), 'the costliest function is named', text);
  await page.click('.costliest li:first-child button');
  await page.waitForSelector('.sandwich h2');
  checks.expect(parameter(page, 'fn') !== null, 'its callers are shown', page.url());
  await page.goBack();
  await page.waitForSelector(graph);
  await page.goBack();
  await page.waitForSelector('.tile');
  await page.context().close();
}

async function flameGraph() {
  const page = await open(browser, checks);
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  await page.keyboard.press(' ');
  await page.waitForSelector('.live.paused');
  const box = await page.locator('.flame').boundingBox();
  await page.mouse.move(box.x + 40, box.y + 48);
  const tip = await page.textContent('.tip.floating');
  checks.expect(/total.*of all.*of the view.*self/s.test(tip), 'hovering tells of a function', tip);
  await page.mouse.click(box.x + 40, box.y + 48);
  await page.waitForFunction(() => new URL(location.href).searchParams.has('zoom'));
  const deep = await page.locator('.crumbs button').count();
  checks.expect(deep >= 3, 'a click zooms', String(deep));
  const zoomed = parameter(page, 'zoom');
  await page.reload();
  await page.waitForSelector('.crumbs small');
  checks.equal(parameter(page, 'zoom'), zoomed, 'a zoom lasts in the address');
  checks.equal(await page.locator('.crumbs button').count(), deep, 'and is found again');
  await page.keyboard.press('Escape');
  await page.waitForFunction((count) => document.querySelectorAll('.crumbs button').length < count, deep);
  await page.goBack();
  await page.waitForFunction((count) => document.querySelectorAll('.crumbs button').length === count, deep);
  await page.keyboard.press('0');
  await page.waitForFunction(() => document.querySelectorAll('.crumbs button').length === 1);
  await page.focus('.flame');
  for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
  await page.waitForFunction(() => document.querySelectorAll('.crumbs button').length === 3);
  await page.keyboard.press('f');
  await page.waitForSelector('.sandwich h2');
  await page.keyboard.press('v');
  await page.waitForSelector(graph);
  checks.equal(parameter(page, 'view'), null, 'v goes on to the next view');
  await page.keyboard.press('?');
  await page.waitForSelector('dialog[open]');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.context().close();
}

async function searching() {
  const page = await open(browser, checks);
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  await page.keyboard.press('/');
  await page.keyboard.type('alloc|write');
  await page.waitForSelector('.search output');
  checks.expect(/[\d.]+ % of all.*\d places/.test(await page.textContent('.search output')), 'a search tells its share');
  await page.waitForFunction(() => new URL(location.href).searchParams.get('q') === 'alloc|write');
  await page.keyboard.press('Enter');
  await page.keyboard.press('n');
  await page.waitForSelector('.outline.picked', { state: 'attached' });
  await page.fill('.search input', 'closure(');
  await page.waitForSelector('.search output');
  await page.click('text=Table');
  await page.fill('.search input', '');
  await page.click('th >> text=Total');
  await page.waitForSelector('th[aria-sort] >> text=Total');
  await page.context().close();
}

async function filtering() {
  const page = await open(browser, checks, { expected: /404/ });
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  await page.click('.select >> nth=0 >> button');
  await page.keyboard.type('comp');
  await page.waitForFunction(() => document.querySelectorAll('.menu li').length === 1);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => new URL(location.href).searchParams.get('task') === 'compress');
  await page.keyboard.press('Escape');
  await page.click('.chip >> text=cpu');
  await page.waitForFunction(() => new URL(location.href).searchParams.get('state') === 'cpu');
  await page.goto(at('profile?task=no-such-task'));
  await page.waitForSelector('text=This cannot be shown');
  await page.context().close();
}

async function ranges() {
  const page = await open(browser, checks);
  await page.goto(at('profile'));
  await page.waitForSelector('.timeline canvas');
  const box = await page.locator('.timeline .u-over').boundingBox();
  await page.mouse.move(box.x + box.width - 200, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width - 60, box.y + 30, { steps: 5 });
  await page.mouse.up();
  await page.waitForSelector('.live.pinned');
  const [from, to] = [parameter(page, 'from'), parameter(page, 'to')].map(Date.parse);
  checks.expect(to - from >= 1000 && from % 1000 === 0, 'a brush selects whole seconds', `${from} ${to}`);
  await page.waitForSelector(`${graph}, .empty`);
  await page.click('.live.pinned');
  await page.waitForFunction(() => !new URL(location.href).searchParams.has('from'));
  await page.selectOption('.range select', '-15m');
  await page.waitForFunction(() => new URL(location.href).searchParams.get('from') === '-15m');
  await page.goBack();
  await page.waitForFunction(() => !new URL(location.href).searchParams.has('from'));
  await page.context().close();
}

async function liveAndPaused() {
  const page = await open(browser, checks, { expected: /Failed to load resource/ });
  let asked = 0;
  page.on('request', (request) => { if (request.url().includes('/api/v1/timeline')) asked++; });
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  await page.waitForRequest(/timeline/);
  await page.waitForRequest(/timeline/);
  await page.keyboard.press(' ');
  await page.waitForSelector('.live.paused');
  await page.waitForLoadState('networkidle');
  const before = asked;
  await page.waitForFunction(() => /\+[3-9] s waiting/.test(document.querySelector('.live').textContent));
  checks.equal(asked, before, 'a paused page does not ask');
  await page.keyboard.press(' ');
  await page.waitForRequest(/timeline/);
  await page.context().route('**/api/v1/**', (route) => route.abort());
  await page.waitForSelector('.lost');
  checks.expect(await page.isVisible(graph), 'what was seen stays when the connection is lost');
  await page.context().unroute('**/api/v1/**');
  await page.waitForSelector('.lost', { state: 'detached', timeout: 30_000 });
  await page.context().close();
}

async function taskStream() {
  const page = await open(browser, checks);
  await page.goto(at('tasks?task=qr&from=-2m'));
  await page.waitForSelector('.stream canvas[data-rects]');
  await page.keyboard.press(' ');
  const box = await page.locator('.stream').boundingBox();
  // The graph is a picture: look for a task along the lanes.
  let told = null;
  for (let y = 30; y < box.height && !told; y += 8) {
    for (let x = box.width - 8; x > 140 && !told; x -= 8) {
      await page.mouse.move(box.x + x, box.y + y);
      told = (await page.locator('.tip.floating').count()) > 0 ? { x, y } : null;
    }
  }
  checks.expect(told !== null, 'a task is under the pointer');
  if (told) {
    checks.expect(/key.*outcome.*took.*on/s.test(await page.textContent('.tip.floating')), 'hovering tells of a task');
    await page.mouse.click(box.x + told.x, box.y + told.y);
    await page.waitForSelector('.views');
    checks.equal(parameter(page, 'task'), 'qr', 'a click shows the profile of the task');
    checks.expect(parameter(page, 'worker') !== null && parameter(page, 'from') !== null, 'in its window, on its worker', page.url());
  }
  await page.context().close();
}

async function hostileNames() {
  const made = hostile(ATTACKS);
  for (const path of PAGES.concat('profile?view=sandwich&fn=%3Cscript%3Ealert(1)%3C%2Fscript%3E')) {
    const page = await open(browser, checks);
    await answerWith(page, made);
    await page.goto(at(path));
    await page.waitForSelector('main table, main canvas, main pre');
    const { foreign, raw } = await page.evaluate(() => ({
      foreign: document.querySelectorAll('#page script, #page img, #page iframe, #page b b').length,
      raw: /[\u202e\u2066\u200b]/.test(document.body.textContent),
    }));
    checks.equal(foreign, 0, `${path}: names make no elements`);
    checks.equal(raw, false, `${path}: nothing reorders or hides text`);
    await checkForm(page, checks, `hostile ${path}`);
    await page.context().close();
  }
}

async function nobodyThere() {
  const page = await open(browser, checks);
  await answerWith(page, nothing());
  for (const path of ['', 'profile', 'workers']) {
    await page.goto(at(path));
    await page.waitForSelector('text=No worker has reported yet');
  }
  await page.goto(at('tasks'));
  await page.waitForSelector('text=No task in this range');
  await page.context().close();
}

async function manyNodesStaySmall() {
  const page = await open(browser, checks);
  await answerWith(page, { ...hostile(['load']), profile: manyNodes(100_000) });
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  const rects = Number(await page.getAttribute('.flame canvas', 'data-rects'));
  // At most one rectangle a pixel and row; far fewer than there are nodes.
  checks.expect(rects > 100 && rects < 22 * 1280, '100,000 nodes are drawn with few rectangles', String(rects));
  await checkForm(page, checks, '100,000 nodes');
  await page.fill('.search input', 'function_1');
  await page.waitForSelector('.search output');
  await page.context().close();
}

const all = [everyPage, fromStatusToTheCostliestFunction, flameGraph, searching, filtering, ranges, liveAndPaused, taskStream, hostileNames, nobodyThere, manyNodesStaySmall];
await fleetIsThere();
const only = process.env.EMBERLINE_CHECK;
for (const check of all.filter(({ name }) => !only || only.split(',').includes(name))) {
  try {
    await check();
  } catch (error) {
    checks.expect(false, check.name, error.stack);
  }
  console.log(`${check.name}: ${checks.made} checks so far, ${checks.failed} failed`);
}
await browser.close();
below.close();
process.exitCode = checks.failed > 0 ? 1 : 0;
