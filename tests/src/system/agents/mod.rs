//! Agents in real programs: truth, hosts, and collectors that come, go or are hostile.

pub(crate) mod account;
pub(crate) mod clocks;
pub(crate) mod deep;
pub(crate) mod edges;
pub(crate) mod ending;
pub(crate) mod guests;
pub(crate) mod hostile;
pub(crate) mod hostile_collector;
pub(crate) mod live;
pub(crate) mod moves;
pub(crate) mod truth;
pub(crate) mod worker_lost;
