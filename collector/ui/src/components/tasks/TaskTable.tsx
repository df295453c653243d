// A table of tasks, each linked to the profile of its time range.

import { href, itemHref, sharedParams } from '../../core/address';
import type { Task } from '../../core/api';
import { taskColor } from '../../core/colors';
import { middleCut, safeText } from '../../core/names';
import { causeOf } from '../../core/outcomes';
import { clock, duration } from '../../core/time';
import { profileOf, UNKNOWN_KEY } from '../../stream/TaskStream';

/** The flame chart of a task's thread, in all tasks and in the time of this one. */
function chartOf(task: Task): URLSearchParams {
  const params = profileOf(task);
  for (const name of ['task', 'ran', 'key']) params.delete(name);
  params.set('view', 'chart');
  return params;
}

export function TaskTable({ tasks }: { tasks: Task[] }) {
  // Tasks in columns have no key.
  const hasKeys = tasks.some(({ key }) => key !== UNKNOWN_KEY);
  const hasCauses = tasks.some((task) => causeOf(task) !== '');
  return (
    <div class="scroll">
      <table class="task-list">
        <thead>
          <tr>
            <th>Task</th>
            {hasKeys && <th class="key">Key</th>}
            <th class="number">Duration</th>
            <th>Outcome</th>
            {hasCauses && <th>Cause</th>}
            <th>Start</th>
            <th>Worker</th>
            <th>Thread</th>
          </tr>
        </thead>
        <tbody>
          {tasks.map((task) => (
            <tr key={`${task.worker} ${task.epoch} ${task.id}`}>
              <td>
                <a href={href('profile', profileOf(task))}>
                  <i class="dot" style={{ background: taskColor(task.name) }} />
                  <bdi>{safeText(task.name, 40)}</bdi>
                  <span class="action">
                    <span class="wide-only">profile </span>›
                  </span>
                </a>
              </td>
              {hasKeys && (
                <td class="soft key">
                  <bdi>{safeText(task.key, 40)}</bdi>
                </td>
              )}
              <td class="number">{duration(task.duration_ns)}</td>
              <td>{task.outcome === 'ok' ? 'ok' : <b>{task.outcome}</b>}</td>
              {hasCauses && (
                <td class="cause" title={safeText(causeOf(task))}>
                  <bdi>{middleCut(safeText(causeOf(task)), 60)}</bdi>
                </td>
              )}
              <td>{clock(task.start_ns / 1e6, true)}</td>
              <td>
                <a href={itemHref('workers', task.worker, sharedParams({ worker: null }))}>
                  <bdi>{safeText(task.worker, 30)}</bdi>
                </a>
              </td>
              <td class="soft">
                <a href={href('profile', chartOf(task))} title="Show what this thread did by second">
                  <bdi>{safeText(task.thread_name, 30)}</bdi>
                </a>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
