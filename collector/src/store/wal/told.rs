//! What a flush told beside samples and tasks, and runs that were marked through the API, as they
//! stand in the log.

use std::sync::Arc;

use profiler_core::wire::{decode_telemetry, encode_telemetry, v1};
use profiler_core::{Epoch, RunId, RunMarker, Telemetry, Timestamp, WorkerId};
use rustc_hash::FxHashMap;

use super::record::RecordError;
use crate::rows::RunRow;

/// Records of a flush by the collector's clock.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Told {
    /// As on the wire, with nothing else than records; texts by their place here.
    #[prost(message, optional, tag = "1")]
    pub(crate) records: Option<v1::Flush>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) texts: Vec<String>,
}

impl Told {
    /// `None` if nothing was told.
    pub(super) fn of(records: &Telemetry) -> Option<Told> {
        if records.is_empty() {
            return None;
        }
        let mut texts: Vec<String> = Vec::new();
        let mut places: FxHashMap<String, u32> = FxHashMap::default();
        let mut flush = v1::Flush::default();
        encode_telemetry(records, &mut flush, &mut |text| {
            if let Some(place) = places.get(text) {
                return *place;
            }
            let place = u32::try_from(texts.len()).expect("the texts of a flush are limited");
            texts.push(text.to_owned());
            places.insert(text.to_owned(), place);
            place
        });
        Some(Told { records: Some(flush), texts })
    }

    pub(super) fn records(self) -> Result<Telemetry, RecordError> {
        let texts: Vec<Arc<str>> = self.texts.into_iter().map(Into::into).collect();
        let flush = self.records.unwrap_or_default();
        Ok(decode_telemetry(&flush, &|place| texts.get(place as usize).cloned())?)
    }
}

/// A run as it was marked, in place of what was logged of it before. Times are the collector's.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MarkedRun {
    /// Empty if it was marked through the API.
    #[prost(string, tag = "1")]
    pub(crate) worker: String,
    #[prost(fixed64, tag = "2")]
    pub(crate) epoch: u64,
    #[prost(fixed64, tag = "3")]
    pub(crate) id: u64,
    #[prost(string, tag = "4")]
    pub(crate) name: String,
    #[prost(sint64, tag = "5")]
    pub(crate) start_ns: i64,
    /// Nothing while it goes on.
    #[prost(sint64, optional, tag = "6")]
    pub(crate) stop_ns: Option<i64>,
}

impl MarkedRun {
    pub(crate) const KIND: u8 = 4;

    pub(crate) fn of(row: &RunRow) -> MarkedRun {
        MarkedRun {
            worker: row.worker.as_ref().map_or_else(String::new, ToString::to_string),
            epoch: row.epoch.0,
            id: row.run.id.0,
            name: row.run.name.to_string(),
            start_ns: row.run.start.unix_ns(),
            stop_ns: row.run.stop.map(Timestamp::unix_ns),
        }
    }

    pub(crate) fn row(self) -> RunRow {
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
