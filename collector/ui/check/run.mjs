// Checks the page in a browser against a collector with a live fleet:
//   node run.mjs http://127.0.0.1:4747 [directory for screenshots]
// EMBERLINE_TOKEN is an operator's token; EMBERLINE_CHECK names the checks to run, separated by commas.

import { fleetChecks } from './fleet.mjs';
import { goldenChecks } from './golden.mjs';
import { Checks, closeAllPages, FLEET_MS_MAX, open, proxy, start, waitForFleet } from './harness.mjs';
import { loginChecks } from './login.mjs';
import { pageChecks } from './pages.mjs';
import { profileChecks } from './profile.mjs';
import { reportChecks } from './report.mjs';
import { restartChecks } from './restarts.mjs';
import { walkChecks } from './walk.mjs';

const [, , target, pictures] = process.argv;

/** Limit on all checks together. */
const ALL_MS_MAX = 480_000;
const watchdog = setTimeout(() => {
  console.error(`FAILED: the checks took longer than ${ALL_MS_MAX / 1000} s`);
  process.exit(1);
}, ALL_MS_MAX);

const checks = new Checks();
const browser = await start();
// All checks go through a proxy, below a path: what works there also works at the root.
const token = process.env.EMBERLINE_TOKEN;
const below = await proxy(target, '/behind/a-proxy/', { token });
const context = {
  browser,
  checks,
  open,
  target: target.replace(/\/?$/, '/'),
  token,
  pictures,
  program: process.env.EMBERLINE_PROGRAM,
  fleetMsMax: FLEET_MS_MAX,
  graph: '.flame canvas[data-rects]',
  at: (path) => below.url + path,
  apiUrl: (path) => `${below.url}api/v1/${path}`,
  parameter: (page, name) => new URL(page.url()).searchParams.get(name),
};

async function run(check) {
  const begun = Date.now();
  try {
    await check();
  } catch (error) {
    checks.expect(false, check.name, error.stack);
    await closeAllPages(browser);
  }
  const seconds = ((Date.now() - begun) / 1000).toFixed(1);
  console.log(`${check.name}: ${checks.made} checks so far, ${checks.failed} failed, ${seconds} s`);
}

const only = process.env.EMBERLINE_CHECK?.split(',');
const groups = [
  loginChecks,
  pageChecks,
  profileChecks,
  goldenChecks,
  walkChecks,
  fleetChecks,
  reportChecks,
  restartChecks,
].map((group) => group(context));
const chosen = (kind) => groups.flatMap((group) => group[kind]).filter(({ name }) => !only || only.includes(name));
// The fleet starts while checks with mocked answers run.
for (const check of chosen('mocked')) await run(check);
const live = chosen('live');
if (live.length > 0) await waitForFleet(context.apiUrl);
for (const check of live) await run(check);

clearTimeout(watchdog);
await browser.close();
below.close();
// A connection that the collector keeps open would keep the process alive.
process.exit(checks.failed > 0 ? 1 : 0);
