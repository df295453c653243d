//! Symbol files of a collector.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use crate::Word;

/// Answer of `GET /api/v1/symbols`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SymbolsAnswer {
    /// By build id.
    pub files: Vec<SymbolFile>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Most bytes of all files.
    pub bytes_max: u64,
    /// Builds whose symbols are requested from agents, and those for which that failed.
    pub fetches: Vec<SymbolFetch>,
}

/// A build whose symbols are requested from an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SymbolFetch {
    /// The build id, in hexadecimal.
    pub build_id: String,
    /// `waiting`, `running` or `failed`. A complete one is among the files.
    pub state: Word,
    /// The worker that sends; empty if it does not run.
    pub worker: String,
    /// Bytes that the worker has sent.
    pub received: u64,
    /// Bytes that it has to send; 0 if that is not known yet.
    pub bytes: u64,
    /// Why it failed; empty if it did not.
    pub problem: String,
}

/// A symbol file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SymbolFile {
    /// The build id of its module, in hexadecimal.
    pub build_id: String,
    /// Its size.
    pub bytes: u64,
    /// When it was last used, to the day.
    pub used_at: String,
    /// The same in nanoseconds since the Unix epoch.
    pub used_at_ns: i64,
    /// `dynamic symbols`, `symbols`, `lines without inlined functions` or `lines`; empty if it cannot be used.
    pub detail: Word,
    /// Size of the file that it was made from.
    pub source_bytes: u64,
    /// Number of ranges of addresses.
    pub ranges: u32,
    /// Why it cannot be used; empty if it can.
    pub problem: String,
}

/// Answer of `GET /api/v1/symbols/verify`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SymbolsVerifyAnswer {
    /// Number of files that were read.
    pub files: usize,
    /// Problems found.
    pub problems: Vec<SymbolProblem>,
}

/// A symbol file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SymbolProblem {
    /// The build id of its module, in hexadecimal.
    pub build_id: String,
    /// The problem found.
    pub problem: String,
}

/// Answer of `POST /api/v1/symbols`, for each piece.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SymbolUploadAnswer {
    /// Bytes that the collector has: the next piece starts here.
    pub received: u64,
    /// Whether the file is complete and counts.
    pub stored: bool,
    /// Whether the collector had the same file before.
    pub known: bool,
}

/// Body of `POST /api/v1/symbols/fetch`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(deny_unknown_fields)]
pub struct SymbolsFetchRequest {
    /// The build id, in hexadecimal.
    pub build_id: String,
}

/// Answer of `POST /api/v1/symbols/fetch`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SymbolsFetchAnswer {
    /// Connected workers that have functions of this build in their stacks.
    pub agents: usize,
}

/// Body of `POST /api/v1/symbols/gc`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(deny_unknown_fields)]
pub struct SymbolsGcRequest {
    /// Files that were not used for so long are removed.
    pub unused_seconds: u64,
}

/// Answer of `POST /api/v1/symbols/gc`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SymbolsGcAnswer {
    /// Removed files.
    pub removed: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
}
