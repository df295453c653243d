// Progress of tasks with an expected count.

import { itemHref, sharedParams } from '../../core/address';
import type { Progress } from '../../core/api';
import { taskColor } from '../../core/colors';
import { safeText } from '../../core/names';
import { count, duration, percent } from '../../core/time';

const ROWS = 8;

export function ProgressBars({ names }: { names: Progress[] }) {
  const expectedNames = names.filter(({ expected }) => expected !== null && expected > 0);
  if (expectedNames.length === 0) return null;
  return (
    <section>
      <h2>Progress</h2>
      {expectedNames.slice(0, ROWS).map((one) => {
        const expected = one.expected!;
        const failed = one.failed + one.lost;
        const text = [
          `${count(one.done)} of ${count(expected)} done`,
          one.running > 0 && `${count(one.running)} running`,
          failed > 0 && `✕ ${count(failed)} failed`,
          one.remaining_ns !== null && one.state === 'running' && `about ${duration(one.remaining_ns)} left`,
        ]
          .filter(Boolean)
          .join(', ');
        return (
          <div key={one.name} class="progress">
            <a href={itemHref('tasks', one.name, sharedParams())}>
              <bdi>{safeText(one.name, 40)}</bdi>
            </a>
            <span
              class="track"
              role="progressbar"
              aria-label={safeText(one.name, 80)}
              aria-valuemin={0}
              aria-valuemax={expected}
              aria-valuenow={Math.min(expected, one.done)}
              aria-valuetext={text}
            >
              <i style={{ width: percentWidth(one.done, expected), background: taskColor(one.name) }} />
              <i class="failed" style={{ width: percentWidth(failed, expected) }} />
            </span>
            <span>{percent(one.done, expected)}</span>
            <small>{text}</small>
          </div>
        );
      })}
      {expectedNames.length > ROWS && <p class="soft">{count(expectedNames.length - ROWS)} more</p>}
    </section>
  );
}

const percentWidth = (part: number, whole: number) => `${Math.min(100, (100 * part) / whole)}%`;
