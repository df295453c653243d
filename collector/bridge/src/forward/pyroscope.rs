//! Profiles for Pyroscope: `push.v1.PushRequest`, with a series for each worker's life.

use std::collections::BTreeMap;

use flamegraph::pushed_pprof;
use profiler_core::Profile;
use prost::Message as _;

use super::merge::{Merged, labels_of, service_name};
use super::messages::{self, Part};
use base::limits::{FORWARD_LABELS_MAX, FORWARD_MESSAGE_BYTES, FORWARD_SERIES_MAX};
use state::forward::FORWARDED_LABEL;

/// The kind of the profiles, after which Pyroscope names their types `process_cpu:cpu:nanoseconds:…` and
/// `process_cpu:wall:nanoseconds:…`.
const KIND: &str = "process_cpu";

#[derive(Clone, PartialEq, prost::Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<RawProfileSeries>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawSample {
    /// pprof in gzip.
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

/// A message under construction.
#[derive(Default)]
pub(super) struct Request {
    message: PushRequest,
    /// Size of its profiles before compression.
    bytes: usize,
}

impl messages::Request for Request {
    /// pprof in gzip.
    type Part = Vec<u8>;

    fn part(merged: &Merged, profile: Profile) -> Part<Vec<u8>> {
        let pushed = pushed_pprof(&profile, merged.range);
        Part {
            bytes: pushed.bytes,
            profile: pushed.gzip,
        }
    }

    fn add(&mut self, merged: &Merged, part: Part<Vec<u8>>) {
        self.bytes += part.bytes;
        self.message.series.push(RawProfileSeries {
            labels: labels(merged),
            samples: vec![RawSample {
                raw_profile: part.profile,
            }],
        });
    }

    fn is_full(&self) -> bool {
        self.bytes >= FORWARD_MESSAGE_BYTES || self.message.series.len() >= FORWARD_SERIES_MAX
    }

    fn encode(self) -> Option<Vec<u8>> {
        (!self.message.series.is_empty()).then(|| self.message.encode_to_vec())
    }
}

fn labels(merged: &Merged) -> Vec<LabelPair> {
    let life = &merged.life;
    let mut labels: BTreeMap<String, &str> = BTreeMap::new();
    for (key, value) in labels_of(life, FORWARD_LABELS_MAX) {
        labels.insert(label_name(key), value);
    }
    let ours = [
        ("__name__", KIND),
        ("service_name", service_name(life)),
        ("worker", &life.worker.0),
        ("host", &life.host),
        (FORWARDED_LABEL, "true"),
    ];
    for (name, value) in ours {
        labels.insert(name.to_owned(), value);
    }
    let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
    labels
        .map(|(name, value)| LabelPair {
            name,
            value: value.to_owned(),
        })
        .collect()
}

/// A key in the alphabet of Pyroscope, which takes dots too.
fn label_name(key: &str) -> String {
    let valid = |character: char| character.is_ascii_alphanumeric() || "_.".contains(character);
    let mut name: String = key
        .chars()
        .map(|character| if valid(character) { character } else { '_' })
        .collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labels_are_valid_in_pyroscope() {
        for (key, name) in [
            ("a.b", "a.b"),
            ("k8s/pod", "k8s_pod"),
            ("1a", "_1a"),
            ("größe", "gr__e"),
        ] {
            assert_eq!(label_name(key), name);
        }
    }
}
