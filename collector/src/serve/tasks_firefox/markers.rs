//! Kinds of markers, with the fields that the reader shows of each.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

const fn field(
    key: &'static str,
    label: &'static str,
    format: MarkerFieldFormat,
) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField { key, label, format, flags: MarkerFieldFlags::SEARCHABLE }
}

/// A task. Fields are numbered in the order of `FIELDS`, texts first.
pub(super) struct TaskMarker {
    pub(super) category: CategoryHandle,
    pub(super) name: StringHandle,
    pub(super) key: StringHandle,
    pub(super) outcome: StringHandle,
    pub(super) reason: StringHandle,
    pub(super) result_type: StringHandle,
    pub(super) id: u64,
    pub(super) result_bytes: u64,
}

impl StaticSchemaMarker for TaskMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "emberline-task";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.key}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.key}: {marker.data.outcome}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        field("key", "Key", MarkerFieldFormat::String),
        field("outcome", "Outcome", MarkerFieldFormat::String),
        field("reason", "Reason", MarkerFieldFormat::String),
        field("resultType", "Type of the result", MarkerFieldFormat::String),
        field("id", "Number", MarkerFieldFormat::Integer),
        field("resultBytes", "Size of the result", MarkerFieldFormat::Bytes),
    ];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field: u32) -> StringHandle {
        [self.key, self.outcome, self.reason, self.result_type][field as usize]
    }

    fn number_field_value(&self, field: u32) -> f64 {
        if field == 4 { self.id as f64 } else { self.result_bytes as f64 }
    }
}

/// A phase of a task.
pub(super) struct PhaseMarker {
    pub(super) category: CategoryHandle,
    pub(super) name: StringHandle,
    pub(super) key: StringHandle,
}

impl StaticSchemaMarker for PhaseMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "emberline-phase";
    const TABLE_LABEL: Option<&'static str> = Some("of {marker.data.key}");
    const FIELDS: &'static [StaticSchemaMarkerField] =
        &[field("key", "Key of the task", MarkerFieldFormat::String)];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _field: u32) -> StringHandle {
        self.key
    }

    fn number_field_value(&self, field: u32) -> f64 {
        unreachable!("field {field} is a text")
    }
}

/// A transfer between workers.
pub(super) struct TransferMarker {
    pub(super) category: CategoryHandle,
    pub(super) name: StringHandle,
    pub(super) peer: StringHandle,
    pub(super) moved_type: StringHandle,
    pub(super) outcome: StringHandle,
    pub(super) bytes: u64,
}

impl StaticSchemaMarker for TransferMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "emberline-transfer";
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.peer}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.data.peer}: {marker.data.bytes}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        field("peer", "Other end", MarkerFieldFormat::String),
        field("movedType", "Type", MarkerFieldFormat::String),
        field("outcome", "Outcome", MarkerFieldFormat::String),
        field("bytes", "Size", MarkerFieldFormat::Bytes),
    ];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field: u32) -> StringHandle {
        [self.peer, self.moved_type, self.outcome][field as usize]
    }

    fn number_field_value(&self, _field: u32) -> f64 {
        self.bytes as f64
    }
}
