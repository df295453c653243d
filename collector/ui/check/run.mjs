// Checks the page in a real browser against a collector with a live fleet:
//   node run.mjs http://127.0.0.1:4747 [folder for screenshots]

import {
  answersNamed,
  emptyAnswers,
  HOSTILE_NAMES,
  manyNodes,
  manyOutlines,
  manyTasks,
  mockApi,
  node,
  profile,
  twoProfiles,
} from './fixtures.mjs';
import { fleetChecks } from './fleet.mjs';
import {
  accessibilityNodes,
  Checks,
  checkAccessibility,
  checkLayout,
  closeAllPages,
  open as openPage,
  proxy,
  settled,
  start,
} from './harness.mjs';

const [, , target, pictures] = process.argv;
const PAGES = [
  '',
  'profile',
  'profile?color=state&view=flame',
  'profile?view=table',
  'profile?view=tree',
  'profile?view=sandwich',
  'compare',
  'tasks',
  'tasks/qr',
  'workers',
  'transfers',
  'resources',
  'events',
  'licenses',
];
/** Pages of one thing, by a name that a path cannot hold. */
const ITEMS = ['tasks', 'workers'].map((page) => `${page}/~?name=${encodeURIComponent(HOSTILE_NAMES[0])}`);
/** Ends what hangs: the checks are to be waited for. */
const ALL_MS_MAX = 480_000;
const watchdog = setTimeout(() => {
  console.error(`FAILED: the checks took longer than ${ALL_MS_MAX / 1000} s`);
  process.exit(1);
}, ALL_MS_MAX);
const checks = new Checks();
const browser = await start();
// All checks look through a proxy, below a path: what works there works at the root too.
const below = await proxy(target, '/behind/a-proxy/');
const at = (path) => below.url + path;
const parameter = (page, name) => new URL(page.url()).searchParams.get(name);
const graph = '.flame canvas[data-rects]';

/** `load` runs `walk`, which runs itself, and that `leaf`; and something other. */
function recursiveTree() {
  const NS = 1e9;
  const nodes = [
    node(0, 'load', 'task', 0, ''),
    node(1, 'walk', 'function', NS, FILE),
    node(2, 'walk', 'function', 2 * NS, FILE),
    node(3, 'leaf', 'function', 6 * NS, FILE),
    node(1, 'other', 'function', NS, FILE),
  ];
  return { ...answersNamed(['load']), profile: profile(nodes) };
}
const FILE = '/home/made/src/lib.rs';

/** How long a fleet may take until each kind of its tasks was seen. */
const FLEET_MS_MAX = 120_000;

async function waitForFleet() {
  const begun = Date.now();
  for (;;) {
    const answer = await fetch(new URL('api/v1/tasks?summary=true', below.url)).then((response) => response.json());
    const seen = new Set(answer.names.filter(({ durations }) => durations).map(({ name }) => name));
    if (seen.has('qr') && seen.has('compress')) return;
    if (Date.now() - begun > FLEET_MS_MAX) throw new Error(`the fleet has shown only ${[...seen]}`);
    await new Promise((later) => setTimeout(later, 500));
  }
}

/** Questions that a collector may not know yet, and what it is made to answer then. */
const NEW_QUESTIONS = {
  runs: 'runs',
  progress: 'progress',
  transfers: 'transfers',
  resources: 'resources',
  'events/recent': 'recent',
};

const unknown = [];
for (const path of Object.keys(NEW_QUESTIONS)) {
  if ((await fetch(`${below.url}api/v1/${path}`)).status === 404) unknown.push(path);
}
if (unknown.length > 0) console.log(`this collector does not know ${unknown.join(', ')}: answers to these are made`);

/** A page for which the answers that the collector cannot give are made. */
async function open(...options) {
  const page = await openPage(...options);
  const made = answersNamed(['alpha', 'beta']);
  for (const path of unknown) {
    const name = NEW_QUESTIONS[path];
    await page.context().route(`**/api/v1/${path}*`, (route) => {
      const isSums = path === 'transfers' && route.request().url().includes('summary');
      return route.fulfill({
        contentType: 'application/json',
        body: JSON.stringify(isSums ? made.transferSums : made[name]),
      });
    });
  }
  return page;
}

