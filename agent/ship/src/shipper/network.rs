//! System interface of shipping: time, and connections to collectors. [`Reactor`] has those of the
//! system. A simulation has others, and runs all other code of shipping as it is.
//!
//! [`Reactor`]: super::reactor::Reactor

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use profiler_core::Token;
use profiler_core::wire::v1;

use super::call::CallError;
use super::target::Target;

/// Time and connections.
pub(super) trait Network {
    /// A connected socket.
    type Socket;
    /// An open call over it.
    type Call: MessageStream;
    /// Waits for a socket's events until it is dropped.
    type Watched<'n>
    where
        Self: 'n;

    /// The present time.
    fn now(&self) -> Instant;

    /// Polls again at `until` at the latest.
    fn poll_by(&self, until: Instant);

    /// Whether an answer of the collector is due: then the socket is what matters.
    fn set_answer_due(&self, is_due: bool);

    /// Connects a socket.
    ///
    /// # Errors
    /// Why nobody answers.
    async fn connect(&self, target: &Target) -> io::Result<Rc<Self::Socket>>;

    /// Waits for events of this socket from now on, until the result is dropped.
    fn watch(&self, socket: Rc<Self::Socket>) -> Self::Watched<'_>;

    /// Whether the program has closed the descriptor.
    fn is_stolen(socket: &Self::Socket) -> bool;

    /// When the last bytes came.
    fn last_received(socket: &Self::Socket) -> Instant;

    /// Opens the call and sends its first message.
    ///
    /// # Errors
    /// If the peer is not a collector, or rejects the call.
    async fn open(
        &self,
        socket: Rc<Self::Socket>,
        target: &Target,
        token: Option<&Token>,
        first: &v1::AgentMessage,
    ) -> Result<Self::Call, CallError>;

    /// Waits until `is_ready`, at most for `limit`. Returns whether it is.
    async fn wait_until(&self, limit: Duration, is_ready: impl Fn() -> bool) -> bool {
        let ready = poll_fn(|_| {
            if is_ready() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        self.timeout(limit, ready).await.is_some()
    }

    /// Runs `future` for at most `limit`; `None` if it is not ready by then.
    async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let until = self.now() + limit;
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            if self.now() >= until {
                return Poll::Ready(None);
            }
            self.poll_by(until);
            Poll::Pending
        })
        .await
    }
}

/// The messages of an open call.
pub(super) trait MessageStream {
    /// Returns the next message; `None` at the end of the call.
    fn poll_message(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<v1::CollectorMessage>, CallError>>;

    /// Waits until the last message is on its way and there is room for another.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CallError>>;

    /// Sends a message after [`MessageStream::poll_room`] was ready.
    ///
    /// # Errors
    /// If the message is too long.
    fn send(&mut self, message: &v1::AgentMessage) -> Result<(), CallError>;

    /// Sends the end of the agent's messages.
    async fn close(&mut self) -> Result<(), CallError>;

    /// Asks a silent peer whether it is there.
    fn ping(&mut self) -> Result<(), CallError>;
}
