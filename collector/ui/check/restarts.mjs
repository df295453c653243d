// Checks of an open page while workers and collector are restarted, stopped or killed. They start a collector
// and workers of their own: EMBERLINE_PROGRAM names the built command.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';

const WORKERS = 4;
/** How long a process may take to start or end on a busy machine. */
const PROCESS_MS_MAX = 90_000;

/** Starts the command without the tokens of other collectors. */
function start(program, args, stdio) {
  const { EMBERLINE_TOKEN: _, ...env } = process.env;
  return spawn(program, args, { stdio, env });
}

/** The first line that matches, of a stream that is read on. */
function lineOf(stream, pattern) {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`no line ${pattern}`)), PROCESS_MS_MAX);
    // Not by `once`: it misses the second of two lines that arrive together.
    createInterface(stream).on('line', (line) => {
      const found = pattern.exec(line);
      if (!found) return;
      clearTimeout(late);
      resolve(found);
    });
  });
}

/** Ends processes by `request`, or else by force. */
async function end(children, request) {
  const running = children.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null);
  const ended = running.map((child) => once(child, 'exit'));
  running.forEach(request);
  const timer = setTimeout(() => running.forEach((child) => child.kill('SIGKILL')), PROCESS_MS_MAX);
  await Promise.all(ended);
  clearTimeout(timer);
}

/** Starts a collector that needs no tokens. */
async function startCollector(program, listen, folder) {
  const child = start(program, ['serve', '--listen', listen, '--data', folder], ['ignore', 'ignore', 'pipe']);
  const [, url] = await lineOf(child.stderr, /^Open (\S+) in a browser$/);
  return { url, stop: () => end([child], (one) => one.kill('SIGINT')) };
}

/** Starts a fleet, as the demo does: each worker says where it listens, and then hears of all. */
async function startWorkers(program, collector) {
  const children = Array.from({ length: WORKERS }, (_, index) =>
    start(
      program,
      ['fleet-worker', '--index', String(index), '--workers', String(WORKERS), '--collector', collector],
      ['pipe', 'pipe', 'ignore'],
    ),
  );
  const addresses = await Promise.all(children.map(({ stdout }) => lineOf(stdout, /^\{.*\}$/)));
  const roster = JSON.stringify({ seed: 1, workers: addresses.map(([line]) => JSON.parse(line)) });
  for (const { stdin } of children) stdin.write(`${roster}\n`);
  return { stop: () => end(children, ({ stdin }) => stdin.end()) };
}

export function restartChecks({ browser, checks, open, program }) {
  /** The newest life of each worker, by the API. */
  const lives = async (page) => {
    const answer = await page.evaluate(async () => (await fetch('./api/v1/workers')).json());
    return answer.workers.map(({ worker, epochs }) => ({ worker, ...epochs[epochs.length - 1] }));
  };
  const connected = (page, text) =>
    page.waitForFunction(
      (wanted) => new RegExp(`Workers\\s*${wanted}`).test(document.querySelector('.tiles')?.innerText ?? ''),
      text,
      { timeout: PROCESS_MS_MAX },
    );

  async function restarts() {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'emberline-check-'));
    const page = await open(browser, checks, { expected: /Failed to load resource|ERR_/ });
    let collector = await startCollector(program, '127.0.0.1:0', folder);
    let workers = await startWorkers(program, collector.url);
    try {
      await page.goto(collector.url);
      await connected(page, `${WORKERS}\\s*all connected`);
      await page.evaluate(() => {
        window.isSamePage = true;
      });
      const before = await lives(page);
      const { host } = new URL(collector.url);
      await collector.stop();
      await page.waitForSelector('.disconnected', { timeout: PROCESS_MS_MAX });
      collector = await startCollector(program, host, folder);
      await page.waitForSelector('.disconnected', { state: 'detached', timeout: PROCESS_MS_MAX });
      await connected(page, `${WORKERS}\\s*all connected`);
      await workers.stop();
      await connected(page, `0\\s*of ${WORKERS} connected`);
      workers = await startWorkers(program, collector.url);
      await connected(page, `${WORKERS}\\s*all connected`);
      checks.equal(await page.evaluate(() => window.isSamePage), true, 'one page lives through both restarts');
      const after = await lives(page);
      const newer = after.filter(({ epoch, state }, i) => state === 'connected' && epoch !== before[i].epoch);
      checks.equal(newer.length, WORKERS, 'the newest life of each worker is the connected one');
      const shares = await page.$$eval('.progress > span:not(.track)', (all) => all.map((one) => one.textContent));
      checks.expect(
        shares.every((share) => Number.parseFloat(share) <= 100),
        'progress counts one life only',
        shares.join(),
      );
      const ends = page.locator('.alerts >> text=/ crashed | went silent | did not return /');
      checks.equal(await ends.count(), 0, 'a clean restart is no alert');

      const [stopped] = after;
      const silent = `.alerts b:has-text("${stopped.worker} sends no data")`;
      process.kill(stopped.pid, 'SIGSTOP');
      await page.waitForSelector(silent, { timeout: PROCESS_MS_MAX });
      process.kill(stopped.pid, 'SIGCONT');
      await page.waitForSelector(silent, { state: 'detached', timeout: PROCESS_MS_MAX });

      await page.click('nav >> text=Workers');
      await page.waitForSelector('main table tbody tr');
      const rows = await page.$$eval('main table tbody tr', (all) => all.map((row) => row.innerText));
      for (const { worker, pid } of after) {
        const row = rows.find((text) => text.includes(worker) && !text.includes('earlier session')) ?? '';
        checks.expect(
          row.includes('● connected') && row.includes(String(pid)),
          `${worker} is shown by its newest life`,
          row,
        );
      }

      const [killed] = after.slice(-1);
      process.kill(killed.pid, 'SIGKILL');
      await page.waitForSelector(`.alerts b:has-text("${killed.worker} crashed")`, { timeout: PROCESS_MS_MAX });
      const alert = await page.innerText('.alerts');
      for (const part of ['crashed at', `process ${killed.pid} on`, 'last seen', 'Next: check the exit status'])
        checks.expect(alert.includes(part), `the alert has: ${part}`, alert);
      await page.reload();
      await page.waitForSelector('.alerts');
      // Its running tasks are another alert.
      await page.waitForSelector('.alerts >> text=failed in the last 24 h');
      await page.click('.alerts >> text=Dismiss all');
      await page.waitForSelector('.alerts', { state: 'detached' });
      await page.reload();
      await page.waitForSelector('main table tbody tr');
      checks.equal(await ends.count(), 0, 'a dismissed alert stays dismissed');
      await page.click('nav >> text=Events');
      const event = await page.innerText(`main tbody tr:has-text("${killed.worker}"):has-text("⚠ worker crashed")`);
      checks.expect(event.includes(`process ${killed.pid} on`), 'the event has cause and process', event);
    } finally {
      await workers.stop();
      await collector.stop();
      fs.rmSync(folder, { recursive: true, force: true });
    }
    await page.context().close();
  }

  return { mocked: [], live: program ? [restarts] : [] };
}
