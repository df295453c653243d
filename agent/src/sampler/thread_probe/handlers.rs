//! Handlers of the program that run on alternate stacks, where the sampler's signal may have no room.
//!
//! They are made to block the signal, but a call that began before does not. So a thread has no timer until
//! such a call must have ended.

use super::*;
use crate::sampler::thread::ThreadHandlers;

/// CPU time after which a call that began before has ended, if the thread does not block the signal of that handler
/// now: the kernel may have begun to deliver it, or the handler lets its signal interrupt it.
const CALL_MAX_CPU_NS: u64 = 1_000_000;
/// The same if it does block that signal: it is in the call, unless it blocks the signal itself. On a machine whose host
/// takes the processor away, that time counts as CPU time.
const BLOCKING_CALL_MAX_CPU_NS: u64 = 200_000_000;

/// Number of changes when the agent starts.
const CHANGES_AT_START: u32 = 1;

/// Numbers of checks that made handlers block the signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandlerChanges {
    /// Before the last check. Threads that were found before it may have begun a call before it.
    before: u32,
    now: u32,
}

impl Default for HandlerChanges {
    /// Threads that run already may be in calls that began before the handlers were changed.
    fn default() -> HandlerChanges {
        HandlerChanges {
            before: 0,
            now: CHANGES_AT_START,
        }
    }
}

/// Whether the other signal is used.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SignalChange {
    /// A thread blocks the signal, and not the other one.
    pub(super) is_wanted: bool,
    /// It was changed: threads that disagree do not change it again and again.
    is_done: bool,
}

impl ThreadProbe {
    /// Uses the other signal if the program blocks this one, as one does that reads it from a descriptor.
    fn change_signal(&mut self, threads: &mut ThreadTable) {
        let is_wanted = std::mem::take(&mut self.signal_change.is_wanted);
        if !is_wanted || self.signal_change.is_done {
            return;
        }
        if !self.slots.as_ref().is_some_and(Slots::is_other_free) {
            return;
        }
        self.signal_change.is_done = true;
        for thread in threads.iter_mut() {
            if thread.request.is_some() {
                self.stop_asking(thread);
            }
            thread.signal_blocked_since_ns = 0;
            thread.signal_blocked_until_ns = 0;
        }
        let Some(slots) = self.slots.take() else {
            return;
        };
        match slots.install_other(self.mode.checked_copies) {
            Ok(slots) => self.slots = Some(slots),
            Err(error) => {
                let reason = format!("cannot install a signal handler: {error}");
                self.mode.lose_running(reason);
                self.signal_lost = true;
            }
        }
        // Handlers on alternate stacks block another signal now.
        self.handlers.before = self.handlers.now;
        self.handlers.now += 1;
    }

    /// Checks the program's signal handlers: those of faults, or `all`. If it has replaced ours, no
    /// thread is asked any more.
    pub(in crate::sampler) fn check_handlers(&mut self, threads: &mut ThreadTable, all: bool) {
        self.change_signal(threads);
        let Some(slots) = &self.slots else { return };
        if slots.are_ours() {
            let has_changed = slots.keep_off_alternate_stacks(all);
            self.handlers.before = self.handlers.now;
            self.handlers.now += u32::from(has_changed);
            return;
        }
        threads
            .iter_mut()
            .for_each(|thread| self.release_slot(thread));
        self.unarmed.clear();
        self.slots = None;
        self.mode
            .lose_running("the program installed its own handler for the signal".to_owned());
        self.signal_lost = true;
    }

    /// A thread was found before the check of this tick, and may have started before that of the last one.
    pub(in crate::sampler) fn note_found(&self, thread: &mut Thread) {
        thread.handlers.changes = self.handlers.before;
    }

    /// Whether the thread may be in a handler that does not block the signal, because the call began before
    /// the handler was changed. It waits once, however often a program installs its handlers.
    pub(super) fn may_be_in_old_handler(&self, thread: &mut Thread, stat: &ThreadStat) -> bool {
        let handlers = &mut thread.handlers;
        if handlers.changes == self.handlers.now {
            return false;
        }
        let Some(cpu_ns) = process::thread_cpu_ns(thread.id) else {
            return true;
        };
        let waits_from_ns = *handlers.waits_from_cpu_ns.get_or_insert(cpu_ns);
        let changed = self.slots.as_ref().map_or(0, Slots::changed_handlers);
        let call_max_ns = match self.handlers.now {
            _ if stat.blocks_any(changed) => BLOCKING_CALL_MAX_CPU_NS,
            // Threads that wait for work would have no timer when it comes.
            CHANGES_AT_START => 0,
            _ => CALL_MAX_CPU_NS,
        };
        let has_ended = cpu_ns.saturating_sub(waits_from_ns) >= call_max_ns;
        if has_ended {
            *handlers = ThreadHandlers {
                changes: self.handlers.now,
                waits_from_cpu_ns: None,
            };
        }
        !has_ended
    }
}
