//! Whole-system tests: the shipped `emberline`, real workers, real sockets. Each test starts its
//! own processes on its own ports and ends them.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

mod access;
mod agents;
mod embed;
mod forward;
mod harness;
mod import;
mod order;
mod scrape;
mod service;
mod stores;
mod unmodified;
mod views;
