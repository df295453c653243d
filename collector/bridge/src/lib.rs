//! Protocols of other systems at Emberline's collector: pushes of Pyroscope clients and OTLP senders, scrapes of pprof
//! endpoints ([`push`]), queries of Grafana's data source ([`grafana`]), and forwarding to their servers ([`forward`]).
//!
//! The collector mounts the routes and admits their requests. `docs/INTEGRATIONS.md` says how to set them up.

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

pub mod forward;
pub mod grafana;
pub mod push;
