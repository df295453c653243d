// A chart of a task's durations over time.

import { setParams } from '../../core/address';
import type { TaskDurationsAnswer } from '../../core/api';
import { duration, isoTime } from '../../core/time';
import { trendLines } from '../../core/trend';
import { LineChart } from '../LineChart';

export function DurationTrend({ answer }: { answer: TaskDurationsAnswer }) {
  const lines = trendLines(answer.points, answer.step_ns);
  return (
    <section>
      <h2>
        Duration over time{' '}
        <small>
          of the tasks that ended in each {duration(answer.step_ns)}; gaps where none did; drag to select a range
        </small>
      </h2>
      <LineChart
        lines={lines}
        label="Duration over time: p50, p90 and p99"
        height={130}
        isAligned={false}
        hasPoints
        written={duration}
        onSelect={(from, to) => setParams({ from: isoTime(from * 1000), to: isoTime(to * 1000) })}
      />
      <p class="legend">
        {lines.map(({ name, color }) => (
          <span key={name}>
            <i class="dot" style={{ background: `var(${color})` }} /> {name}
          </span>
        ))}
      </p>
    </section>
  );
}
