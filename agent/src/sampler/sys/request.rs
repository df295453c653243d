//! Asking one thread for its stack: a slot that its handler may answer in, and a timer on its CPU
//! clock that makes the kernel send the signal.
//!
//! Such a timer expires only while its thread runs, and the kernel sends the signal on the thread's
//! way back to its own code. So no system call of the program ever sees it, as it would a signal
//! sent from here: of 44,505 calls of `poll` and `nanosleep` 20,645 failed with `EINTR` when a
//! signal was sent to each of 4 threads each millisecond, and none when these timers were set. Kernels
//! before 5.11 send the signal from the clock interrupt instead, and a call may fail.

use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigEvent, SigevNotify};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use super::slots::{SlotId, Slots, StackSpan};
use crate::registry::ThreadCell;
use crate::sys::process;

/// What a thread is asked by, for as long as it runs now and then.
#[derive(Debug)]
pub(in crate::sampler) struct Request {
    pub(in crate::sampler) slot: SlotId,
    timer: Timer,
    /// The thread's CPU time when it last answered, or was first asked.
    pub(in crate::sampler) heard_cpu_ns: u64,
}

/// Whether a question went out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) enum Asked {
    Yes,
    /// The last question is still open.
    Open,
    /// There is no such thread.
    Gone,
    /// All slots are taken, or the system gives no more timers.
    Refused,
}

impl Request {
    /// Prepares to ask the thread; sends nothing yet.
    pub(in crate::sampler) fn new(
        slots: &mut Slots,
        thread_id: u32,
        cpu_ns: u64,
    ) -> Result<Request, Asked> {
        let slot = slots.claim().ok_or(Asked::Refused)?;
        let notify = SigevNotify::SigevThreadId {
            signal: slots.signal(),
            thread_id: thread_id.cast_signed(),
            si_value: slot.signal_value(),
        };
        let clock = ClockId::from_raw(process::cpu_clock_of(thread_id));
        match Timer::new(clock, SigEvent::new(notify)) {
            Ok(timer) => Ok(Request { slot, timer, heard_cpu_ns: cpu_ns }),
            Err(error) => {
                slots.release(slot);
                Err(if error == Errno::EINVAL { Asked::Gone } else { Asked::Refused })
            }
        }
    }

    /// Asks: the thread answers at the first clock interrupt that finds it running, or at every one
    /// if `repeat`.
    pub(in crate::sampler) fn send(
        &mut self,
        slots: &mut Slots,
        cell: Option<&Arc<ThreadCell>>,
        span: StackSpan,
        repeat: bool,
    ) -> Asked {
        if !slots.arm(self.slot, cell, span, repeat) {
            return Asked::Open;
        }
        // From now, so that it can never have expired already: then it would be sent from here.
        let soon = TimeSpec::from_duration(Duration::from_nanos(1));
        let expiration = match repeat {
            true => Expiration::IntervalDelayed(soon, soon),
            false => Expiration::OneShot(soon),
        };
        match self.timer.set(expiration, TimerSetTimeFlags::empty()) {
            Ok(()) => Asked::Yes,
            Err(_) => Asked::Gone,
        }
    }
}
