//! Current activity of every thread.

use flamegraph::symbols::plumbing_of_stack;
use profiler_core::{Frame, FrameKind, State, Timestamp};

use query::{ThreadGroup, WorkerThreadDump, format_time};

/// Answer of `/api/v1/thread-dump`.
pub(crate) fn thread_dump(workers: Vec<WorkerThreadDump>, now: Timestamp) -> api::ThreadDumpAnswer {
    api::ThreadDumpAnswer {
        now: format_time(now),
        now_ns: now.unix_ns(),
        workers: workers.into_iter().map(worker).collect(),
    }
}

fn worker(stacks: WorkerThreadDump) -> api::WorkerThreads {
    let (groups, reason) = match stacks.answer {
        Ok(groups) => (groups, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    api::WorkerThreads {
        worker: stacks.worker.to_string(),
        epoch: stacks.epoch.map(|epoch| epoch.to_string()),
        responded: reason.is_none(),
        reason,
        omitted: stacks.omitted,
        groups: groups.into_iter().map(group).collect(),
    }
}

fn group(group: ThreadGroup) -> api::ThreadGroup {
    let ThreadGroup {
        state,
        top,
        frames,
        threads,
    } = group;
    let kind = match top.as_ref().map(|top| top.kind) {
        Some(FrameKind::Task) => "task",
        Some(FrameKind::NoTask) => "no_task",
        Some(FrameKind::Agent) => "agent",
        // Beyond the limit on names the task is unknown.
        Some(_) => "overflow",
        None => "not_seen",
    };
    let threads = threads.into_iter().map(|thread| api::ThreadSnapshot {
        id: thread.thread_id,
        name: thread.name.to_string(),
        blocked_ns: thread.blocked_ns,
        age_ns: thread.age_ns,
    });
    let plumbing = plumbing_of_stack(&frames);
    api::ThreadGroup {
        kind: kind.into(),
        task: top
            .filter(|top| top.kind == FrameKind::Task)
            .map(|top| top.function),
        state: state.map(|state| State::name(state).into()),
        stack: frames
            .into_iter()
            .zip(plumbing)
            .map(|(frame, plumbing): (Frame<String>, bool)| stack_frame(frame, plumbing))
            .collect(),
        threads: threads.collect(),
    }
}

fn stack_frame(frame: Frame<String>, plumbing: bool) -> api::StackFrame {
    api::StackFrame {
        name: frame.label(),
        plumbing,
        module: frame.module,
        file: frame.file,
        line: frame.line,
        inlined: frame.inlined,
    }
}
