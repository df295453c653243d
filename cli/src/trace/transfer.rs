//! How a trace shows a transfer.

use api::Transfer;
use serde::Serialize;

/// Details that a viewer shows of a selected transfer.
#[derive(Serialize)]
pub(super) struct Args<'a> {
    transfer: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compressed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    type_name: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    keys: &'a [String],
    #[serde(skip_serializing_if = "is_zero")]
    more_keys: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u64>,
    thread_id: u32,
    outcome: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cause: &'a str,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The name, by which viewers group: one track for each direction and other end.
pub(super) fn name(transfer: &Transfer) -> String {
    let preposition = if transfer.direction == "incoming" {
        "from"
    } else {
        "to"
    };
    format!("{} {preposition} {}", transfer.direction, transfer.peer)
}

pub(super) fn args(transfer: &Transfer) -> Args<'_> {
    Args {
        transfer: transfer.id,
        bytes: transfer.bytes,
        compressed_bytes: transfer.compressed_bytes,
        type_name: &transfer.type_name,
        keys: &transfer.keys,
        more_keys: transfer.more_keys,
        task: transfer.task_id,
        thread_id: transfer.thread_id,
        outcome: &transfer.outcome,
        cause: &transfer.cause,
    }
}
