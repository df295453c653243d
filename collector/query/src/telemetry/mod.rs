//! Resources, transfers, runs and events.

pub(crate) mod events;
pub(crate) mod resources;
pub(crate) mod runs;
pub(crate) mod transfers;
