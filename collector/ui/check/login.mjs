// Checks of the login: with a real token against a real collector, at its own address.

import { answersNamed, mockApi } from './fixtures.mjs';
import { checkAccessibility, checkLayout } from './harness.mjs';

/** The browser reports that the wrong token was rejected. */
const REJECTED = /status of 40[01]/;

export function loginChecks({ browser, checks, open, target, token, at, pictures }) {
  const picture = async (page, name) => {
    if (pictures) await page.screenshot({ path: `${pictures}/${name}.png` });
  };

  /** Each size and theme: the form, a wrong token, the right one, the view as before, the logout. */
  async function loggingIn() {
    const each = async ([size, theme]) => {
      const what = `${size} ${theme}`;
      const page = await open(browser, checks, { size, theme, expected: REJECTED });
      await page.goto(`${target}profile?view=table`);
      checks.equal(page.url(), `${target}login?next=profile%3Fview%3Dtable`, 'a browser is sent to the login');
      await checkLayout(page, checks, `login ${what}`);
      await checkAccessibility(page, checks, `login ${what}`);
      await picture(page, `login-${size}-${theme}`);
      await page.fill('#token', `${token.slice(0, -1)}x`);
      await page.click('form button');
      await page.waitForSelector('[role="alert"] >> text=The token is not valid.');
      await checkLayout(page, checks, `rejected login ${what}`);
      await checkAccessibility(page, checks, `rejected login ${what}`);
      await picture(page, `login-rejected-${size}-${theme}`);
      await page.fill('#token', token);
      await page.keyboard.press('Enter');
      await page.waitForSelector('main table');
      checks.equal(page.url(), `${target}profile?view=table`, 'the login returns to the view');
      await page.waitForSelector('.live i');
      await page.click('.account summary');
      await page.waitForSelector('.account .menu >> text=demo');
      const { x, width } = await page.locator('.account .menu').boundingBox();
      const shown = await page.evaluate(() => innerWidth);
      checks.expect(
        x >= 0 && x + width <= shown,
        `account ${what}: the menu is visible`,
        `${x} + ${width} of ${shown}`,
      );
      await checkLayout(page, checks, `account ${what}`);
      await checkAccessibility(page, checks, `account ${what}`);
      await picture(page, `account-${size}-${theme}`);
      await page.click('.account >> text=Log out');
      await page.waitForURL(`${target}login`);
      checks.equal((await page.context().cookies()).length, 0, 'no cookie is left');
      await page.context().close();
    };
    await Promise.all(
      [
        ['wide', 'light'],
        ['wide', 'dark'],
        ['phone', 'light'],
        ['phone', 'dark'],
      ].map(each),
    );
  }

  /** The token of a link reaches the server in a form only, and nobody sees it in the address. */
  async function loginLink() {
    const page = await open(browser, checks);
    const urls = [];
    page.on('request', (request) => urls.push(request.url()));
    await page.goto(`${target}login#token=${token}`);
    await page.waitForSelector('.tile');
    checks.equal(page.url(), target, 'the login opens the status page');
    checks.equal(urls.filter((url) => new URL(url).search.includes('emb_')).length, 0, 'no request names the token');
    await page.goBack();
    checks.expect(!page.url().includes('emb_'), "the tab's history does not have the token", page.url());
    const cookies = await page.context().cookies();
    checks.equal(cookies.length, 1, 'there is one cookie');
    const [{ name, httpOnly, sameSite, path }] = cookies;
    checks.equal(
      JSON.stringify({ name, httpOnly, sameSite, path }),
      JSON.stringify({ name: `emberline-${new URL(target).port}`, httpOnly: true, sameSite: 'Strict', path: '/' }),
      'scripts and other sites cannot use the cookie',
    );
    // The cookie is not sent with a link from another site; the login's page retries.
    await page.goto(`data:text/html,${encodeURIComponent(`<a href="${target}tasks">tasks</a>`)}`);
    await page.click('a');
    await page.waitForURL(`${target}tasks`);
    await page.waitForSelector('main table');
    await page.context().close();
  }

  /** A stranger's link with a token logs nobody in before the person has agreed. */
  async function strangersLink() {
    const page = await open(browser, checks);
    await page.goto(`data:text/html,${encodeURIComponent(`<a href="${target}login#token=${token}">tasks</a>`)}`);
    await page.click('a');
    await page.waitForSelector('p.error');
    const id = token.split('_')[1];
    checks.expect((await page.textContent('p.error')).includes(`token ${id}.`), 'the login asks', page.url());
    checks.expect(!page.url().includes('emb_'), 'the address has no token', page.url());
    checks.equal((await page.context().cookies()).length, 0, 'nobody is logged in');
    await page.click('form button');
    await page.waitForSelector('.tile');
    await page.context().close();
  }

  /** The tasks of the last hour, after a login whose end is expected. */
  async function loggedInTasks() {
    const page = await open(browser, checks, { expected: /status of 401/ });
    await page.goto(`${target}login#token=${token}`);
    await page.waitForSelector('.tile');
    await page.goto(`${target}tasks?from=-1h`);
    await page.waitForSelector('main table');
    return page;
  }

  /** A live request is rejected after the session ended, before the login is shown. */
  async function loggingOut() {
    const page = await loggedInTasks();
    await page.route('**/login', async (route) => {
      const isRejection = (response) => response.status() === 401;
      await page.waitForResponse(isRejection, { timeout: 3000 }).catch(() => undefined);
      // A page that leaves again has ended this request.
      await route.continue().catch(() => undefined);
    });
    await page.click('.account summary');
    await page.click('.account >> text=Log out');
    await page.waitForURL(`${target}login`);
    await page.waitForSelector('#token');
    await page.context().close();
  }

  /** When the session ends, the page leaves for the login and comes back. */
  async function endedLogin() {
    const page = await loggedInTasks();
    await page.context().clearCookies();
    await page.waitForURL(`${target}login?next=tasks%3Ffrom%3D-1h`);
    await page.fill('#token', token);
    await page.click('form button');
    await page.waitForURL(`${target}tasks?from=-1h`);
    await page.context().close();
  }

  /** A reader sees no thread dumps, and the page does not ask for them. */
  async function readersPage() {
    const page = await open(browser, checks);
    const session = {
      role: 'reader',
      token: '1a2b3c4d',
      note: 'Ada',
      logged_in: true,
      expires: null,
      expires_ns: null,
    };
    const asked = [];
    page.on('request', (request) => asked.push(new URL(request.url()).pathname));
    await mockApi(page, { ...answersNamed(['alpha']), session });
    await page.goto(at('workers/alpha'));
    await page.waitForSelector('text=Thread dumps need a token of role operator.');
    checks.expect(!asked.some((path) => path.endsWith('/thread-dump')), 'a reader requests no thread dump');
    checks.equal(
      await page.getAttribute('.account summary', 'aria-label'),
      'Logged in as reader',
      'the header has the role',
    );
    await page.context().close();
  }

  return { mocked: [readersPage], live: [loginLink, strangersLink, endedLogin, loggingOut, loggingIn] };
}
