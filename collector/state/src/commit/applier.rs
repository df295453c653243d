//! Large flushes are applied by a thread of their own. The thread that writes the log, for which all agents
//! wait, goes on meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, SendError};
use std::thread::{self, JoinHandle};

use base::sync::{Condvar, Mutex, lock, rank};

/// Name of the thread.
const THREAD_NAME: &str = "emberline-apply";

type Work = Box<dyn FnOnce() + Send>;

/// Does work in the order in which it comes. How much waits is limited by the memory of decoded messages.
#[derive(Debug, Default)]
pub(super) struct Applier {
    /// `None` without a thread.
    queue: Mutex<Option<mpsc::Sender<Work>>, rank::ApplierQueue>,
    undone: Arc<Undone>,
    thread: Mutex<Option<JoinHandle<()>>, rank::ThreadHandle>,
}

/// How much work is not done.
#[derive(Debug, Default)]
struct Undone {
    count: Mutex<usize, rank::ApplierCount>,
    changed: Condvar,
}

/// A piece of work until it is done, or dropped because the one before it panicked.
struct Piece(Arc<Undone>);

impl Piece {
    fn add(undone: &Arc<Undone>) -> Piece {
        *lock(&undone.count) += 1;
        Piece(undone.clone())
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        *lock(&self.0.count) -= 1;
        self.0.changed.notify_all();
    }
}

impl Applier {
    /// Starts the thread. It ends when the applier is dropped.
    pub(super) fn start(&self) -> io::Result<()> {
        let (queue, work) = mpsc::channel::<Work>();
        *lock(&self.thread) = Some(
            thread::Builder::new()
                .name(THREAD_NAME.to_owned())
                .spawn(move || work.into_iter().for_each(|work| work()))?,
        );
        *lock(&self.queue) = Some(queue);
        Ok(())
    }

    /// Does the work on the thread; on the calling one if there is none.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) {
        let piece = Piece::add(&self.undone);
        let work = Box::new(move || {
            work();
            drop(piece);
        });
        let queue = lock(&self.queue).clone();
        let not_sent = match queue {
            Some(queue) => queue.send(work).err().map(|SendError(work)| work),
            None => Some(work as Work),
        };
        if let Some(work) = not_sent {
            work();
        }
    }

    /// Waits until all work is done.
    pub(super) fn wait(&self) {
        let count = lock(&self.undone.count);
        drop(self.undone.changed.wait_while(count, |count| *count > 0));
    }

    /// Ends the thread after what it has to do.
    pub(super) fn end(&self) {
        drop(lock(&self.queue).take());
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that applies flushes ended by a panic: a bug of Emberline");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn waiting_ends_when_all_work_is_done_or_dropped() {
        let applier = Applier::default();
        let done = Arc::new(AtomicU32::new(0));
        let add = || {
            let done = done.clone();
            move || {
                done.fetch_add(1, Ordering::Relaxed);
            }
        };
        applier.run(add());
        assert_eq!(done.load(Ordering::Relaxed), 1, "at once without a thread");
        applier.start().unwrap();
        (0..100).for_each(|_| applier.run(add()));
        applier.wait();
        assert_eq!(done.load(Ordering::Relaxed), 101);
        // Work after a panic is done all the same, or dropped with the thread's queue.
        applier.run(|| panic!("on purpose"));
        applier.run(add());
        applier.wait();
        applier.end();
        applier.run(add());
        assert!(done.load(Ordering::Relaxed) >= 102);
    }
}
