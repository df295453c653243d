// Golden pictures: fixed answers, drawn by the page and compared with committed pictures.
//
// Machines have other fonts and other builds of Chromium. So canvases draw no text, all other text has no
// size, and pictures are compared by the mean colors of small cells. That catches changes of geometry,
// color and order; it does not catch changes of text.

import fs from 'node:fs';
import path from 'node:path';
import { fixTime } from './fixtures.mjs';
import { goldenAnswers } from './golden-fixtures.mjs';
import { SIZES, settled } from './harness.mjs';

const FOLDER = path.join(import.meta.dirname, 'golden');
/** Writes the pictures into this folder instead of comparing them. */
const RENEW = process.env.EMBERLINE_GOLDEN;

/** When the pictures are taken. */
const NOW_MS = Date.parse('2026-01-31T12:00:00Z');

/** Side of a cell, and how far the mean of one of its channels may be off. */
const CELL_PX = 4;
const CHANNEL_MAX = 12;
/** Part of the cells that may be off: edges are rounded differently. */
const CELLS_MAX = 0.005;

const PICTURES = [
  { name: 'flame-graph', path: 'profile', part: '.flame canvas' },
  { name: 'search-dark', path: 'profile?view=flame&q=re:function_.*7', part: '.flame canvas', theme: 'dark' },
  { name: 'diff', path: 'compare', part: '.flame canvas' },
  { name: 'task-stream', path: 'tasks', part: '.stream canvas' },
  { name: 'resources', path: 'resources', part: '.machine .u-wrap >> nth=0' },
  { name: 'status', path: '', part: 'main' },
];

/** Opens a page at the fixed time whose canvases draw no text. */
async function openStill(browser, theme) {
  const context = await browser.newContext({ viewport: SIZES.wide, colorScheme: theme, timezoneId: 'UTC' });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  await page.clock.setFixedTime(NOW_MS);
  await page.addInitScript(() => {
    CanvasRenderingContext2D.prototype.fillText = () => undefined;
  });
  return page;
}

/** The mean colors of cells of two pictures, compared in a page without a security policy. */
async function compare(page, expected, found) {
  const urls = [expected, found].map((png) => `data:image/png;base64,${png.toString('base64')}`);
  return page.evaluate(
    async ([pictures, cellPx, channelMax]) => {
      const [one, other] = await Promise.all(
        pictures.map(async (url) => {
          const image = new Image();
          image.src = url;
          await image.decode();
          const { width, height } = image;
          const context = new OffscreenCanvas(width, height).getContext('2d');
          context.drawImage(image, 0, 0);
          return { width, height, bytes: context.getImageData(0, 0, width, height).data };
        }),
      );
      const sizes = [one, other].map(({ width, height }) => `${width}×${height}`);
      if (sizes[0] !== sizes[1]) return { cells: 1, off: 1, where: `size ${sizes[1]} instead of ${sizes[0]}` };
      const columns = Math.ceil(one.width / cellPx);
      const sums = new Int32Array(columns * Math.ceil(one.height / cellPx) * 3);
      for (let at = 0; at < one.bytes.length; at++) {
        if (at % 4 === 3) continue;
        const pixel = at >> 2;
        const row = Math.floor(pixel / one.width / cellPx);
        const cell = row * columns + Math.floor((pixel % one.width) / cellPx);
        sums[3 * cell + (at % 4)] += one.bytes[at] - other.bytes[at];
      }
      const off = new Set();
      sums.forEach((sum, i) => {
        if (Math.abs(sum) > channelMax * cellPx * cellPx) off.add(Math.floor(i / 3));
      });
      const [first] = off;
      const where =
        off.size > 0 ? `first at ${cellPx * (first % columns)}, ${cellPx * Math.floor(first / columns)}` : '';
      return { cells: sums.length / 3, off: off.size, where };
    },
    [urls, CELL_PX, CHANNEL_MAX],
  );
}

export function goldenChecks({ browser, checks, at, pictures }) {
  async function take({ path: address, part, theme = 'light' }) {
    const page = await openStill(browser, theme);
    await page.context().route('**/api/v1/**', goldenAnswers());
    await page.goto(at(address));
    await settled(page);
    await page.evaluate(() => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync('* { font-size: 0 !important; animation: none !important; }');
      document.adoptedStyleSheets = [sheet];
    });
    await settled(page);
    const png = await page.locator(part).first().screenshot();
    await page.context().close();
    return png;
  }

  async function golden() {
    fixTime(NOW_MS);
    const judge = await browser.newPage();
    for (const picture of PICTURES) {
      const found = await take(picture);
      if (RENEW) {
        fs.writeFileSync(path.join(RENEW, `${picture.name}.png`), found);
        continue;
      }
      const expected = fs.readFileSync(path.join(FOLDER, `${picture.name}.png`));
      const { cells, off, where } = await compare(judge, expected, found);
      const holds = off <= CELLS_MAX * cells;
      checks.expect(holds, `golden picture ${picture.name}`, `${off} of ${cells} cells differ, ${where}`);
      if (!holds && pictures) fs.writeFileSync(path.join(pictures, `golden-${picture.name}.png`), found);
    }
    await judge.close();
    fixTime(undefined);
  }

  return { mocked: [golden], live: [] };
}