/** At each size and in each theme; a phone's theme changes colors only, which are those of a wide one. */
async function everyPage() {
  const { workers } = await fetch(`${below.url}api/v1/workers`).then((response) => response.json());
  const paths = [...PAGES, `workers/${workers[0].worker}`];
  const knowsPhases = (await fetch(`${below.url}api/v1/profile?from=-10s&phases=true`)).ok;
  if (knowsPhases) paths.push('profile?phases=1');
  const each = async ([size, theme]) => {
    const page = await open(browser, checks, { size, theme });
    for (const path of paths) {
      const what = `${path || 'status'} ${size} ${theme}`;
      await page.goto(at(path));
      await settled(page);
      await checkLayout(page, checks, what);
      await checkAccessibility(page, checks, what);
      if (pictures) await page.screenshot({ path: `${pictures}/${what.replace(/\W+/g, '-')}.png` });
    }
    await page.context().close();
  };
  await Promise.all(
    [
      ['wide', 'light'],
      ['wide', 'dark'],
      ['phone', 'light'],
    ].map(each),
  );
  const page = await open(browser, checks);
  await page.goto(target.replace(/\/?$/, '/'));
  await page.waitForSelector('.tile');
  await page.context().close();
}

/** The script of a view may come after the page is drawn and before what it waits by has begun. */
async function lateViewScript() {
  const page = await open(browser, checks);
  await page.addInitScript(() => {
    const later = setTimeout;
    globalThis.requestAnimationFrame = () => 0;
    globalThis.setTimeout = (run, ms, ...rest) => later(run, Math.max(ms ?? 0, 1500), ...rest);
  });
  await page.route(/page-workers/, async (route) => {
    await page.waitForSelector('main [role="status"]');
    await route.continue();
  });
  await page.goto(at('workers'));
  // Its timers are slow.
  await page.waitForSelector('main table', { timeout: 30_000 });
  checks.expect(true, 'a view is shown whenever its script comes');
  await page.context().close();
}

