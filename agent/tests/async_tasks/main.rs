//! Tasks that move between threads: futures on runtimes, closures on pools, spans of `tracing`. One
//! process has one agent, so these tests take turns.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

#[allow(unused, reason = "other tests use the rest")]
#[path = "../common/mod.rs"]
mod common;
mod futures;
mod handles;
mod spans;

use std::time::Duration;

use common::{pause, poll, work_function};

work_function!(work_of_red, 1);
work_function!(work_of_blue, 2);
work_function!(work_between, 3);
work_function!(work_outer, 4);
work_function!(work_inner, 5);
work_function!(work_after, 6);

/// The length of one piece of work: long enough to be sampled.
const SLICE: Duration = Duration::from_millis(200);
