//! Profiles for Pyroscope: `push.v1.PushRequest`, with a series for each worker's life.

use std::collections::BTreeMap;

use flamegraph::pushed_pprof;
use profiler_core::{NodeId, Weight};
use prost::Message as _;

use super::merge::{Merged, labels_of, profile_of, service_name};
use crate::forward::{FORWARDED_LABEL, Message};
use crate::limits::{
    FORWARD_LABELS_MAX, FORWARD_MESSAGE_BYTES, FORWARD_PROFILE_BYTES_MAX, FORWARD_SERIES_MAX,
};
use crate::state::CollectorState;

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
struct Request {
    message: PushRequest,
    /// Size of its profiles before compression.
    bytes: usize,
    amount: u64,
}

impl Request {
    fn is_full(&self) -> bool {
        self.bytes >= FORWARD_MESSAGE_BYTES || self.message.series.len() >= FORWARD_SERIES_MAX
    }

    /// Sends the message, if it has a series, and begins another one.
    fn finish(&mut self, sink: &mut impl FnMut(Message)) {
        let Request { message, amount, .. } = std::mem::take(self);
        if !message.series.is_empty() {
            sink(Message { bytes: message.encode_to_vec(), amount });
        }
    }
}

/// Encodes the sums as messages.
pub(super) fn encode(state: &CollectorState, merged: &[Merged], mut sink: impl FnMut(Message)) {
    let mut request = Request::default();
    for merged in merged {
        add(state, merged, &merged.weights, &mut request, &mut sink);
    }
    request.finish(&mut sink);
}

/// Adds a part of a sum, in two halves if it is too large for receivers.
fn add(
    state: &CollectorState,
    merged: &Merged,
    weights: &[(NodeId, Weight)],
    request: &mut Request,
    sink: &mut impl FnMut(Message),
) {
    let profile = profile_of(state, weights);
    let amount = profile.total().total_ns();
    if amount == 0 {
        return;
    }
    let pushed = pushed_pprof(&profile, merged.range);
    if pushed.bytes > FORWARD_PROFILE_BYTES_MAX && weights.len() > 1 {
        let (first, second) = weights.split_at(weights.len() / 2);
        add(state, merged, first, request, sink);
        add(state, merged, second, request, sink);
        return;
    }
    request.bytes += pushed.bytes;
    request.amount += amount;
    request.message.series.push(RawProfileSeries {
        labels: labels(merged),
        samples: vec![RawSample { raw_profile: pushed.gzip }],
    });
    if request.is_full() {
        request.finish(sink);
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
    labels.map(|(name, value)| LabelPair { name, value: value.to_owned() }).collect()
}

/// A key in the alphabet of Pyroscope, which takes dots too.
fn label_name(key: &str) -> String {
    let valid = |character: char| character.is_ascii_alphanumeric() || "_.".contains(character);
    let mut name: String =
        key.chars().map(|character| if valid(character) { character } else { '_' }).collect();
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
        for (key, name) in
            [("a.b", "a.b"), ("k8s/pod", "k8s_pod"), ("1a", "_1a"), ("größe", "gr__e")]
        {
            assert_eq!(label_name(key), name);
        }
    }
}
