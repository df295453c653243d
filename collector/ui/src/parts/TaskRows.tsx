// Tasks one by one, each with the way to the profile of its very time.

import { along, href, itemHref } from '../core/address';
import type { Task } from '../core/api';
import { taskColour } from '../core/colours';
import { shown } from '../core/names';
import { clock, duration } from '../core/time';
import { profileOf, UNKNOWN_KEY } from '../stream/TaskStream';

export function TaskRows({ tasks }: { tasks: Task[] }) {
  // Of outlines no key is known.
  const hasKeys = tasks.some(({ key }) => key !== UNKNOWN_KEY);
  return (
    <div class="scroll">
      <table>
        <thead>
          <tr>
            <th>Task</th>
            {hasKeys && <th>Key</th>}
            <th class="number">Took</th>
            <th>Outcome</th>
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
                  <i class="dot" style={{ background: taskColour(task.name) }} />
                  <bdi>{shown(task.name, 40)}</bdi>
                  <span class="go">profile ›</span>
                </a>
              </td>
              {hasKeys && (
                <td class="soft">
                  <bdi>{shown(task.key, 40)}</bdi>
                </td>
              )}
              <td class="number">{duration(task.duration_ns)}</td>
              <td title={shown(task.cause)}>{task.outcome === 'ok' ? 'ok' : <b>{task.outcome}</b>}</td>
              <td>{clock(task.start_ns / 1e6, true)}</td>
              <td>
                <a href={itemHref('workers', task.worker, along({ worker: null }))}>
                  <bdi>{shown(task.worker, 30)}</bdi>
                </a>
              </td>
              <td class="soft">
                <bdi>{shown(task.thread_name, 30)}</bdi>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
