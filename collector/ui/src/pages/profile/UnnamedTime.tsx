// Time in functions without a name, by module, with what supplies the names.

import type { Unnamed } from '../../core/api';
import { safeText } from '../../core/names';
import { duration, percent } from '../../core/time';
import type { LoadedProfile } from '../../flame/load';

/** A smaller share of the time hides no function that matters. */
const SHARE_MIN = 0.01;

/** A sentence on the time without names; nothing if it is short. */
export function unnamedNote({ total_ns, pending }: Unnamed, wholeNs: number): string | null {
  if (total_ns === 0 || total_ns < SHARE_MIN * wholeNs) return null;
  const share = `${percent(total_ns, wholeNs)} of this time`;
  return pending ? `${share} has no function names yet: symbols are being read` : `${share} has no function names`;
}

export function UnnamedTime({ loaded }: { loaded: LoadedProfile }) {
  const { unnamed, totals } = loaded.metadata;
  const note = unnamedNote(unnamed, totals.total_ns);
  if (note === null) return null;
  return (
    <details class="unnamed">
      <summary role="status">{note}</summary>
      <ul>
        {unnamed.modules.map(({ module, build_id, own_ns, help }) => (
          <li key={`${module} ${build_id}`}>
            <bdi>{safeText(module, 80)}</bdi>: {duration(own_ns)}. {safeText(help, 300)}
          </li>
        ))}
      </ul>
    </details>
  );
}