async function statusToHottestFunction() {
  const page = await open(browser, checks);
  await page.goto(at(''));
  await page.click('table.names tbody tr:first-child a');
  await page.waitForSelector('.hottest li:first-child button');
  checks.expect(parameter(page, 'task') !== null, 'the slowest task is asked for', page.url());
  const text = await page.textContent('.hottest li:first-child');
  checks.expect(/Hottest.*\d%/.test(text), 'the hottest function is named', text);
  await page.click('.hottest li:first-child button');
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
  checks.expect(/total.*of total.*of the view.*self/s.test(tip), 'hovering tells of a function', tip);
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
  await page.keyboard.press('b');
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

const share = (page) => page.getAttribute('.flame canvas', 'data-share').then(Number);

async function treeTransforms() {
  const page = await open(browser, checks);
  await mockApi(page, recursiveTree());
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  const tables = () =>
    page.$$eval('.visually-hidden tbody tr', (rows) =>
      Object.fromEntries(
        rows.map((row) => [
          row.children[2].textContent,
          row.children[0].textContent.split(' ')[0] + row.children[0].textContent.split(' ')[1].replace(/[^a-z]/g, ''),
        ]),
      ),
    );
  const until = (name) => page.waitForFunction((wanted) => new URL(location.href).searchParams.has(wanted), name);
  const pick = async (depth) => {
    await page.focus('.flame');
    for (let i = 0; i < depth; i++) await page.keyboard.press('ArrowDown');
  };
  checks.equal(
    JSON.stringify(await tables()),
    JSON.stringify({ leaf: '6.00s', walk: '3.00s', other: '1.00s', load: '0s' }),
    'self times of all',
  );
  checks.expect((await accessibilityNodes(page)).includes('cell: leaf'), 'what the graph shows is read aloud');
  // load › walk › walk › leaf
  await pick(2);
  await page.keyboard.press('d');
  await until('hide');
  checks.equal(
    JSON.stringify(await tables()),
    JSON.stringify({ other: '1.00s', load: '0s', walk: '0s', leaf: '0s' }),
    'd leaves a function out',
  );
  checks.expect(
    /9\.00 s hidden/.test(await page.textContent('.transforms')),
    'and tells how much',
    await page.textContent('.transforms'),
  );
  await page.click('.transforms .chip');
  await page.waitForFunction(() => !document.querySelector('.transforms'));
  // What was picked is picked again.
  await pick(0);
  await page.keyboard.press('f');
  await until('focus');
  checks.equal(
    JSON.stringify(await tables()),
    JSON.stringify({ leaf: '6.00s', walk: '3.00s', load: '0s', other: '0s' }),
    'f keeps stacks through a function',
  );
  await page.keyboard.press('Escape');
  await page.goBack();
  await page.waitForFunction(() => !document.querySelector('.transforms'));
  await page.keyboard.press('c');
  await until('recursion');
  await pick(1);
  checks.expect(
    /leaf/.test(await page.textContent('.tip')),
    'c makes a recursion one call',
    await page.textContent('.tip'),
  );
  const changed = await page.locator('.flame').boundingBox();
  await page.mouse.move(changed.x + 40, changed.y + 24);
  await page.waitForSelector('.tip.floating');
  await page.keyboard.press('m');
  await until('merge');
  checks.equal(await page.locator('.tip.floating').count(), 1, 'a resting pointer is told of the next graph');
  await page.mouse.move(0, 0);
  checks.equal(
    JSON.stringify(await tables()),
    JSON.stringify({ walk: '9.00s', other: '1.00s', load: '0s', leaf: '0s' }),
    "m gives a function's time to its callers",
  );
  await page.click('text=remove all');
  await page.waitForFunction(() => !document.querySelector('.transforms'));
  const box = await page.locator('.flame').boundingBox();
  await page.mouse.click(box.x + 40, box.y + 48, { button: 'right' });
  await page.waitForSelector('.node-menu');
  await checkAccessibility(page, checks, 'the menu of a function');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.node-menu', { state: 'detached' });
  // Two fingers that part.
  checks.equal(await share(page), 1, 'all is seen');
  await page.evaluate(async () => {
    const element = document.querySelector('.flame');
    const { left, top } = element.getBoundingClientRect();
    const point = (pointerType, type, pointerId, x) =>
      element.dispatchEvent(
        new PointerEvent(type, { pointerId, pointerType, clientX: left + x, clientY: top + 60, bubbles: true }),
      );
    const touch = (...of) => point('touch', ...of);
    touch('pointerdown', 1, 300);
    touch('pointerdown', 2, 400);
    touch('pointermove', 2, 500);
    touch('pointerup', 1, 300);
    touch('pointerup', 2, 500);
    // What comes right after, but when the half is shown, is no part of the pinch.
    await null;
    point('mouse', 'pointermove', 3, 560);
  });
  await page.waitForFunction(() => Number(document.querySelector('.flame canvas').dataset.share) === 0.5);
  await page.context().close();
}

async function callTree() {
  const page = await open(browser, checks);
  await mockApi(page, recursiveTree());
  await page.goto(at('profile?view=tree'));
  await page.waitForSelector('.tree tbody tr');
  const rows = () =>
    page.$$eval('.tree tbody tr', (all) =>
      all
        .map((row) => `${row.getAttribute('aria-level')} ${row.children[2].textContent.replace(/[▾▸·]/g, '').trim()}`)
        .join(', '),
    );
  checks.equal(await rows(), '1 all, 2 load, 3 walk, 4 walk, 5 leaf, 3 other', 'the heaviest path is open');
  await page.focus('.tree tbody tr >> nth=1');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowLeft');
  await page.waitForFunction(() => document.querySelectorAll('.tree tbody tr').length === 4);
  checks.equal(await rows(), '1 all, 2 load, 3 walk, 3 other', 'the arrow to the left closes');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.sandwich h2');
  await page.context().close();
}

async function comparing() {
  const page = await open(browser, checks);
  await mockApi(page, twoProfiles());
  await page.goto(at('compare'));
  await page.waitForSelector(graph);
  const table = (caption) =>
    page.$$eval(
      'table.functions tbody tr',
      (rows, wanted) =>
        rows
          .filter((row) => row.closest('table').caption?.textContent === wanted)
          .map((row) => [...row.children].map((cell) => cell.textContent).join(' ')),
      caption,
    );
  checks.equal(
    (await table('Increased')).join('; '),
    '+20.0 20.0% 40.0% more; +5.00 0% 5.00% fresh',
    'what grew, by share',
  );
  checks.equal((await table('Decreased')).join('; '), '−15.0 30.0% 15.0% less; −10.0 10.0% 0% gone', 'what shrank');
  const box = await page.locator('.flame').boundingBox();
  await page.mouse.move(box.x + 20, box.y + 48);
  checks.expect(/before.*after.*change/s.test(await page.textContent('.tip.floating')), 'hovering tells of both sides');
  await page.mouse.click(box.x + 20, box.y + 48);
  await page.waitForFunction(() => new URL(location.href).searchParams.has('zoom'));
  await page.selectOption('.toolbar select >> nth=0', 'time');
  await page.waitForFunction(() => new URL(location.href).searchParams.get('scale') === 'time');
  await page.context().close();
  const live = await open(browser, checks);
  await live.goto(at('compare?task=qr&b.task=compress'));
  await live.waitForSelector(graph);
  checks.equal(parameter(live, 'b.task'), 'compress', 'two tasks are compared');
  await live.context().close();
}

async function oneTaskAndOneWorker() {
  const page = await open(browser, checks);
  await page.goto(at('tasks?from=-2m'));
  await page.click('table.names tbody tr:first-child a.action');
  await page.waitForSelector('.bars button:not(:disabled)');
  await page.waitForSelector(graph);
  const before = await page.locator('main table >> nth=0').textContent();
  await page.keyboard.press(' ');
  await page.locator('.bars button:not(:disabled)').first().click();
  await page.waitForSelector('.bars button[aria-pressed="true"]');
  checks.expect(before.includes('profile'), 'tasks are listed with the way to their profiles', before);
  await page.goto(at('workers'));
  await page.click('main table tbody tr:first-child a');
  await page.waitForSelector('.facts');
  await page.waitForSelector('details.stack summary');
  await page.click('details.stack summary');
  await page.waitForSelector('details.stack[open] li');
  await page.waitForSelector(graph);
  await page.context().close();
}

async function splitByPhase() {
  const page = await open(browser, checks);
  await mockApi(page, answersNamed(['load']));
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  const asked = page.waitForRequest(/profile\?.*phases=true/);
  await page.check('text=split by phase');
  await asked;
  await page.waitForSelector('.legend >> text=task phases');
  await page.context().close();
}

async function transfersResourcesAndEvents() {
  const page = await open(browser, checks);
  await mockApi(page, answersNamed(['alpha', 'beta', 'gamma']));
  await page.goto(at(''));
  await page.waitForSelector('.progress');
  checks.equal(await page.locator('.progress').count(), 2, 'there is a bar for whatever has an expected count');
  checks.expect(
    /10 of 40 done, 2 running, about 30.0 s left/.test(await page.textContent('.progress')),
    'it tells how far and for how long',
    await page.textContent('.progress'),
  );
  await page.goto(at('transfers'));
  await page.waitForSelector('table.matrix');
  const cells = await page.$$eval('table.matrix tbody tr', (rows) =>
    rows.map((row) => [...row.children].map((cell) => cell.textContent.trim()).join(' ')).join('; '),
  );
  checks.equal(
    cells,
    'alpha · 1.00 MB 3.00 MB; beta 1.00 MB · 2.00 MB ✕; gamma 3.00 MB 2.00 MB ✕ ·',
    'rows send, columns receive',
  );
  await page.selectOption('main select', 'bandwidth');
  await page.waitForFunction(() => /MB\/s/.test(document.querySelector('table.matrix').textContent));
  await page.goto(at('resources'));
  await page.waitForSelector('.timeline canvas');
  checks.expect(
    /800 MB|600 MB/.test(await page.textContent('.legend-table')),
    'peaks are told',
    await page.textContent('.legend-table'),
  );
  await page.goto(at('events'));
  await page.waitForSelector('main tbody tr');
  const all = await page.locator('main tbody tr').count();
  await page.click('.chip >> text=data corruption');
  await page.waitForFunction((count) => document.querySelectorAll('main tbody tr').length < count, all);
  await page.context().close();
}

async function searching() {
  const page = await open(browser, checks);
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  await page.keyboard.press('/');
  await page.keyboard.type('alloc|write');
  await page.waitForSelector('.search output');
  checks.expect(
    /[\d.]+% of total.*\d nodes?/.test(await page.textContent('.search output')),
    'a search tells its share',
  );
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
  await page.waitForSelector('text=Invalid request');
  await page.context().close();
}

async function ranges() {
  const page = await open(browser, checks);
  await page.goto(at('profile'));
  await page.waitForSelector('.timeline canvas');
  const box = await page.locator('.timeline .plot').boundingBox();
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
  const told = page.waitForResponse(/api\/v1\/live/);
  page.on('request', (request) => {
    if (request.url().includes('/api/v1/timeline')) asked++;
  });
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  await page.waitForRequest(/timeline/);
  await page.waitForRequest(/timeline/);
  await page.keyboard.press(' ');
  await page.waitForSelector('.live.paused');
  checks.equal((await told).headers()['content-type'], 'text/event-stream', 'the page is told of what is new');
  await settled(page);
  const before = asked;
  await page.waitForFunction(() => /Paused \([3-9] s of new data\)/.test(document.querySelector('.live').textContent));
  checks.equal(asked, before, 'a paused page does not ask');
  await page.keyboard.press(' ');
  await page.waitForRequest(/timeline/);
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await page.context().route('**/api/v1/**', (route) => route.abort());
  await page.waitForSelector('.disconnected');
  const { y } = await page.locator('.disconnected').boundingBox();
  checks.expect(y >= 0 && y < 100, 'who has scrolled sees too that the connection is lost', String(y));
  checks.expect(await page.isVisible(graph), 'what was seen stays when the connection is lost');
  await page.context().unroute('**/api/v1/**');
  await page.waitForSelector('.disconnected', { state: 'detached', timeout: 30_000 });
  await page.context().close();
}

async function taskStream() {
  const page = await open(browser, checks);
  await page.goto(at('tasks?task=qr&from=-2m'));
  await page.waitForSelector('.stream canvas[data-rects]');
  // What it stands still at is asked for once more.
  const still = page.waitForResponse(
    (response) => /tasks\?from=\d/.test(response.url()) && response.url().includes('limit='),
  );
  await page.keyboard.press(' ');
  await still;
  await settled(page);
  const box = await page.locator('.stream').boundingBox();
  // The graph is a picture: look for a task along the lanes. Of one that ended, the samples are here too.
  const tip = page.locator('.tip.floating');
  let told = null;
  for (let y = 30; y < box.height && !told; y += 8) {
    for (let x = box.width - 8; x > 140 && !told; x -= 8) {
      await page.mouse.move(box.x + x, box.y + y);
      told = (await tip.count()) > 0 && !/running/.test(await tip.textContent()) ? { x, y } : null;
    }
  }
  checks.expect(told !== null, 'a task is under the pointer');
  if (told) {
    checks.expect(/key.*outcome.*took.*on/s.test(await tip.textContent()), 'hovering tells of a task');
    await page.mouse.click(box.x + told.x, box.y + told.y);
    await page.waitForSelector('.views');
    checks.equal(parameter(page, 'task'), 'qr', 'a click shows the profile of the task');
    checks.expect(
      /T\d\d:\d\d:\d\dZ$/.test(parameter(page, 'from')) && parameter(page, 'worker') !== null,
      'from a whole second before it, on its worker',
      page.url(),
    );
  }
  await page.context().close();
}

async function hostileNames() {
  const page = await open(browser, checks);
  await mockApi(page, { ...answersNamed(HOSTILE_NAMES), stopped: HOSTILE_NAMES[0] });
  await page.goto(at('profile'));
  await page.waitForSelector(`.disconnected >> text=Ingestion is stopped: ${HOSTILE_NAMES[0]}. Agents buffer`);
  for (const path of [
    ...PAGES,
    ...ITEMS,
    'profile?view=sandwich&fn=%3Cscript%3Ealert(1)%3C%2Fscript%3E',
    `profile?focus=${encodeURIComponent(HOSTILE_NAMES[0])}`,
    'events?kind=corruption',
  ]) {
    await page.goto(at(path));
    await settled(page);
    const { foreign, raw } = await page.evaluate(() => ({
      foreign: document.querySelectorAll('#page script, #page img, #page iframe, #page b b').length,
      raw: /[\u202e\u2066\u200b]/.test(document.body.textContent),
    }));
    checks.equal(foreign, 0, `${path}: names make no elements`);
    checks.equal(raw, false, `${path}: emptyAnswers reorders or hides text`);
    await checkLayout(page, checks, `answersNamed ${path}`);
  }
  await page.context().close();
  const phone = await open(browser, checks, { size: 'phone' });
  await mockApi(phone, answersNamed(HOSTILE_NAMES));
  for (const path of [
    '',
    'tasks',
    'resources',
    'events',
    `profile?view=sandwich&fn=${HOSTILE_NAMES.find((name) => name.length > 4000)}`,
  ]) {
    await phone.goto(at(path));
    await settled(phone);
    await checkLayout(phone, checks, `answersNamed ${path.slice(0, 40)} on a phone`);
    const seen = await phone.$eval('nav [aria-current]', (link) => link.getBoundingClientRect().right <= innerWidth);
    checks.expect(seen, `the page's link is seen on a phone: ${path.slice(0, 40)}`);
  }
  await phone.context().close();
}

async function noWorkers() {
  const page = await open(browser, checks);
  await mockApi(page, emptyAnswers());
  for (const path of ['', 'profile', 'workers']) {
    await page.goto(at(path));
    await page.waitForSelector('text=No worker has reported yet');
  }
  for (const [path, words] of [
    ['tasks', 'No tasks in this range'],
    ['compare', 'No worker has reported yet'],
    ['transfers', 'No transfers in this range'],
    ['resources', 'No measurements in this range'],
    ['events', 'No events yet'],
  ]) {
    await page.goto(at(path));
    await page.waitForSelector(`text=${words}`);
  }
  await page.context().close();
}

async function manyNodesStaySmall() {
  const page = await open(browser, checks);
  await mockApi(page, { ...answersNamed(['load']), profile: manyNodes(100_000) });
  await page.goto(at('profile'));
  await page.waitForSelector(graph);
  const rects = Number(await page.getAttribute('.flame canvas', 'data-rects'));
  // At most one rectangle a pixel and row; far fewer than there are nodes.
  checks.expect(rects > 100 && rects < 22 * 1280, '100,000 nodes are drawn with few rectangles', String(rects));
  await checkLayout(page, checks, '100,000 nodes');
  await page.fill('.search input', 'function_1');
  await page.waitForSelector('.search output');
  await page.context().close();
}

async function manyTasksStaySmall() {
  const page = await open(browser, checks);
  await mockApi(page, {
    ...answersNamed(['load']),
    tasks: manyTasks(40_000, 5000),
    taskColumns: { ...manyOutlines(40_000), truncated: true, total: 1_000_000 },
  });
  await page.goto(at('tasks'));
  await page.waitForSelector('.stream canvas[data-tasks="40000"]');
  const rects = Number(await page.getAttribute('.stream canvas', 'data-rects'));
  // At most so many are drawn one by one; how busy the lanes were is one picture.
  checks.expect(rects > 0 && rects <= 3001, '40,000 tasks are drawn with few rectangles', String(rects));
  await page.waitForSelector('text=more tasks than are drawn');
  await page.waitForSelector('text=zoom in to see others');
  await page.waitForSelector('.timeline canvas');
  await checkLayout(page, checks, '40,000 tasks');
  await page.context().close();
}

const all = [
  everyPage,
  lateViewScript,
  statusToHottestFunction,
  flameGraph,
  treeTransforms,
  callTree,
  comparing,
  splitByPhase,
  oneTaskAndOneWorker,
  transfersResourcesAndEvents,
  searching,
  filtering,
  ranges,
  liveAndPaused,
  taskStream,
  hostileNames,
  noWorkers,
  manyNodesStaySmall,
  manyTasksStaySmall,
  ...fleetChecks({ browser, checks, open, at, parameter, graph, fleetMsMax: FLEET_MS_MAX }),
];
await waitForFleet();
const only = process.env.EMBERLINE_CHECK;
for (const check of all.filter(({ name }) => !only || only.split(',').includes(name))) {
  const begun = Date.now();
  try {
    await check();
  } catch (error) {
    checks.expect(false, check.name, error.stack);
    await closeAllPages(browser);
  }
  console.log(
    `${check.name}: ${checks.made} checks so far, ${checks.failed} failed, ${((Date.now() - begun) / 1000).toFixed(1)} s`,
  );
}
clearTimeout(watchdog);
await browser.close();
below.close();
// A connection that the collector keeps open would keep us.
process.exit(checks.failed > 0 ? 1 : 0);
