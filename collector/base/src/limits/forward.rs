//! Limits on what is forwarded to other servers.

use std::time::Duration;

/// Length of the profiles that are forwarded, and how often they are.
pub const FORWARD_EVERY: Duration = Duration::from_secs(10);

/// How long after the end of such a period its last samples may arrive: agents send each second when it
/// is over. Later ones are forwarded with the next period, under their own times.
pub const FORWARD_LAG: Duration = Duration::from_secs(2);

/// Most bytes of samples that wait to be merged. Further ones are lost to the receivers, and counted.
pub const FORWARD_SAMPLES_BYTES_MAX: usize = 64 << 20;

/// Most bytes of tasks that wait to be encoded. Further ones are lost to the receivers, and counted.
pub const FORWARD_TASKS_BYTES_MAX: usize = 32 << 20;

/// Most bytes of messages that wait for one receiver. Past it, the oldest are dropped and counted.
pub const FORWARD_QUEUE_BYTES_MAX: usize = 32 << 20;

/// Most receivers.
pub const FORWARD_TARGETS_MAX: usize = 4;

/// Largest forwarded profile before compression. Receivers of Pyroscope refuse those over 4 MiB; larger
/// ones are split.
pub const FORWARD_PROFILE_BYTES_MAX: usize = 2 << 20;

/// Size of a message before compression from which on nothing is added to it. Receivers of OTLP accept 4 MiB.
pub const FORWARD_MESSAGE_BYTES: usize = 1 << 20;

/// Most series of one message.
pub const FORWARD_SERIES_MAX: usize = 200;

/// Most labels of a forwarded series besides our own: Pyroscope refuses series with more than 30.
pub const FORWARD_LABELS_MAX: usize = 20;

/// The pause after a failed delivery; it doubles.
pub const FORWARD_PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause, also if the receiver asks for a longer one.
pub const FORWARD_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long the last messages may take at a shutdown, at the same time as the last sealing.
pub const FORWARD_AT_END_MAX: Duration = Duration::from_secs(4);

const _: () = assert!(
    FORWARD_AT_END_MAX.as_millis() <= super::SEAL_AT_END_MAX.as_millis(),
    "a stop takes less than ten seconds"
);
