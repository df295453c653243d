//! Quotas: how much of the collector one identity may use.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use base::limits::{
    QUERIES_MAX, QUERIES_WAITING_MAX, QUOTA_BYTES_PER_SECOND, QUOTA_BYTES_PER_SECOND_MIN,
    QUOTA_DECODED_BYTES, QUOTA_DECODED_BYTES_MIN, QUOTA_NODES, QUOTA_RUNNING_BYTES,
    QUOTA_SYMBOL_BYTES, SESSIONS_MAX,
};

/// A limit that one identity can reach.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quota {
    /// Agents that are connected, or away for less than the grace period.
    Sessions,
    /// Encoded bytes of agents' messages a second.
    BytesPerSecond,
    /// Memory of decoded messages that are not applied yet.
    DecodedBytes,
    /// Stack nodes added to the fleet's tree.
    Nodes,
    /// Memory of names and frames added to the fleet's tree.
    SymbolBytes,
    /// Memory of running tasks.
    RunningBytes,
    /// Queries that compute or wait.
    Queries,
    /// Messages of which only a part has arrived.
    BegunBytes,
    /// Answers that are not read.
    AnswerBytes,
    /// Requests to running agents.
    ControlRequests,
    /// Pages and subscribers that receive events.
    EventStreams,
    /// Data in memory that waits for a sealing.
    UnsealedBytes,
}

impl Quota {
    /// All of them.
    pub const ALL: [Quota; 12] = [
        Quota::Sessions,
        Quota::BytesPerSecond,
        Quota::DecodedBytes,
        Quota::Nodes,
        Quota::SymbolBytes,
        Quota::RunningBytes,
        Quota::Queries,
        Quota::BegunBytes,
        Quota::AnswerBytes,
        Quota::ControlRequests,
        Quota::EventStreams,
        Quota::UnsealedBytes,
    ];

    /// Those with a value that can be set. The others are fair shares of a pool.
    pub const SETTABLE: [Quota; 7] = [
        Quota::Sessions,
        Quota::BytesPerSecond,
        Quota::DecodedBytes,
        Quota::Nodes,
        Quota::SymbolBytes,
        Quota::RunningBytes,
        Quota::Queries,
    ];

    /// The name, as it is typed and shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Quota::Sessions => "sessions",
            Quota::BytesPerSecond => "bytes_per_second",
            Quota::DecodedBytes => "decoded_bytes",
            Quota::Nodes => "nodes",
            Quota::SymbolBytes => "symbol_bytes",
            Quota::RunningBytes => "running_bytes",
            Quota::Queries => "queries",
            Quota::BegunBytes => "begun_bytes",
            Quota::AnswerBytes => "answer_bytes",
            Quota::ControlRequests => "control_requests",
            Quota::EventStreams => "event_streams",
            Quota::UnsealedBytes => "unsealed_bytes",
        }
    }

    /// Its value without a setting; `None` if it cannot be set.
    const fn default_value(self) -> Option<u64> {
        match self {
            // All of agents, and all of pushed series.
            Quota::Sessions => Some(2 * SESSIONS_MAX as u64),
            Quota::BytesPerSecond => Some(QUOTA_BYTES_PER_SECOND),
            Quota::DecodedBytes => Some(QUOTA_DECODED_BYTES),
            Quota::Nodes => Some(QUOTA_NODES),
            Quota::SymbolBytes => Some(QUOTA_SYMBOL_BYTES),
            Quota::RunningBytes => Some(QUOTA_RUNNING_BYTES),
            Quota::Queries => Some((QUERIES_MAX + QUERIES_WAITING_MAX) as u64),
            Quota::BegunBytes
            | Quota::AnswerBytes
            | Quota::ControlRequests
            | Quota::EventStreams
            | Quota::UnsealedBytes => None,
        }
    }

    /// The least value with which an agent still works.
    const fn least(self) -> u64 {
        match self {
            Quota::BytesPerSecond => QUOTA_BYTES_PER_SECOND_MIN,
            Quota::DecodedBytes => QUOTA_DECODED_BYTES_MIN,
            _ => 1,
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A quota that cannot be set so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// No quota has that name, or it cannot be set.
    #[error("no quota is called {name:?}; allowed: {}", Quota::SETTABLE.map(Quota::name).join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// The value is too small.
    #[error("{quota} is {value}; at least {least} is needed")]
    Small {
        /// The quota.
        quota: Quota,
        /// Its value.
        value: u64,
        /// The least value.
        least: u64,
    },
}

impl FromStr for Quota {
    type Err = QuotaError;

    fn from_str(name: &str) -> Result<Quota, QuotaError> {
        let quota = Quota::SETTABLE
            .into_iter()
            .find(|quota| quota.name() == name);
        quota.ok_or_else(|| QuotaError::Unknown {
            name: name.to_owned(),
        })
    }
}

/// Quotas that are set; the others have their defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Quota, u64>")]
pub struct QuotaSettings(BTreeMap<Quota, u64>);

impl QuotaSettings {
    /// Sets a quota.
    ///
    /// # Errors
    /// [`QuotaError`] if it cannot be set, or the value is too small.
    pub fn set(&mut self, quota: Quota, value: u64) -> Result<(), QuotaError> {
        if quota.default_value().is_none() {
            return Err(QuotaError::Unknown {
                name: quota.name().to_owned(),
            });
        }
        let least = quota.least();
        if value < least {
            return Err(QuotaError::Small {
                quota,
                value,
                least,
            });
        }
        self.0.insert(quota, value);
        Ok(())
    }

    /// Whether none is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The quotas that are set, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Quota, u64)> {
        self.0.iter().map(|(quota, value)| (*quota, *value))
    }
}

