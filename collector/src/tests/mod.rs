//! Tests of the collector as a whole, without any network.

mod collector;
mod recovery;
