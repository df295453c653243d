// Checks of all pages: layout, accessibility, ranges, live mode, hostile names, empty answers.

import { answersNamed, emptyAnswers, HOSTILE_NAMES, mockApi } from './fixtures.mjs';
import { arrived, checkAccessibility, checkLayout, SIZES, settled } from './harness.mjs';

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
  'sql',
  'licenses',
];
/** Pages about one thing, by a name that a path cannot hold. */
const ITEMS = ['tasks', 'workers'].map((page) => `${page}/~?name=${encodeURIComponent(HOSTILE_NAMES[0])}`);

export function pageChecks({ browser, checks, open, at, parameter, graph, apiUrl, pictures }) {
  async function transfersResourcesAndEvents() {
    const page = await open(browser, checks);
    const answers = answersNamed(['alpha', 'beta', 'gamma']);
    for (const link of answers.transferSums.links) if (link.worker === 'beta') link.bandwidth = null;
    const [task] = answers.tasks.tasks;
    answers.tasks.tasks = [
      { ...task, name: 'decode', outcome: 'failed', cause: 'no such file: a.csv' },
      { ...task, name: 'load', outcome: 'ok', cause: '' },
    ];
    await mockApi(page, answers);
    await page.goto(at(''));
    await page.waitForSelector('.progress');
    checks.equal(await page.locator('.progress').count(), 2, 'there is a bar for whatever has an expected count');
    checks.expect(
      /10 of 40 done, 2 running, about 30.0 s left/.test(await page.textContent('.progress')),
      'progress shows its count and remaining time',
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
    const bandwidths = await page.textContent('table.matrix tbody');
    checks.expect(bandwidths.includes('–') && !bandwidths.includes('0 B/s'), 'no bandwidth is no zero', bandwidths);
    await page.goto(at('resources'));
    await page.waitForSelector('.timeline canvas');
    checks.expect(
      /800 MB|600 MB/.test(await page.textContent('.legend-table')),
      'peaks are shown',
      await page.textContent('.legend-table'),
    );
    await page.goto(at('events'));
    await page.waitForSelector('main tbody tr');
    const all = await page.locator('main tbody tr').count();
    const failed = page.locator('main tbody tr', { hasText: 'task failed' });
    checks.equal(await failed.count(), 1, 'failed tasks are events, others are not');
    const row = await failed.textContent();
    checks.expect(/decode.*failed.*no such file: a\.csv/.test(row), 'a failed task has its cause', row);
    checks.equal(await page.locator('.chip >> text=/task (started|ended)/').count(), 0, 'tasks have no other events');
    checks.equal(await page.locator('main tbody tr >> text=run started').count(), 0, 'runs do not bury other events');
    await page.click('.chip >> text=data corruption');
    await page.waitForFunction((count) => document.querySelectorAll('main tbody tr').length < count, all);
    await page.context().close();
  }

  /** Of a machine, its own measures once, and limits as lines instead of charts. */
  async function machines() {
    const page = await open(browser, checks);
    const answers = answersNamed(['alpha', 'beta', 'gamma']);
    const [model] = answers.resources.series;
    const series = ['alpha', 'beta', 'gamma'].flatMap((worker, i) =>
      [
        ['host_cpu', 'cores', 1.5],
        ['host_cpus', 'cores', 2],
        ['cpu_pressure', 'ratio', 0.25],
        ['threads', 'count', 7],
      ].map(([measure, unit, value]) => ({
        ...model,
        worker,
        host: i < 2 ? 'one' : 'two',
        run: null,
        measure,
        unit,
        points: model.points.map(([at]) => [at, value, value, value]),
        peak: value,
      })),
    );
    await mockApi(page, { ...answers, resources: { ...answers.resources, series } });
    await page.goto(at('resources'));
    await page.waitForSelector('.machine canvas');
    const shown = await page.$$eval('.machine', (all) =>
      all.map((one) => [
        one.querySelector('h2').innerText.replace(/\s+/g, ' '),
        ...[...one.querySelectorAll('h3')].map(
          (title) =>
            `${title.firstChild.textContent.trim()} ${title.parentElement.querySelectorAll('tbody tr').length}`,
        ),
      ]),
    );
    checks.equal(
      JSON.stringify(shown),
      JSON.stringify([
        ['one 2 workers', 'host cpu 1', 'cpu pressure 1', 'threads 2'],
        ['two 1 worker', 'host cpu 1', 'cpu pressure 1', 'threads 1'],
      ]),
      'a panel for each machine',
    );
    const text = await page.innerText('.machine');
    checks.expect(text.includes('limit 2.00 cores'), 'a limit is in the title of its measure', text);
    checks.expect(text.includes('25.0%') && !text.includes('ratio'), 'ratios are in percent', text);
    await page.context().close();
  }

  /** A query is asked with its rows in a table, an error in place, and files of the same rows. */
  async function sql() {
    const page = await open(browser, checks, { expected: /status of 400/ });
    await mockApi(page, answersNamed(['alpha', 'beta']));
    const asked = [];
    await page.context().route('**/api/v1/sql', (route) => {
      const body = route.request().postDataJSON();
      asked.push(body);
      if (body.query.includes('nothing'))
        return route.fulfill({ status: 400, json: { error: "table 'nothing' not found" } });
      if (body.format === 'csv') return route.fulfill({ contentType: 'text/csv', body: 'task\nalpha\n' });
      return route.fulfill({
        json: {
          columns: [
            { name: 'task', type: 'text' },
            { name: 'sum(x)', type: 'integer' },
          ],
          rows: [
            [HOSTILE_NAMES[0], 1234567],
            [null, 0.25],
          ],
          truncated: true,
          data_until: '2026-01-01T00:00:00Z',
          data_until_ns: 1767225600e9,
          corrupt_files: ['tables/tasks/1.parquet'],
        },
      });
    });
    await page.goto(at(''));
    await page.waitForSelector('nav a');
    await page.keyboard.press('9');
    await page.waitForSelector('textarea.query');
    checks.equal(asked.length, 0, 'a query waits for its button');
    await page.click('main button >> text=Run');
    await page.waitForSelector('main tbody tr');
    const cells = await page.$$eval('main tbody tr', (rows) =>
      rows.map((row) => [...row.cells].map((cell) => cell.innerText)),
    );
    checks.equal(cells[0][1], '1234567', 'numbers can be typed into the next query');
    checks.equal(cells[1].join(), '–,0.25', 'null is no text');
    const text = await page.innerText('main');
    checks.expect(
      /first 2 rows/.test(text) && text.includes('data is missing: tables/tasks/1'),
      'what is missing',
      text,
    );
    await page.selectOption('main select', { label: 'Tables and views' });
    const query = () => page.inputValue('textarea.query');
    checks.equal(await query(), 'SHOW TABLES', 'an example is a query');
    await page.reload();
    await page.waitForSelector('textarea.query');
    checks.equal(await query(), 'SHOW TABLES', 'the address has the query');
    const [file] = await Promise.all([page.waitForEvent('download'), page.click('main button >> text=CSV')]);
    checks.equal(file.suggestedFilename(), 'rows.csv', 'rows as a file');
    checks.equal(asked.at(-1).format, 'csv', 'a file is asked for in its format');
    await page.fill('textarea.query', 'SELECT * FROM nothing');
    await page.press('textarea.query', 'Control+Enter');
    await page.waitForSelector('main [role="alert"]');
    const alert = await page.innerText('main [role="alert"]');
    checks.expect(alert.includes("table 'nothing' not found"), 'an error is in place', alert);
    await checkLayout(page, checks, 'sql');
    await page.context().close();
  }

  /** Servers that do not get what is forwarded, or have no profiles. */
  async function servers() {
    const page = await open(browser, checks);
    await mockApi(page, answersNamed(['alpha', 'beta']));
    await page.goto(at('workers'));
    await page.waitForSelector('.scrapes');
    const rows = (table) =>
      page.$$eval(`${table} tbody tr`, (all) => all.map((row) => [...row.cells].map((cell) => cell.innerText)));
    const [failing, working] = await rows('.forwards');
    checks.equal(
      failing.join('; '),
      'http://alpha; Pyroscope; ⚠ alpha; 6.00 s; 2.00 s; 1.00 s',
      'a server that fails is named with the cause',
    );
    checks.expect(working[2].endsWith(' ago'), 'a server that works shows when', working.join('; '));
    const [unanswered] = await rows('.scrapes');
    checks.equal(
      unanswered.join('; '),
      'alpha; http://alpha; ⚠ alpha; 15.0 s; 0; 1',
      'a service without a profile is named with the cause',
    );
    const [unread, read] = await rows('.stores');
    checks.equal(unread.join('; '), 'alpha; ⚠ alpha', 'a store that cannot be read is named with the cause');
    checks.expect(read[1].endsWith(' ago'), 'a store that is read shows when', read.join('; '));
    await page.context().close();
  }

  /** A chosen theme overrides the system's, and stays. */
  async function themes() {
    const page = await open(browser, checks);
    await mockApi(page, answersNamed(['alpha']));
    await page.goto(at('workers'));
    await page.waitForSelector('main table');
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await ground();
    await page.selectOption('footer select', 'dark');
    const dark = await ground();
    checks.expect(light !== dark, 'the theme changes', `${light} ${dark}`);
    await page.reload();
    await page.waitForSelector('main table');
    checks.equal(await ground(), dark, 'the theme stays');
    const footer = await page.textContent('footer');
    checks.expect(footer.includes('Times: UTC'), 'the footer names the zone of times', footer);
    await page.selectOption('footer select', '');
    checks.equal(await ground(), light, "the system's theme is back");
    await page.context().close();
  }

  /** Stacks of a thread dump have the names that profiles have; frames of the runtime are counted. */
  async function threadDumpNames() {
    const page = await open(browser, checks);
    const answers = answersNamed(['alpha']);
    const frame = (name, module, more) => ({
      name,
      module,
      file: '',
      line: 0,
      inlined: false,
      plumbing: false,
      ...more,
    });
    const [dump] = answers['thread-dump'].workers;
    Object.assign(dump, { responded: true, reason: null });
    dump.groups[0].stack = [
      frame('__GI___libc_read', '/usr/lib/libc.so.6'),
      frame('app::input::parse::{closure#0}', '/usr/bin/app', { file: 'src/input.rs', line: 7 }),
      frame('std::sys::backtrace::__rust_begin_short_backtrace', '/usr/bin/app', { plumbing: true }),
    ];
    await mockApi(page, answers);
    await page.goto(at('workers/alpha'));
    const summary = await page.textContent('details.stack summary code');
    checks.equal(summary, 'input::parse::{closure} → read', 'a stack is named by its own function and its place');
    await page.click('details.stack summary');
    const items = await page.$$eval('details.stack li', (all) => all.map((one) => one.innerText.trim()));
    checks.equal(
      items.join('; '),
      'read; input::parse::{closure} src/input.rs:7; 1 frame of the runtime',
      'its frames',
    );
    const title = await page.getAttribute('details.stack li code', 'title');
    checks.equal(title, '__GI___libc_read', 'the whole name is a tooltip');
    await page.context().close();
  }

  /** A view that fails says so and offers a way back. */
  async function failingView() {
    const page = await open(browser, checks, { expected: /./ });
    const answers = answersNamed(['alpha']);
    await mockApi(page, { ...answers, timeline: { ...answers.timeline, series: null } });
    page.removeAllListeners('pageerror');
    await page.goto(at('profile'));
    await page.waitForSelector('main >> text=This view failed');
    checks.equal(await page.locator('nav[aria-label="Pages"]').count(), 1, 'the pages stay reachable');
    await page.context().close();
  }

  /** The first Tab leads past the controls, and every page has one heading of the first level. */
  async function skipLink() {
    const page = await open(browser, checks);
    await mockApi(page, answersNamed(['alpha']));
    for (const path of ['', 'profile', 'tasks', 'workers', 'resources', 'events']) {
      await page.goto(at(path));
      await settled(page);
      checks.equal(await page.locator('h1').count(), 1, `${path || 'status'} has one h1`);
    }
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    await page.keyboard.press('Tab');
    checks.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to content', 'the first control');
    await page.keyboard.press('Enter');
    const role = await page.evaluate(() => document.activeElement.getAttribute('role'));
    checks.equal(role, 'application', 'the graph has the focus');
    await page.context().close();
  }

  /** Controls and columns that a phone hid. */
  async function phone() {
    const page = await open(browser, checks, { size: 'phone' });
    await mockApi(page, answersNamed(['alpha', 'beta', 'gamma']));
    await page.goto(at(''));
    await page.waitForSelector('table.names tbody tr');
    for (const part of ['th', 'td']) {
      const box = await page.locator(`table.names ${part}:last-child`).first().boundingBox();
      checks.expect(
        box.x + box.width <= SIZES.phone.width,
        `failed tasks are on the screen (${part})`,
        JSON.stringify(box),
      );
    }
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    checks.equal(await page.locator('h1').count(), 1, 'there is one h1');
    const menu = page.locator('.filters .select >> nth=0');
    checks.equal(await menu.isVisible(), false, 'menus are hidden');
    await page.click('.disclose >> text=Filters');
    checks.equal(await menu.isVisible(), true, 'a button shows the menus');
    await menu.locator('button').first().click();
    await page.click('.menu li >> nth=0');
    await page.keyboard.press('Escape');
    await page.waitForSelector('.disclose[aria-expanded="true"] >> text=1 task');
    await page.fill('.search input', 'alpha');
    await page.waitForSelector('.search [aria-live="polite"] >> text=/of total/');
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    const role = await page.evaluate(() => document.activeElement.getAttribute('role'));
    checks.equal(role, 'application', 'the skip link leads to the graph');
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
      checks.equal(foreign, 0, `${path}: names create no elements`);
      checks.equal(raw, false, `${path}: names do not reorder or hide text`);
      await checkLayout(page, checks, `hostile names on ${path}`);
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
      await checkLayout(phone, checks, `hostile names on ${path.slice(0, 40)} on a phone`);
      const seen = await phone.$eval('nav [aria-current]', (link) => link.getBoundingClientRect().right <= innerWidth);
      checks.expect(seen, `the page's link is visible on a phone: ${path.slice(0, 40)}`);
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

  /** Each size and theme; a phone's dark theme has the colors of the wide one. */
  async function everyPage() {
    const { workers } = await fetch(apiUrl('workers')).then((response) => response.json());
    const paths = [...PAGES, 'profile?phases=1', `workers/${workers[0].worker}`];
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
  }

  /** A view's script may arrive after the first render and before the effect that waits for it. */
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
    // Timers are slow in this check.
    await page.waitForSelector('main table', { timeout: 30_000 });
    checks.expect(true, 'a view renders whenever its script arrives');
    await page.context().close();
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
    checks.expect(before.includes('profile'), 'tasks link to their profiles', before);
    await page.goto(at('workers'));
    await page.click('main table tbody tr:first-child a');
    await page.waitForSelector('.facts');
    await page.waitForSelector('details.stack summary');
    const marker = () => page.$eval('details.stack summary', (one) => getComputedStyle(one, '::before').content);
    checks.equal(await marker(), '"▸"', 'a stack can be seen to open');
    await page.click('details.stack summary');
    await page.waitForSelector('details.stack[open] li');
    checks.equal(await marker(), '"▾"', 'an open stack has another marker');
    await page.waitForSelector(graph);
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
    await page.click('.chip >> text=runnable');
    await page.waitForFunction(() => new URL(location.href).searchParams.getAll('state').join() === 'cpu,runnable');
    await page.goto(at('profile?task=no-such-task'));
    await page.waitForSelector('text=Invalid request');
    await page.context().close();
  }

  async function filesOfTasks() {
    const page = await open(browser, checks);
    await page.goto(at(`tasks?task=qr&${arrived()}`));
    await page.click('.download summary');
    await page.waitForSelector('.download[open] >> text=Firefox Profiler');
    const links = await page.$$eval('.download a', (all) => all.map((link) => [link.href, link.download]));
    checks.equal(links.length, 3, 'number of files of tasks');
    const rows = new Set();
    for (const [url, name] of links) {
      const answer = await fetch(url);
      rows.add(answer.headers.get('x-emberline-rows'));
      checks.expect(/^emberline-tasks-\d{8}T\d{6}Z\.\w/.test(name), 'a file of tasks has the name of its range', name);
    }
    checks.expect(rows.size === 1 && Number([...rows][0]) > 0, 'files have the same tasks', [...rows].join());
    await page.context().close();
  }

  async function failedTasks() {
    const page = await open(browser, checks);
    const outcomes = () => new URL(page.url()).searchParams.getAll('outcome').join();
    await page.goto(at('tasks?from=-15m'));
    await page.click('.filters .chip >> text=failed');
    await page.waitForSelector('.chip[aria-pressed="true"] >> text=failed');
    checks.equal(outcomes(), 'failed,panicked,lost', 'one click shows failed tasks');
    await page.click('.filters .chip >> text=failed');
    await page.waitForSelector('.chip[aria-pressed="false"] >> text=failed');
    checks.equal(outcomes(), '', 'another click shows all');
    await page.context().close();
  }

  /** Bad news is on the status page with cause, time and next step until it is dismissed. */
  async function alerts() {
    const page = await open(browser, checks);
    const answers = answersNamed(['load']);
    const [task] = answers.tasks.tasks;
    answers.tasks = { ...answers.tasks, tasks: [{ ...task, outcome: 'failed', cause: 'no such file: a.csv' }] };
    Object.assign(answers.summary.names[0].outcomes, { failed: 0, cancelled: 3, lost: 1 });
    const [epoch] = answers.workers.workers[0].epochs;
    Object.assign(epoch, { sampler_mode: 'full', ticks: 6000, ticks_expected: 10_000, ticks_throttled: 3000 });
    epoch.account = { ...epoch.account, lost_rejected_ns: 0, lost_tasks: 0, lost_queue_ns: 3e9 };
    await mockApi(page, answers);
    await page.goto(at(''));
    await page.waitForSelector('.alerts >> text=1 task failed');
    const shown = await page.innerText('.alerts');
    for (const part of [
      /1 task failed .* at [\d:]{8}: .*no such file: a\.csv\. Next: /,
      /lost 3\.00 s of samples since /,
      /30\.0% of samples skipped since .*cpu_limit/,
      /sent 1 message that the collector rejected, whole or in part since /,
    ])
      checks.expect(part.test(shown), `an alert has ${part}`, shown);
    const tile = await page.textContent('.tiles >> text=/none failed|✕ 1 failed/');
    checks.expect(tile.includes('✕ 1 failed'), 'a lost task failed', tile);
    const cell = await page.textContent('table.names tbody td:last-child');
    checks.equal(cell.replace(/\s+/g, ' ').trim(), '✕ 1 3 cancelled', 'cancelled tasks did not fail');
    checks.equal(await page.locator('.alerts >> text=Dismiss').count(), 5, 'each can be dismissed');
    const href = await page.getAttribute('.alerts a >> text=failed tasks', 'href');
    checks.expect(/outcome=failed&outcome=panicked&outcome=lost/.test(href), 'a click shows the failed tasks', href);
    await page.click('.alerts >> text=Dismiss all');
    await page.waitForSelector('.alerts', { state: 'detached' });
    await page.reload();
    await page.waitForSelector('.tiles');
    await page.waitForSelector('.task-list, table.names');
    checks.equal(await page.locator('.alerts').count(), 0, 'dismissed alerts stay dismissed');
    await page.context().close();
  }

  /** Of a large fleet, menus find what is typed, and counts are of all workers. */
  async function largeFleets() {
    const page = await open(browser, checks);
    const answers = answersNamed(['load']);
    answers.names = (url) => {
      const text = url.searchParams.get('text') ?? '00000';
      return {
        workers: [{ worker: `worker-${text}`, host: 'h' }],
        omitted: url.searchParams.has('text') ? 0 : 99_999,
        labels: [{ label: 'zone=a', workers: 50_000 }],
        labels_omitted: 0,
      };
    };
    answers.workers.counts = { connected: 99_998, away: 0, gone: 2, need_attention: 300 };
    await mockApi(page, answers);
    const [request] = await Promise.all([page.waitForRequest(/api\/v1\/workers\?/), page.goto(at(''))]);
    checks.expect(/sort=attention/.test(request.url()), 'bad news comes first', request.url());
    await page.waitForSelector('.tiles');
    const tiles = await page.innerText('.tiles');
    checks.expect(/99,998\s+of 100,000 connected/.test(tiles), 'all workers are counted', tiles);
    const alerts = await page.innerText('.alerts');
    checks.expect(alerts.includes('299 more workers need attention'), 'alerts count those that are not listed', alerts);
    checks.expect(/\d\+/.test(tiles), 'there are more warnings than those of the listed workers', tiles);
    await page.goto(at('profile'));
    await page.click('.select button >> text=labels');
    await page.waitForSelector('.menu >> text=50,000 workers');
    await page.keyboard.press('Escape');
    await page.click('.select button >> text=workers');
    await page.waitForSelector('.menu >> text=99,999 more; type to find them');
    await page.keyboard.type('77777');
    await page.waitForSelector('.menu [role="option"] >> text=worker-77777');
    checks.equal(await page.locator('.menu >> text=more; type').count(), 0, 'all with the text are listed');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('worker') === 'worker-77777');
    checks.expect(true, 'a worker is found by typing');
    await page.context().close();
  }

  async function ranges() {
    const page = await open(browser, checks);
    await page.goto(at('profile'));
    await page.waitForSelector('.timeline canvas');
    // Menus move the timeline when they arrive.
    await page.waitForSelector('.filters >> text=labels:');
    const box = await page.locator('.timeline .plot').boundingBox();
    await page.mouse.move(box.x + box.width - 200, box.y + 20);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width - 60, box.y + 30, { steps: 5 });
    await page.mouse.up();
    await page.waitForSelector('.live.pinned');
    const [from, to] = [parameter(page, 'from'), parameter(page, 'to')].map(Date.parse);
    checks.expect(to - from >= 1000 && from % 1000 === 0, 'dragging selects whole seconds', `${from} ${to}`);
    await page.waitForSelector(`${graph}, .empty`);
    await page.click('.live.pinned');
    await page.waitForFunction(() => !new URL(location.href).searchParams.has('from'));
    await page.selectOption('.range select', '-15m');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('from') === '-15m');
    await page.goBack();
    await page.waitForFunction(() => !new URL(location.href).searchParams.has('from'));
    await page.context().close();
  }

  /** The page waits for the answers of its first view, but not for long. */
  async function lateAnswer() {
    const page = await open(browser, checks);
    let answer;
    const isDue = new Promise((due) => {
      answer = due;
    });
    await page.route('**/api/v1/timeline?*', async (route) => {
      await isDue;
      await route.continue();
    });
    await page.goto(at('profile'));
    await page.waitForSelector('.flame canvas[data-rects]', { state: 'visible' });
    checks.equal(await page.locator('.timeline').count(), 0, 'a view is shown without an answer that is late');
    answer();
    await page.waitForSelector('.timeline canvas', { state: 'visible' });
    checks.expect(true, 'a late answer is shown when it arrives');
    await page.context().close();
  }

  async function typedRanges() {
    const page = await open(browser, checks);
    await page.goto(at('workers'));
    await page.selectOption('.range select', 'pick');
    const type = async (from, to) => {
      await page.fill('.range input[aria-label="from"]', from);
      await page.fill('.range input[aria-label="to"]', to);
    };
    const meaning = () => page.locator('.range small').textContent();
    await type('-5m', '-10m');
    checks.expect((await meaning()).includes('reversed'), 'a reversed range is explained', await meaning());
    checks.expect(await page.locator('.range button[type="submit"]').isDisabled(), 'a reversed range is not shown');
    for (const [from, to] of [
      ['00:00', '00:00:01'],
      ['2026-01-30', '2026-01-30'],
      ['2026-01-30 17:20', '2026-01-30 17:22:05'],
      ['10 minutes ago', '5m'],
    ]) {
      await type(from, to);
      const isEnabled = await page.locator('.range button[type="submit"]').isEnabled();
      checks.expect(isEnabled, `the range ${from} to ${to} is accepted`, await meaning());
      checks.expect(!(await meaning()).includes('(0 s)'), `the range ${from} to ${to} has a length`, await meaning());
    }
    await page.fill('.range input[aria-label="pick from"]', '2026-01-30T17:20:05');
    await page.fill('.range input[aria-label="to"]', '2026-01-30 17:22');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.live.pinned');
    checks.equal(parameter(page, 'from'), '2026-01-30 17:20:05', 'a picked time is in the address');
    const zone = await page.evaluate(() => new Date('2026-01-30T17:20:05').toISOString().replace('.000', ''));
    const [request] = await Promise.all([
      page.waitForRequest(/profile\?/),
      page.goto(at('compare?from=2026-01-30 17:20:05&to=2026-01-30 17:22')),
    ]);
    await page.waitForSelector('.side');
    checks.expect(zone.endsWith('Z') && request.url().includes('Z'), 'the collector is asked in UTC', request.url());
    await page.context().close();
  }

  /** No address blanks the page. */
  async function invalidAddresses() {
    const page = await open(browser, checks, { expected: /status of 400/ });
    for (const address of [
      'profile?from=yesterday',
      'compare?from=bad',
      'compare?b.from=bad',
      'tasks?from=2026-13-40 17:20:00',
      'workers?from=-5m&to=-10m',
      'tasks?from=99999999999999999999',
      'profile?from=-99999999999999999999d',
      '?to=NaN',
    ]) {
      await page.goto(at(address));
      await page.waitForSelector('text=/Invalid (time range|request)|is not a time/');
      await page.waitForSelector('nav[aria-label="Pages"]');
    }
    await page.goto(at('profile?from=bad'));
    await page.click('text=Show the last 5 min');
    await page.waitForSelector(graph);
    checks.equal(parameter(page, 'from'), null, 'an invalid range leads back to the default');
    await page.goto(at('tasks?from=2026-01-30 17:20:00&to=2026-01-30 17:22:00'));
    await page.waitForSelector('main');
    const text = await page.locator('main').textContent();
    checks.expect(!text.includes('NaN'), 'a time that the API accepts is accepted', text.slice(0, 200));
    await page.context().close();
  }

  async function liveAndPaused() {
    const page = await open(browser, checks, { expected: /Failed to load resource/ });
    let requests = 0;
    const updates = page.waitForResponse(/api\/v1\/updates/);
    page.on('request', (request) => {
      if (request.url().includes('/api/v1/timeline')) requests++;
    });
    await page.goto(at('profile'));
    await page.waitForSelector(graph);
    await page.waitForRequest(/timeline/);
    await page.waitForRequest(/timeline/);
    await page.keyboard.press(' ');
    await page.waitForSelector('.live.paused');
    checks.equal((await updates).headers()['content-type'], 'text/event-stream', 'the page receives updates');
    await settled(page);
    const before = requests;
    await page.waitForFunction(() =>
      /Paused \([3-9] s of new data\)/.test(document.querySelector('.live').textContent),
    );
    checks.equal(requests, before, 'a paused page sends no requests');
    await page.keyboard.press(' ');
    await page.waitForRequest(/timeline/);
    await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
    await page.context().route('**/api/v1/**', (route) => route.abort());
    await page.waitForSelector('.disconnected');
    const { y } = await page.locator('.disconnected').boundingBox();
    checks.expect(y >= 0 && y < 100, 'the connection banner is visible after scrolling', String(y));
    checks.expect(await page.isVisible(graph), 'data stays visible without a connection');
    await page.context().unroute('**/api/v1/**');
    await page.waitForSelector('.disconnected', { state: 'detached', timeout: 30_000 });
    await page.context().close();
  }

  return {
    mocked: [
      transfersResourcesAndEvents,
      machines,
      servers,
      sql,
      alerts,
      largeFleets,
      themes,
      threadDumpNames,
      failingView,
      skipLink,
      phone,
      hostileNames,
      noWorkers,
    ],
    live: [
      everyPage,
      lateViewScript,
      oneTaskAndOneWorker,
      filtering,
      filesOfTasks,
      failedTasks,
      ranges,
      lateAnswer,
      typedRanges,
      invalidAddresses,
      liveAndPaused,
    ],
  };
}
