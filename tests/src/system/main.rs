//! Whole-system tests: the shipped `emberline`, real workers, real sockets. Each test starts its
//! own processes on its own ports and ends them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod account;
mod bad_input;
mod clocks;
mod crash;
mod demo;
mod doctor;
mod full_disk;
mod harness;
mod hostile;
mod live;
mod order;
mod restart;
mod trace;
mod truth;
mod watch;
mod worker_lost;
