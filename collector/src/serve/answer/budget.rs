//! Where threads' time went.

use profiler_core::State;
use serde::Serialize;

use super::RangeBody;
use crate::query::{ThreadTime, ThreadTimeAnswer, ThreadTimePart};

/// Answer of `/api/v1/thread-time`.
#[derive(Serialize)]
pub(crate) struct BudgetBody {
    range: RangeBody,
    corrupt_files: Vec<String>,
    elapsed_ns: u64,
    threads: Vec<ThreadBody>,
}

#[derive(Serialize)]
struct ThreadBody {
    worker: String,
    thread: Option<String>,
    thread_id: Option<u32>,
    total_ns: u64,
    parts: Vec<PartBody>,
}

#[derive(Serialize)]
struct PartBody {
    task: Option<String>,
    phase: Option<String>,
    state: &'static str,
    time_ns: u64,
}

impl BudgetBody {
    pub(crate) fn new(answer: ThreadTimeAnswer) -> BudgetBody {
        BudgetBody {
            range: answer.range.into(),
            corrupt_files: answer.damaged,
            elapsed_ns: answer.elapsed_ns,
            threads: answer.threads.into_iter().map(ThreadBody::new).collect(),
        }
    }
}

impl ThreadBody {
    fn new(time: ThreadTime) -> ThreadBody {
        let ThreadTime { thread, total_ns, parts } = time;
        ThreadBody {
            worker: thread.worker.to_string(),
            thread: thread.name.map(|name| name.to_string()),
            thread_id: Some(thread.id).filter(|id| *id > 0),
            total_ns,
            parts: parts.into_iter().map(PartBody::new).collect(),
        }
    }
}

impl PartBody {
    fn new((part, time_ns): (ThreadTimePart, u64)) -> PartBody {
        let ThreadTimePart { task, phase, state } = part;
        PartBody {
            task: task.map(|name| name.to_string()),
            phase: phase.map(|name| name.to_string()),
            state: State::name(state),
            time_ns,
        }
    }
}
