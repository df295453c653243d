//! What running agents said.

use profiler_core::{Frame, FrameKind, State, Timestamp};
use serde::Serialize;

use super::state_names;
use crate::agent_control::SettingsView;
use crate::query::{ThreadGroup, WorkerThreadDump, format_time};

/// Answer of `/api/v1/thread-dump`.
#[derive(Serialize)]
pub(crate) struct StacksBody {
    now: String,
    now_ns: i64,
    workers: Vec<WorkerBody>,
}

#[derive(Serialize)]
struct WorkerBody {
    worker: String,
    epoch: Option<String>,
    responded: bool,
    reason: Option<String>,
    omitted: u64,
    groups: Vec<GroupBody>,
}

#[derive(Serialize)]
struct GroupBody {
    kind: &'static str,
    task: Option<String>,
    state: Option<&'static str>,
    stack: Vec<FrameBody>,
    threads: Vec<ThreadBody>,
}

#[derive(Serialize)]
struct FrameBody {
    name: String,
    file: String,
    line: u32,
    inlined: bool,
}

#[derive(Serialize)]
struct ThreadBody {
    id: u32,
    name: String,
    blocked_ns: u64,
    age_ns: u64,
}

impl StacksBody {
    pub(crate) fn new(workers: Vec<WorkerThreadDump>, now: Timestamp) -> StacksBody {
        StacksBody {
            now: format_time(now),
            now_ns: now.unix_ns(),
            workers: workers.into_iter().map(WorkerBody::new).collect(),
        }
    }
}

impl WorkerBody {
    fn new(stacks: WorkerThreadDump) -> WorkerBody {
        let (groups, reason) = match stacks.answer {
            Ok(groups) => (groups, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        WorkerBody {
            worker: stacks.worker.to_string(),
            epoch: stacks.epoch.map(|epoch| epoch.to_string()),
            responded: reason.is_none(),
            reason,
            omitted: stacks.omitted,
            groups: groups.into_iter().map(GroupBody::new).collect(),
        }
    }
}

impl GroupBody {
    fn new(group: ThreadGroup) -> GroupBody {
        let ThreadGroup { state, top, frames, threads } = group;
        let kind = match top.as_ref().map(|top| top.kind) {
            Some(FrameKind::Task) => "task",
            Some(FrameKind::NoTask) => "no_task",
            Some(FrameKind::Agent) => "agent",
            // Past the limit on names it is not known which task it is.
            Some(_) => "overflow",
            None => "not_seen",
        };
        let threads = threads.into_iter().map(|thread| ThreadBody {
            id: thread.thread_id,
            name: thread.name.to_string(),
            blocked_ns: thread.blocked_ns,
            age_ns: thread.age_ns,
        });
        GroupBody {
            kind,
            task: top.filter(|top| top.kind == FrameKind::Task).map(|top| top.function),
            state: state.map(State::name),
            stack: frames.into_iter().map(FrameBody::new).collect(),
            threads: threads.collect(),
        }
    }
}

impl FrameBody {
    fn new(frame: Frame<String>) -> FrameBody {
        let name = frame.label();
        FrameBody { name, file: frame.file, line: frame.line, inlined: frame.inlined }
    }
}

/// Answer of `PUT /api/v1/workers/settings`.
#[derive(Serialize)]
pub(crate) struct SettingsBody {
    workers: Vec<WorkerSettingsBody>,
}

#[derive(Serialize)]
struct WorkerSettingsBody {
    worker: String,
    epoch: Option<String>,
    connected: bool,
    applied: bool,
    interval_ns: Option<u64>,
    enabled: Option<bool>,
    states: Option<Vec<&'static str>>,
}

impl SettingsBody {
    pub(crate) fn new(views: Vec<SettingsView>) -> SettingsBody {
        let worker = |view: SettingsView| WorkerSettingsBody {
            worker: view.worker.to_string(),
            epoch: view.epoch.map(|epoch| epoch.to_string()),
            connected: view.epoch.is_some(),
            applied: view.applied,
            interval_ns: view.settings.map(|settings| settings.interval_ns),
            enabled: view.settings.map(|settings| settings.enabled),
            states: view.settings.map(|settings| state_names(settings.states)),
        };
        SettingsBody { workers: views.into_iter().map(worker).collect() }
    }
}
