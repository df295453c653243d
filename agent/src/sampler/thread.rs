//! State that the sampler keeps of each thread between two ticks, and the account of its time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use profiler_core::{FrameId, State};

use super::addresses::{AddressFrame, Attribution, TaskLevels};
use super::audit::Times;
use super::early::EarlyThread;
use super::files::ThreadFiles;
use super::sys::request::Request;
use super::sys::slots::StackSpan;
use super::time_account::TimeAccount;
use super::visits::Pace;
use super::wait::WaitSite;
use crate::registry::{Moment, NameId, TaskContext, ThreadCell, Usage};
use system::process;
use system::task_list::ThreadName;

/// A thread pauses if it was blocked within this time.
const PAUSES_NS: u64 = 100_000_000;

/// A thread that is expected to block the signal for this long is reported: it has done so for at least
/// half of the time.
const SIGNAL_BLOCKED_MIN_NS: u64 = 2_000_000_000;

/// A thread of this process.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: u32,
    /// It has ended; another thread may have its id by now.
    pub(super) gone: bool,
    /// It has not been looked at yet.
    pub(super) is_new: bool,
    /// Its name when it was first looked at, if its cell has none.
    pub(super) first_name: Option<ThreadName>,
    /// The kernel's name of it when that was last read.
    pub(super) kernel_name: Option<ThreadName>,
    /// Whether it has changed since the thread was first looked at.
    pub(super) is_renamed: bool,
    pub(super) of_agent: bool,
    /// The task of its time outside of tasks, if threads have one by their names.
    pub(super) own_task: Option<AddressFrame>,
    pub(super) cell: Option<Arc<ThreadCell>>,
    /// Its task word when it was last looked at.
    pub(super) seen_task_word: u64,
    /// While it is young and measures itself.
    pub(super) early: Option<EarlyThread>,
    pub(super) time: TimeAccount,
    /// Its CPU clock when that was last read. The account may be some microseconds ahead of it, because a
    /// young thread does not read its clock after a short part.
    clock_ns: u64,
    /// When it was first seen.
    since_ns: u64,
    /// When it was found in the list of threads.
    pub(super) found_ns: u64,
    /// The frame that it is counted under, once needed.
    pub(super) frame: Option<ThreadFrame>,
    pub(super) observation: LastObservation,
    /// Until when it is known to have stayed where it was seen blocked; 0 if that time is counted.
    pub(super) idle_to_ns: u64,
    pub(super) last: Option<LastCounted>,
    pub(super) request: Option<Request>,
    /// Whether it is among the threads without a timer.
    pub(super) is_watched: bool,
    pub(super) handlers: ThreadHandlers,
    /// It is not asked before this time, because it blocks the signal.
    pub(super) signal_blocked_until_ns: u64,
    /// Since when it is known to block the signal; 0 if it does not.
    pub(super) signal_blocked_since_ns: u64,
    /// Its CPU time then.
    pub(super) signal_blocked_since_cpu_ns: u64,
    /// Its own stack, once it is known.
    pub(super) span: StackSpan,
    /// Samples until its stack is looked up again.
    pub(super) span_after: u32,
    pub(super) files: ThreadFiles,
    /// Whether it shares its processor, so that it must be asked each time it loses it.
    pub(super) contended: bool,
    /// When it was last seen to run after it was blocked; 0 if never.
    pub(super) woken_ns: u64,
    /// Number of times the kernel has scheduled it, and how often before its first task.
    pub(super) turns: u64,
    pub(super) turns_before: u64,
    /// Unattributed time off the processor when its run delay was last read.
    pub(super) known_off_cpu_ns: u64,
    /// Time of waiting for a processor that belongs where it was blocked, and was counted as blocked
    /// there: as much of its later time off the processor counts as that.
    pub(super) owed: Option<OwedDelay>,
    /// The kernel's counts of it when it last noted a change of its task.
    pub(super) usage: Option<Usage>,
    /// When that was.
    pub(super) changed_ns: u64,
    /// Where it was last sampled while it ran.
    pub(super) last_sample: Option<LastSample>,
    pub(super) pace: Pace,
}

/// Handlers that a thread may be in.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ThreadHandlers {
    /// Number of changes whose calls have ended.
    pub(super) changes: u32,
    /// Its CPU time when it began to wait for the end of others.
    pub(super) waits_from_cpu_ns: Option<u64>,
}

/// Run delay that is not in the thread's account yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwedDelay {
    pub(super) attribution: Attribution,
    pub(super) ns: u64,
}

/// Where a thread was last sampled while it ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastSample {
    pub(super) attribution: Attribution,
    pub(super) task_word: u64,
    /// The tick at which it was counted.
    pub(super) at_ns: u64,
}

