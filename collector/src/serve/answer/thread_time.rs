//! Where the time of threads went.

use profiler_core::State;

use super::time_range;
use query::{ThreadTime, ThreadTimeAnswer, ThreadTimePart};

/// Answer of `/api/v1/thread-time`.
pub(crate) fn thread_time(answer: ThreadTimeAnswer) -> api::ThreadTimeAnswer {
    api::ThreadTimeAnswer {
        range: time_range(answer.range),
        corrupt_files: answer.damaged,
        elapsed_ns: answer.elapsed_ns,
        threads: answer.threads.into_iter().map(thread).collect(),
    }
}

fn thread(time: ThreadTime) -> api::ThreadTime {
    let ThreadTime {
        thread,
        total_ns,
        parts,
    } = time;
    api::ThreadTime {
        worker: thread.worker.to_string(),
        thread: thread.name.map(|name| name.to_string()),
        thread_id: Some(thread.id).filter(|id| *id > 0),
        total_ns,
        parts: parts
            .into_iter()
            .map(|(part, time_ns)| part_of(part, time_ns))
            .collect(),
    }
}

fn part_of(part: ThreadTimePart, time_ns: u64) -> api::ThreadTimePart {
    let ThreadTimePart { task, phase, state } = part;
    api::ThreadTimePart {
        task: task.map(|name| name.to_string()),
        phase: phase.map(|name| name.to_string()),
        state: State::name(state).into(),
        time_ns,
    }
}
