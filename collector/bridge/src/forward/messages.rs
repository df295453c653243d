//! Sums as messages of a protocol, each of a bounded size.

use profiler_core::{NodeId, Profile, Weight};

use super::merge::{Merged, profile_of};
use base::limits::FORWARD_PROFILE_BYTES_MAX;
use state::CollectorState;
use state::forward::Message;

/// A message of a protocol under construction.
pub(super) trait Request: Default {
    /// A profile as it is added to a message.
    type Part;

    /// The profile of a sum.
    fn part(merged: &Merged, profile: Profile) -> Part<Self::Part>;

    fn add(&mut self, merged: &Merged, part: Part<Self::Part>);

    fn is_full(&self) -> bool;

    /// The encoded message; `None` if nothing was added.
    fn encode(self) -> Option<Vec<u8>>;
}

/// A profile, and its size as a message of its own, before compression.
pub(super) struct Part<P> {
    pub(super) profile: P,
    pub(super) bytes: usize,
}

struct Encoder<'a, R, S> {
    state: &'a CollectorState,
    request: R,
    /// Time in the request.
    amount: u64,
    sink: S,
}

/// Encodes the sums as messages.
pub(super) fn encode<R: Request>(
    state: &CollectorState,
    merged: &[Merged],
    sink: impl FnMut(Message),
) {
    let mut encoder = Encoder {
        state,
        request: R::default(),
        amount: 0,
        sink,
    };
    for merged in merged {
        encoder.add(merged, &merged.weights);
    }
    encoder.finish();
}

impl<R: Request, S: FnMut(Message)> Encoder<'_, R, S> {
    /// Adds a part of a sum, in two halves if it is too large for receivers.
    fn add(&mut self, merged: &Merged, weights: &[(NodeId, Weight)]) {
        let profile = profile_of(self.state, weights);
        let amount = profile.total().total_ns();
        if amount == 0 {
            return;
        }
        let part = R::part(merged, profile);
        if part.bytes > FORWARD_PROFILE_BYTES_MAX && weights.len() > 1 {
            let (first, second) = weights.split_at(weights.len() / 2);
            self.add(merged, first);
            self.add(merged, second);
            return;
        }
        self.request.add(merged, part);
        self.amount += amount;
        if self.request.is_full() {
            self.finish();
        }
    }

    /// Sends the message, if it has a profile, and begins another one.
    fn finish(&mut self) {
        let amount = std::mem::take(&mut self.amount);
        if let Some(bytes) = std::mem::take(&mut self.request).encode() {
            (self.sink)(Message { bytes, amount });
        }
    }
}
