//! The messages of OTLP that carry spans, as protobuf and as OTLP's JSON: ids in hexadecimal, 64-bit
//! numbers as text. Names and numbers of fields are those of opentelemetry-proto 1.

use flamegraph::messages::otlp::{KeyValue, Resource, Scope, text};
use serde::{Serialize, Serializer};

/// `SpanKind`: the operation is inside one program.
pub(super) const KIND_INTERNAL: i32 = 1;

/// `StatusCode`: the operation failed.
pub(super) const STATUS_ERROR: i32 = 2;

/// The attribute of a task's span that those of phases do not have.
pub(super) const OUTCOME_ATTRIBUTE: &str = "emberline.task.outcome";

#[derive(Clone, PartialEq, Serialize, prost::Message)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

impl ExportTraceServiceRequest {
    /// The number of tasks, whose spans have an outcome.
    pub(crate) fn tasks(&self) -> u64 {
        let scopes = self
            .resource_spans
            .iter()
            .flat_map(|resource| &resource.scope_spans);
        let spans = scopes.flat_map(|scope| &scope.spans);
        spans
            .filter(|span: &&Span| {
                span.attributes
                    .iter()
                    .any(|attribute| attribute.key == OUTCOME_ATTRIBUTE)
            })
            .count() as u64
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

#[derive(Clone, PartialEq, Serialize, prost::Message)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Serialize, prost::Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Serialize, prost::Message)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(serialize_with = "hexadecimal")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(serialize_with = "hexadecimal")]
    pub(crate) span_id: Vec<u8>,
    /// Empty if it has no parent.
    #[prost(bytes = "vec", tag = "4")]
    #[serde(serialize_with = "hexadecimal", skip_serializing_if = "Vec::is_empty")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(serialize_with = "text")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(serialize_with = "text")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Status>,
}

#[derive(Clone, PartialEq, Serialize, prost::Message)]
pub(crate) struct Status {
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

fn hexadecimal<S: Serializer>(id: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    let text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    serializer.serialize_str(&text)
}
