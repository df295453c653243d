//! Profiles: sums of weights by stack, group, thread and time.

pub(crate) mod busy;
pub(crate) mod cycles;
pub(crate) mod group;
pub(crate) mod group_by;
pub(crate) mod label_series;
pub(crate) mod profile;
pub(crate) mod run_groups;
pub(crate) mod step_sums;
pub(crate) mod thread_profile;
pub(crate) mod thread_time;
pub(crate) mod time_groups;
pub(crate) mod timeline;
pub(crate) mod timeline_lines;
pub(crate) mod totals;
pub(crate) mod unnamed;
pub(crate) mod view;
pub(crate) mod weight_sums;
