//! Telemetry of a flush in the log, and runs that were marked through the API.

use std::sync::Arc;

use profiler_core::wire::{decode_telemetry, encode_telemetry, v1};
use profiler_core::{Epoch, RunId, RunMarker, Telemetry, Timestamp, WorkerId};

use super::record::{RecordError, Strings};
use crate::rows::RunRow;

/// Telemetry of a flush, by the collector's clock.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LoggedTelemetry {
    /// As on the wire, with nothing but telemetry; strings by their index in `strings`.
    #[prost(message, optional, tag = "1")]
    pub flush: Option<v1::Flush>,
    #[prost(string, repeated, tag = "2")]
    pub strings: Vec<String>,
}

impl LoggedTelemetry {
    /// `None` if there is no telemetry.
    pub(super) fn of(telemetry: &Telemetry) -> Option<LoggedTelemetry> {
        if telemetry.is_empty() {
            return None;
        }
        let mut strings = Strings::default();
        let mut flush = v1::Flush::default();
        encode_telemetry(telemetry, &mut flush, &mut |text| strings.intern(text));
        Some(LoggedTelemetry {
            flush: Some(flush),
            strings: strings.strings,
        })
    }

    pub(super) fn into_telemetry(self) -> Result<Telemetry, RecordError> {
        let strings: Vec<Arc<str>> = self.strings.into_iter().map(Into::into).collect();
        let flush = self.flush.unwrap_or_default();
        Ok(decode_telemetry(&flush, &|index| {
            strings.get(index as usize).cloned()
        })?)
    }
}

/// A marked run; replaces an earlier record of the same run. Times are the collector's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LoggedRun {
    /// Empty for a run marked through the API.
    #[prost(string, tag = "1")]
    pub worker: String,
    #[prost(fixed64, tag = "2")]
    pub epoch: u64,
    #[prost(fixed64, tag = "3")]
    pub id: u64,
    #[prost(string, tag = "4")]
    pub name: String,
    #[prost(sint64, tag = "5")]
    pub start_ns: i64,
    /// `None` while the run is open.
    #[prost(sint64, optional, tag = "6")]
    pub stop_ns: Option<i64>,
}

impl LoggedRun {
    pub const KIND: u8 = 4;

    pub fn of(row: &RunRow) -> LoggedRun {
        LoggedRun {
            worker: row
                .worker
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            epoch: row.epoch.0,
            id: row.run.id.0,
            name: row.run.name.to_string(),
            start_ns: row.run.start.unix_ns(),
            stop_ns: row.run.stop.map(Timestamp::unix_ns),
        }
    }

    pub fn row(self) -> RunRow {
        let worker = (!self.worker.is_empty()).then(|| WorkerId(self.worker.into()));
        let run = RunMarker {
            id: RunId(self.id),
            name: self.name.into(),
            start: Timestamp::from_unix_ns(self.start_ns),
            stop: self.stop_ns.map(Timestamp::from_unix_ns),
        };
        RunRow::marked(worker, Epoch(self.epoch), run)
    }
}
