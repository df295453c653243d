//! What an agent says of itself, checked.

use std::collections::BTreeMap;

use profiler_core::limits::{LABELS_MAX, NAME_BYTES_MAX};
use profiler_core::wire::{PROTOCOL, v1};
use profiler_core::{Epoch, Timestamp, WorkerId};

/// A Hello that was refused; the stream ends with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HelloError {
    #[error("the agent speaks protocol {given}; this collector speaks protocol {PROTOCOL} only")]
    Protocol { given: u32 },
    #[error("the worker's id is empty; it must have 1 to {NAME_BYTES_MAX} bytes")]
    NoWorker,
    #[error("{what} has {bytes} bytes; at most {NAME_BYTES_MAX} are allowed")]
    TooLong { what: &'static str, bytes: usize },
    #[error("the worker has {count} labels; at most {LABELS_MAX} are allowed")]
    TooManyLabels { count: usize },
}

/// The facts of a Hello beside the session's key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Greeting {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) agent_version: String,
    pub(crate) sampler_mode: String,
    pub(crate) interval_ns: u64,
    /// By the agent's clock.
    pub(crate) started_at: Timestamp,
}

/// The label that stands for those that found no room.
const OVERFLOW: &str = "[overflow]";

impl Greeting {
    /// What its labels take, in bytes.
    pub(crate) fn label_bytes(&self) -> usize {
        /// Two texts and their place in the map.
        const LABEL_BYTES: usize = 96;
        self.labels.iter().map(|(key, value)| key.len() + value.len() + LABEL_BYTES).sum()
    }

    /// Makes one label of all that there are, which says how many they were.
    pub(crate) fn drop_labels(&mut self) {
        let is_dropped = self.labels.len() == 1 && self.labels.contains_key(OVERFLOW);
        if !self.labels.is_empty() && !is_dropped {
            self.labels = [(OVERFLOW.to_owned(), self.labels.len().to_string())].into();
        }
    }

    /// Checks a Hello; gives whose it is and what it says.
    pub(crate) fn check(hello: v1::Hello) -> Result<(WorkerId, Epoch, Greeting), HelloError> {
        if hello.protocol != PROTOCOL {
            return Err(HelloError::Protocol { given: hello.protocol });
        }
        if hello.worker.is_empty() {
            return Err(HelloError::NoWorker);
        }
        let texts = [
            ("the worker's id", &hello.worker),
            ("the host's name", &hello.host),
            ("the agent's version", &hello.agent_version),
            ("the sampler's mode", &hello.sampler_mode),
        ];
        let labels = hello.labels.iter();
        let labels =
            labels.flat_map(|(key, value)| [("a label's key", key), ("a label's value", value)]);
        for (what, text) in texts.into_iter().chain(labels) {
            if text.len() > NAME_BYTES_MAX {
                return Err(HelloError::TooLong { what, bytes: text.len() });
            }
        }
        if hello.labels.len() > LABELS_MAX {
            return Err(HelloError::TooManyLabels { count: hello.labels.len() });
        }
        let greeting = Greeting {
            labels: hello.labels.into_iter().collect(),
            host: hello.host,
            pid: hello.pid,
            agent_version: hello.agent_version,
            sampler_mode: hello.sampler_mode,
            interval_ns: hello.interval_ns,
            started_at: Timestamp::from_unix_ns(hello.started_at_ns),
        };
        Ok((WorkerId(hello.worker.into()), Epoch(hello.epoch), greeting))
    }
}
