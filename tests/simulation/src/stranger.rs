//! Messages of a stranger's agent, for attacks on a collector.

use profiler_core::wire::PROTOCOL;
use profiler_core::wire::v1::Hello;

/// The first message of a worker. Its epoch is one without a key.
#[must_use]
pub fn hello(worker: String) -> Hello {
    Hello {
        protocol: PROTOCOL,
        worker,
        epoch: 7,
        host: "stranger".into(),
        agent_version: "0.1.0".into(),
        sampler_mode: "signals".into(),
        interval_ns: 10_000_000,
        ..Hello::default()
    }
}
