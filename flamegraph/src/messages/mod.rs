//! The messages of pprof and OTLP, which the exports write and `emberline-import` reads.

#![allow(
    missing_docs,
    reason = "tags and names are those of the formats' definitions"
)]

pub mod json;
pub mod otlp;
pub mod pprof;
