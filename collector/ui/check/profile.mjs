// Checks of the profile's views: flame graph, call tree, sandwich, comparison, search.

import fs from 'node:fs';
import { answersNamed, comparedName, manyNodes, mockApi, node, profile, twoProfiles } from './fixtures.mjs';
import { accessibilityNodes, arrived, checkAccessibility, checkLayout } from './harness.mjs';

const FILE = '/home/made/src/lib.rs';
const NS = 1e9;

/** `load` calls `walk`, which calls itself and `leaf`; and `other`. */
function recursiveProfile(unitNs) {
  return profile([
    node(0, 'load', 'task', 0, ''),
    node(1, 'walk', 'function', unitNs, FILE),
    node(2, 'walk', 'function', 2 * unitNs, FILE),
    node(3, 'leaf', 'function', 6 * unitNs, FILE),
    node(1, 'other', 'function', unitNs, FILE),
  ]);
}

const recursiveTree = () => ({ ...answersNamed(['load']), profile: recursiveProfile(NS) });

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
    const hiddenPx = await page.$eval('.flame', (graph) => graph.scrollHeight - graph.clientHeight);
    checks.equal(hiddenPx, 0, 'a graph that fits has no scroll bar');
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
    const leaf = await page.textContent('.tip');
    checks.expect(/leaf/.test(leaf), 'c collapses recursion', leaf);
    checks.expect(leaf.includes('made in lib.rs'), 'the tooltip names crate and module', leaf);
    // On a busy machine the graph still moves below the pointer.
    for (let i = 0; i < 15; i++) {
      const changed = await page.locator('.flame').boundingBox();
      await page.mouse.move(changed.x + 40 + (i % 2), changed.y + 24);
      const shown = page.waitForSelector('.tip.floating', { timeout: 1000 });
      if (await shown.catch(() => null)) break;
    }
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
    const entry = await page.textContent('.node-menu button:has(kbd:text-is("D"))');
    checks.equal(entry.replace(/\s+/g, ' '), 'Hide crate madeD', 'a menu entry hides the crate');
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

  /** Zooms with Ctrl+scroll in a profile that grows with each answer. */
  async function zoomOutlivesAnswers() {
    const page = await open(browser, checks);
    let answers = 0;
    const growing = () => {
      answers += 1;
      return recursiveProfile(answers * NS);
    };
    await mockApi(page, { ...answersNamed(['load']), profile: growing });
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    const box = await page.locator('.flame').boundingBox();
    const scroll = async () => {
      await page.mouse.move(box.x + box.width / 4, box.y + 24);
      await page.keyboard.down('Control');
      await page.mouse.wheel(0, -500);
      await page.keyboard.up('Control');
      await page.waitForFunction(() => Number(document.querySelector('.flame canvas').dataset.share) < 0.5);
      return share(page);
    };
    const untilWhole = () => page.waitForFunction(() => document.querySelector('.flame canvas').dataset.share === '1');
    const zoomed = await scroll();
    const before = await page.getAttribute('.views', 'data-total-ns');
    // Pausing requests the profile up to now.
    await page.keyboard.press('Space');
    await page.waitForFunction((was) => document.querySelector('.views').dataset.totalNs !== was, before);
    checks.expect(Math.abs((await share(page)) - zoomed) < 1e-6, 'a newer profile keeps the zoom', await share(page));
    await page.keyboard.press('0');
    await untilWhole();
    await scroll();
    await page.keyboard.press('Escape');
    await untilWhole();
    await scroll();
    // load › walk
    await page.focus('.flame');
    for (let i = 0; i < 2; i++) await page.keyboard.press('ArrowDown');
    await page.keyboard.press('d');
    await untilWhole();
    checks.equal(parameter(page, 'hide'), 'walk', 'a hidden function ends the zoom');
    await page.context().close();
  }

  async function invertedTree() {
    const page = await open(browser, checks);
    await mockApi(page, recursiveTree());
    await page.goto(at('profile?view=tree&invert=1'));
    await page.waitForSelector('.tree tbody tr');
    const rows = await page.$$eval('.tree tbody tr', (all) =>
      all.map((row) => `${row.getAttribute('aria-level')} ${row.children[1].textContent.replace(/[▾▸·]/g, '').trim()}`),
    );
    const expected = '1 all, 2 leaf, 3 walk, 4 walk, 5 load, 2 walk, 2 other';
    checks.equal(rows.join(', '), expected, 'an inverted tree starts with the functions that ran');
    await page.click('.download summary');
    const link = await page.getAttribute('.download a[download$=".svg"]', 'href');
    checks.equal(new URL(link, page.url()).searchParams.get('invert'), 'true', 'a file is inverted too');
    const pprof = await page.getAttribute('.download a[download$=".pb.gz"]', 'href');
    const inverts = new URL(pprof, page.url()).searchParams.has('invert');
    checks.equal(inverts, false, 'pprof has no inverted trees, so its file is upright');
    await page.keyboard.press('i');
    await page.waitForFunction(() => !new URL(location.href).searchParams.has('invert'));
    checks.equal(await page.isChecked('label:has-text("inverted") input'), false, 'i turns the tree');
    await page.context().close();
  }

  async function searchScope() {
    const page = await open(browser, checks);
    await mockApi(page, recursiveTree());
    await page.goto(at('profile?q=walk'));
    const summary = (text) => page.waitForSelector(`.search output:text-is(${JSON.stringify(text)})`);
    await summary('names in this profile: 1 function, 2 frames, 90.0% of total');
    await page.fill('.search input', 'crate:made');
    await summary('crates in this profile: 3 functions, 4 frames, 100% of total');
    await page.fill('.search input', 'le.f');
    await summary('names in this profile: 0 functions, 0 frames, 0% of total');
    await page.fill('.search input', 're:le.f');
    await summary('names in this profile: 1 function, 1 frame, 60.0% of total');
    await page.click('button[aria-label="hide what was found"]');
    await page.waitForSelector('.transforms .chip');
    checks.equal(parameter(page, 'hide'), 're:le.f', 'what was found can be hidden');
    const hidden = await page.textContent('.transforms .soft');
    checks.equal(hidden, '6.00 s hidden', 'the time that a pattern hides is stated');
    await page.context().close();
  }

  async function flameChart() {
    const page = await open(browser, checks);
    const second = (at) => node(0, `2026-01-31T12:00:0${at}Z`, 'group', 0, '');
    const nodes = [
      second(1),
      node(1, 'load', 'task', 0, ''),
      node(2, 'walk', 'function', 1e9, FILE),
      second(2),
      node(4, 'load', 'task', 0, ''),
      node(5, 'walk', 'function', 1e9, FILE),
      second(4),
      node(7, 'load', 'task', 0, ''),
      node(8, 'leaf', 'function', 5e8, FILE),
    ];
    await mockApi(page, { ...answersNamed(['load']), profile: profile(nodes) });
    const request = page.waitForRequest((one) => /profile\?.*format=columns.*group=second/.test(one.url()));
    await page.goto(at('profile?view=chart'));
    await request;
    const note = (await page.textContent('.chart-note')).replace(/\s+/g, ' ');
    checks.expect(/a column for each second of all threads/.test(note), 'the chart says its resolution', note);
    const tip = async (share) => {
      const box = await page.locator('.flame').boundingBox();
      await page.mouse.move(box.x + share * box.width, box.y + 45);
      await page.waitForSelector('.tip.floating');
      return (await page.textContent('.tip')).replace(/\s+/g, ' ');
    };
    checks.expect(/walk.*2 seconds.*2\.00 s/.test(await tip(0.3)), 'equal neighbors are joined', await tip(0.3));
    checks.expect(/leaf.*1 second.*500 ms/.test(await tip(0.8)), 'a gap stays a gap', await tip(0.8));
    await checkAccessibility(page, checks, 'the flame chart');
    // From a task's thread to the chart of that thread, in whatever tasks it ran.
    await page.goto(at('tasks'));
    const [asked] = await Promise.all([
      page.waitForRequest(/profile\?.*group=second/),
      page.click('table.task-list tbody td:last-child a >> nth=0'),
    ]);
    const { searchParams } = new URL(asked.url());
    checks.equal(searchParams.get('thread'), 'load', 'the chart is of the thread');
    checks.equal(searchParams.get('task'), null, 'and of all its tasks');
    await page.waitForSelector('.coverage >> text=/of the thread load of this worker/');
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

  /** At a middling width, functions keep their names next to long paths. */
  async function tablesWithLongPaths() {
    const page = await open(browser, checks);
    await page.setViewportSize({ width: 1024, height: 800 });
    const name = 'library::module::a_function_with_a_name_of_some_length';
    const path = `/home/made/${'directory/'.repeat(8)}src/lib.rs`;
    await mockApi(page, { ...answersNamed(['load']), profile: profile([node(0, name, 'function', NS, path)]) });
    for (const view of ['table', 'tree']) {
      await page.goto(at(`profile?view=${view}&stacks=full`));
      const found = page.locator(`.functions tbody tr:last-child .wide bdi`);
      await found.waitFor();
      const { width } = await found.boundingBox();
      const visible = await page.locator('.functions tbody tr:last-child .wide').boundingBox();
      checks.expect(width <= visible.width, `the ${view} shows a whole name`, `${width} of ${visible.width} px`);
      const file = await page.locator('.functions tbody tr:last-child .path').getAttribute('title');
      checks.expect(file.endsWith('src/lib.rs'), 'the whole path is a tooltip', file);
    }
    await page.goto(at('profile?view=table&stacks=full'));
    await page.waitForSelector('.functions tbody tr');
    const cells = (part) => page.$$eval(`.functions ${part}`, (all) => all.map((one) => one.textContent.trim()));
    const head = await cells('thead th');
    const row = await cells('tbody tr:last-child td');
    checks.expect(head.includes('Crate') && head.includes('Module'), 'the table has crates and modules', head.join());
    checks.equal(row[head.indexOf('Crate')], 'library', 'the crate of a function');
    // The made profile has the file as module.
    checks.equal(row[head.indexOf('Module')], 'lib.rs', 'the module of a function, without its folder');
    await page.context().close();
  }

  /** The graph as a PNG file, whole although it scrolls on the page. */
  async function pictures() {
    const page = await open(browser, checks);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(at('')).origin });
    await mockApi(page, recursiveTree());
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    await page.click('.download summary');
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('.download >> text=PNG picture')]);
    checks.expect(/^emberline-all-.*\.png$/.test(download.suggestedFilename()), 'a picture has the name of its view');
    const file = fs.readFileSync(await download.path());
    checks.equal(file.subarray(1, 4).toString(), 'PNG', 'the picture is a PNG file');
    checks.equal(file.readUInt32BE(16), 3200, 'its width is twice that of a screen');
    const rows = file.readUInt32BE(20) / 2;
    const { height } = await page.locator('.outlines').boundingBox();
    checks.expect(Math.abs(rows - height) <= 1, 'it has all rows', `${rows} and ${height} px`);
    await page.click('.download >> text=Copy picture');
    await page.waitForSelector('.notice >> text=Copied the picture');
    const copied = await page.evaluate(async () => (await navigator.clipboard.read()).flatMap(({ types }) => types));
    checks.equal(copied.join(), 'image/png', 'a picture is in the clipboard');
    await page.goto(at('profile?view=table'));
    await page.waitForSelector('.functions tbody tr');
    await page.click('.download summary');
    await page.waitForSelector('.download a >> text=SVG flame graph');
    checks.equal(await page.locator('.download >> text=PNG picture').count(), 0, 'a table has no picture');
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
    await page.waitForFunction(() => new URL(location.href).searchParams.get('view') === 'chart');
    await page.keyboard.press('v');
    await page.waitForSelector(graph);
    checks.equal(parameter(page, 'view'), null, 'v shows the next view, and after the last the first');
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
    await page.mouse.click(box.x + 20, box.y + 48, { button: 'right' });
    const entries = await page.$$eval('.node-menu button span', (all) => all.map((one) => one.textContent.trim()));
    checks.equal(entries.join(', '), 'Zoom, Find in the graph, Copy name', 'the menu offers what a comparison can do');
    await page.click('.node-menu >> text=Find in the graph');
    await page.waitForFunction(() => /^re:\^.*\$$/.test(document.querySelector('.search input').value));
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

  /** The table of task names says what got slower, and a click shows the functions of that task. */
  async function comparedTasks() {
    const page = await open(browser, checks);
    const { compare, ...answers } = twoProfiles();
    const names = [
      comparedName('decode', 'slower'),
      comparedName('load', 'no_change'),
      comparedName('rare', 'too_few'),
      comparedName('fresh', 'only_after'),
    ];
    await mockApi(page, { ...answers, compare: { ...compare, tests: 9, names, omitted: 3 } });
    const [asked] = await Promise.all([page.waitForRequest(/tasks\/compare/), page.goto(at('compare?worker=w'))]);
    const { searchParams } = new URL(asked.url());
    checks.equal(
      ['from', 'to', 'before_from', 'before_to', 'worker', 'before_worker']
        .map((name) => searchParams.get(name))
        .join(),
      '-5m,now,-10m,-5m,w,w',
      'both sides are asked for',
    );
    await page.waitForSelector('table.compared');
    const rows = await page.$$eval('table.compared tbody tr', (rows) =>
      rows.map((row) => [...row.children].map((cell) => cell.textContent.trim()).join('; ')),
    );
    checks.equal(
      rows[0],
      'decode; slower, exceeds noise; 100 ms → 200 ms ×2.00; 200 ms → 400 ms ×2.00; 300 ms → 600 ms ×2.00; ' +
        '1,000 → 1,200; 0% → 5.00% more',
      'a slower task has its figures and a verdict',
    );
    checks.equal(
      rows
        .slice(1)
        .map((row) => row.split('; ')[1])
        .join(),
      'no change beyond noise,too few,only after',
      'verdicts in words',
    );
    checks.expect(
      /9 changes tested.*at most 5%/.test(await page.textContent('main')),
      'the table states its rate of false alarms',
    );
    checks.expect((await page.textContent('main')).includes('3 more names'), 'names past the limit are counted');
    const box = await page.locator('table.compared tbody tr >> nth=0').boundingBox();
    const [profile] = await Promise.all([
      page.waitForRequest((request) => /api\/v1\/profile\?.*task=decode/.test(request.url())),
      page.mouse.click(box.x + box.width / 2, box.y + box.height / 2),
    ]);
    checks.expect(profile !== null, 'a click on a row asks for its functions');
    const states = new URL(profile.url()).searchParams.getAll('state').join();
    checks.equal(states, 'all', 'what slows a task down may be waiting');
    await page.waitForSelector('tr.chosen button[aria-pressed="true"]');
    await page.waitForSelector('h2 >> text=in decode');
    checks.equal(await page.locator('table.compared tbody tr').count(), 4, 'the other names stay');
    const column = await page.waitForSelector('table.functions th >> text=Per task');
    checks.expect(column !== null, 'functions of a task have their time per task');
    const more = await page.textContent('table.functions tbody tr >> nth=0');
    // 200 ms in 1,000 tasks before, 400 ms in 1,200 after.
    checks.equal(more.replace(/\s+/g, ' '), '+133 µs200 µs333 µsmore', 'time per task on both sides');
    const cpu = page.waitForRequest((request) => /profile\?.*state=cpu(&|$)/.test(request.url()));
    await page.click('.chip >> text=waiting');
    await page.click('.chip >> text=runnable');
    await cpu;
    checks.equal(parameter(page, 'state'), 'cpu', 'chips choose the states');
    await page.context().close();
  }

  /** Percentiles over time on a task's page, from the collector's answer. */
  async function durationTrend() {
    const page = await open(browser, checks);
    await mockApi(page, answersNamed(['load', 'store']));
    const [asked] = await Promise.all([page.waitForRequest(/tasks\/durations/), page.goto(at('tasks/load?from=-10m'))]);
    checks.equal(new URL(asked.url()).searchParams.get('task'), 'load', 'the durations of that task are asked for');
    const chart = 'figure[aria-label^="Duration over time"]';
    await page.waitForSelector(`${chart} canvas`);
    const legend = await page
      .locator('section', { has: page.locator(chart) })
      .locator('.legend')
      .textContent();
    checks.equal(legend.replace(/\s+/g, ' ').trim(), 'p50 p90 p99', 'there is a line for each percentile');
    const plot = await page.locator(`${chart} .u-over`).boundingBox();
    await page.mouse.move(plot.x + 20, plot.y + 20);
    await page.mouse.down();
    await page.mouse.move(plot.x + 200, plot.y + 30, { steps: 5 });
    await page.mouse.up();
    await page.waitForSelector('.live.pinned');
    await page.context().close();
  }

  async function searching() {
    const page = await open(browser, checks);
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    await page.keyboard.press('/');
    await page.keyboard.type('re:alloc|write');
    await page.waitForSelector('.search output');
    checks.expect(
      /\d frames?.*[\d.]+% of total/.test(await page.textContent('.search output')),
      'a search shows its share',
    );
    await page.waitForFunction(() => new URL(location.href).searchParams.get('q') === 're:alloc|write');
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

  async function hiddenTime() {
    const page = await open(browser, checks);
    const answers = answersNamed(['load']);
    Object.assign(answers.profile.hidden, { outside_ns: 5 * NS, total_ns: 8 * NS });
    answers.profile.folded = 7;
    Object.assign(answers.profile.hidden.states, { disk_ns: 3 * NS, wait_ns: 3 * NS, total_ns: 3 * NS });
    await mockApi(page, answers);
    const parameters = (request) => new URL(request.url()).searchParams;
    const asked = page.waitForRequest(/api\/v1\/profile\?/);
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    const first = parameters(await asked);
    const view = ['state', 'outside', 'stacks'].map((name) => first.getAll(name).join());
    checks.equal(view.join(), 'cpu,hidden,simple', 'the default is time of tasks on CPU');
    checks.equal(await page.locator('text=7 folded').count(), 1, 'folded functions are counted');
    const hidden = (await page.textContent('.hidden-time')).replace(/\s+/g, ' ');
    checks.equal(hidden.trim(), 'Hidden: 5.00 s outside tasks show, 3.00 s waiting show', 'hidden time by reason');
    const waiting = page.waitForRequest((request) => request.url().includes('state=wait'));
    await page.click('.hidden-time button >> nth=1');
    checks.equal(
      parameters(await waiting)
        .getAll('state')
        .join(),
      'cpu,wait',
      'one click adds waiting',
    );
    await page.waitForSelector('.chip[aria-pressed="true"] >> text=disk');
    const all = page.waitForRequest((request) => request.url().includes('state=all'));
    await page.click('.chip >> text=runnable');
    await all;
    checks.equal(parameter(page, 'state'), 'all', 'all states have one word');
    checks.equal(await page.locator('.chip >> text=GIL').count(), 0, 'a program without an interpreter has no GIL');
    await page.context().close();
  }

  async function waitsForTheInterpreter() {
    const page = await open(browser, checks);
    const answers = answersNamed(['load']);
    Object.assign(answers.profile.hidden.states, { interpreter_ns: 3 * NS, wait_ns: 3 * NS, total_ns: 3 * NS });
    await mockApi(page, answers);
    await page.goto(at('profile?state=cpu&state=lock&color=state'));
    await page.waitForSelector(graph);
    const asked = page.waitForRequest((request) => request.url().includes('state=interpreter'));
    await page.click('.chip >> text=GIL');
    await asked;
    await page.waitForSelector('.chip[aria-pressed="true"] >> text=GIL');
    checks.equal(
      new URL(page.url()).searchParams.getAll('state').join(),
      'cpu,lock,interpreter',
      'the GIL is a state of its own',
    );
    await page.context().close();
  }

  async function copyLink() {
    const page = await open(browser, checks);
    await mockApi(page, answersNamed(['load']));
    // As on an origin that is not secure.
    await page.addInitScript(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
    await page.goto(at('profile?from=-10m&view=flame'));
    await page.waitForSelector(graph);
    await page.click('.copy-link');
    await page.waitForSelector('.notice >> text=Copied the link');
    await page.focus('.search input');
    await page.keyboard.press('Control+V');
    const pasted = await page.inputValue('.search input');
    const link = new URL(pasted);
    const [from, to] = ['from', 'to'].map((name) => Date.parse(link.searchParams.get(name)));
    checks.equal(to - from, 600_000, 'the copied link has fixed times');
    checks.equal(link.searchParams.get('view'), 'flame', 'the copied link has the whole view');
    await page.focus('.flame');
    for (const key of ['ArrowUp', 'ArrowUp', 'y']) await page.keyboard.press(key);
    await page.waitForSelector('.notice >> text=Copied the name');
    await page.context().close();
  }

  /** The time of a file of the profile, in nanoseconds. */
  async function timeOfFile(url) {
    const answer = await fetch(url);
    const text = await answer.text();
    const format = new URL(url).searchParams.get('format');
    const sum = (weights) => weights.reduce((total, weight) => total + weight, 0);
    if (format === 'json') return JSON.parse(text).totals.total_ns;
    if (format === 'nested') return JSON.parse(text).count;
    if (format === 'speedscope') return sum(JSON.parse(text).profiles[0].weights);
    if (format === 'firefox') {
      const milliseconds = JSON.parse(text).threads.map((thread) => sum(thread.samples.weight));
      return Math.round(sum(milliseconds) * 1e6);
    }
    if (format === 'csv') {
      const [header, ...rows] = text.trim().split('\n');
      const columns = header.split(',');
      // Counted from the end, because names may contain commas.
      const selfTime = columns.indexOf('self_ns') - columns.length;
      return sum(rows.map((row) => Number(row.split(',').at(selfTime))));
    }
    // What is in these files is a test of their crates.
    if (['pprof', 'parquet'].includes(format)) return Number(answer.headers.get('x-emberline-total-ns'));
    if (format === 'svg') return Number(/total_samples="(\d+)"/.exec(text)[1]);
    const lines = text.trim().split('\n');
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
  }

  async function filesHaveTheView() {
    const page = await open(browser, checks);
    await page.goto(at(`profile?task=qr&state=cpu&state=runnable&${arrived()}`));
    await page.waitForSelector(graph);
    const same = async (what) => {
      await page.waitForSelector('.views[aria-busy="false"]');
      const shown = Number(await page.getAttribute('.views', 'data-total-ns'));
      await page.click('.download summary');
      await page.waitForSelector('.download a');
      const links = await page.$$eval('.download a', (all) => all.map((link) => [link.href, link.download]));
      await page.click('.download summary');
      checks.equal(links.length, 9, 'number of files');
      for (const [url, name] of links) {
        checks.equal(await timeOfFile(url), shown, `${what}: the time in ${name}`);
        const isNamed =
          /^emberline-qr-\d{8}T\d{6}Z\.(svg|pb\.gz|csv|parquet|collapsed\.txt|((speedscope|firefox|nested)\.)?json)$/.test(
            name,
          );
        checks.expect(isNamed, 'a file has the name of the task and its start', name);
      }
      return shown;
    };
    const whole = await same('the default');
    checks.expect(whole > 0, 'there is a profile');
    await page.focus('.flame');
    for (const key of ['ArrowDown', 'ArrowDown', 'ArrowDown', 'f']) await page.keyboard.press(key);
    await page.waitForSelector('.transforms');
    await same('focus');
    await page.keyboard.press('c');
    await page.waitForFunction(() => new URL(location.href).searchParams.has('recursion'));
    await page.focus('.flame');
    for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) await page.keyboard.press(key);
    await page.waitForFunction(() => new URL(location.href).searchParams.has('zoom'));
    await same('focus, recursion and zoom');
    await page.selectOption('.toolbar select >> nth=0', 'own');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('stacks') === 'own');
    await same('own code');
    await page.click('.download summary');
    await page.waitForSelector('.download[open] >> text=Collapsed stacks');
    await page.keyboard.press('Escape');
    await page.waitForSelector('.download:not([open])');
    await page.context().close();
  }

  async function oneTask() {
    const page = await open(browser, checks);
    await page.goto(at('tasks/compress?from=-60s'));
    const asked = page.waitForRequest((request) => /profile\?.*thread=/.test(request.url()));
    await page.click('table a >> text=profile ›');
    const query = new URL((await asked).url()).searchParams;
    checks.equal(query.getAll('worker').length, 1, 'the profile of a task is of its worker');
    await page.waitForSelector('.coverage');
    const text = await page.textContent('.coverage');
    checks.expect(
      /ran [\d.]+ \S+ on the thread .*\. The profile covers .* of (this thread|all threads)/.test(text),
      'the profile says what it covers',
      text,
    );
    // A thread whose stacks are not its own is shown with the others.
    const only = parameter(page, 'only') === '0' ? '1' : '0';
    await page.click('.coverage button');
    await page.waitForFunction((value) => new URL(location.href).searchParams.get('only') === value, only);
    await page.waitForSelector(`.coverage >> text=${only === '1' ? 'show all threads' : 'show this thread only'}`);
    await page.context().close();
  }

  return {
    mocked: [
      hiddenTime,
      waitsForTheInterpreter,
      copyLink,
      treeTransforms,
      zoomOutlivesAnswers,
      invertedTree,
      searchScope,
      flameChart,
      callTree,
      tablesWithLongPaths,
      pictures,
      splitByPhase,
      manyNodesStaySmall,
      comparedTasks,
      durationTrend,
    ],
    live: [filesHaveTheView, oneTask, statusToHottestFunction, flameGraph, comparing, searching],
  };
}
