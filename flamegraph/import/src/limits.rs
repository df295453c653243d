//! Limits on files that are imported. They bound the memory that any file can take.

use std::time::Duration;

use profiler_core::limits::{AGENT_NODES_MAX, DEPTH_MAX};

/// Largest content of a file in bytes, after decompression.
pub const CONTENT_BYTES_MAX: usize = 256 << 20;

/// Most entries of one table of a file: texts, functions, locations, frames, stacks, nodes.
pub const TABLE_ENTRIES_MAX: usize = 1 << 20;

/// Most samples and entries of tables of a request of OTLP.
pub const OTLP_ENTRIES_MAX: usize = 1 << 18;

/// Largest encoded entry of a table, in bytes: one sample with its stack and labels, or one line of text.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Most distinct combinations of second, stack, thread and state.
pub const SAMPLES_MAX: usize = 2 << 20;

/// Most bytes of distinct names, each cut to the length that an agent may send.
pub const NAMES_BYTES_MAX: usize = 64 << 20;

/// Most distinct stack nodes, which is what an agent may send. Past it, stacks count as `[overflow]` below
/// their task.
pub const NODES_MAX: usize = AGENT_NODES_MAX;

/// Most frames of a stack below a task and a phase. The outer ones beyond it become `[truncated]`.
pub const FRAMES_MAX: usize = DEPTH_MAX as usize - 2;

/// Most distinct sets of labels of samples that are kept. Past it, labels are dropped.
pub const LABEL_SETS_MAX: usize = 256;

/// Longest profile.
pub const DURATION_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Most thread time: what a sample of pprof can have, so that exports can say it.
pub const TOTAL_NS_MAX: u64 = i64::MAX as u64;

/// Fewest digits of the weight of each line at which collapsed stacks count as nanoseconds, unless the options have a
/// unit: hardly a profile has this many samples of its rarest stack. Our exports have leading zeros.
pub const COLLAPSED_NANOSECONDS_DIGITS: usize = flamegraph::WEIGHT_DIGITS_MIN;

/// Time of a sample where the file does not say it: that of profilers that sample at 100 Hz.
pub const INTERVAL_DEFAULT: Duration = Duration::from_millis(10);

/// Most gaps between samples from which an interval is estimated.
pub const GAPS_MAX: usize = 100_000;

/// Most bytes of the labels that come with a recording of Java's Flight Recorder.
pub const CONTEXTS_BYTES_MAX: usize = 2 << 20;

/// Most frames that are inserted for the distinct pairs of task and stack of a recording. Past it, stacks count as
/// `[overflow]` below their task.
pub const STACK_FRAMES_MAX: usize = 16 << 20;

/// Most parts, at most one a second, into which a wait is divided.
pub const WAIT_PARTS_MAX: i64 = 60;

/// Most types of events that a note names.
pub const NAMED_EVENTS_MAX: usize = 8;
