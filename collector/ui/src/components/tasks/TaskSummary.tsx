// A sortable table of task names: counts, outcomes, durations.

import { href, itemHref, setParams, sharedParams, useAddress } from '../../core/address';
import type { SampledTask, TaskName } from '../../core/api';
import { taskColor } from '../../core/colors';
import { safeText } from '../../core/names';
import { failedOf } from '../../core/outcomes';
import { count, duration } from '../../core/time';

type Column = 'p50_ns' | 'p99_ns' | 'max_ns' | 'total_ns' | 'count';

const COLUMNS: [Column, string, string][] = [
  ['count', 'Ended', 'tasks that ended, whatever their outcome'],
  ['p50_ns', 'Median', 'half of the tasks took at most this'],
  ['p99_ns', 'p99', '99% of the tasks took at most this'],
  ['max_ns', 'Slowest', 'longest duration'],
  ['total_ns', 'Total', 'all tasks combined'],
];

interface Properties {
  names: TaskName[];
  rowsMax: number;
}

export function TaskSummary({ names, rowsMax }: Properties) {
  const { page, params } = useAddress();
  const column = (COLUMNS.find(([name]) => name === params.get('order'))?.[0] ?? 'max_ns') as Column;
  const sorted = [...names].sort((a, b) => (b.durations?.[column] ?? -1) - (a.durations?.[column] ?? -1));
  const most = Math.max(1, ...names.map((task) => task.durations?.[column] ?? 0));
  return (
    <div class="scroll">
      <table class="names">
        <thead>
          <tr>
            <th>Task</th>
            <th class="number">Running</th>
            {COLUMNS.map(([name, label, title]) => (
              <th
                key={name}
                class={column === name ? 'number sorted' : 'number'}
                title={title}
                aria-sort={column === name ? 'descending' : undefined}
              >
                <button onClick={() => setParams({ order: name }, true)}>
                  {label}
                  {column === name ? ' ▾' : ''}
                </button>
              </th>
            ))}
            <th class="number">Failed</th>
          </tr>
        </thead>
        <tbody>
          {sorted.slice(0, rowsMax).map((task) => {
            const { cancelled } = task.outcomes;
            const failed = failedOf(task.outcomes);
            return (
              <tr key={task.name}>
                <td class="wide">
                  <a href={href('profile', sharedParams({ task: task.name }))} title="Show the profile">
                    <i class="dot" style={{ background: taskColor(task.name) }} />
                    <bdi>{safeText(task.name, 60)}</bdi>
                    <span class="action">profile ›</span>
                  </a>
                  <a class="action" href={itemHref('tasks', task.name, sharedParams())} title="Durations and phases">
                    <span class="wide-only">details&nbsp;</span>›
                  </a>
                </td>
                <td class="number">{task.running > 0 ? count(task.running) : ''}</td>
                {COLUMNS.map(([name]) => (
                  <td key={name} class={column === name ? 'number sorted' : 'number'}>
                    {name === column && task.durations && (
                      <i class="bar" style={{ width: `${(100 * task.durations[name]) / most}%` }} />
                    )}
                    {task.durations
                      ? name === 'count'
                        ? count(task.durations[name])
                        : duration(task.durations[name])
                      : '–'}
                  </td>
                ))}
                <td class="number">
                  {failed > 0 ? <b class="bad">✕ {count(failed)}</b> : ''}
                  {cancelled > 0 && <small> {count(cancelled)} cancelled</small>}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {sorted.length > rowsMax && (
        <p class="soft">
          {count(sorted.length - rowsMax)} more
          {page === '' && (
            <>
              : <a href={href('tasks', sharedParams())}>all tasks</a>
            </>
          )}
        </p>
      )}
    </div>
  );
}

const SAMPLED_MAX = 40;
const SAMPLED_COLUMNS: ['cpu_ns' | 'runnable_ns' | 'wait_ns', string][] = [
  ['cpu_ns', 'CPU'],
  ['runnable_ns', 'Waiting for CPU'],
  ['wait_ns', 'Blocked'],
];

const totalNs = (task: SampledTask) => task.cpu_ns + task.runnable_ns + task.wait_ns;

/** Tasks that samples name, and that nobody reports to start or end: those of other profilers' clients. */
export function SampledTasks({ tasks }: { tasks: SampledTask[] }) {
  if (tasks.length === 0) return null;
  const most = totalNs(tasks[0]);
  return (
    <div class="scroll">
      <table class="names">
        <thead>
          <tr>
            <th>Task with samples only</th>
            <th class="number sorted">Time</th>
            {SAMPLED_COLUMNS.map(([name, label]) => (
              <th key={name} class="number">
                {label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {tasks.slice(0, SAMPLED_MAX).map((task) => (
            <tr key={task.name}>
              <td class="wide">
                <a href={href('profile', sharedParams({ task: task.name }))} title="Show the profile">
                  <i class="dot" style={{ background: taskColor(task.name) }} />
                  <bdi>{safeText(task.name, 60)}</bdi>
                  <span class="action">profile ›</span>
                </a>
              </td>
              <td class="number sorted">
                <i class="bar" style={{ width: `${(100 * totalNs(task)) / most}%` }} />
                {duration(totalNs(task))}
              </td>
              {SAMPLED_COLUMNS.map(([name]) => (
                <td key={name} class="number">
                  {task[name] > 0 ? duration(task[name]) : '–'}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {tasks.length > SAMPLED_MAX && <p class="soft">{count(tasks.length - SAMPLED_MAX)} more</p>}
    </div>
  );
}
