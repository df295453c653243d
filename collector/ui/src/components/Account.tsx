// The header's menu about the login: role, token, logout.

import { useEffect, useRef } from 'preact/hooks';
import { safeText } from '../core/names';
import { logOut, session } from '../core/session';
import { clock, NS_PER_MS } from '../core/time';

/** Nothing if the collector needs no token. */
export function Account() {
  const known = session.use();
  const box = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const outside = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) box.current?.removeAttribute('open');
    };
    document.addEventListener('pointerdown', outside);
    return () => document.removeEventListener('pointerdown', outside);
  }, []);
  if (!known?.token) return null;
  const { role, token, note, logged_in, expires_ns } = known;
  return (
    <details
      class="account"
      ref={box}
      onKeyDown={({ key }) => key === 'Escape' && box.current?.removeAttribute('open')}
    >
      <summary title={`Logged in as ${role}`} aria-label={`Logged in as ${role}`}>
        {role.slice(0, 1).toUpperCase()}
        <span>{role.slice(1)} ▾</span>
      </summary>
      <div class="menu">
        <p>
          <b>{role}</b>{' '}
          {note && (
            <>
              · <bdi>{safeText(note, 200)}</bdi>
            </>
          )}
        </p>
        <p class="soft">{role === 'operator' ? 'May read and change everything.' : 'May read, and change nothing.'}</p>
        <p class="soft">
          Token <code>{token}</code>
          {expires_ns !== null && `, until ${clock(expires_ns / NS_PER_MS)}`}
        </p>
        {logged_in && <button onClick={() => void logOut()}>Log out</button>}
      </div>
    </details>
  );
}
