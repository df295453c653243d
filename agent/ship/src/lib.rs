//! Shipping of samples, tasks and telemetry from Emberline's agent to a collector. It knows neither signals nor tasks of the program.
//!
//! The symbolizer adds names and stacks to [`tables::Tables`] and hands each second over as a [`batch::Batch`].
//! [`control::Control`] brings a collector's requests to the sampler. With the feature `network`, [`shipper`] sends
//! the batches on one thread and counts what became of them in a [`ShipReport`].
//!
//! Programs use `emberline-agent`: this crate's items change without notice. Where the agent has no sampler there is
//! no shipper.

pub mod batch;
pub mod control;
mod mode;
mod report;
#[cfg(all(
    feature = "network",
    target_os = "linux",
    any(target_arch = "aarch64", target_arch = "x86_64"),
    target_env = "gnu",
    not(emberline_no_sampler)
))]
pub mod shipper;
pub mod tables;

pub use mode::SamplerMode;
pub use report::ShipReport;
