// Emberline's page: the frame around every view, and which view an address means.

import './style.css';
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { along, apiUrl, change, go, href, rangeOf, useAddress } from './core/address';
import { ask, type SummaryAnswer } from './core/api';
import { prepareColours } from './core/colours';
import { useKeys } from './core/keys';
import { lost, paused, togglePause, useBehindSeconds } from './core/live';
import { isLive } from './core/time';
import { Help } from './parts/Help';
import { RangePicker } from './parts/RangePicker';
import { Empty } from './parts/Notes';
import { LicensesPage } from './pages/licenses';
import { ProfilePage } from './pages/profile';
import { StatusPage } from './pages/status';
import { TasksPage } from './pages/tasks';
import { WorkersPage } from './pages/workers';

const LINKS: [string, string][] = [['', 'Status'], ['profile', 'Profile'], ['tasks', 'Tasks'], ['workers', 'Workers']];

function App() {
  const { page, params } = useAddress();
  const [help, setHelp] = useState(false);
  useEffect(() => {
    document.title = page === '' ? 'Emberline' : `${page[0].toUpperCase()}${page.slice(1)} · Emberline`;
  }, [page]);
  useKeys((key, target) => {
    const at = ['1', '2', '3', '4'].indexOf(key);
    if (key === '?') setHelp(true);
    else if (key === ' ' && target.tagName !== 'BUTTON' && target.tagName !== 'A') togglePause();
    else if (at >= 0) go(LINKS[at][0], along());
    else return false;
    return true;
  });
  return (
    <div onClick={follow}>
      <header>
        <a class="brand" href={href('', along())}>Emberline</a>
        <nav aria-label="Pages">
          {LINKS.map(([to, words]) => (
            <a key={to} href={href(to, along())} aria-current={page === to ? 'page' : undefined}>{words}</a>
          ))}
        </nav>
        <span class="gap" />
        <RangePicker />
        <Live pinned={!isLive(rangeOf(params))} />
        <button class="round" aria-label="Help" title="Help (?)" onClick={() => setHelp(true)}>?</button>
      </header>
      <Lost />
      <main>{view(page)}</main>
      <footer><a href={href('licenses')}>Licences</a></footer>
      {help && <Help onClose={() => setHelp(false)} />}
    </div>
  );
}

function view(page: string) {
  switch (page) {
    case '': return <StatusPage />;
    case 'profile': return <ProfilePage />;
    case 'tasks': return <TasksPage />;
    case 'workers': return <WorkersPage />;
    case 'licenses': return <LicensesPage />;
    default: return <Empty title="There is no such page"><a href={href('')}>To the status of the fleet</a></Empty>;
  }
}

/** Links within the page change the address without loading anything. */
function follow(event: MouseEvent) {
  const link = (event.target as Element).closest?.('a');
  if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (link.target || link.hasAttribute('download') || !link.href.startsWith(href('')) || link.href.includes('/api/')) return;
  event.preventDefault();
  const url = new URL(link.href);
  go(url.pathname.slice(new URL(href('')).pathname.length), url.searchParams);
  scrollTo(0, 0);
}

function Live({ pinned }: { pinned: boolean }) {
  const behind = useBehindSeconds();
  const isPaused = paused.use() !== null;
  if (pinned) return <button class="live pinned" title="This range stands still; follow the newest data again" onClick={() => change({ from: null, to: null, zoom: null })}>Pinned · go live</button>;
  if (isPaused) return <button class="live paused" title="Go on (space)" onClick={togglePause}>Paused · +{behind} s waiting</button>;
  return <button class="live" title="Pause (space)" onClick={togglePause}><i />Live</button>;
}

function Lost() {
  const since = lost.use();
  const [, tick] = useState(0);
  useEffect(() => {
    if (since === null) return;
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [since]);
  if (since === null) return null;
  const seconds = Math.round((Date.now() - since) / 1000);
  return <div class="lost" role="alert">The collector has not answered for {seconds} s. What you see is what it said before; asking again…</div>;
}

/** How long the first picture may wait for the names that decide its colours. */
const NAMES_WAIT_MS = 1000;

const names = ask<SummaryAnswer>(apiUrl('tasks', new URLSearchParams({ summary: 'true' })), AbortSignal.timeout(NAMES_WAIT_MS));
names
  .then((answer) => prepareColours(answer.names.map((task) => task.name)))
  // The page itself says what is wrong.
  .catch(() => {})
  .finally(() => render(<App />, document.getElementById('page')!));
