// Emberline's page: the frame around every view, and which view an address means.

import './style.css';
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { along, change, current, go, href, rangeOf, useAddress } from './core/address';
import { prepareColours } from './core/colours';
import { useKeys } from './core/keys';
import { lost, paused, stopped, togglePause, useBehindSeconds } from './core/live';
import { shown } from './core/names';
import { askNames } from './core/task-names';
import { isLive } from './core/time';
import { Help } from './parts/Help';
import { lazy } from './parts/Lazy';
import { Empty } from './parts/Notes';
import { RangePicker } from './parts/RangePicker';

const StatusPage = lazy(async () => (await import('./pages/status')).StatusPage);
const ProfilePage = lazy(async () => (await import('./pages/profile')).ProfilePage);
const TasksPage = lazy(async () => (await import('./pages/tasks')).TasksPage);
const WorkersPage = lazy(async () => (await import('./pages/workers')).WorkersPage);
const ComparePage = lazy(async () => (await import('./pages/compare')).ComparePage);
const TaskPage = lazy(async () => (await import('./pages/task')).TaskPage);
const WorkerPage = lazy(async () => (await import('./pages/worker')).WorkerPage);
const TransfersPage = lazy(async () => (await import('./pages/transfers')).TransfersPage);
const MemoryPage = lazy(async () => (await import('./pages/memory')).MemoryPage);
const EventsPage = lazy(async () => (await import('./pages/events')).EventsPage);
const LicensesPage = lazy(async () => (await import('./pages/licenses')).LicensesPage);

/** How much of the link before the current page's is seen. */
const SEEN_BEFORE_PX = 90;

/** Views by their pages' names. */
const VIEWS: Record<string, { begin(): Promise<void> } | undefined> = {
  '': StatusPage,
  profile: ProfilePage,
  tasks: TasksPage,
  workers: WorkersPage,
  compare: ComparePage,
  'tasks/~': TaskPage,
  'workers/~': WorkerPage,
  transfers: TransfersPage,
  memory: MemoryPage,
  events: EventsPage,
  licenses: LicensesPage,
};

const LINKS: [string, string][] = [
  ['', 'Status'],
  ['profile', 'Profile'],
  ['compare', 'Compare'],
  ['tasks', 'Tasks'],
  ['workers', 'Workers'],
  ['transfers', 'Transfers'],
  ['memory', 'Memory'],
  ['events', 'Events'],
];

// The icon's address is relative to the document, and views one level deeper are shown without loading another.
for (const icon of document.querySelectorAll<HTMLLinkElement>('link[rel="icon"]')) icon.setAttribute('href', icon.href);

function App() {
  const { page, item, params } = useAddress();
  const [help, setHelp] = useState(false);
  useEffect(() => {
    const words = item === null ? (LINKS.find(([to]) => to === page)?.[1] ?? page) : shown(item, 60);
    document.title = page === '' ? 'Emberline' : `${words} · Emberline`;
    // On a phone there is not room for all of them.
    const shownLink = document.querySelector('nav [aria-current]');
    shownLink?.parentElement?.scrollTo({ left: (shownLink as HTMLElement).offsetLeft - SEEN_BEFORE_PX });
  }, [page, item]);
  useKeys((key, target) => {
    const at = ['1', '2', '3', '4', '5', '6', '7', '8'].indexOf(key);
    if (key === '?') setHelp(true);
    else if (key === ' ' && target.tagName !== 'BUTTON' && target.tagName !== 'A') togglePause();
    else if (at >= 0) go(LINKS[at][0], along());
    else return false;
    return true;
  });
  return (
    <div onClick={follow}>
      <div class="top">
        <header>
          <a class="brand" href={href('', along())}>
            Emberline
          </a>
          <nav aria-label="Pages">
            {LINKS.map(([to, words]) => (
              <a
                key={to}
                href={href(to, along())}
                aria-current={page === to ? 'page' : page === `${to}/~` ? 'true' : undefined}
              >
                {words}
              </a>
            ))}
          </nav>
          <span class="gap" />
          <RangePicker />
          <Live pinned={!isLive(rangeOf(params))} />
          <button class="round" aria-label="Help" title="Help (?)" onClick={() => setHelp(true)}>
            ?
          </button>
        </header>
        <Lost />
      </div>
      <main>{view(page, item)}</main>
      <footer>
        <a href={href('licenses')}>Licences</a>
      </footer>
      {help && <Help onClose={() => setHelp(false)} />}
    </div>
  );
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
    case 'memory':
      return <MemoryPage />;
    case 'events':
      return <EventsPage />;
    case 'licenses':
      return <LicensesPage />;
    default:
      return (
        <Empty title="There is no such page">
          <a href={href('')}>To the status of the fleet</a>
        </Empty>
      );
  }
}

/** Links within the page change the address without loading anything. */
function follow(event: MouseEvent) {
  const link = (event.target as Element).closest?.('a');
  if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.target || link.hasAttribute('download') || !link.href.startsWith(href('')) || link.href.includes('/api/'))
    return;
  event.preventDefault();
  const url = new URL(link.href);
  go(url.pathname.slice(new URL(href('')).pathname.length), url.searchParams);
  scrollTo(0, 0);
}

function Live({ pinned }: { pinned: boolean }) {
  const behind = useBehindSeconds();
  const isPaused = paused.use() !== null;
  const isLost = lost.use() !== null;
  if (pinned)
    return (
      <button
        class="live pinned"
        title="This range stands still; follow the newest data again"
        onClick={() => change({ from: null, to: null, zoom: null })}
      >
        Pinned · go live
      </button>
    );
  if (isPaused)
    return (
      <button class="live paused" title="Go on (space)" onClick={togglePause}>
        Paused · +{behind} s waiting
      </button>
    );
  if (isLost)
    return (
      <button class="live paused" title="Pause (space)" onClick={togglePause}>
        No answer
      </button>
    );
  return (
    <button class="live" title="Pause (space)" onClick={togglePause}>
      <i />
      Live
    </button>
  );
}

function Lost() {
  const since = lost.use();
  const reason = stopped.use();
  const [, tick] = useState(0);
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [since]);
  if (since === null)
    return (
      reason && (
        <div class="lost" role="alert">
          Nothing new is taken in: <bdi>{shown(reason, 300)}</bdi>. Agents keep what they sample and try again.
        </div>
      )
    );
  const seconds = Math.round((Date.now() - since) / 1000);
  return (
    <div class="lost" role="alert">
      The collector has not answered for {seconds} s. What you see is what it said before; asking again…
    </div>
  );
}

/** How long the first picture may wait for the names that decide its colours, and for the script of its view. */
const FIRST_WAIT_MS = 1000;

const first = Promise.allSettled([
  askNames().then((answer) => prepareColours(answer.names.map((task) => task.name))),
  VIEWS[current().page]?.begin(),
]);
// What is wrong, and what is late, the page itself says.
void Promise.race([first, new Promise((done) => setTimeout(done, FIRST_WAIT_MS))]).then(() =>
  render(<App />, document.getElementById('page')!),
);
