// Thread dump of a worker, grouped by stack.

import type { StackFrame, ThreadDumpAnswer, ThreadGroup } from '../core/api';
import { stateColor, taskColor } from '../core/colors';
import { safeText, shortFile } from '../core/names';
import { isOwn, shortName } from '../core/symbols';
import { count, duration, quantity } from '../core/time';

const GROUPS = 12;
const FRAMES = 30;

interface Properties {
  answer: ThreadDumpAnswer | undefined;
  problem: string | undefined;
}

export function ThreadDump({ answer, problem }: Properties) {
  if (!answer) return <p class="soft">{problem ? safeText(problem) : 'Requesting a thread dump…'}</p>;
  const groups = answer.workers.flatMap((worker) => worker.groups);
  const silent = answer.workers.find((worker) => !worker.responded);
  return (
    <>
      {silent && (
        <p class="soft">
          No response: <bdi>{safeText(silent.reason ?? '')}</bdi>
        </p>
      )}
      {groups.slice(0, GROUPS).map((group) => (
        <Group key={`${group.state} ${group.threads[0]?.id}`} group={group} />
      ))}
      {groups.length > GROUPS && <p class="soft">{count(groups.length - GROUPS)} more groups.</p>}
    </>
  );
}

function Group({ group }: { group: ThreadGroup }) {
  const { task, state, stack, threads } = group;
  const longest = Math.max(0, ...threads.map((thread) => thread.blocked_ns));
  const told = tellingFrames(stack);
  return (
    <details class="stack">
      <summary>
        <span>
          <i class="dot" style={{ background: state ? stateColor(state) : undefined }} />
          {state ?? 'not sampled yet'}
        </span>
        <span class="soft">
          {threads.length === 1 ? (
            <bdi>{safeText(threads[0].name || String(threads[0].id), 30)}</bdi>
          ) : (
            `${count(threads.length)} threads`
          )}
        </span>
        {task && (
          <span>
            <i class="dot" style={{ background: taskColor(task) }} />
            <bdi>{safeText(task, 40)}</bdi>
          </span>
        )}
        <code>
          <bdi>{placeOf(told)}</bdi>
        </code>
        {longest > 1e9 && <span class="soft">for {duration(longest)}</span>}
      </summary>
      <ol>
        {told.slice(0, FRAMES).map((frame, index) => (
          <li key={index}>
            <code title={safeText(frame.name, 600)}>
              <bdi>{labelOf(frame)}</bdi>
            </code>{' '}
            <small>
              <bdi>
                {frame.file && `${safeText(shortFile(frame.file), 80)}${frame.line > 0 ? `:${frame.line}` : ''}`}
              </bdi>
            </small>
          </li>
        ))}
        {told.length > FRAMES && <li class="soft">{count(told.length - FRAMES)} more</li>}
        {told.length < stack.length && (
          <li class="soft">{quantity(stack.length - told.length, 'frame')} of the runtime</li>
        )}
      </ol>
    </details>
  );
}

/** The frames that say something about the program, unless none does. */
function tellingFrames(stack: StackFrame[]): StackFrame[] {
  const telling = stack.filter(({ plumbing }) => !plumbing);
  return telling.length > 0 ? telling : stack;
}

const labelOf = ({ name, module }: StackFrame) => safeText(shortName(name, module), 60);

/** Where a thread is: in which of the program's own functions, and where below it. */
function placeOf(stack: StackFrame[]): string {
  const top = stack[0];
  if (!top) return 'no stack';
  const own = stack.find(({ name, file }) => isOwn(name, file));
  const frames = own && own !== top ? [own, top] : [top];
  return frames.map(labelOf).join(' → ');
}
