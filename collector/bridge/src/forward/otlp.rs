//! Profiles for receivers of OTLP, with a resource for each worker's life.

use std::collections::BTreeMap;

use flamegraph::OtlpRequest;
use profiler_core::Profile;

use super::merge::{Merged, labels_of, service_name};
use super::messages::{self, Part};
use base::limits::{FORWARD_LABELS_MAX, FORWARD_MESSAGE_BYTES, FORWARD_SERIES_MAX};
use state::forward::FORWARDED_LABEL;

/// The instrumentation scope of the profiles.
const SCOPE: &str = "emberline";

/// A message under construction.
pub(super) struct Request(OtlpRequest);

impl Default for Request {
    fn default() -> Self {
        Request(OtlpRequest::new(SCOPE))
    }
}

impl messages::Request for Request {
    type Part = Profile;

    fn part(merged: &Merged, profile: Profile) -> Part<Profile> {
        // Tables are shared within a message, so only one of its own tells the size.
        let mut alone = OtlpRequest::new(SCOPE);
        alone.add(attributes(merged), &profile, merged.range);
        Part {
            bytes: alone.bytes(),
            profile,
        }
    }

    fn add(&mut self, merged: &Merged, part: Part<Profile>) {
        self.0.add(attributes(merged), &part.profile, merged.range);
    }

    fn is_full(&self) -> bool {
        self.0.bytes() >= FORWARD_MESSAGE_BYTES || self.0.resources() >= FORWARD_SERIES_MAX
    }

    fn encode(self) -> Option<Vec<u8>> {
        (self.0.resources() > 0).then(|| self.0.gzip())
    }
}

fn attributes(merged: &Merged) -> BTreeMap<String, String> {
    let life = &merged.life;
    let labels = labels_of(life, FORWARD_LABELS_MAX);
    let mut attributes: BTreeMap<String, String> = labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
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
