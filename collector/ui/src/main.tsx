// The frame around every view, and the choice of the view by address.

import './style.css';
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Account } from './components/Account';
import { CopyLink } from './components/CopyLink';
import { ErrorBoundary } from './components/ErrorBoundary';
import { Help } from './components/Help';
import { lazy } from './components/Lazy';
import { EmptyState, InvalidRange } from './components/Messages';
import { RangePicker } from './components/RangePicker';
import { RunScope } from './components/RunScope';
import { currentAddress, href, navigate, rangeOf, setParams, sharedParams, useAddress } from './core/address';
import { nowMs } from './core/clock';
import { chooseTheme, chosenTheme, prepareColors } from './core/colors';
import { useKeys } from './core/keys';
import { safeText } from './core/names';
import {
  checkFirstView,
  disconnectedAt,
  firstView,
  ingestStopped,
  pauseTime,
  releaseFirstView,
  togglePause,
  usePausedSeconds,
} from './core/query';
import { showsOneRun } from './core/runs';
import { fetchSession, session } from './core/session';
import { fetchTaskNames } from './core/task-names';
import { isLive, resolveRange, utcOffset } from './core/time';

const StatusPage = lazy(async () => (await import('./pages/status')).StatusPage);
const ProfilePage = lazy(async () => (await import('./pages/profile')).ProfilePage);
const TasksPage = lazy(async () => (await import('./pages/tasks')).TasksPage);
const WorkersPage = lazy(async () => (await import('./pages/workers')).WorkersPage);
const ComparePage = lazy(async () => (await import('./pages/compare')).ComparePage);
const TaskPage = lazy(async () => (await import('./pages/task')).TaskPage);
const WorkerPage = lazy(async () => (await import('./pages/worker')).WorkerPage);
const TransfersPage = lazy(async () => (await import('./pages/transfers')).TransfersPage);
const ResourcesPage = lazy(async () => (await import('./pages/resources')).ResourcesPage);
const EventsPage = lazy(async () => (await import('./pages/events')).EventsPage);
const SqlPage = lazy(async () => (await import('./pages/sql')).SqlPage);
const LicensesPage = lazy(async () => (await import('./pages/licenses')).LicensesPage);

/** How much of the preceding link stays visible. */
const SEEN_BEFORE_PX = 90;

/** Views by page name. */
const VIEWS: Record<string, { begin(): Promise<void> } | undefined> = {
  '': StatusPage,
  profile: ProfilePage,
  tasks: TasksPage,
  workers: WorkersPage,
  compare: ComparePage,
  'tasks/~': TaskPage,
  'workers/~': WorkerPage,
  transfers: TransfersPage,
  resources: ResourcesPage,
  events: EventsPage,
  sql: SqlPage,
  licenses: LicensesPage,
};

const LINKS: [string, string][] = [
  ['', 'Status'],
  ['profile', 'Profile'],
  ['compare', 'Compare'],
  ['tasks', 'Tasks'],
  ['workers', 'Workers'],
  ['transfers', 'Transfers'],
  ['resources', 'Resources'],
  ['events', 'Events'],
];

/** Only where it answers. */
const SQL_LINK: [string, string] = ['sql', 'SQL'];

// The icon's address is relative to the document. Views one level deeper open without loading another
// document.
for (const icon of document.querySelectorAll<HTMLLinkElement>('link[rel="icon"]')) icon.setAttribute('href', icon.href);

function App() {
  const { page, item, params } = useAddress();
  const [help, setHelp] = useState(false);
  const range = resolveRange(rangeOf(params), nowMs());
  // The effects of the view, which send its requests, have run.
  useEffect(checkFirstView, []);
  const links = session.use()?.sql ? [...LINKS, SQL_LINK] : LINKS;
  useEffect(() => {
    const label = item === null ? ([...LINKS, SQL_LINK].find(([to]) => to === page)?.[1] ?? page) : safeText(item, 60);
    document.title = page === '' ? 'Emberline' : `${label} · Emberline`;
    scrollToShownLink();
  }, [page, item]);
  useKeys((key, target) => {
    const at = /^[1-9]$/.test(key) ? Number(key) - 1 : links.length;
    if (key === '?') setHelp(true);
    else if (key === ' ' && !/^(BUTTON|A|SUMMARY)$/.test(target.tagName)) togglePause();
    else if (at < links.length) navigate(links[at][0], sharedParams());
    else return false;
    return true;
  });
  const content = 'error' in range ? <InvalidRange error={range.error} /> : view(page, item);
  return (
    <div onClick={follow}>
      <button class="skip" onClick={skip}>
        Skip to content
      </button>
      <div class="top">
        <header>
          <a class="brand" href={href('', sharedParams())} aria-label="Emberline">
            E<span class="wide-only">mberline</span>
          </a>
          <nav aria-label="Pages">
            {links.map(([to, label]) => (
              <a
                key={to}
                href={href(to, sharedParams())}
                aria-current={page === to ? 'page' : page === `${to}/~` ? 'true' : undefined}
              >
                {label}
              </a>
            ))}
          </nav>
          <span class="gap" />
          <RangePicker />
          <Live pinned={!isLive(rangeOf(params))} />
          <CopyLink />
          <button class="round" aria-label="Help" title="Help (?)" onClick={() => setHelp(true)}>
            ?
          </button>
          <Account />
        </header>
        <ConnectionBanner />
      </div>
      <main tabIndex={-1}>
        {item === null && (
          <h1 class="visually-hidden">{[...LINKS, SQL_LINK].find(([to]) => to === page)?.[1] ?? page}</h1>
        )}
        <ErrorBoundary attempt={location.href}>
          {params.has('run') && showsOneRun(page) ? <RunScope>{content}</RunScope> : content}
        </ErrorBoundary>
      </main>
      <footer>
        <label>
          Theme{' '}
          <select value={chosenTheme()} onChange={(event) => chooseTheme(event.currentTarget.value)}>
            <option value="">system</option>
            <option value="light">light</option>
            <option value="dark">dark</option>
          </select>
        </label>{' '}
        <span>Times: {utcOffset(nowMs())}</span> <a href={href('licenses')}>Licenses</a>
      </footer>
      {help && <Help onClose={() => setHelp(false)} />}
    </div>
  );
}

