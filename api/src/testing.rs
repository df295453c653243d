//! Bodies for tests of crates that read or write them.

use crate::Task;

/// Noon of 2026-01-31.
pub const NOON_NS: i64 = 1_769_860_800_000_000_000;

/// A task that ended well.
#[must_use]
pub fn task(id: u64, thread_id: u32, start_ns: i64, duration_ns: u64) -> Task {
    Task {
        worker: "w-1".to_owned(),
        epoch: "a1".to_owned(),
        id,
        name: "load".to_owned(),
        key: format!("load-{id}"),
        thread_id,
        thread_name: "pool-3".to_owned(),
        start_ns,
        duration_ns,
        outcome: "ok".into(),
        ..Task::default()
    }
}
