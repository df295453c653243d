//! Helpers of tests.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The result of what does not wait, because nothing else happens.
///
/// # Panics
/// If it waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}
