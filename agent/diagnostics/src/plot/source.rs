//! The input and the output of plots.

use super::super::ObservedPeriod;
use super::super::cache_profiler::{CacheCounts, CacheData};
use super::super::profiler::TaskData;
use super::super::resources::ResourceData;

/// A profiler's results at one moment.
#[derive(Clone, Debug)]
pub enum Source {
    Tasks {
        results: Vec<TaskData>,
        omitted: u64,
        observed: ObservedPeriod,
    },
    Resources {
        results: Vec<ResourceData>,
        omitted: u64,
        observed: ObservedPeriod,
    },
    Caches {
        results: Vec<CacheData>,
        metric_name: String,
        counts: CacheCounts,
        observed: ObservedPeriod,
    },
}

/// One plot of the picture: the part that scales with time, and its labels.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    /// Height of the plot itself.
    pub(super) height: f64,
    /// SVG in the units of [`Axis`](super::time::Axis) and pixels, clipped at the plot's edges.
    pub(super) body: String,
    /// SVG in pixels from the plot's upper left corner.
    pub(super) labels: String,
    /// Remarks about simplifications and omissions.
    pub(super) notes: Vec<String>,
}