/** Where the links scroll, because they do not all fit: the style sheet's limit of a phone. */
const IS_NARROW = '(max-width: 760px)';

function scrollToShownLink() {
  // Elsewhere, asking for their places would only lay the page out early.
  if (!matchMedia(IS_NARROW).matches) return;
  const link = document.querySelector<HTMLElement>('nav [aria-current]');
  link?.parentElement?.scrollTo({ left: link.offsetLeft - SEEN_BEFORE_PX });
}

function view(page: string, item: string | null) {
  switch (page) {
    case '':
      return <StatusPage />;
    case 'profile':
      return <ProfilePage />;
    case 'tasks':
      return <TasksPage />;
    case 'workers':
      return <WorkersPage />;
    case 'compare':
      return <ComparePage />;
    case 'tasks/~':
      return <TaskPage key={item} name={item ?? ''} />;
    case 'workers/~':
      return <WorkerPage key={item} id={item ?? ''} />;
    case 'transfers':
      return <TransfersPage />;
    case 'resources':
      return <ResourcesPage />;
    case 'events':
      return <EventsPage />;
    case 'sql':
      return <SqlPage />;
    case 'licenses':
      return <LicensesPage />;
    default:
      return (
        <EmptyState title="Page not found">
          <a href={href('')}>Go to the status page</a>
        </EmptyState>
      );
  }
}

/** Moves the focus past the controls: to the graph, or else to the page's content. */
function skip() {
  const content = document.querySelector<HTMLElement>('main [role="application"]') ?? document.querySelector('main');
  content?.focus();
}

/** Links within the page change the address without loading a document. */
function follow(event: MouseEvent) {
  const link = (event.target as Element).closest?.('a');
  if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.target || link.hasAttribute('download') || !link.href.startsWith(href('')) || link.href.includes('/api/'))
    return;
  event.preventDefault();
  const url = new URL(link.href);
  navigate(url.pathname.slice(new URL(href('')).pathname.length), url.searchParams);
  scrollTo(0, 0);
}

function Live({ pinned }: { pinned: boolean }) {
  const behind = usePausedSeconds();
  const isPaused = pauseTime.use() !== null;
  const isLost = disconnectedAt.use() !== null;
  if (pinned)
    return (
      <button
        class="live pinned"
        title="This range is fixed; show the newest data again"
        onClick={() => setParams({ from: null, to: null, zoom: null })}
      >
        <span class="wide-only">Fixed range · </span>go live
      </button>
    );
  if (isPaused)
    return (
      <button class="live paused" title="Resume (space)" onClick={togglePause}>
        Paused <span class="wide-only">({behind} s of new data)</span>
      </button>
    );
  if (isLost)
    return (
      <button class="live paused" title="Pause (space)" onClick={togglePause}>
        No response
      </button>
    );
  return (
    <button class="live" title="Pause (space)" onClick={togglePause}>
      <i />
      Live
    </button>
  );
}

function ConnectionBanner() {
  const since = disconnectedAt.use();
  const reason = ingestStopped.use();
  const [, tick] = useState(0);
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [since]);
  if (since === null)
    return (
      reason && (
        <div class="disconnected" role="alert">
          Ingestion is stopped: <bdi>{safeText(reason, 300)}</bdi>. Agents buffer their samples and retry.
        </div>
      )
    );
  const seconds = Math.round((Date.now() - since) / 1000);
  return (
    <div class="disconnected" role="alert">
      No response from the collector for {seconds} s. Showing earlier data; retrying…
    </div>
  );
}

/**
 * How long the first render may wait for the task names, which decide the colors, and for the view's
 * script.
 */
const FIRST_WAIT_MS = 1000;

/** How long the view may wait for its answers before it is shown without them. */
const ANSWERS_WAIT_MS = 300;

const first = Promise.allSettled([
  fetchTaskNames().then((answer) => prepareColors(answer.names.map((task) => task.name))),
  fetchSession(),
  VIEWS[currentAddress().page]?.begin(),
]);
// Errors and late answers are shown by the page itself.
void Promise.race([first, after(FIRST_WAIT_MS)]).then(async () => {
  const page = document.getElementById('page')!;
  // Nothing is laid out and painted before the view has its answers.
  page.hidden = true;
  render(<App />, page);
  setTimeout(releaseFirstView, ANSWERS_WAIT_MS);
  await firstView;
  page.hidden = false;
  scrollToShownLink();
});

function after(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}
