// A report opens from disk without any request, and its views work.

import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

/** Single parts, with what each must show. */
const PARTS = [
  ['profile', '.flame canvas[data-rects]'],
  ['tasks', '.stream canvas[data-tasks]'],
  ['resources', '.machine canvas'],
];

export function reportChecks({ browser, checks, open, target, token, program, pictures, graph }) {
  const inFolder = async (check) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'emberline-report-'));
    try {
      await check(folder);
    } finally {
      fs.rmSync(folder, { recursive: true });
    }
  };
  const env = { ...process.env, EMBERLINE_TOKEN: token };
  const write = (command, file, ...rest) =>
    promisify(execFile)(program, [command, '--url', target, '-o', file, ...rest], { env });

  async function partsFromDisk() {
    await inFolder(async (folder) => {
      for (const [command, shown] of PARTS) {
        const file = path.join(folder, `${command}.html`);
        await write(command, file, ...(command === 'resources' ? ['--align'] : []));
        for (const [size, theme] of [
          ['wide', 'dark'],
          ['phone', 'light'],
        ]) {
          const page = await open(browser, checks, { size, theme });
          const requests = [];
          page.on('request', (request) => requests.push(request.url()));
          await page.goto(pathToFileURL(file).href);
          await page.waitForSelector(shown);
          const title = await page.textContent('h1');
          checks.expect(title.toLowerCase().startsWith(command), `the title of ${command}`, title);
          const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          checks.expect(beyond <= 0, `${command} fits a ${size} window`, `${beyond} px beyond`);
          checks.equal(requests.length, 1, `requests of ${command}`);
          if (pictures) await page.screenshot({ path: path.join(pictures, `${command}-${size}.png`), fullPage: true });
          await page.context().close();
        }
      }
    });
  }

  async function reportFromDisk() {
    await inFolder(async (folder) => {
      const file = path.join(folder, 'report.html');
      await write('report', file);
      const json = JSON.parse(fs.readFileSync(path.join(folder, 'report.json'), 'utf8'));
      for (const [size, theme] of [
        ['wide', 'light'],
        ['phone', 'dark'],
      ]) {
        const page = await open(browser, checks, { size, theme });
        const requests = [];
        page.on('request', (request) => requests.push(request.url()));
        await page.goto(pathToFileURL(file).href);
        await page.waitForSelector(graph);
        const tasks = await page.getAttribute('.stream canvas', 'data-tasks');
        checks.equal(Number(tasks), json.columns.columns.id.length, 'tasks in the report');
        const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        checks.expect(beyond <= 0, `the report fits a ${size} window`, `${beyond} px beyond`);
        await page.fill('input[type=search]', 're:.');
        await page.waitForFunction(() => document.querySelector('.search output')?.textContent.includes('100%'));
        await page.focus('.flame');
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
        await page.waitForFunction((canvas) => Number(document.querySelector(canvas).dataset.share) < 1, graph);
        await page.click('button:has-text("Agent")');
        await page.waitForSelector('button[aria-pressed=true]:has-text("Agent")');
        checks.equal(requests.length, 1, 'requests of the report');
        if (pictures) await page.screenshot({ path: path.join(pictures, `report-${size}.png`), fullPage: true });
        await page.context().close();
      }
    });
  }

  return { mocked: [], live: [reportFromDisk, partsFromDisk] };
}
