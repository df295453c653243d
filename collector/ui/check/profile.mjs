// Checks of the profile's views: flame graph, call tree, sandwich, comparison, search.

import { answersNamed, manyNodes, mockApi, node, profile, twoProfiles } from './fixtures.mjs';
import { accessibilityNodes, checkAccessibility, checkLayout } from './harness.mjs';

const FILE = '/home/made/src/lib.rs';

/** `load` calls `walk`, which calls itself and `leaf`; and `other`. */
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

const share = (page) => page.getAttribute('.flame canvas', 'data-share').then(Number);

export function profileChecks({ browser, checks, open, at, parameter, graph }) {
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
            row.children[0].textContent.split(' ')[0] +
              row.children[0].textContent.split(' ')[1].replace(/[^a-z]/g, ''),
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
      'self times of all functions',
    );
    checks.expect((await accessibilityNodes(page)).includes('cell: leaf'), 'screen readers get the functions');
    // load › walk › walk › leaf
    await pick(2);
    await page.keyboard.press('d');
    await until('hide');
    checks.equal(
      JSON.stringify(await tables()),
      JSON.stringify({ other: '1.00s', load: '0s', walk: '0s', leaf: '0s' }),
      'd hides a function',
    );
    checks.expect(
      /9\.00 s hidden/.test(await page.textContent('.transforms')),
      'the hidden time is shown',
      await page.textContent('.transforms'),
    );
    await page.click('.transforms .chip');
    await page.waitForFunction(() => !document.querySelector('.transforms'));
    // The selected node is selected again.
    await pick(0);
    await page.keyboard.press('f');
    await until('focus');
    checks.equal(
      JSON.stringify(await tables()),
      JSON.stringify({ leaf: '6.00s', walk: '3.00s', load: '0s', other: '0s' }),
      'f focuses on a function',
    );
    await page.keyboard.press('Escape');
    await page.goBack();
    await page.waitForFunction(() => !document.querySelector('.transforms'));
    await page.keyboard.press('c');
    await until('recursion');
    // Its row moves the graph.
    await page.waitForSelector('.transforms');
    await pick(1);
    checks.expect(/leaf/.test(await page.textContent('.tip')), 'c collapses recursion', await page.textContent('.tip'));
    const changed = await page.locator('.flame').boundingBox();
    await page.mouse.move(changed.x + 40, changed.y + 24);
    await page.waitForSelector('.tip.floating');
    await page.keyboard.press('m');
    await until('merge');
    checks.equal(await page.locator('.tip.floating').count(), 1, 'a resting pointer gets a tooltip of the next graph');
    await page.mouse.move(0, 0);
    checks.equal(
      JSON.stringify(await tables()),
      JSON.stringify({ walk: '9.00s', other: '1.00s', load: '0s', leaf: '0s' }),
      'm merges a function into its callers',
    );
    await page.click('text=remove all');
    await page.waitForFunction(() => !document.querySelector('.transforms'));
    const box = await page.locator('.flame').boundingBox();
    await page.mouse.click(box.x + 40, box.y + 48, { button: 'right' });
    await page.waitForSelector('.node-menu');
    await checkAccessibility(page, checks, 'the context menu');
    await page.keyboard.press('Escape');
    await page.waitForSelector('.node-menu', { state: 'detached' });
    // Two fingers move apart.
    checks.equal(await share(page), 1, 'the whole range is visible');
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
      // A move right after the pinch, before its result is drawn, is not part of it.
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
    checks.equal(await rows(), '1 all, 2 load, 3 walk, 4 walk, 5 leaf, 3 other', 'the heaviest path is expanded');
    await page.focus('.tree tbody tr >> nth=1');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowLeft');
    await page.waitForFunction(() => document.querySelectorAll('.tree tbody tr').length === 4);
    checks.equal(await rows(), '1 all, 2 load, 3 walk, 3 other', 'left arrow collapses');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.sandwich h2');
    await page.context().close();
  }

  async function splitByPhase() {
    const page = await open(browser, checks);
    await mockApi(page, answersNamed(['load']));
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    const request = page.waitForRequest(/profile\?.*phases=true/);
    await page.check('text=split by phase');
    await request;
    await page.waitForSelector('.legend >> text=task phases');
    await page.context().close();
  }

  async function manyNodesStaySmall() {
    const page = await open(browser, checks);
    await mockApi(page, { ...answersNamed(['load']), profile: manyNodes(100_000) });
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    const rects = Number(await page.getAttribute('.flame canvas', 'data-rects'));
    // At most one rectangle per pixel and row; far fewer than there are nodes.
    checks.expect(rects > 100 && rects < 22 * 1280, '100,000 nodes are drawn with few rectangles', String(rects));
    await checkLayout(page, checks, '100,000 nodes');
    await page.fill('.search input', 'function_1');
    await page.waitForSelector('.search output');
    await page.context().close();
  }

  async function statusToHottestFunction() {
    const page = await open(browser, checks);
    await page.goto(at(''));
    await page.click('table.names tbody tr:first-child a');
    await page.waitForSelector('.hottest li:first-child button');
    checks.expect(parameter(page, 'task') !== null, 'the slowest task is selected', page.url());
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
    checks.expect(/total.*of total.*of the view.*self/s.test(tip), 'hovering shows a tooltip', tip);
    await page.mouse.click(box.x + 40, box.y + 48);
    await page.waitForFunction(() => new URL(location.href).searchParams.has('zoom'));
    const deep = await page.locator('.crumbs button').count();
    checks.expect(deep >= 3, 'a click zooms', String(deep));
    const zoomed = parameter(page, 'zoom');
    await page.reload();
    await page.waitForSelector('.crumbs small');
    checks.equal(parameter(page, 'zoom'), zoomed, 'the zoom is in the address');
    checks.equal(await page.locator('.crumbs button').count(), deep, 'the zoomed node is found again');
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
    checks.equal(parameter(page, 'view'), null, 'v shows the next view');
    await page.keyboard.press('?');
    await page.waitForSelector('dialog[open]');
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog', { state: 'detached' });
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
      'increased functions, by share',
    );
    checks.equal(
      (await table('Decreased')).join('; '),
      '−15.0 30.0% 15.0% less; −10.0 10.0% 0% gone',
      'decreased functions',
    );
    const box = await page.locator('.flame').boundingBox();
    await page.mouse.move(box.x + 20, box.y + 48);
    checks.expect(/before.*after.*change/s.test(await page.textContent('.tip.floating')), 'the tooltip has both sides');
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

  async function searching() {
    const page = await open(browser, checks);
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    await page.keyboard.press('/');
    await page.keyboard.type('alloc|write');
    await page.waitForSelector('.search output');
    checks.expect(
      /[\d.]+% of total.*\d nodes?/.test(await page.textContent('.search output')),
      'a search shows its share',
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

  return {
    mocked: [treeTransforms, callTree, splitByPhase, manyNodesStaySmall],
    live: [statusToHottestFunction, flameGraph, comparing, searching],
  };
}
