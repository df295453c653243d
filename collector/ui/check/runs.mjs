// Checks of addresses: the run that they name, and the time at which a link was copied.

import { answersNamed, fixTime, mockApi } from './fixtures.mjs';
import { settled } from './harness.mjs';

const START = Date.parse('2026-01-31T11:00:00Z');
const RUN = {
  id: '7',
  name: 'nightly',
  worker: 'import:before',
  start_ns: START * 1e6,
  stop_ns: (START + 60_000) * 1e6,
  duration_ns: 60e9,
  open: false,
  lost: false,
};

/** Pages with a range of their own. */
const PAGES = ['', 'profile', 'tasks', 'tasks/load', 'workers', 'workers/load', 'transfers', 'events'];

/** Requests for the range of a page. Alerts about failed tasks are always of 24 hours. */
const OF_RANGE = /\/api\/v1\/(profile|timeline|tasks|transfers|thread-time|progress)/;

/** How long ago the last flush of the idle collector was. */
const IDLE_MS = 277_000;

export function runChecks({ browser, checks, open, at, parameter }) {
  const answers = { ...answersNamed(['load']), runs: { runs: [RUN] } };

  async function aRunIsItsRangeOnEveryPage() {
    const page = await open(browser, checks);
    await mockApi(page, answers);
    const asked = [];
    page.on('request', (request) => asked.push(request.url()));
    for (const path of PAGES) {
      asked.length = 0;
      await page.goto(at(`${path}?run=nightly`));
      await page.waitForFunction(() => new URL(location.href).searchParams.get('run') === 'nightly@7');
      await settled(page);
      const range = ['from', 'to', 'worker'].map((name) => parameter(page, name)).join();
      checks.equal(range, '2026-01-31T11:00:00Z,2026-01-31T11:01:00Z,import:before', `the run on /${path}`);
      const others = asked.filter((url) => OF_RANGE.test(url) && /from=-(?!24h)|to=now/.test(url));
      checks.equal(others.join(), '', `/${path} asks for nothing but the run`);
    }
    for (const path of ['compare', 'resources']) {
      asked.length = 0;
      await page.goto(at(`${path}?run=nightly`));
      await settled(page);
      const kind = path === 'compare' ? 'profile' : path;
      const own = asked.filter((url) => url.includes(`/api/v1/${kind}?`) && url.includes('run=nightly'));
      checks.expect(own.length > 0, `/${path} asks for the run`, asked.join('\n'));
    }
    await page.context().close();
  }

  async function anUnknownRunIsAnError() {
    const page = await open(browser, checks, { expected: /404/ });
    await mockApi(page, answers);
    const error = { error: 'no run is called "nosuch"; the nearest are: "nightly"', nearest: ['nightly'] };
    await page
      .context()
      .route('**/api/v1/**run=nosuch**', (route) =>
        route.fulfill({ status: 404, contentType: 'application/json', body: JSON.stringify(error) }),
      );
    const asked = [];
    page.on('request', (request) => asked.push(request.url()));
    for (const path of [...PAGES, 'compare', 'resources']) {
      asked.length = 0;
      await page.goto(at(`${path}?run=nosuch`));
      await page.waitForSelector('main .empty h2');
      const shown = await page.textContent('main');
      checks.expect(shown.includes('no run is called "nosuch"'), `/${path} names the unknown run`, shown);
      checks.equal(await page.locator('main canvas, main table').count(), 0, `/${path} shows nothing else`);
      const others = asked.filter((url) => OF_RANGE.test(url) && !url.includes('run=nosuch') && /from=/.test(url));
      if (path !== 'compare') checks.equal(others.join(), '', `/${path} asks for nothing else`);
    }
    await page.goto(at('profile?run=nosuch'));
    await page.click('text="nightly"');
    await page.waitForFunction(() => new URL(location.href).searchParams.get('run') === 'nightly@7');
    await page.context().close();
  }

  /** The collector's last flush, and with it the last update, was minutes ago. */
  async function aCopiedLinkIsOfNow() {
    const page = await open(browser, checks);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await page.addInitScript(() => {
      navigator.clipboard.writeText = async (text) => {
        window.copied = text;
      };
    });
    fixTime(Date.now() - IDLE_MS, { old: true });
    await mockApi(page, answersNamed(['load']));
    for (const path of ['', 'profile', 'compare', 'tasks', 'transfers', 'resources', 'events']) {
      await page.goto(at(path));
      await settled(page);
      const before = Date.now();
      await page.click('.copy-link');
      await page.waitForFunction(() => window.copied !== undefined);
      const to = Date.parse(new URL(await page.evaluate(() => window.copied)).searchParams.get('to'));
      checks.expect(
        to >= before - 1000 && to <= Date.now() + 1000,
        `the link of /${path} ends now`,
        String(before - to),
      );
    }
    // A minute after the last flush, as a person types it.
    const typed = new Date(Date.now() - IDLE_MS + 60_000);
    const clock = typed.toTimeString().slice(0, 8);
    await page.goto(at(`profile?from=-1h&to=${clock}`));
    await settled(page);
    const shown = await page.textContent('main');
    checks.expect(!shown.includes('reversed'), 'a time of day after the last flush is today', shown.slice(0, 200));
    fixTime(undefined);
    await page.context().close();
  }

  return { mocked: [aRunIsItsRangeOnEveryPage, anUnknownRunIsAnError, aCopiedLinkIsOfNow], live: [] };
}
