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
import { runChecks } from './runs.mjs';
import { walkChecks } from './walk.mjs';

const [, , target, pictures] = process.argv;

/** Limit on all checks together. */
const ALL_MS_MAX = 900_000;
const watchdog = setTimeout(() => {
  console.error(`FAILED: the checks took longer than ${ALL_MS_MAX / 1000} s`);
  process.exit(1);
}, ALL_MS_MAX);

const checks = new Checks();
// All checks go through a proxy, below a path: what works there also works at the root.
const token = process.env.EMBERLINE_TOKEN;
const below = await proxy(target, '/behind/a-proxy/', { token });
const apiUrl = (path) => `${below.url}api/v1/${path}`;

/** The chosen checks of a kind, for a browser. */
function chosen(kind, browser) {
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
    apiUrl,
    parameter: (page, name) => new URL(page.url()).searchParams.get(name),
  };
  const groups = [
    loginChecks,
    pageChecks,
    profileChecks,
    goldenChecks,
    walkChecks,
    fleetChecks,
    reportChecks,
    restartChecks,
    runChecks,
  ];
  const only = process.env.EMBERLINE_CHECK?.split(',');
  return groups.flatMap((group) => group(context)[kind]).filter(({ name }) => !only || only.includes(name));
}

async function run(check, browser) {
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

/** Runs the checks of a kind in a browser of their own. */
async function runAll(kind, ready = async () => {}) {
  const browser = await start();
  const all = chosen(kind, browser);
  if (all.length > 0) await ready();
  for (const check of all) await run(check, browser);
  await browser.close();
}

// Checks with mocked answers need no fleet. Both kinds wait for their pages most of the time.
await Promise.all([runAll('mocked'), runAll('live', () => waitForFleet(apiUrl))]);

clearTimeout(watchdog);
below.close();
// A connection that the collector keeps open would keep the process alive.
process.exit(checks.failed > 0 ? 1 : 0);
