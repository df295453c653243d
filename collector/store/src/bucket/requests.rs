//! Counts requests to buckets, for which their providers charge.

use std::sync::atomic::{AtomicU64, Ordering};

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
pub enum BucketOperation {
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
    pub const ALL: [BucketOperation; 4] = [
        BucketOperation::Get,
        BucketOperation::Put,
        BucketOperation::List,
        BucketOperation::Delete,
    ];

    pub fn name(self) -> &'static str {
        match self {
            BucketOperation::Get => "get",
            BucketOperation::Put => "put",
            BucketOperation::List => "list",
            BucketOperation::Delete => "delete",
        }
    }

    fn of(method: &str, query: &str) -> BucketOperation {
        let has = |name: &str| {
            query
                .split('&')
                .any(|part| part.split('=').next().unwrap_or_default() == name)
        };
        match method {
            "GET" | "HEAD" if has("list-type") => BucketOperation::List,
            "GET" | "HEAD" => BucketOperation::Get,
            "DELETE" => BucketOperation::Delete,
            "POST" if has("delete") => BucketOperation::Delete,
            _ => BucketOperation::Put,
        }
    }
}

/// Requests of this process to buckets since its start. Each try counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BucketTraffic {
    requests: [u64; BucketOperation::ALL.len()],
    /// Bytes of the bodies of requests.
    pub sent_bytes: u64,
    /// Bytes of the bodies of answers.
    pub received_bytes: u64,
}

impl BucketTraffic {
    pub fn now() -> BucketTraffic {
        BucketTraffic {
            requests: COUNTS.requests.each_ref().map(load),
            sent_bytes: load(&COUNTS.sent_bytes),
            received_bytes: load(&COUNTS.received_bytes),
        }
    }

    pub fn requests(&self, operation: BucketOperation) -> u64 {
        self.requests[operation as usize]
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Counts a request by its method, its query and the bytes of its body.
pub(super) fn count_request(method: &str, query: &str, sent_bytes: u64) {
    let operation = BucketOperation::of(method, query);
    COUNTS.requests[operation as usize].fetch_add(1, Ordering::Relaxed);
    COUNTS.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
}

/// Counts the bytes of an answer's body.
pub(super) fn count_answer(received_bytes: u64) {
    COUNTS
        .received_bytes
        .fetch_add(received_bytes, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_method_and_query() {
        for (method, query, expected) in [
            ("GET", "", BucketOperation::Get),
            ("HEAD", "", BucketOperation::Get),
            ("GET", "list-type=2&prefix=c1%2F", BucketOperation::List),
            ("GET", "prefix=list-type&list-type=2", BucketOperation::List),
            ("GET", "prefix=list-type", BucketOperation::Get),
            ("PUT", "", BucketOperation::Put),
            ("POST", "delete", BucketOperation::Delete),
            ("POST", "uploads", BucketOperation::Put),
            ("DELETE", "", BucketOperation::Delete),
        ] {
            assert_eq!(
                BucketOperation::of(method, query),
                expected,
                "{method} {query}"
            );
        }
    }
}
