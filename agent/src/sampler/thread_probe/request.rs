//! Running threads: a timer on the CPU clock of each one requests its stack.

use std::ops::Range;

use super::*;

/// A thread that ran for this long without answering may block the signal: the clock interrupts it at least 100 times a
/// second.
const LATE_CPU_NS: u64 = 12_000_000;
/// A thread that ran for this long without answering is not asked while it blocks the signal.
const ANSWER_MAX_CPU_NS: u64 = 200_000_000;
/// Shortest and longest time until a thread that blocks the signal is asked again. In between, the CPU
/// time that it has used meanwhile, and at least an eighth of the time for which it has blocked it: the
/// C library blocks all signals while a thread starts, and on a busy machine the thread waits long for
/// its processor then.
const SIGNAL_BLOCKED_RETRY_NS: Range<u64> = 10_000_000..10_000_000_000;
const SIGNAL_BLOCKED_RETRY_PART: u64 = 8;
/// Time for which no further timer is created after the system refused one.
const REFUSED_RETRY_NS: u64 = 1_000_000_000;

impl ThreadProbe {
    /// Asks a thread for its stack, unless it is asked already; it answers when it runs next, and the
    /// answer is harvested at a later tick.
    pub(in crate::sampler) fn ask(&mut self, thread: &mut Thread, now: u64) {
        if self.slots.is_none() || thread.signal_blocked_until_ns > now || thread.gone {
            return;
        }
        if thread.request.is_none() {
            match ThreadStat::read(thread.id) {
                Some(stat) => self.request_unless_blocked(thread, &stat, now),
                None => return,
            }
        }
        let repeat = (thread.contended || thread.pauses(now)) && !self.meter.is_in_debt();
        let (Some(slots), Some(request)) = (&mut self.slots, &mut thread.request) else {
            return;
        };
        match request.send(slots, thread.cell.as_ref(), thread.span, repeat) {
            RequestOutcome::Gone => self.mark_gone(thread),
            RequestOutcome::Sent | RequestOutcome::Pending | RequestOutcome::Refused => {}
        }
    }

    /// Creates the thread's slot and timer, or removes them if it blocks the signal: a signal that
    /// stays pending could be seen by a program that waits for signals.
    pub(in crate::sampler) fn request_unless_blocked(
        &mut self,
        thread: &mut Thread,
        stat: &ThreadStat,
        now: u64,
    ) {
        let Some(slots) = &self.slots else {
            return;
        };
        if stat.blocks(slots.signal()) {
            // The C library blocks all signals for a moment, but a program that waits for this one blocks it alone.
            self.signal_change.is_wanted |= !stat.blocks(slots.other_signal());
            if thread.signal_blocked_since_ns == 0 {
                thread.signal_blocked_since_ns = now;
                thread.signal_blocked_since_cpu_ns = thread.time.cpu_ns();
            }
            let blocked_ns = now - thread.signal_blocked_since_ns;
            let ran_ns = thread
                .time
                .cpu_ns()
                .saturating_sub(thread.signal_blocked_since_cpu_ns);
            let retry_ns = ran_ns
                .max(blocked_ns / SIGNAL_BLOCKED_RETRY_PART)
                .clamp(SIGNAL_BLOCKED_RETRY_NS.start, SIGNAL_BLOCKED_RETRY_NS.end);
            thread.signal_blocked_until_ns = now + retry_ns;
            return self.stop_asking(thread);
        }
        thread.signal_blocked_since_ns = 0;
        if thread.request.is_some()
            || self.refused_until_ns > now
            || self.may_be_in_old_handler(thread, stat)
        {
            return;
        }
        let Some(slots) = &mut self.slots else {
            return;
        };
        match Request::new(slots, thread.id, thread.time.cpu_ns()) {
            Ok(request) => {
                let index = request.slot.index();
                if self.owners.len() <= index {
                    self.owners.resize(index + 1, 0);
                }
                if let Some(owner) = self.owners.get_mut(index) {
                    *owner = thread.id;
                }
                thread.request = Some(request);
            }
            Err(RequestOutcome::Gone) => self.mark_gone(thread),
            // Its time waits for its next observation.
            Err(_) => self.refused_until_ns = now + REFUSED_RETRY_NS,
        }
    }

    /// Finds out why a thread that runs does not answer.
    pub(in crate::sampler) fn check_silence(&mut self, thread: &mut Thread, cpu_ns: u64, now: u64) {
        let Some(request) = thread.request.as_mut().filter(|request| request.is_set()) else {
            return;
        };
        let ran_ns = cpu_ns.saturating_sub(request.answered_cpu_ns);
        if ran_ns <= LATE_CPU_NS || (request.is_late && ran_ns <= ANSWER_MAX_CPU_NS) {
            return;
        }
        let stat = ThreadStat::read(thread.id);
        let signal = self.slots.as_ref().map(Slots::signal);
        request.is_late |= stat
            .as_ref()
            .zip(signal)
            .is_some_and(|(stat, signal)| stat.blocks(signal));
        if ran_ns <= ANSWER_MAX_CPU_NS {
            return;
        }
        request.answered_cpu_ns = cpu_ns;
        // If it does not block the signal, the signal may be lost: set the timer again.
        request.set_lost();
        if let Some(stat) = stat {
            self.request_unless_blocked(thread, &stat, now);
        }
        self.ask(thread, now);
    }
}
