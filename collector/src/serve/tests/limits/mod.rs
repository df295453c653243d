//! Limits of requests, connections, bodies and computing, and fair shares of them.

pub(crate) mod bodies;
pub(crate) mod computing;
pub(crate) mod connections;
pub(crate) mod floods;
pub(crate) mod long_queries;
pub(crate) mod quotas;
pub(crate) mod shared_tables;
