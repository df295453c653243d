//! Refusals for lack of room say when to come back.

use std::time::Duration;

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use base::limits::RETRY_AFTER;
use shares::TooFast;

/// The standard trailer of gRPC for this.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// A refusal of a stream, which its agent tries again after [`RETRY_AFTER`].
pub(crate) fn resource_exhausted(text: impl Into<String>) -> Status {
    exhausted_for(RETRY_AFTER, text)
}

/// A refusal of a stream whose identity sends more than its quota.
pub(crate) fn too_fast(TooFast { retry_after }: TooFast) -> Status {
    let text = format!(
        "the quota bytes_per_second of this agent's token or address is used up for {} s",
        retry_after.as_secs()
    );
    exhausted_for(retry_after, text)
}

fn exhausted_for(delay: Duration, text: impl Into<String>) -> Status {
    let mut metadata = MetadataMap::new();
    let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    metadata.insert(PUSHBACK, MetadataValue::from(delay_ms));
    Status::with_metadata(Code::ResourceExhausted, text, metadata)
}