impl TryFrom<BTreeMap<Quota, u64>> for QuotaSettings {
    type Error = QuotaError;

    fn try_from(values: BTreeMap<Quota, u64>) -> Result<QuotaSettings, QuotaError> {
        let mut settings = QuotaSettings::default();
        values
            .into_iter()
            .try_for_each(|(quota, value)| settings.set(quota, value))?;
        Ok(settings)
    }
}

/// The values of all quotas of one identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quotas([u64; Quota::SETTABLE.len()]);

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas(Quota::SETTABLE.map(|quota| quota.default_value().unwrap_or(u64::MAX)))
    }
}

impl Quotas {
    /// These quotas, except for those in `settings`.
    pub fn with(mut self, settings: &QuotaSettings) -> Quotas {
        for (quota, value) in settings.iter() {
            self.0[quota as usize] = value;
        }
        self
    }

    /// The value of a quota; no limit for one that cannot be set.
    pub fn of(&self, quota: Quota) -> u64 {
        self.0.get(quota as usize).copied().unwrap_or(u64::MAX)
    }

    pub fn size_of(&self, quota: Quota) -> usize {
        usize::try_from(self.of(quota)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quota_that_can_be_set_has_a_default_and_a_name_of_its_own() {
        assert_eq!(Quota::ALL[..Quota::SETTABLE.len()], Quota::SETTABLE);
        for (index, quota) in Quota::ALL.into_iter().enumerate() {
            assert_eq!(quota as usize, index);
            let is_settable = Quota::SETTABLE.contains(&quota);
            assert_eq!(quota.default_value().is_some(), is_settable, "{quota}");
            assert_eq!(
                quota.name().parse().is_ok_and(|named| quota == named),
                is_settable
            );
            let json = format!("\"{quota}\"");
            assert_eq!(serde_json::to_string(&quota).unwrap(), json);
        }
    }

    #[test]
    fn settings_are_checked_when_they_are_made_and_when_they_are_read() {
        let mut settings = QuotaSettings::default();
        settings.set(Quota::Sessions, 5).unwrap();
        let error = settings
            .set(Quota::DecodedBytes, 7)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "decoded_bytes is 7; at least 4194304 is needed");
        assert!(settings.set(Quota::EventStreams, 7).is_err());
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(text, r#"{"sessions":5}"#);
        assert_eq!(
            serde_json::from_str::<QuotaSettings>(&text).unwrap(),
            settings
        );
        for invalid in [r#"{"sessions":0}"#, r#"{"event_streams":7}"#, r#"{"x":7}"#] {
            assert!(
                serde_json::from_str::<QuotaSettings>(invalid).is_err(),
                "{invalid}"
            );
        }
        let quotas = Quotas::default().with(&settings);
        let values = [Quota::Sessions, Quota::Queries, Quota::EventStreams];
        assert_eq!(values.map(|quota| quotas.of(quota)), [5, 66, u64::MAX]);
    }
}
