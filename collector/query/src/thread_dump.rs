//! Thread dumps: filtered, and grouped by stack.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use profiler_core::wire::ThreadDump;
use profiler_core::{Epoch, Frame, FrameKind, NodeId, State, ThreadKind, ThreadSnapshot, WorkerId};

use super::QueryError;
use crate::parameters::parameter::{Parameter, Parameters};
use crate::parameters::params::{
    Filters, LABEL, Params, TASK, THREADS, WORKER, known_tasks, known_workers,
};
use base::limits::THREAD_DUMP_THREADS_MAX;
use state::CollectorState;
use state::agent_control::ThreadDumpResult;
use state::tree::Excerpt;
use store::rows::Names;

/// The requested threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadDumpQuery {
    pub workers: Names,
    tasks: Names,
    names: Names,
    threads: ThreadKind,
}

impl ThreadDumpQuery {
    pub const PARAMETERS: Parameters = &[&[
        TASK,
        WORKER,
        LABEL,
        Parameter::text(
            "thread",
            "pool-3",
            "Names of threads, as the system cuts them to 15 bytes. Default: all.",
        )
        .repeated(),
        THREADS,
    ]];

    /// Parses the parameters.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
    ) -> Result<ThreadDumpQuery, QueryError> {
        let params = Params::of(pairs, ThreadDumpQuery::PARAMETERS)?;
        Ok(ThreadDumpQuery {
            workers: known_workers(&params, state)?,
            tasks: known_tasks(&params, state)?,
            names: params
                .many("thread")?
                .into_iter()
                .map(str::to_owned)
                .collect(),
            threads: params.choice("threads", &Filters::THREADS)?,
        })
    }

    fn keeps(&self, name: &str, top: Option<&Frame<&str>>) -> bool {
        let kind = top.map(|top| top.kind);
        let of_agent = kind == Some(FrameKind::Agent);
        let whose = match self.threads {
            ThreadKind::Program => !of_agent,
            ThreadKind::Agent => of_agent,
            ThreadKind::All => true,
        };
        let task = top
            .filter(|top| top.kind == FrameKind::Task)
            .map(|top| top.function);
        whose && self.tasks.keeps_some(task) && self.names.keeps(name)
    }
}

/// One agent's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerThreadDump {
    pub worker: WorkerId,
    /// `None` if no agent of the worker is connected.
    pub epoch: Option<Epoch>,
    /// Or the reason why there is none.
    pub answer: Result<Vec<ThreadGroup>, String>,
    /// Threads past a limit.
    pub omitted: u64,
}

/// Threads with the same stack and state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadGroup {
    /// `None` if the threads were not sampled yet; then there are no frames.
    pub state: Option<State>,
    /// The first level: a task, no task, the agent.
    pub top: Option<Frame<String>>,
    /// Innermost first, without the first level.
    pub frames: Vec<Frame<String>>,
    /// The longest at this stack first.
    pub threads: Vec<ThreadSnapshot>,
}

impl ThreadDumpQuery {
    /// Groups the answers by worker. Groups are ordered as a person reads them: running threads,
    /// then stacks of many threads, then long waits.
    pub fn group(
        &self,
        state: &CollectorState,
        mut answers: Vec<(WorkerId, Option<Epoch>, ThreadDumpResult)>,
    ) -> Vec<WorkerThreadDump> {
        let mut room = THREAD_DUMP_THREADS_MAX;
        for (_, _, answer) in &mut answers {
            if let Ok(ThreadDump { threads, omitted }) = answer {
                let excess = threads.len().saturating_sub(room);
                threads.truncate(room);
                room -= threads.len();
                *omitted = omitted.saturating_add(excess as u64);
            }
        }
        let known = answers
            .iter()
            .filter_map(|(_, _, answer)| answer.as_ref().ok());
        let nodes = known.flat_map(|stacks| stacks.threads.iter().map(|thread| thread.node.0));
        let excerpt = state.excerpt(nodes.collect());
        answers
            .into_iter()
            .map(
                |(worker, epoch, answer): (WorkerId, Option<Epoch>, ThreadDumpResult)| {
                    let omitted = answer.as_ref().map_or(0, |stacks| stacks.omitted);
                    let answer = answer.map(|stacks| self.groups(&excerpt, stacks.threads));
                    WorkerThreadDump {
                        worker,
                        epoch,
                        answer,
                        omitted,
                    }
                },
            )
            .collect()
    }

    fn groups(&self, excerpt: &Excerpt, threads: Vec<ThreadSnapshot>) -> Vec<ThreadGroup> {
        let mut groups: BTreeMap<(Option<State>, NodeId), ThreadGroup> = BTreeMap::new();
        for thread in threads {
            let group = groups
                .entry((thread.state, thread.node))
                .or_insert_with(|| ThreadGroup::of(excerpt, &thread));
            let top = group.top.as_ref().map(|top| top.map(|text| text));
            if self.keeps(&thread.name, top.as_ref()) {
                group.threads.push(thread);
            }
        }
        let mut groups: Vec<ThreadGroup> = groups.into_values().collect();
        groups.retain(|group| !group.threads.is_empty());
        for group in &mut groups {
            group
                .threads
                .sort_by_key(|thread| (Reverse(thread.blocked_ns), thread.thread_id));
        }
        groups.sort_by_key(|group| {
            let idle = !matches!(group.state, Some(State::Cpu | State::Runnable));
            (
                idle,
                Reverse(group.threads.len()),
                Reverse(group.threads[0].blocked_ns),
            )
        });
        groups
    }
}

impl ThreadGroup {
    fn of(excerpt: &Excerpt, thread: &ThreadSnapshot) -> ThreadGroup {
        let path = excerpt.path(excerpt.node(thread.node));
        let mut frames: Vec<Frame<String>> = path
            .map(|id| excerpt.frame(id).map(str::to_owned))
            .collect();
        let top = frames.pop();
        ThreadGroup {
            state: thread.state,
            top,
            frames,
            threads: Vec::new(),
        }
    }
}
