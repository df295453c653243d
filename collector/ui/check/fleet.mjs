// Checks of the task stream, filter menus and progress.

import { answersNamed, manyOutlines, manyTasks, mockApi, phasedTasks } from './fixtures.mjs';
import { checkLayout, settled } from './harness.mjs';

export function fleetChecks({ browser, checks, open, at, parameter, graph, fleetMsMax }) {
  /** Colors of pixels of the lanes, at shares of the visible time and lines from the top. */
  const inks = (page, places) =>
    page.evaluate((wanted) => {
      const canvas = document.querySelector('.stream canvas');
      const [gutter, axis, lane] = [132, 22, 17];
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return wanted.map(([share, line]) => {
        const pixel =
          Math.round(axis + lane * (line + 0.5)) * canvas.width + Math.round(gutter + share * (canvas.width - gutter));
        return [...data.slice(4 * pixel, 4 * pixel + 3)];
      });
    }, places);

  async function phasesOnBars() {
    const page = await open(browser, checks);
    const made = phasedTasks();
    await mockApi(page, made.answers);
    await page.goto(at(`tasks?from=${made.from}&to=${made.to}`));
    await page.waitForSelector('.stream canvas[data-tasks="2"]');
    const hiddenPx = await page.$eval('.stream', (stream) => stream.scrollHeight - stream.clientHeight);
    checks.equal(hiddenPx, 0, 'rows that fit have no scroll bar');
    const legend = await page.$$eval('.stream-box .legend span', (all) =>
      Object.fromEntries(
        all
          .filter((one) => one.querySelector('.dot'))
          .map((one) => [one.textContent, one.querySelector('.dot').style.background.match(/\d+/g).map(Number)]),
      ),
    );
    // A tenth of the range each: serialize, transfer, disk-read. Then the task executes.
    const found = await inks(page, [
      [0.05, 0],
      [0.15, 0],
      [0.25, 0],
      [0.9, 0],
      [0.5, 1],
    ]);
    const near = (one, other) => one.every((part, i) => Math.abs(part - other[i]) <= 2);
    ['serialize', 'transfer', 'disk-read'].forEach((name, i) =>
      checks.expect(near(found[i], legend[name]), `${name} has its color`, `${found[i]} ${legend[name]}`),
    );
    const [brown, red, orange, own, failed] = found;
    // Gray is reserved for sums of short tasks.
    checks.expect(brown[0] > brown[1] + 20 && brown[1] > brown[2] + 20, 'serialize is brown', String(brown));
    checks.expect(red[0] > red[1] + 40 && Math.abs(red[1] - red[2]) < 40, 'transfer is red', String(red));
    checks.expect(orange[0] > orange[1] && orange[1] > orange[2] + 30, 'disk is orange', String(orange));
    checks.expect(Math.max(...failed) < 60, 'a failed task is black', String(failed));
    const name = await page.$eval('table.names tbody .dot', (dot) => dot.style.background.match(/\d+/g).map(Number));
    checks.expect(near(own, name), 'executing has the color of the task', `${own} ${name}`);
    await page.context().close();
  }

  /** The tooltip names what a click would open, even if the tasks move under a resting pointer. */
  async function restingPointer() {
    const page = await open(browser, checks);
    const seconds = Math.floor(Date.now() / 1000);
    const answers = answersNamed(['load']);
    const [model] = answers.tasks.tasks;
    const shows = (...all) => ({
      ...answers.tasks,
      total: all.length,
      tasks: all.map(([name, from, to]) => ({
        ...model,
        id: from,
        name,
        start_ns: (seconds - 300 + from) * 1e9,
        stop_ns: (seconds - 300 + to) * 1e9,
        duration_ns: (to - from) * 1e9,
        outcome: 'ok',
      })),
    });
    let shown = shows(['under', 60, 250], ['first', 0, 20]);
    await mockApi(page, { ...answers, tasks: () => shown });
    await page.goto(at('tasks?from=-5m'));
    await page.waitForSelector('.stream canvas[data-tasks="2"]');
    const box = await page.locator('.stream').boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 30);
    await page.waitForSelector('.tip.floating >> text=under');
    shown = shows(['after', 280, 290], ['between', 270, 275], ['first', 0, 20]);
    await page.keyboard.press(' ');
    await page.waitForSelector('.stream canvas[data-tasks="3"]');
    checks.equal(await page.locator('.tip.floating').count(), 0, 'no tooltip of a task that is gone');
    shown = shows(['after', 280, 290], ['new', 60, 250]);
    await page.keyboard.press(' ');
    await page.waitForSelector('.tip.floating >> text=new');
    await page.mouse.down();
    await page.mouse.up();
    await page.waitForFunction(() => new URL(location.href).searchParams.get('task') === 'new');
    await page.context().close();
  }

  async function collapsedWorkers() {
    const page = await open(browser, checks);
    await mockApi(page, { ...answersNamed(['load']), tasks: manyTasks(900) });
    await page.goto(at('tasks'));
    await page.waitForSelector('.stream canvas[data-lines="100"]');
    await page.click('text=one row per worker');
    await page.waitForSelector('.stream canvas[data-lines="10"]');
    checks.equal(parameter(page, 'collapsed'), '*', 'collapsed workers are in the address');
    const box = await page.locator('.stream').boundingBox();
    await page.mouse.click(box.x + 20, box.y + 30);
    await page.waitForSelector('.stream canvas[data-lines="19"]');
    checks.equal(new URL(page.url()).searchParams.getAll('collapsed').length, 9, 'a click expands a worker');
    await page.goBack();
    await page.waitForSelector('.stream canvas[data-lines="10"]');
    await page.reload();
    await page.waitForSelector('.stream canvas[data-lines="10"]');
    await page.context().close();
  }

  /**
   * Chooses from a menu; returns the parameter's values in the first request to `path` that has
   * one more than the address had. A late request of an earlier choice does not count.
   */
  async function choose(page, menu, text, path) {
    const valuesOf = (url) => new URL(url).searchParams.getAll(text.parameter);
    const before = valuesOf(page.url()).length;
    const request = page.waitForRequest(
      (request) => request.url().includes(`/api/v1/${path}?`) && valuesOf(request.url()).length > before,
    );
    await page.click(`.select > button >> text=${menu}:`);
    await page.fill('.menu input', text.typed);
    await page.waitForFunction(() => document.querySelectorAll('.menu li').length === 1);
    await page.keyboard.press('Enter');
    const values = valuesOf((await request).url());
    await page.keyboard.press('Escape');
    return values;
  }

  async function filterMenus() {
    const page = await open(browser, checks);
    const start = Date.parse('2026-01-31T11:00:00Z') * 1e6;
    const run = {
      id: '7',
      name: 'nightly',
      worker: null,
      start_ns: start,
      stop_ns: start + 60e9,
      duration_ns: 60e9,
      open: false,
    };
    await mockApi(page, { ...answersNamed(['load', 'other']), runs: { runs: [run] } });
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    checks.equal(
      (await choose(page, 'labels', { parameter: 'label', typed: 'load=load' }, 'profile')).join(),
      'load=load',
      'a label filters the profile',
    );
    checks.equal(
      (await choose(page, 'labels', { parameter: 'label', typed: 'other=other' }, 'timeline')).join(),
      'load=load,other=other',
      'two labels filter the timeline',
    );
    checks.equal(
      (await choose(page, 'phases', { parameter: 'phase', typed: 'execute' }, 'profile')).join(),
      'execute',
      'a phase filters the profile',
    );
    await choose(page, 'runs', { parameter: 'from', typed: 'night' }, 'profile');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('run') === 'nightly@7');
    checks.equal(
      [parameter(page, 'from'), parameter(page, 'to')].join(),
      '2026-01-31T11:00:00Z,2026-01-31T11:01:00Z',
      'a run is its range',
    );
    await page.click('.live.pinned');
    await page.waitForFunction(() => !new URL(location.href).searchParams.has('run'));
    await page.goBack();
    await page.waitForFunction(() => new URL(location.href).searchParams.get('run') === 'nightly@7');
    await page.goto(at('tasks'));
    await page.waitForSelector('.select');
    checks.equal(
      (await choose(page, 'labels', { parameter: 'label', typed: 'load=load' }, 'tasks')).join(),
      'load=load',
      'a label filters tasks',
    );
    await page.goto(at('compare'));
    await page.waitForSelector('.select');
    checks.equal(
      (await choose(page, 'labels', { parameter: 'label', typed: 'load=load' }, 'profile')).join(),
      'load=load',
      'a label filters one side',
    );
    await page.waitForFunction(() => new URL(location.href).searchParams.get('b.label') === 'load=load');
    await page.context().close();
  }

  /** The demo reaches its expected count after a while, and the bar is full then. */
  async function progressReachesItsTotal() {
    const page = await open(browser, checks);
    page.setDefaultTimeout(fleetMsMax);
    await page.goto(at('?from=-1h'));
    await page.waitForSelector('.progress [role="progressbar"]');
    await page.waitForFunction(() =>
      [...document.querySelectorAll('.progress [role="progressbar"]')].every(
        (bar) => bar.ariaValueNow === bar.ariaValueMax,
      ),
    );
    const [words] = await page.$$eval('.progress small', (all) => all.map((one) => one.textContent));
    checks.expect(/^(\S+) of \1 done$/.test(words), 'progress reaches its total', words);
    checks.equal(await page.$eval('.progress .track i', (bar) => bar.style.width), '100%', 'the progress bar is full');
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
    // Individual tasks are limited; the utilization is one image.
    checks.expect(rects > 0 && rects <= 3001, '40,000 tasks are drawn with few rectangles', String(rects));
    await page.waitForSelector('text=more tasks than are drawn');
    await page.waitForSelector('text=zoom in to see others');
    await page.waitForSelector('.timeline canvas');
    await checkLayout(page, checks, '40,000 tasks');
    await page.context().close();
  }

  async function taskStream() {
    const page = await open(browser, checks);
    await page.goto(at('tasks?task=qr&from=-2m'));
    await page.waitForSelector('.stream canvas[data-rects]');
    // The paused range is requested once more.
    const still = page.waitForResponse(
      (response) => /tasks\?from=\d/.test(response.url()) && response.url().includes('limit='),
    );
    await page.keyboard.press(' ');
    await still;
    await settled(page);
    const box = await page.locator('.stream').boundingBox();
    // The task stream is a canvas: look for a task along the lanes, and for one that has ended,
    // because its samples have arrived.
    const tip = page.locator('.tip.floating');
    let found = null;
    for (let y = 30; y < box.height && !found; y += 8) {
      for (let x = box.width - 8; x > 140 && !found; x -= 8) {
        await page.mouse.move(box.x + x, box.y + y);
        found = (await tip.count()) > 0 && !/running/.test(await tip.textContent()) ? { x, y } : null;
      }
    }
    checks.expect(found !== null, 'a task is under the pointer');
    if (found) {
      checks.expect(/key.*outcome.*took.*on/s.test(await tip.textContent()), 'hovering shows a tooltip of the task');
      await page.mouse.click(box.x + found.x, box.y + found.y);
      await page.waitForSelector('.views');
      checks.equal(parameter(page, 'task'), 'qr', 'a click shows the profile of the task');
      checks.expect(
        /T\d\d:\d\d:\d\dZ$/.test(parameter(page, 'from')) && parameter(page, 'worker') !== null,
        'the profile starts at a whole second, on its worker',
        page.url(),
      );
    }
    await page.context().close();
  }

  return {
    mocked: [filterMenus, phasesOnBars, restingPointer, collapsedWorkers, manyTasksStaySmall],
    live: [taskStream, progressReachesItsTotal],
  };
}
