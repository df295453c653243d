//! Limits that both ends of the wire agree on. Input over a limit is rejected or counted, never
//! silently cut.

use std::time::Duration;

/// Longest name of a task, function, file, module, worker or label, in bytes. Longer names are cut
/// at a character boundary and end in `…`.
pub const NAME_BYTES_MAX: usize = 4096;

/// Longest id of a worker, in bytes. Answers list workers, so longer ids would make all of them large.
pub const WORKER_BYTES_MAX: usize = 256;

/// Longest cause of a failure, in bytes.
pub const CAUSE_BYTES_MAX: usize = 1024;

/// Deepest tree that agents send: the levels above a stack, and its functions with the inlined ones. An
/// agent replaces the outer functions beyond it by one `[truncated]` node.
pub const DEPTH_MAX: u32 = 1_000;

/// Most addresses of one sampled stack, each of which may stand for several inlined functions. The outer
/// ones beyond it become one `[truncated]` node.
pub const STACK_FRAMES_MAX: usize = 512;

/// Most distinct nodes of one agent. Past it, new stacks count as `[overflow]` below their task.
pub const AGENT_NODES_MAX: usize = 1 << 20;

/// Most distinct task names of one agent. Past it, new names count as `[overflow]`.
pub const AGENT_TASK_NAMES_MAX: usize = 10_000;

/// Most nodes of one agent on the wire, with the task names and `[overflow]` nodes beyond
/// [`AGENT_NODES_MAX`].
pub const DICTIONARY_NODES_MAX: usize = AGENT_NODES_MAX + AGENT_TASK_NAMES_MAX + 8;

/// Most frames of one agent on the wire. Past it, new frames are `[overflow]`.
pub const DICTIONARY_FRAMES_MAX: usize = DICTIONARY_NODES_MAX;

/// Most strings of one agent on the wire. Past it, new texts are `[overflow]`.
pub const DICTIONARY_STRINGS_MAX: usize = 2 * DICTIONARY_NODES_MAX;

/// Largest encoded message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Largest encoded message of a collector to an agent, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Most entries of one message: strings, frames, tasks, threads and labels together. An agent's
/// largest message has this many if each entry takes four bytes.
pub const MESSAGE_ENTRIES_MAX: usize = 1 << 18;

const _: () = assert!(MESSAGE_ENTRIES_MAX * 4 >= MESSAGE_BYTES_TARGET);

/// An agent closes a message before it grows past this many bytes. A quarter of what a collector
/// accepts, so that one more entry of any kind still fits.
pub const MESSAGE_BYTES_TARGET: usize = 1 << 20;

/// Most labels of one worker.
pub const LABELS_MAX: usize = 64;

/// Most labels of one task.
pub const TASK_LABELS_MAX: usize = 16;

/// Most phase intervals in a task's record. Past it, intervals are summed by phase.
pub const TASK_PHASES_MAX: usize = 64;

/// Most keys in a transfer's record. Past it, keys are only counted.
pub const TRANSFER_KEYS_MAX: usize = 64;

/// Most task names for which an agent reports an expected count.
pub const EXPECTED_MAX: usize = 1_000;

/// Shortest time between two samples of a thread.
pub const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Longest time between two samples of a thread.
pub const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Most threads in one thread dump; the others are counted. A thread takes at most 90 bytes, so the
/// dump fits one message.
pub const DUMP_THREADS_MAX: usize = 20_000;

const _: () = assert!(DUMP_THREADS_MAX * 90 < MESSAGE_BYTES_MAX);

/// Cuts `name` to [`NAME_BYTES_MAX`] bytes.
#[must_use]
pub fn bounded_name(name: &str) -> std::borrow::Cow<'_, str> {
    bounded(name, NAME_BYTES_MAX)
}

/// Cuts `text` to at most `bytes_max` bytes, at a character boundary. A cut text ends in `…`.
#[must_use]
pub fn bounded(text: &str, bytes_max: usize) -> std::borrow::Cow<'_, str> {
    const MARK: char = '…';
    if text.len() <= bytes_max {
        return text.into();
    }
    let end_max = bytes_max - MARK.len_utf8();
    let end = (0..=end_max)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
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
