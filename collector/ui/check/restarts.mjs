// Checks of an open page while workers and collector are restarted or killed. They start a demo of their
// own: EMBERLINE_PROGRAM names the built command.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const WORKERS = 4;
/** How long a demo may take to start or end on a busy machine. */
const DEMO_MS_MAX = 90_000;

/** Starts a demo and waits for the link that logs a browser in. */
async function startDemo(program, listen, folder) {
  const child = spawn(program, ['demo', '--listen', listen, '--data', folder], { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise((done) => child.on('exit', done));
  let text = '';
  const url = await new Promise((found, failed) => {
    const timer = setTimeout(() => failed(new Error(`no link in: ${text}`)), DEMO_MS_MAX);
    child.stderr.on('data', (data) => {
      text += data;
      const [line] = text.match(/http:\/\/127\.0\.0\.1:\d+\/login#token=\S+(?=.*\n)/) ?? [];
      if (line) {
        clearTimeout(timer);
        found(line);
      }
    });
    child.on('exit', () => failed(new Error(`the demo ended: ${text}`)));
  });
  const stop = async () => {
    child.kill('SIGINT');
    await ended;
  };
  return { url, stop };
}

export function restartChecks({ browser, checks, open, program }) {
  /** The newest life of each worker, by the API. */
  const lives = async (page) => {
    const answer = await page.evaluate(async () => (await fetch('./api/v1/workers')).json());
    return answer.workers.map(({ worker, epochs }) => ({ worker, ...epochs[epochs.length - 1] }));
  };
  const allConnected = (page) =>
    page.waitForFunction(
      (all) => new RegExp(`Workers\\s*${all}\\s*all connected`).test(document.querySelector('.tiles')?.innerText ?? ''),
      WORKERS,
      { timeout: DEMO_MS_MAX },
    );

  async function restarts() {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'emberline-check-'));
    const page = await open(browser, checks, { expected: /Failed to load resource|ERR_/ });
    let demo = await startDemo(program, '127.0.0.1:0', folder);
    try {
      await page.goto(demo.url);
      await allConnected(page);
      const before = await lives(page);
      await demo.stop();
      await page.waitForSelector('.disconnected', { timeout: DEMO_MS_MAX });
      demo = await startDemo(program, new URL(demo.url).host, folder);
      // Each demo has its own tokens.
      await page.goto(demo.url);
      await allConnected(page);
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
      await page.waitForSelector(`.alerts b:has-text("${killed.worker} crashed")`, { timeout: DEMO_MS_MAX });
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
      await demo.stop();
      fs.rmSync(folder, { recursive: true, force: true });
    }
    await page.context().close();
  }

  return { mocked: [], live: program ? [restarts] : [] };
}
