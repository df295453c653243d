//! The bodies of the collector's HTTP API: what the collector writes and its clients read.
//!
//! `docs/API.md` explains each answer. Names end in their unit; a time is a pair: RFC 3339 in UTC,
//! and nanoseconds since the Unix epoch (`…_ns`). Tests write the same types as TypeScript to
//! `collector/ui/src/core/api.ts`, and as schemas to `docs/openapi.json`.
//!
//! - [`ProfileAnswer`], [`TimelineAnswer`], [`ThreadTimeAnswer`]: where time went
//! - [`TasksAnswer`], [`TaskColumnsAnswer`], [`TaskSummaryAnswer`], [`TaskComparisonAnswer`],
//!   [`TaskDurationsAnswer`], [`ProgressAnswer`]: the ledger
//! - [`WorkersAnswer`], [`WorkerNamesAnswer`], [`SettingsChange`], [`SettingsAnswer`], [`ThreadDumpAnswer`]: workers and their agents
//! - [`TransfersAnswer`], [`TransferSummaryAnswer`], [`ResourcesAnswer`], [`RunsAnswer`], [`RunStart`], [`RunStop`]: telemetry
//! - [`EventsAnswer`], [`Update`]: events
//! - [`SessionAnswer`]: who is logged in
//! - [`SymbolsAnswer`], [`SymbolsVerifyAnswer`], [`SymbolUploadAnswer`], [`SymbolsGcAnswer`],
//!   [`SymbolsFetchAnswer`]: symbol files
//! - [`SqlRequest`], [`SqlAnswer`]: queries in SQL
//! - [`Failure`]: any answer that is no success
//! - [`time`]: the notation of times in requests
//! - [`shell_quoted`]: names in commands to copy

mod events;
mod profile;
#[cfg(test)]
mod schemas;
mod session;
mod shell;
mod sql;
mod symbols;
mod tasks;
mod telemetry;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
pub mod time;
#[cfg(test)]
mod typescript;
mod workers;

use std::borrow::Cow;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

pub use events::{CorruptFile, EventsAnswer, FleetEvent, Subject, Update, WorkerIdentity};
pub use profile::{
    Filter, Hidden, ProfileAnswer, Sampling, Series, ThreadTime, ThreadTimeAnswer, ThreadTimePart,
    TimelineAnswer, Totals, Unnamed, UnnamedModule,
};
pub use session::SessionAnswer;
pub use shell::shell_quoted;
pub use sql::{SqlAnswer, SqlCell, SqlColumn, SqlFormat, SqlRequest};
pub use symbols::{
    SymbolFetch, SymbolFile, SymbolProblem, SymbolUploadAnswer, SymbolsAnswer, SymbolsFetchAnswer,
    SymbolsFetchRequest, SymbolsGcAnswer, SymbolsGcRequest, SymbolsVerifyAnswer,
};
pub use tasks::{
    DurationChange, DurationPoint, Durations, FailureChange, NameComparison, Phase, PhaseSum,
    Progress, ProgressAnswer, SampledTask, Task, TaskColumnsAnswer, TaskComparisonAnswer,
    TaskDurationsAnswer, TaskName, TaskStatistics, TaskSummaryAnswer, TaskThread, TaskVectors,
    TasksAnswer,
};
pub use telemetry::{
    Bandwidth, Link, LinkSums, ResourceSeries, ResourcesAnswer, Run, RunName, RunStart, RunStop,
    RunsAnswer, Transfer, TransferSummaryAnswer, TransferType, TransfersAnswer,
};
pub use workers::{
    Clock, Disconnect, Epoch, Forward, IngestStatus, LabelCount, LossAccount, PushCounts, QuotaUse,
    Retained, Scrape, Service, SettingsAnswer, SettingsChange, StackFrame, Store, ThreadDumpAnswer,
    ThreadGroup, ThreadSnapshot, WorkerCounts, WorkerEpochs, WorkerName, WorkerNamesAnswer,
    WorkerSettings, WorkerThreads, WorkersAnswer,
};

/// One of a fixed set of words. A reader accepts others too, so that it can talk to a newer
/// collector.
pub type Word = Cow<'static, str>;

/// A half-open range of time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TimeRange {
    /// Its start.
    pub from: String,
    /// Its end, which is not part of it.
    pub to: String,
    /// Its start, since the Unix epoch.
    pub from_ns: i64,
    /// Its end, since the Unix epoch.
    pub to_ns: i64,
}

/// The body of every answer that is no success.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Failure {
    /// The problem, and what is allowed.
    pub error: String,
    /// Allowed values, if there is a list of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub allowed: Option<Vec<String>>,
    /// Known names that are most like an unknown one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub nearest: Option<Vec<String>>,
}
