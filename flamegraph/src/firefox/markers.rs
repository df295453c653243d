//! Kinds of markers, with the fields that the reader shows of each.

#![allow(missing_docs, reason = "names are those of the fields")]

use serde::Serialize;

/// Texts are numbers of the thread's strings.
#[derive(Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Marker {
    #[serde(rename = "emberline-task")]
    Task {
        key: u32,
        outcome: u32,
        reason: u32,
        result_type: u32,
        id: u64,
        result_bytes: u64,
    },
    /// Of the task with this key.
    #[serde(rename = "emberline-phase")]
    Phase { key: u32 },
    /// Between workers.
    #[serde(rename = "emberline-transfer")]
    Transfer {
        peer: u32,
        moved_type: u32,
        outcome: u32,
        bytes: u64,
    },
}

impl Marker {
    pub(super) fn category(&self) -> u32 {
        match self {
            Marker::Task { .. } => 1,
            Marker::Phase { .. } => 2,
            Marker::Transfer { .. } => 3,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MarkerSchema {
    name: &'static str,
    display: [&'static str; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    chart_label: Option<&'static str>,
    table_label: &'static str,
    fields: &'static [Field],
}

#[derive(Serialize)]
struct Field {
    key: &'static str,
    label: &'static str,
    format: &'static str,
    searchable: bool,
}

const DISPLAY: [&str; 2] = ["marker-chart", "marker-table"];

pub(super) static SCHEMAS: [MarkerSchema; 3] = [
    MarkerSchema {
        name: "emberline-phase",
        display: DISPLAY,
        chart_label: None,
        table_label: "of {marker.data.key}",
        fields: &[field("key", "Key of the task", TEXT)],
    },
    MarkerSchema {
        name: "emberline-task",
        display: DISPLAY,
        chart_label: Some("{marker.data.key}"),
        table_label: "{marker.data.key}: {marker.data.outcome}",
        fields: &[
            field("key", "Key", TEXT),
            field("outcome", "Outcome", TEXT),
            field("reason", "Reason", TEXT),
            field("resultType", "Type of the result", TEXT),
            field("id", "Number", "integer"),
            field("resultBytes", "Size of the result", "bytes"),
        ],
    },
    MarkerSchema {
        name: "emberline-transfer",
        display: DISPLAY,
        chart_label: Some("{marker.data.peer}"),
        table_label: "{marker.data.peer}: {marker.data.bytes}",
        fields: &[
            field("peer", "Other end", TEXT),
            field("movedType", "Type", TEXT),
            field("outcome", "Outcome", TEXT),
            field("bytes", "Size", "bytes"),
        ],
    },
];

/// The number of a text in the thread's strings.
const TEXT: &str = "unique-string";

const fn field(key: &'static str, label: &'static str, format: &'static str) -> Field {
    Field {
        key,
        label,
        format,
        searchable: true,
    }
}
