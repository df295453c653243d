//! A query that is about to be answered.

use profiler_core::Timestamp;
use state::{Collector, CollectorState};

use crate::{Cancel, Queries, QueryError};

/// A query as it came, and what it needs to be answered.
pub struct Asking<'a> {
    pub collector: &'a Collector,
    pub pairs: &'a [(String, String)],
    pub now: Timestamp,
    pub cancel: &'a Cancel,
}

/// Parses the parameters of a query. Names and relative times depend on the state and the time.
type Parser<Q> = fn(&[(String, String)], &CollectorState, Timestamp) -> Result<Q, QueryError>;

impl<'a> Asking<'a> {
    /// The first step of a query.
    pub fn parse<Q>(&self, parser: Parser<Q>) -> Result<Q, QueryError> {
        parser(self.pairs, &self.collector.state, self.now)
    }

    /// The other steps: each method takes a snapshot, plans, scans and answers.
    pub fn queries(&self) -> Queries<'a> {
        Queries(&self.collector.state)
    }
}
