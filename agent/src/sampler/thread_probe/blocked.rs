//! Threads that are blocked in the kernel: read from outside, and counted where they stay.

use super::change::LOOKS_APART_NS;
use super::*;

/// Most attempts in one tick to read a blocked thread that moves meanwhile.
const REMOTE_TRIES_MAX: u32 = 2;
/// Time after which a blocked thread's site is verified although its CPU clock stands still: first
/// after it was seen blocked, and then again and again.
const FIRST_VERIFY_NS: u64 = 1_000_000_000;
const VERIFY_NS: u64 = 100_000_000_000;

impl ThreadProbe {
    /// Finds out whether the thread is blocked now, and where.
    pub(in crate::sampler) fn find_blocked(&mut self, thread: &mut Thread, now: u64) {
        if !self.mode.uses_blocked() {
            return;
        }
        let Some(cpu_ns) = thread.read_clock() else {
            return self.mark_gone(thread);
        };
        match self.files.activity(thread.id, &mut thread.files) {
            Ok(Activity::Blocked(site)) => self.read_blocked(thread, site, cpu_ns, now),
            Ok(Activity::Running) => {
                let before = std::mem::replace(&mut thread.observation, LastObservation::Ready);
                if matches!(before, LastObservation::Blocked(_)) {
                    if let Some(delayed) = self.update_run_delay(thread) {
                        self.split_run_delay(thread, &before, delayed);
                    }
                }
            }
            Err(error) => self.give_up(thread, &error),
        }
    }

    /// Whether the thread waits for a processor now: it is neither blocked nor does its CPU clock, which
    /// was in its account some microseconds ago, advance.
    pub(super) fn waits_for_processor(&mut self, thread: &mut Thread) -> bool {
        let cpu_ns = thread.read_clock();
        cpu_ns.is_some_and(|cpu_ns| thread.time.ran_ns(cpu_ns) == 0)
            && matches!(
                self.files.activity(thread.id, &mut thread.files),
                Ok(Activity::Running)
            )
    }

    /// Counts a thread again if it has not run since it was last seen blocked. Returns whether it
    /// has not.
    pub(in crate::sampler) fn still_blocked(
        &mut self,
        thread: &mut Thread,
        cpu_ns: u64,
        now: u64,
    ) -> bool {
        let LastObservation::Blocked(mut at) = thread.observation else {
            return false;
        };
        if thread.time.ran_ns(cpu_ns) > 0 || at.task_word != thread.task_word() {
            return false;
        }
        let is_apart = now.saturating_sub(at.seen_ns) >= LOOKS_APART_NS;
        let cell = thread
            .cell
            .as_ref()
            .filter(|_| thread.early.is_none() && is_apart);
        if let Some(cell) = cell.filter(|cell| !cell.changes.is_noted()) {
            drop(cell.changes.take(true));
        }
        at.seen_ns = now;
        let verify = now >= at.verify_at_ns;
        if verify {
            if !self.is_still_at(thread, at.site) {
                return false;
            }
            at.verify_at_ns = now + VERIFY_NS;
            // Its frame may change, because it may no longer be young.
            let levels = thread.levels(at.task_word);
            let node = at.attribution.node;
            at.attribution =
                self.thread_frames
                    .attribution(&mut self.addresses, node, &levels, thread);
        }
        thread.observation = LastObservation::Blocked(at);
        thread.idle_to_ns = now;
        if verify {
            self.settle_down(thread, now);
        }
        true
    }

    /// The thread has been blocked for a while.
    pub(in crate::sampler) fn settle_down(&mut self, thread: &mut Thread, now: u64) {
        self.count_idle(thread);
        self.attribute_overdue(thread, now);
        self.files.close(&mut thread.files);
        if self.refused_until_ns > now {
            // Others need its timer.
            self.stop_asking(thread);
        } else if thread.request.is_some() {
            // It may have blocked the signal after it was first asked.
            if let Some(stat) = ThreadStat::read(thread.id) {
                self.request_unless_blocked(thread, &stat, now);
            }
        }
    }

    /// Counts the time in which a thread stayed where it was seen blocked: once for many visits,
    /// because nothing changes in between.
    pub(in crate::sampler) fn count_idle(&mut self, thread: &mut Thread) {
        let idle_to_ns = std::mem::take(&mut thread.idle_to_ns);
        match thread.observation {
            LastObservation::Blocked(at) if idle_to_ns > 0 => {
                thread.time.advance_idle(idle_to_ns);
                self.count_blocked(thread, at.attribution, at.state);
            }
            _ => {}
        }
    }

    pub(in crate::sampler) fn is_still_at(&mut self, thread: &mut Thread, site: WaitSite) -> bool {
        let activity = self.files.activity(thread.id, &mut thread.files);
        matches!(activity, Ok(Activity::Blocked(now)) if now == site)
    }

    /// Unwinds a blocked thread from outside. The result is used only if the thread has not run
    /// meanwhile: its CPU clock, exact to the nanosecond, must stand still from before its site was
    /// read until after its stack was copied.
    pub(in crate::sampler) fn read_blocked(
        &mut self,
        thread: &mut Thread,
        site: WaitSite,
        cpu_ns: u64,
        now: u64,
    ) {
        let mut site = site;
        let mut cpu_ns = cpu_ns;
        for _ in 0..REMOTE_TRIES_MAX {
            let task_word = thread.task_word();
            let ThreadProbe {
                unwinder,
                remote,
                stack,
                foreign,
                ..
            } = self;
            remote.reset(site.sp);
            let registers = Registers::of_caller(site.pc, site.sp, None);
            unwinder.unwind(registers, |address| remote.read(address), stack);
            if let Some(foreign) = foreign {
                foreign.walk_blocked(thread.id, site.futex());
            }
            let kind = site.state();
            let Some(cpu_after) = thread.read_clock() else {
                return self.mark_gone(thread);
            };
            if cpu_after == cpu_ns {
                let is_interpreter = self.foreign.as_mut().is_some_and(|foreign| {
                    foreign.merge_blocked(&mut self.addresses, &mut self.stack)
                });
                let state = if is_interpreter {
                    State::Interpreter
                } else {
                    kind
                };
                let attribution = self.attribution(thread, task_word);
                let before = thread.observation;
                if let Some(delayed) = self.update_run_delay(thread) {
                    self.split_run_delay(thread, &before, delayed);
                }
                thread.observation = LastObservation::Blocked(BlockedAt {
                    site,
                    state,
                    attribution,
                    task_word,
                    seen_ns: now,
                    verify_at_ns: now + FIRST_VERIFY_NS,
                });
                if matches!(before, LastObservation::Ready) {
                    self.count_stopped(thread, task_word);
                }
                self.count_blocked(thread, attribution, state);
                if site.waits_for_signals() {
                    // It must not receive ours.
                    self.stop_asking(thread);
                }
                return;
            }
            cpu_ns = cpu_after;
            thread.time.advance(now, cpu_ns);
            match self.files.activity(thread.id, &mut thread.files) {
                Ok(Activity::Blocked(after)) => site = after,
                Ok(Activity::Running) => break,
                Err(error) => return self.give_up(thread, &error),
            }
        }
        // It moves too fast to be read. Its time waits for its next observation.
        thread.observation = LastObservation::Ready;
    }
}
