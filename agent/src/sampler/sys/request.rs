//! Asking one thread for its stack: a slot that its handler answers in, and a timer on its CPU
//! clock that makes the kernel send the signal.
//!
//! Such a timer expires only while its thread runs, and the kernel delivers the signal when the
//! thread returns to user code. So it interrupts no system call of the program, unlike a signal
//! that is sent directly: with one signal to each of 4 threads each millisecond, 20,645 of 44,505
//! calls of `poll` and `nanosleep` failed with `EINTR`; with these timers none did. Kernels before
//! 5.11 send the signal from the clock interrupt instead, and a call may fail.

use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigEvent, SigevNotify};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use super::slots::{SlotId, Slots, StackSpan};
use crate::registry::ThreadCell;
use system::process;

/// A thread's slot and timer, kept for as long as the thread is known. While the timer is set and
/// the thread does not run, they cost nothing.
#[derive(Debug)]
pub(in crate::sampler) struct Request {
    pub(in crate::sampler) slot: SlotId,
    timer: Timer,
    /// Whether the timer is set to expire.
    is_set: bool,
    /// Whether it is set to expire again and again.
    repeats: bool,
    /// The thread's CPU time when it last answered, or was first asked.
    pub(in crate::sampler) answered_cpu_ns: u64,
    /// Whether the thread blocked the signal when it should have answered: the answer comes from where it unblocks it.
    pub(in crate::sampler) is_late: bool,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) enum RequestOutcome {
    Sent,
    /// The last request is not answered yet.
    Pending,
    /// There is no such thread.
    Gone,
    /// All slots are in use, or the kernel has no more timers.
    Refused,
}

impl Request {
    /// Creates the slot and the timer; sends nothing yet.
    pub(in crate::sampler) fn new(
        slots: &mut Slots,
        thread_id: u32,
        cpu_ns: u64,
    ) -> Result<Request, RequestOutcome> {
        let slot = slots.claim().ok_or(RequestOutcome::Refused)?;
        let notify = SigevNotify::SigevThreadId {
            signal: slots.signal(),
            thread_id: thread_id as libc::pid_t,
            si_value: slot.signal_value(),
        };
        let clock = ClockId::from_raw(process::cpu_clock_of(thread_id));
        match Timer::new(clock, SigEvent::new(notify)) {
            Ok(timer) => Ok(Request {
                slot,
                timer,
                is_set: false,
                repeats: false,
                answered_cpu_ns: cpu_ns,
                is_late: false,
            }),
            Err(error) => {
                slots.release(slot);
                Err(if error == Errno::EINVAL {
                    RequestOutcome::Gone
                } else {
                    RequestOutcome::Refused
                })
            }
        }
    }

    /// The timer has expired.
    pub(in crate::sampler) fn set_expired(&mut self) {
        self.is_set = self.repeats;
    }

    /// The timer's signal may have been lost: sets it again at the next request.
    pub(in crate::sampler) fn set_lost(&mut self) {
        self.is_set = false;
    }

    /// Whether the thread will answer without being asked again.
    pub(in crate::sampler) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Asks the thread, unless it is asked already. It answers at the first clock interrupt that
    /// finds it running, or at every one if `repeat`.
    pub(in crate::sampler) fn send(
        &mut self,
        slots: &mut Slots,
        cell: Option<&Arc<ThreadCell>>,
        span: StackSpan,
        repeat: bool,
    ) -> RequestOutcome {
        if !slots.arm(self.slot, cell, span, repeat) {
            // A handler is running; its end is announced, and the thread asked again then.
            return RequestOutcome::Pending;
        }
        if self.is_set && self.repeats == repeat {
            return RequestOutcome::Pending;
        }
        // Relative to now, so that it cannot have expired already: then it would be sent directly.
        let soon = TimeSpec::from_duration(Duration::from_nanos(1));
        let expiration = if repeat {
            Expiration::IntervalDelayed(soon, soon)
        } else {
            Expiration::OneShot(soon)
        };
        match self.timer.set(expiration, TimerSetTimeFlags::empty()) {
            Ok(()) => {
                self.is_set = true;
                self.repeats = repeat;
                RequestOutcome::Sent
            }
            Err(_) => RequestOutcome::Gone,
        }
    }
}
