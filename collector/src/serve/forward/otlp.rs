//! Profiles for receivers of OTLP, with a resource for each worker's life.

use std::collections::BTreeMap;

use flamegraph::OtlpRequest;
use profiler_core::{NodeId, Weight};

use super::merge::{Merged, labels_of, profile_of, service_name};
use crate::forward::{FORWARDED_LABEL, Message};
use crate::limits::{
    FORWARD_LABELS_MAX, FORWARD_MESSAGE_BYTES, FORWARD_PROFILE_BYTES_MAX, FORWARD_SERIES_MAX,
};
use crate::state::CollectorState;

/// The instrumentation scope of the profiles.
const SCOPE: &str = "emberline";

/// A message under construction.
struct Request {
    message: OtlpRequest,
    amount: u64,
}

impl Request {
    fn new() -> Request {
        Request { message: OtlpRequest::new(SCOPE), amount: 0 }
    }

    fn is_full(&self) -> bool {
        self.message.bytes() >= FORWARD_MESSAGE_BYTES
            || self.message.resources() >= FORWARD_SERIES_MAX
    }

    /// Sends the message, if it has a resource, and begins another one.
    fn finish(&mut self, sink: &mut impl FnMut(Message)) {
        let Request { message, amount } = std::mem::replace(self, Request::new());
        if message.resources() > 0 {
            sink(Message { bytes: message.gzip(), amount });
        }
    }
}

/// Encodes the sums as messages.
pub(super) fn encode(state: &CollectorState, merged: &[Merged], mut sink: impl FnMut(Message)) {
    let mut request = Request::new();
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
    let mut alone = Request::new();
    alone.message.add(attributes(merged), &profile, merged.range);
    if alone.message.bytes() > FORWARD_PROFILE_BYTES_MAX && weights.len() > 1 {
        let (first, second) = weights.split_at(weights.len() / 2);
        add(state, merged, first, request, sink);
        add(state, merged, second, request, sink);
        return;
    }
    request.message.add(attributes(merged), &profile, merged.range);
    request.amount += amount;
    if request.is_full() {
        request.finish(sink);
    }
}

fn attributes(merged: &Merged) -> BTreeMap<String, String> {
    let life = &merged.life;
    let labels = labels_of(life, FORWARD_LABELS_MAX);
    let mut attributes: BTreeMap<String, String> =
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let ours = [
        ("service.name", service_name(life)),
        ("service.instance.id", &life.worker.0),
        ("host.name", &life.host),
        (FORWARDED_LABEL, "true"),
    ];
    for (key, value) in ours.into_iter().filter(|(_, value)| !value.is_empty()) {
        attributes.insert(key.to_owned(), value.to_owned());
    }
    attributes
}
