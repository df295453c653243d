//! Tables of sums: their rows, tiers and periods.

pub(crate) mod cluster;
pub(crate) mod file_sums;
pub(crate) mod plan;
pub(crate) mod row;
pub(crate) mod table;
pub(crate) mod task_sums;
pub(crate) mod tier;
pub(crate) mod transfer_sums;
