//! One life of one agent: its description, and the state of its session that outlives the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::wire::v1;
use profiler_core::{Epoch, Ticks, Timestamp, WorkerId};

use super::Disconnect;

/// The label that replaces the labels of a session past the limit on label bytes.
const OVERFLOW: &str = "[overflow]";

/// An agent's description of itself, from its Hello, without the session's key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AgentInfo {
    pub labels: BTreeMap<String, String>,
    pub host: String,
    pub pid: u32,
    pub agent_version: String,
    pub sampler_mode: String,
    pub interval_ns: u64,
    /// By the agent's clock.
    pub started_at: Timestamp,
}

impl AgentInfo {
    /// Memory of the labels, in bytes.
    pub fn label_bytes(&self) -> usize {
        /// Two strings and their entry in the map.
        const LABEL_BYTES: usize = 96;
        self.labels
            .iter()
            .map(|(key, value)| key.len() + value.len() + LABEL_BYTES)
            .sum()
    }

    /// Whether the labels were replaced by their number.
    pub fn has_dropped_labels(&self) -> bool {
        self.labels.len() == 1 && self.labels.contains_key(OVERFLOW)
    }

    /// Replaces all labels by one that holds their number.
    pub fn drop_labels(&mut self) {
        if !self.labels.is_empty() && !self.has_dropped_labels() {
            self.labels = [(OVERFLOW.to_owned(), self.labels.len().to_string())].into();
        }
    }
}

/// A row of `sessions`: one life of one agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionRecord {
    pub worker: WorkerId,
    pub epoch: Epoch,
    /// Shared with the session: a sealing has the records of all.
    pub agent: Arc<AgentInfo>,
    pub acked_seq: u64,
    pub stored_ns: u64,
    pub ticks: Ticks,
    pub account: Option<v1::LossAccount>,
    pub clock: Option<v1::Clock>,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    /// `None` unless its life has ended.
    pub disconnect: Option<Disconnect>,
}
