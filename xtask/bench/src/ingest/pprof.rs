//! The peer on the wire: the same second as a gzipped pprof profile, which is self-contained, as its
//! agents upload it. The messages follow `profile.proto` of the pprof project.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};

use anyhow::Result;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// One pair with its stack: functions (name, file, line) from the innermost, a state, nanoseconds.
pub(crate) struct Pair<'a> {
    pub(crate) stack: Vec<(&'a str, &'a str, u32)>,
    /// A label of the sample, unless there is none.
    pub(crate) state: Option<&'a str>,
    pub(crate) weight_ns: u64,
}

/// Bytes of the pairs of one second as a pprof profile, gzipped as its writers do.
pub(super) fn bytes(pairs: &[Pair<'_>]) -> Result<usize> {
    Ok(gzipped("wall", pairs)?.len())
}

/// The pairs as nanoseconds of a kind.
pub(crate) fn gzipped(kind: &str, pairs: &[Pair<'_>]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&profile(kind, pairs).encode_to_vec())?;
    Ok(gzip.finish()?)
}

/// The samples of such a profile, inflated and decoded.
pub(crate) fn sample_count(bytes: &[u8]) -> Result<usize> {
    let mut message = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut message)?;
    Ok(Profile::decode(&message[..])?.sample.len())
}

fn profile(kind: &str, pairs: &[Pair<'_>]) -> Profile {
    let mut profile = Profile::default();
    let mut strings: HashMap<String, i64> = HashMap::new();
    let mut string = |text: &str| {
        let next = strings.len() as i64;
        *strings.entry(text.to_owned()).or_insert(next)
    };
    string("");
    let kind = string(kind);
    let unit = string("nanoseconds");
    let state_key = string("state");
    profile.sample_type.push(ValueType { kind, unit });
    let mut locations: HashMap<(&str, &str, u32), u64> = HashMap::new();
    for pair in pairs {
        let mut sample = Sample {
            value: vec![pair.weight_ns as i64],
            label: pair
                .state
                .map(|state| Label {
                    key: state_key,
                    text: string(state),
                })
                .into_iter()
                .collect(),
            ..Sample::default()
        };
        for frame in &pair.stack {
            let next = locations.len() as u64 + 1;
            let id = *locations.entry(*frame).or_insert(next);
            if id == next {
                let name = string(frame.0);
                let filename = string(frame.1);
                profile.function.push(Function { id, name, filename });
                let line = vec![Line {
                    function_id: id,
                    line: frame.2.into(),
                }];
                profile.location.push(Location { id, line });
            }
            sample.location_id.push(id);
        }
        profile.sample.push(sample);
    }
    profile.string_table = vec![String::new(); strings.len()];
    for (text, index) in strings {
        profile.string_table[index as usize] = text;
    }
    profile.time_nanos = 1_769_860_800_000_000_000;
    profile.duration_nanos = 1_000_000_000;
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_each_function_once_and_each_pair() {
        let pair = |leaf, state| Pair {
            stack: vec![(leaf, "a.rs", 3), ("main", "a.rs", 1)],
            state: Some(state),
            weight_ns: 7,
        };
        let profile = profile(
            "wall",
            &[pair("f", "cpu"), pair("g", "cpu"), pair("f", "disk")],
        );
        assert_eq!((profile.function.len(), profile.location.len()), (3, 3));
        let ids: Vec<_> = profile
            .sample
            .iter()
            .map(|sample| &sample.location_id[..])
            .collect();
        assert_eq!(ids, [[1, 2], [3, 2], [1, 2]]);
        assert_eq!(profile.string_table[0], "");
        assert_eq!(profile.string_table[profile.function[0].name as usize], "f");
    }
}
