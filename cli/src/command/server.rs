//! Collectors that this program runs, their stores, and programs next to it.

mod forward;
pub(super) mod local_server;
pub(super) mod programs;
pub(crate) mod serve;
pub(crate) mod store;
