//! Polling a task's future and entering a handle do not allocate on a thread that has done both before.
//! This test counts the allocations of the process, so it is alone in its file.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use emberline_agent::{AgentBuilder, current_task, task};

#[test]
fn polls_and_scopes_allocate_nothing() {
    let agent = AgentBuilder::default().start_local().unwrap();
    let mut polls = 0;
    let endless = std::future::poll_fn(|_| {
        polls += 1;
        Poll::<()>::Pending
    });
    let mut future = pin!(
        task("endless")
            .key("one")
            .future(task("inner").future(endless))
    );
    let mut context = Context::from_waker(Waker::noop());
    let first = measure(|| assert!(future.as_mut().poll(&mut context).is_pending()));
    assert!(first.count_total > 0, "the counter counts");
    let later = measure(|| {
        for _ in 0..1_000 {
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
    });
    assert_eq!(later.count_total, 0);
    let _task = task("guarded").start();
    let here = current_task();
    drop(here.enter());
    let entered = measure(|| {
        for _ in 0..1_000 {
            let _in = here.clone().enter();
            let _again = current_task().enter();
        }
    });
    assert_eq!(entered.count_total, 0);
    drop(agent.finish());
}
