//! Every limit that both ends of the wire must agree on. What is past a limit is refused or
//! counted, never silently cut.

use std::time::Duration;

/// Longest name of a task, function, file, module, worker or label, in bytes. Longer ones are cut
/// at a character's edge and end in `…`.
pub const NAME_BYTES_MAX: usize = 4096;

/// Longest text of a cause of failure, in bytes.
pub const CAUSE_BYTES_MAX: usize = 1024;

/// Deepest tree a decoder accepts: 512 frames, their inlined frames, and the first level.
pub const DEPTH_MAX: u32 = 1_000;

/// Most frames of one sampled stack, before inlined frames are expanded; beyond, the outer part
/// becomes one `[truncated]` node.
pub const STACK_FRAMES_MAX: usize = 512;

/// Most distinct nodes of one agent. Past it new stacks count as `[overflow]` below their task.
pub const AGENT_NODES_MAX: usize = 1 << 20;

/// Most distinct task names of one agent. Past it new names count as `[overflow]`.
pub const AGENT_TASK_NAMES_MAX: usize = 10_000;

/// Largest encoded message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Most entries of one message: strings, frames, tasks, threads and labels together; as many as an
/// agent's largest message has if each takes four bytes.
pub const MESSAGE_ENTRIES_MAX: usize = 1 << 18;

const _: () = assert!(MESSAGE_ENTRIES_MAX * 4 >= MESSAGE_BYTES_TARGET);

/// An agent closes a message before it grows past this, in bytes; a quarter of what a collector
/// accepts, so that one more entry of any kind still fits.
pub const MESSAGE_BYTES_TARGET: usize = 1 << 20;

/// Most labels of one worker.
pub const LABELS_MAX: usize = 64;

/// Most labels of one task.
pub const TASK_LABELS_MAX: usize = 16;

/// Most intervals of phases that a task's record lists; past it they are summed by phase.
pub const TASK_PHASES_MAX: usize = 64;

/// Most keys that a transfer's record lists; past it they are counted.
pub const TRANSFER_KEYS_MAX: usize = 64;

/// Most names of tasks of which an agent says how many it expects.
pub const EXPECTED_MAX: usize = 1_000;

/// Shortest time between two samples of a thread.
pub const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Longest time between two samples of a thread.
pub const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Most threads in one answer to what every thread is doing; the rest is counted. At most 90 bytes
/// each, so that the answer fits a message.
pub const DUMP_THREADS_MAX: usize = 20_000;

const _: () = assert!(DUMP_THREADS_MAX * 90 < MESSAGE_BYTES_MAX);

/// Cuts `name` to [`NAME_BYTES_MAX`] bytes.
#[must_use]
pub fn bounded_name(name: &str) -> std::borrow::Cow<'_, str> {
    bounded(name, NAME_BYTES_MAX)
}

/// Cuts `text` to at most `bytes_max` bytes, at a character's edge, ending in `…` if it was cut.
#[must_use]
pub fn bounded(text: &str, bytes_max: usize) -> std::borrow::Cow<'_, str> {
    const MARK: char = '…';
    if text.len() <= bytes_max {
        return text.into();
    }
    let end = text.floor_char_boundary(bytes_max - MARK.len_utf8());
    format!("{}{MARK}", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_at_a_characters_edge() {
        assert_eq!(bounded("short", 8), "short");
        assert_eq!(bounded("exactly8", 8), "exactly8");
        assert_eq!(bounded("123456789", 8), "12345…");
        assert_eq!(bounded("1234ä6789", 8), "1234…");
        assert_eq!(bounded_name(&"x".repeat(5_000)).len(), NAME_BYTES_MAX);
    }
}