/// A task that a thread was seen to leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftTask {
    pub(super) word: u64,
    /// CPU time before it was seen to leave it that is not counted yet.
    pub(super) uncounted_cpu_ns: u64,
}

/// The state in which a thread was last observed.
#[derive(Clone, Copy, Debug)]
pub(super) enum LastObservation {
    /// Not observed yet, or on a processor, or ready for one.
    Ready,
    Blocked(BlockedAt),
}

/// Where and how a thread was observed blocked.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockedAt {
    pub(super) site: WaitSite,
    pub(super) state: State,
    pub(super) attribution: Attribution,
    pub(super) task_word: u64,
    /// When it was last seen there.
    pub(super) seen_ns: u64,
    /// When the site is verified.
    pub(super) verify_at_ns: u64,
}

/// Frame that a thread is counted under.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadFrame {
    pub(super) frame: FrameId,
    /// Whether its name was read after it was no longer young. Threads name themselves; a name that
    /// is read earlier is that of the thread's creator.
    pub(super) is_final: bool,
}

/// How a thread was last counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastCounted {
    pub(crate) attribution: Attribution,
    pub(crate) state: State,
    /// Until when it was counted so.
    pub(super) at_ns: u64,
    /// Since when, without running in between.
    pub(super) since_ns: u64,
    /// Its CPU clock when its stack was read.
    cpu_ns: u64,
}

