//! Stores under crashes, full disks, restarts and in buckets, and queries in SQL.

pub(crate) mod bucket;
pub(crate) mod chaos;
pub(crate) mod crash;
pub(crate) mod drain;
pub(crate) mod full_disk;
pub(crate) mod hang;
pub(crate) mod restart;
pub(crate) mod sql;
pub(crate) mod sql_cluster;
