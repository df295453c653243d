//! Log lines of the agent's threads.
//!
//! A subscriber of `tracing` is code of the program, and may write to descriptors of the program,
//! which the agent's threads do not have. So a thread that stays in the program's descriptor table
//! runs it. That thread does nothing else, and nobody waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::fork::PerProcess;
use system::descriptors;
#[cfg(feature = "ship")]
use system::environment;
use system::sync::lock;

/// Most lines that wait to be written. Further ones are dropped.
const QUEUED_MAX: usize = 64;

/// `off` silences the agent where the program has no subscriber of `tracing`.
#[cfg(feature = "ship")]
const LOG_VARIABLE: &str = "EMBERLINE_LOG";

type Line = Box<dyn FnOnce() + Send>;

static WRITER: PerProcess<Mutex<Option<SyncSender<Line>>>> = PerProcess::new();

/// Whether standard error is not to be written to.
#[cfg(feature = "ship")]
pub(crate) fn is_silenced() -> bool {
    environment::variable(LOG_VARIABLE).is_some_and(|value| value == "off")
}

/// Records an event of an agent's thread: `event` calls a macro of `tracing`.
pub(crate) fn emit(event: impl FnOnce() + Send + 'static) {
    let writer = lock(WRITER.get()).clone();
    match writer {
        Some(writer) => {
            // A full queue means that the subscriber hangs.
            let _ = writer.try_send(Box::new(event));
        }
        None if descriptors::are_shared() => event(),
        // The agent has ended, and this thread has no descriptor to write to.
        None => {}
    }
}

/// Queues the lines of [`emit`] from now on.
pub(crate) fn open() -> Receiver<Line> {
    let (sender, lines) = sync_channel(QUEUED_MAX);
    *lock(WRITER.get()) = Some(sender);
    lines
}

/// Ends [`write`] once it has written the queued lines.
pub(crate) fn close() {
    *lock(WRITER.get()) = None;
}

/// Writes lines until [`close`], on a thread that has the program's descriptors.
pub(crate) fn write(lines: &Receiver<Line>) {
    for line in lines {
        // A panic of the subscriber was reported by the panic hook.
        let _ = catch_unwind(AssertUnwindSafe(line));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn lines_are_written_in_order_until_the_log_is_closed() {
        let lines = open();
        let (written, order) = mpsc::channel();
        for number in 0..3 {
            let written = written.clone();
            emit(move || {
                written.send(number).unwrap();
                assert_ne!(number, 1, "a subscriber that panics");
            });
        }
        close();
        write(&lines);
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
}
