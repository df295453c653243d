// A browser, a proxy below a path, and a list of checks.

import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const require = createRequire(import.meta.url);
const AXE = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** A limit on DOM nodes, which unlike a time limit does not depend on the machine. */
export const DOM_NODES_MAX = 2000;

/** Characters of a page that are printed. */
const TOLD_MAX = 600;

export const SIZES = { wide: { width: 1280, height: 720 }, phone: { width: 390, height: 844 } };

/** How long a fleet may take until tasks of each name have ended. */
export const FLEET_MS_MAX = 120_000;

/** The time that all checks of a fleet fit in: a range that has each of its tasks, however slow the machine. */
const FLEET_S_MAX = 600;

/** A range of all samples that have arrived: those of the last seconds are still on their way. */
export function arrived() {
  const [from, to] = [FLEET_S_MAX, 5].map((seconds) => new Date(Date.now() - seconds * 1000).toISOString());
  return `from=${from}&to=${to}`;
}

export class Checks {
  failed = 0;
  made = 0;

  expect(holds, what, detail = '') {
    this.made++;
    if (holds) return;
    this.failed++;
    console.error(`FAILED ${what} ${detail}`);
  }

  equal(found, expected, what) {
    this.expect(found === expected, what, `found ${JSON.stringify(found)}, expected ${JSON.stringify(expected)}`);
  }
}

/** Starts the browser named by the environment, or Debian's. */
export async function start({ args = [] } = {}) {
  const executablePath = process.env.EMBERLINE_CHROMIUM ?? '/usr/bin/chromium';
  // Chromium has no sandbox as root; the page is our own.
  return chromium.launch({ executablePath, args: ['--no-sandbox', ...args] });
}

/** A page on which every console error and every violation of the security policy is a failure. */
export async function open(browser, checks, { size = 'wide', theme = 'light', expected = /^$/ } = {}) {
  const context = await browser.newContext({ viewport: SIZES[size], colorScheme: theme });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !expected.test(message.text())) {
      checks.expect(false, `console of ${page.url()}`, message.text());
    }
  });
  page.on('pageerror', (error) => checks.expect(false, `script on ${page.url()}`, error.stack));
  page.on('dialog', (dialog) => {
    checks.expect(false, `dialog on ${page.url()}`, dialog.message());
    void dialog.dismiss();
  });
  return page;
}

/** Waits until tasks of the demo's slow names have ended. */
export async function waitForFleet(apiUrl) {
  const begun = Date.now();
  for (;;) {
    const answer = await fetch(apiUrl('tasks?summary=true')).then((response) => response.json());
    const seen = new Set(answer.names.filter(({ durations }) => durations).map(({ name }) => name));
    if (seen.has('qr') && seen.has('compress')) return;
    if (Date.now() - begun > FLEET_MS_MAX) throw new Error(`the fleet has shown only ${[...seen]}`);
    await new Promise((later) => setTimeout(later, 500));
  }
}

/** Prints what the pages of a failed check show, and closes them. */
export async function closeAllPages(browser) {
  for (const context of browser.contexts()) {
    for (const page of context.pages()) {
      const shown = await page.evaluate(() => document.querySelector('main')?.innerText).catch(String);
      console.error(`  ${page.url()} shows: ${shown?.slice(0, TOLD_MAX)}`);
    }
    await context.close();
  }
}

/** Checks that hold for every page. */
export async function checkLayout(page, checks, what) {
  const { nodes, wide, width } = await page.evaluate(() => ({
    nodes: document.querySelectorAll('*').length,
    wide: document.documentElement.scrollWidth,
    width: innerWidth,
  }));
  checks.expect(nodes <= DOM_NODES_MAX, `${what}: number of DOM nodes`, String(nodes));
  checks.expect(wide <= width, `${what}: horizontal overflow`, `${wide} > ${width}`);
}

/** Waits until the page has loaded and drawn its data. */
export async function settled(page) {
  try {
    await page.waitForSelector('main table, main canvas, main pre, main textarea, main .empty:not([role="status"])');
    await page.waitForFunction(() => !document.querySelector('main [role="status"].empty, main [aria-busy="true"]'));
  } catch (error) {
    const shown = await page.evaluate(() => document.querySelector('main')?.innerText).catch(String);
    throw new Error(`${page.url()} shows only: ${shown}`, { cause: error });
  }
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));
}

/**
 * Expects no serious finding of axe-core. It is evaluated, because the security policy blocks injected
 * scripts.
 */
export async function checkAccessibility(page, checks, what) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  const findings = serious.map(
    ({ id, nodes }) =>
      `${id}: ${nodes
        .slice(0, 3)
        .map((node) => `${node.html} (${node.failureSummary})`)
        .join(' | ')}`,
  );
  checks.expect(serious.length === 0, `${what}: no serious finding of axe`, findings.join('\n  '));
}

/** Nodes that a screen reader reads, as role and name. */
export async function accessibilityNodes(page) {
  const session = await page.context().newCDPSession(page);
  const { nodes } = await session.send('Accessibility.getFullAXTree');
  return nodes.filter(({ ignored }) => !ignored).map(({ role, name }) => `${role?.value}: ${name?.value ?? ''}`);
}

/**
 * Serves `target` below `base` like a proxy, which identifies all readers by `token`; other paths are not
 * found. Requests that `made` answers do not reach the target.
 */
export async function proxy(target, base, { made = () => undefined, token } = {}) {
  const server = http.createServer((request, response) => {
    if (!request.url.startsWith(base)) {
      response.writeHead(404).end();
      return;
    }
    const answer = made(new URL(request.url, 'http://made'));
    if (answer !== undefined) {
      response.writeHead(200, { 'content-type': answer.contentType }).end(answer.body);
      return;
    }
    const to = http.request(
      target.replace(/\/$/, '') + request.url.slice(base.length - 1),
      {
        // A kept connection may be closed by the collector just when a request is written to it.
        agent: false,
        method: request.method,
        headers: { ...request.headers, ...(token && { authorization: `Bearer ${token}` }) },
      },
      (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      },
    );
    to.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
    // A stream that nobody reads would stay open.
    response.on('close', () => to.destroy());
    request.pipe(to);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${server.address().port}${base}`,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
