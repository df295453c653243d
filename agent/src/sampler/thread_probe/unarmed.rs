//! Threads without a timer: they cannot announce that they run, so their CPU clocks are read in turn.
//!
//! A thread has no timer before its first visit, while it blocks the signal, and while the system
//! refuses timers. The C library blocks all signals while a thread starts, which takes long on a busy
//! machine, so the first visit often finds that. Regular visits are not enough: a tick that spends
//! more than it may visits few known threads, and of the new ones the newest first.

use std::ops::Range;

use super::*;

/// Most threads that a tick looks at.
const LOOKED_AT_MAX: usize = 256;
/// Most of them that a tick visits; fewer while the sampler has spent more than it may.
const VISITED_MAX: usize = 16;
/// CPU time after which a thread without a timer is visited before others. A start takes less.
const RAN_MIN_NS: u64 = 1_000_000;
/// CPU time after which one that was visited before is visited again.
const RAN_SHORTLY_MIN_NS: u64 = 10_000;
/// Shortest and longest time between two looks at a thread; twice the last one if it has not run.
const WAIT_NS: Range<u64> = 10_000_000..80_000_000;
/// Most threads that wait here; those beyond wait for their regular visits.
const UNARMED_MAX: usize = 1 << 16;

/// A thread that had no timer when it was last looked at.
#[derive(Debug)]
pub(super) struct UnarmedThread {
    id: u32,
    /// Its CPU time when it was added or last visited.
    cpu_ns: u64,
    /// When it is looked at next, and the time between the last two looks.
    next_ns: u64,
    wait_ns: u64,
}

impl UnarmedThread {
    /// It was looked at; `ran`: it has used its processor since it was last visited.
    fn wait(&mut self, now: u64, ran: bool) {
        let twice_ns = (self.wait_ns * 2).clamp(WAIT_NS.start, WAIT_NS.end);
        self.wait_ns = if ran { WAIT_NS.start } else { twice_ns };
        self.next_ns = now + self.wait_ns;
    }
}

impl ThreadProbe {
    /// Looks at the thread's CPU clock now and then, until it has a timer.
    pub(in crate::sampler) fn watch_unarmed(&mut self, thread: &mut Thread) {
        if thread.is_watched || self.unarmed.len() >= UNARMED_MAX {
            return;
        }
        thread.is_watched = true;
        let cpu_ns = thread.time.cpu_ns();
        self.unarmed.push_back(UnarmedThread {
            id: thread.id,
            cpu_ns,
            next_ns: 0,
            wait_ns: 0,
        });
    }

    /// The next threads without a timer that have run and may have a timer now: those that ran for a
    /// while, then those that had been visited and ran for a moment, such as to end their start. Each is
    /// returned once; 0 stands for none.
    pub(in crate::sampler) fn unarmed_that_ran(
        &mut self,
        threads: &mut ThreadTable,
        now: u64,
    ) -> [u32; VISITED_MAX] {
        let mut visited = [0; VISITED_MAX];
        if !self.samples_running() {
            return visited;
        }
        let visited_max = if self.meter.is_in_debt() {
            ASKED_IN_DEBT
        } else {
            VISITED_MAX
        };
        let mut ran = 0;
        let mut ran_shortly = [0; VISITED_MAX];
        let mut shortly = 0;
        for _ in 0..self.unarmed.len().min(LOOKED_AT_MAX) {
            let Some(mut unarmed) = self.unarmed.pop_front() else {
                break;
            };
            let Some(thread) = threads.get_mut(unarmed.id) else {
                continue;
            };
            if thread.request.is_some() {
                thread.is_watched = false;
                continue;
            }
            let may_be_asked = thread.signal_blocked_until_ns.max(self.refused_until_ns) <= now;
            if unarmed.next_ns <= now && (thread.is_new || may_be_asked) {
                let Some(cpu_ns) = process::thread_cpu_ns(unarmed.id) else {
                    continue;
                };
                let ran_ns = cpu_ns.saturating_sub(unarmed.cpu_ns);
                let has_run = ran_ns >= RAN_MIN_NS;
                unarmed.wait(now, has_run);
                if has_run {
                    unarmed.cpu_ns = cpu_ns;
                    visited[ran] = unarmed.id;
                    ran += 1;
                } else if ran_ns > RAN_SHORTLY_MIN_NS && !thread.is_new && shortly < VISITED_MAX {
                    ran_shortly[shortly] = unarmed.id;
                    shortly += 1;
                }
            }
            self.unarmed.push_back(unarmed);
            if ran == visited_max {
                break;
            }
        }
        let last = visited[ran..visited_max].iter_mut();
        last.zip(ran_shortly)
            .for_each(|(visited, id)| *visited = id);
        visited
    }
}
