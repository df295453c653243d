//! Messages of `querier.v1.QuerierService`, in Protobuf and JSON. Fields that nothing here reads are left
//! out.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One kind of profile.
#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProfileType {
    #[prost(string, tag = "1")]
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) sample_type: String,
    #[prost(string, tag = "5")]
    pub(super) sample_unit: String,
    #[prost(string, tag = "6")]
    pub(super) period_type: String,
    #[prost(string, tag = "7")]
    pub(super) period_unit: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub(super) struct ProfileTypesRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProfileTypesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) profile_types: Vec<ProfileType>,
}

/// The range of names is not narrowed by its times.
#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub(super) struct LabelNamesRequest {
    #[prost(string, repeated, tag = "1")]
    pub(super) matchers: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub(super) struct LabelValuesRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) matchers: Vec<String>,
}

/// The answer of both.
#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
pub(super) struct NamesResponse {
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StackTraceSelector {
    #[prost(message, repeated, tag = "1")]
    pub(super) call_site: Vec<Location>,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub(super) struct Location {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectMergeStacktracesRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID")]
    pub(super) profile_type_id: String,
    #[prost(string, tag = "2")]
    pub(super) label_selector: String,
    /// Milliseconds since the Unix epoch.
    #[prost(int64, tag = "3")]
    #[serde(deserialize_with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "4")]
    #[serde(deserialize_with = "int64")]
    pub(super) end: i64,
    #[prost(int64, optional, tag = "5")]
    #[serde(deserialize_with = "optional_int64")]
    pub(super) max_nodes: Option<i64>,
    #[prost(int32, tag = "6")]
    #[serde(deserialize_with = "profile_format")]
    pub(super) format: i32,
    #[prost(message, optional, tag = "7")]
    pub(super) stack_trace_selector: Option<StackTraceSelector>,
    #[prost(string, repeated, tag = "8")]
    pub(super) profile_id_selector: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectMergeSpanProfileRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID")]
    pub(super) profile_type_id: String,
    #[prost(string, tag = "2")]
    pub(super) label_selector: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) span_selector: Vec<String>,
    #[prost(int64, tag = "4")]
    #[serde(deserialize_with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "5")]
    #[serde(deserialize_with = "int64")]
    pub(super) end: i64,
    #[prost(int64, optional, tag = "6")]
    #[serde(deserialize_with = "optional_int64")]
    pub(super) max_nodes: Option<i64>,
    #[prost(int32, tag = "7")]
    #[serde(deserialize_with = "profile_format")]
    pub(super) format: i32,
}

/// Bars of one depth.
#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
pub(super) struct Level {
    #[prost(int64, repeated, tag = "1")]
    #[serde(serialize_with = "texts")]
    pub(super) values: Vec<i64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlameGraph {
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(super) levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    #[serde(serialize_with = "text")]
    pub(super) total: i64,
    #[prost(int64, tag = "4")]
    #[serde(serialize_with = "text")]
    pub(super) max_self: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
pub(super) struct FlameGraphResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) flamegraph: Option<FlameGraph>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SelectSeriesRequest {
    #[prost(string, tag = "1")]
    #[serde(rename = "profileTypeID")]
    pub(super) profile_type_id: String,
    #[prost(string, tag = "2")]
    pub(super) label_selector: String,
    #[prost(int64, tag = "3")]
    #[serde(deserialize_with = "int64")]
    pub(super) start: i64,
    #[prost(int64, tag = "4")]
    #[serde(deserialize_with = "int64")]
    pub(super) end: i64,
    #[prost(string, repeated, tag = "5")]
    pub(super) group_by: Vec<String>,
    /// Seconds.
    #[prost(double, tag = "6")]
    pub(super) step: f64,
    #[prost(int32, optional, tag = "7")]
    #[serde(deserialize_with = "aggregation")]
    pub(super) aggregation: Option<i32>,
    #[prost(message, optional, tag = "8")]
    pub(super) stack_trace_selector: Option<StackTraceSelector>,
    #[prost(int64, optional, tag = "9")]
    #[serde(deserialize_with = "optional_int64")]
    pub(super) limit: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct Point {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
    /// Milliseconds since the Unix epoch.
    #[prost(int64, tag = "2")]
    #[serde(serialize_with = "text")]
    pub(super) timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct Series {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    pub(super) points: Vec<Point>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(super) struct SelectSeriesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<Series>,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Deserialize)]
#[serde(default)]
pub(super) struct DiffRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) left: Option<SelectMergeStacktracesRequest>,
    #[prost(message, optional, tag = "2")]
    pub(super) right: Option<SelectMergeStacktracesRequest>,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FlameGraphDiff {
    #[prost(string, repeated, tag = "1")]
    pub(super) names: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(super) levels: Vec<Level>,
    #[prost(int64, tag = "3")]
    #[serde(serialize_with = "text")]
    pub(super) total: i64,
    #[prost(int64, tag = "4")]
    #[serde(serialize_with = "text")]
    pub(super) max_self: i64,
    #[prost(int64, tag = "5")]
    #[serde(serialize_with = "text")]
    pub(super) left_ticks: i64,
    #[prost(int64, tag = "6")]
    #[serde(serialize_with = "text")]
    pub(super) right_ticks: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message, Serialize)]
pub(super) struct DiffResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) flamegraph: Option<FlameGraphDiff>,
}

/// A number of 64 bits or a name; in JSON numbers of 64 bits are texts.
#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(i64),
    Text(String),
}

impl NumberOrText {
    fn number<E: serde::de::Error>(self) -> Result<i64, E> {
        match self {
            NumberOrText::Number(number) => Ok(number),
            NumberOrText::Text(text) => text
                .parse()
                .map_err(|_| E::custom(format!("{text:?} is not an integer"))),
        }
    }

    /// The number of a name; names are numbered from 0.
    fn one_of<E: serde::de::Error>(self, names: &[&str]) -> Result<i32, E> {
        let number = match &self {
            NumberOrText::Number(number) => i32::try_from(*number).ok(),
            NumberOrText::Text(text) => names
                .iter()
                .position(|name| name == text)
                .and_then(|at| i32::try_from(at).ok()),
        };
        number.ok_or_else(|| E::custom(format!("allowed: {}", names.join(", "))))
    }
}

fn int64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    NumberOrText::deserialize(deserializer)?.number()
}

fn optional_int64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Option::<NumberOrText>::deserialize(deserializer)?
        .map(NumberOrText::number)
        .transpose()
}

fn profile_format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    const NAMES: [&str; 3] = [
        "PROFILE_FORMAT_UNSPECIFIED",
        "PROFILE_FORMAT_FLAMEGRAPH",
        "PROFILE_FORMAT_TREE",
    ];
    NumberOrText::deserialize(deserializer)?.one_of(&NAMES)
}

fn aggregation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i32>, D::Error> {
    const NAMES: [&str; 2] = [
        "TIME_SERIES_AGGREGATION_TYPE_SUM",
        "TIME_SERIES_AGGREGATION_TYPE_AVERAGE",
    ];
    let given = Option::<NumberOrText>::deserialize(deserializer)?;
    given.map(|given| given.one_of(&NAMES)).transpose()
}

fn text<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn texts<S: Serializer>(numbers: &[i64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(numbers.iter().map(ToString::to_string))
}
