//! Counts requests to buckets, for which their providers charge.

#[cfg(feature = "s3")]
mod connector;

use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "s3")]
pub(super) use self::connector::CountingConnector;

/// The requests of this process, to all buckets.
static COUNTS: Counts = Counts {
    requests: [const { AtomicU64::new(0) }; BucketOperation::ALL.len()],
    sent_bytes: AtomicU64::new(0),
    received_bytes: AtomicU64::new(0),
};

#[derive(Debug)]
struct Counts {
    requests: [AtomicU64; BucketOperation::ALL.len()],
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

/// A kind of request with a price of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BucketOperation {
    /// Reads an object, or its size.
    Get,
    /// Writes an object.
    Put,
    /// Lists objects, a page at a time.
    List,
    /// Deletes objects, up to a thousand at a time.
    Delete,
}

impl BucketOperation {
    pub(crate) const ALL: [BucketOperation; 4] = [
        BucketOperation::Get,
        BucketOperation::Put,
        BucketOperation::List,
        BucketOperation::Delete,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            BucketOperation::Get => "get",
            BucketOperation::Put => "put",
            BucketOperation::List => "list",
            BucketOperation::Delete => "delete",
        }
    }
}

/// What this process has asked of buckets since its start. Each try counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct BucketTraffic {
    requests: [u64; BucketOperation::ALL.len()],
    /// Bytes of the bodies of requests.
    pub(crate) sent_bytes: u64,
    /// Bytes of the bodies of answers.
    pub(crate) received_bytes: u64,
}

impl BucketTraffic {
    pub(crate) fn now() -> BucketTraffic {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        BucketTraffic {
            requests: COUNTS.requests.each_ref().map(load),
            sent_bytes: load(&COUNTS.sent_bytes),
            received_bytes: load(&COUNTS.received_bytes),
        }
    }

    pub(crate) fn requests(&self, operation: BucketOperation) -> u64 {
        self.requests[operation as usize]
    }
}
