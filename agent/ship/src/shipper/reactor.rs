//! Runs the shipper's only future, which waits for its socket, for other threads and for times.
//!
//! Other threads wake it through a futex, because threads of the program must not use a descriptor
//! of the agent. So there is none but the socket: while an answer is due the thread waits for the
//! socket, otherwise for the futex, and in both cases it looks at the other after a short while.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use profiler_core::Token;
use profiler_core::wire::v1;

use super::call::{Call, CallError};
use super::network::Network;
use super::socket::Socket;
use super::target::Target;
use system::sync::lock;

/// Longest wait for the socket: the delay of a wake-up while an answer is due.
const SOCKET_WAIT_MAX: Duration = Duration::from_millis(20);

/// Longest wait for a wake-up while a socket is open: the delay of a request of the collector, and of
/// the next read from one that sends too much.
const WAKE_WAIT_MAX: Duration = Duration::from_millis(50);

/// The same if the collector has sent nothing for [`QUIET_AFTER`]: each look costs a program that waits.
const QUIET_WAKE_WAIT_MAX: Duration = Duration::from_millis(200);
const QUIET_AFTER: Duration = Duration::from_millis(150);

/// Flag with which other threads wake the shipper.
#[derive(Debug, Default)]
pub(super) struct WakeFlag {
    woken: Mutex<bool>,
    changed: Condvar,
    /// How often the future was polled.
    polls: AtomicU64,
}

impl WakeFlag {
    /// Wakes the shipper.
    pub(super) fn notify(&self) {
        *lock(&self.woken) = true;
        self.changed.notify_one();
    }

    /// How often the shipper looked for something to do.
    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Waits for [`WakeFlag::notify`], at most for `limit`.
    fn wait(&self, limit: Option<Duration>) {
        let woken = lock(&self.woken);
        let is_waiting = |woken: &mut bool| !*woken;
        let mut woken = match limit {
            Some(limit) => {
                let waited = self.changed.wait_timeout_while(woken, limit, is_waiting);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.changed.wait_while(woken, is_waiting);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        *woken = false;
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}

/// Events that the future waits for.
#[derive(Debug)]
pub(super) struct Reactor {
    wake: Arc<WakeFlag>,
    socket: RefCell<Option<Rc<Socket>>>,
    is_answer_due: Cell<bool>,
    /// The earliest time that the last poll waited for.
    deadline: Cell<Option<Instant>>,
}

impl Reactor {
    pub(super) fn new(wake: Arc<WakeFlag>) -> Reactor {
        Reactor {
            wake,
            socket: RefCell::new(None),
            is_answer_due: Cell::new(false),
            deadline: Cell::new(None),
        }
    }

    /// Polls `future` until it is ready.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let waker = Waker::from(self.wake.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            self.deadline.set(None);
            self.wake.polls.fetch_add(1, Ordering::Relaxed);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.wait();
        }
    }

    fn wait(&self) {
        let until = self.deadline.get();
        let now = Instant::now();
        let left = until.map(|until| until.saturating_duration_since(now));
        let at_most = |limit: Duration| left.map_or(limit, |left| left.min(limit));
        match &*self.socket.borrow() {
            Some(socket) if self.is_answer_due.get() && socket.is_awaited() => {
                // Another thread's wake-up that came during the poll ends the wait at once.
                let is_woken = std::mem::take(&mut *lock(&self.wake.woken));
                let limit = if is_woken {
                    Duration::ZERO
                } else {
                    at_most(SOCKET_WAIT_MAX)
                };
                socket.wait(limit);
            }
            Some(socket) => {
                let quiet_for = now.saturating_duration_since(socket.last_received());
                let limit = if quiet_for < QUIET_AFTER {
                    WAKE_WAIT_MAX
                } else {
                    QUIET_WAKE_WAIT_MAX
                };
                self.wake.wait(Some(at_most(limit)));
            }
            None => self.wake.wait(left),
        }
    }
}

impl Network for Reactor {
    type Socket = Socket;
    type Call = Call;
    type Watched<'n> = Watched<'n>;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn poll_by(&self, until: Instant) {
        let earliest = self
            .deadline
            .get()
            .map_or(until, |earlier| earlier.min(until));
        self.deadline.set(Some(earliest));
    }

    fn set_answer_due(&self, is_due: bool) {
        self.is_answer_due.set(is_due);
    }

    async fn connect(&self, target: &Target) -> io::Result<Rc<Socket>> {
        target.connect(self).await
    }

    /// After the result is dropped, waits for events of the socket before.
    fn watch(&self, socket: Rc<Socket>) -> Watched<'_> {
        self.is_answer_due.set(true);
        let before = self.socket.borrow_mut().replace(socket);
        Watched {
            reactor: self,
            before,
        }
    }

    fn is_stolen(socket: &Socket) -> bool {
        socket.is_stolen()
    }

    fn last_received(socket: &Socket) -> Instant {
        socket.last_received()
    }

    async fn open(
        &self,
        socket: Rc<Socket>,
        target: &Target,
        token: Option<&Token>,
        first: &v1::AgentMessage,
    ) -> Result<Call, CallError> {
        Call::open(socket, target, token, first).await
    }
}

/// A socket whose events the reactor waits for.
#[derive(Debug)]
pub(super) struct Watched<'r> {
    reactor: &'r Reactor,
    /// The socket whose events were waited for before.
    before: Option<Rc<Socket>>,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        // A panic may have left it borrowed; then the agent's thread ends anyway.
        if let Ok(mut socket) = self.reactor.socket.try_borrow_mut() {
            *socket = self.before.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::thread;

    use super::*;

    #[test]
    fn another_thread_wakes_a_future_that_waits_forever() {
        let wake = Arc::new(WakeFlag::default());
        let (asked, is_asked) = std::sync::mpsc::channel();
        let other = {
            let wake = wake.clone();
            thread::spawn(move || {
                is_asked.recv().unwrap();
                wake.notify();
            })
        };
        let mut polls = 0;
        let woken = poll_fn(|_| {
            polls += 1;
            if polls == 1 {
                asked.send(()).unwrap();
                return Poll::Pending;
            }
            Poll::Ready(polls)
        });
        assert_eq!(Reactor::new(wake).block_on(woken), 2);
        other.join().unwrap();
    }

    #[test]
    fn a_future_that_wakes_itself_is_polled_again() {
        let mut polls = 0;
        let three_polls = poll_fn(|context| {
            polls += 1;
            context.waker().wake_by_ref();
            if polls == 3 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        Reactor::new(Arc::default()).block_on(three_polls);
        assert_eq!(polls, 3);
    }

    #[test]
    fn the_earliest_of_nested_limits_ends_the_wait() {
        let reactor = Reactor::new(Arc::default());
        let inner = reactor.timeout(Duration::from_millis(1), std::future::pending::<()>());
        let outer = reactor.timeout(Duration::from_secs(3_600), inner);
        assert_eq!(reactor.block_on(outer), Some(None));
    }
}