impl Thread {
    /// Whether it was blocked a short while ago. Then it is sampled at every clock interrupt: the first one after a block is
    /// always at the beginning of what it does then, so the end would hardly be seen.
    pub(super) fn pauses(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.woken_ns) < PAUSES_NS
    }

    /// A thread first seen now; its time counts from `since_ns`.
    pub(super) fn new(id: u32, since_ns: u64) -> Self {
        Thread {
            id,
            gone: false,
            is_new: true,
            first_name: None,
            kernel_name: None,
            is_renamed: false,
            of_agent: false,
            own_task: None,
            cell: None,
            seen_task_word: 0,
            early: None,
            time: TimeAccount::new(since_ns),
            clock_ns: 0,
            since_ns,
            found_ns: since_ns,
            frame: None,
            observation: LastObservation::Ready,
            idle_to_ns: 0,
            last: None,
            request: None,
            is_watched: false,
            handlers: ThreadHandlers::default(),
            signal_blocked_until_ns: 0,
            signal_blocked_since_ns: 0,
            signal_blocked_since_cpu_ns: 0,
            span: StackSpan::default(),
            span_after: 0,
            files: ThreadFiles::default(),
            contended: false,
            woken_ns: 0,
            turns: 0,
            turns_before: 0,
            known_off_cpu_ns: 0,
            owed: None,
            usage: None,
            changed_ns: 0,
            last_sample: None,
            pace: Pace::default(),
        }
    }

    /// Whether it was seen to block the signal for a while, not only while it started.
    pub(super) fn blocks_signal(&self) -> bool {
        let expected_ns = self
            .signal_blocked_until_ns
            .saturating_sub(self.signal_blocked_since_ns);
        self.signal_blocked_since_ns > 0 && expected_ns >= SIGNAL_BLOCKED_MIN_NS
    }

    /// Sets another name. Time until now keeps the one before.
    pub(super) fn rename(&mut self, name: ThreadName) {
        self.kernel_name = Some(name);
        self.is_renamed = true;
        self.first_name = None;
        self.frame = None;
    }

    /// How long it has been known.
    pub(super) fn age_ns(&self) -> u64 {
        self.time.accounted_to_ns().saturating_sub(self.since_ns)
    }

    /// How long none of its time has been counted.
    pub(super) fn uncounted_for_ns(&self) -> u64 {
        let counted_to_ns = self.last.map_or(self.since_ns, |last| last.at_ns);
        self.time.accounted_to_ns().saturating_sub(counted_to_ns)
    }

    /// It started at `started_ns`, but not before the time that was assumed.
    pub(super) fn set_started(&mut self, started_ns: u64, now_ns: u64) {
        let started_ns = started_ns.clamp(self.since_ns, now_ns);
        self.since_ns = started_ns;
        self.time = TimeAccount::new(started_ns);
    }

    /// Reads its CPU clock; `None` if it has ended. A clock that has gone backwards is that of another
    /// thread with its id.
    pub(super) fn read_clock(&mut self) -> Option<u64> {
        let clock_ns =
            process::thread_cpu_ns(self.id).filter(|read_ns| *read_ns >= self.clock_ns)?;
        self.clock_ns = clock_ns;
        Some(clock_ns)
    }

    /// Its time until `now_ns` that is not counted yet.
    pub(super) fn uncounted(&mut self, now_ns: u64) -> Times {
        let clock_ns = self.read_clock().unwrap_or(self.time.cpu_ns());
        let until = self.end().unwrap_or(Moment {
            ns: now_ns,
            cpu_ns: clock_ns,
        });
        match &self.early {
            // Its own account has it.
            Some(early) => Times::between(early.account.began(), until) + self.time.remainders(),
            None => self.time.uncounted(until),
        }
    }

    /// The moment at which it ended, if it recorded one.
    pub(super) fn end(&self) -> Option<Moment> {
        match &self.early {
            Some(early) => early.account.ended(),
            None => self.cell.as_ref().and_then(|cell| cell.end()),
        }
    }

    /// The current task word; 0 without a cell.
    pub(super) fn task_word(&self) -> u64 {
        self.cell
            .as_ref()
            .map_or(0, |cell| cell.task_word().load(Ordering::Acquire))
    }

    /// Whether it has noted that its task changed. While it is young, its own account tells that.
    pub(super) fn has_noted_change(&self) -> bool {
        let is_noted = self
            .cell
            .as_ref()
            .is_some_and(|cell| cell.changes.is_noted());
        is_noted && self.early.is_none()
    }

    /// The word of the task that its time belongs to: the current one, or the last one of a thread
    /// that has ended, unless it was seen to leave that task before.
    pub(super) fn charged_task_word(&self) -> u64 {
        match self.cell.as_ref().filter(|_| self.gone) {
            None if self.has_noted_change() => self.seen_task_word,
            None => self.task_word(),
            Some(cell) if cell.left_cpu_ns().is_some() => 0,
            Some(cell) => cell.last_task_word(),
        }
    }

    /// The task that it was seen to leave before it ended.
    pub(super) fn left_task(&self) -> Option<LeftTask> {
        let cell = self.cell.as_ref().filter(|_| self.gone)?;
        let since_ns = self.time.cpu_ns().saturating_sub(cell.left_cpu_ns()?);
        let uncounted_cpu_ns = self.time.unattributed_cpu_ns().saturating_sub(since_ns);
        Some(LeftTask {
            word: cell.last_task_word(),
            uncounted_cpu_ns,
        })
    }

    /// The first levels of a sample taken under `task_word`: the task, and the phase if it is in
    /// one.
    pub(super) fn levels(&self, task_word: u64) -> TaskLevels {
        let TaskContext { task, phase } = TaskContext::from_word(task_word);
        match task {
            _ if self.of_agent => TaskLevels {
                first: AddressFrame::Agent,
                phase: NameId::NONE,
            },
            NameId::NONE => TaskLevels {
                first: self.own_task.clone().unwrap_or(AddressFrame::NoTask),
                phase,
            },
            name => TaskLevels {
                first: AddressFrame::Task(name),
                phase,
            },
        }
    }

    /// Records how the thread was counted until now.
    pub(super) fn set_counted(&mut self, attribution: Attribution, state: State) {
        let at_ns = self.time.accounted_to_ns();
        let cpu_ns = self.time.cpu_ns();
        let since_ns = self
            .last
            .filter(|last: &LastCounted| {
                last.attribution.node == attribution.node
                    && state.is_wait()
                    && last.state == state
                    && last.cpu_ns == cpu_ns
            })
            .map_or(at_ns, |last| last.since_ns);
        self.last = Some(LastCounted {
            attribution,
            state,
            at_ns,
            since_ns,
            cpu_ns,
        });
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::NodeId;

    use super::*;

    #[test]
    fn a_thread_is_blocked_since_it_last_ran() {
        let mut thread = Thread::new(1, 0);
        let mut count = |cpu_ns, node, state, at_ns| {
            thread.time.advance(at_ns, cpu_ns);
            thread.set_counted(
                Attribution {
                    node: NodeId(node),
                    thread: NodeId(9),
                },
                state,
            );
            thread.last.map(|last| last.since_ns)
        };
        assert_eq!(count(5, 1, State::Lock, 10), Some(10));
        assert_eq!(count(5, 1, State::Lock, 20), Some(10));
        assert_eq!(
            count(6, 1, State::Lock, 30),
            Some(30),
            "it ran and came back"
        );
        assert_eq!(count(6, 2, State::Lock, 40), Some(40));
        assert_eq!(count(6, 2, State::Cpu, 50), Some(50));
        assert_eq!(
            count(6, 2, State::Cpu, 60),
            Some(60),
            "a running thread is never blocked"
        );
    }
}
