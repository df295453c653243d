//! Where the time went.

use std::collections::BTreeSet;
use std::sync::Arc;

use profiler_core::{
    Delta, Filter, NodeId, Profile, Ticks, TimeRange, Timestamp, Weight, WorkerId,
};

use super::QueryError;
use super::params::{Filters, Params, RangeText};
use crate::collector::Collector;
use crate::hot::StoredWindow;
use crate::sync::read;
use crate::tree::Excerpt;

/// What a node of the answer stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// A function; its lines are merged.
    Function,
    /// A line of a function.
    Line,
}

/// How the answer is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Json,
    Collapsed,
    Svg,
}

/// A question for a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProfileQuery {
    pub(crate) range: TimeRange,
    pub(crate) filter: Filter,
    pub(crate) by: By,
    pub(crate) format: Format,
}

impl ProfileQuery {
    pub(crate) const BY: [(&'static str, By); 2] = [("function", By::Function), ("line", By::Line)];
    const FORMATS: [(&'static str, Format); 3] =
        [("json", Format::Json), ("collapsed", Format::Collapsed), ("svg", Format::Svg)];

    /// The question that the parameters ask at `now`.
    pub(crate) fn parse(
        pairs: &[(String, String)],
        collector: &Collector,
        now: Timestamp,
    ) -> Result<ProfileQuery, QueryError> {
        let names = [&RangeText::NAMES[..], &Filters::NAMES, &["by", "format"]].concat();
        let params = Params::new(pairs, &names)?;
        let (range, _) = RangeText::parse(&params)?;
        let query = ProfileQuery {
            range: range.resolve(now)?,
            by: params.choice("by", &ProfileQuery::BY)?,
            format: params.choice("format", &ProfileQuery::FORMATS)?,
            filter: Filters::parse(&params, collector)?,
        };
        if query.format == Format::Collapsed && query.by == By::Line {
            return Err(QueryError::CollapsedByLine);
        }
        Ok(query)
    }
}

/// How well the windows of an answer were sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sampling {
    pub(crate) windows: u64,
    /// Sum of the windows' lengths over all workers.
    pub(crate) sampled_ns: u64,
    pub(crate) ticks: Ticks,
}

impl Sampling {
    pub(super) fn of(windows: &[Arc<StoredWindow>]) -> Sampling {
        let mut sampling = Sampling::default();
        for stored in windows {
            sampling.windows += 1;
            let length_ns = stored.window.range.length_ns();
            sampling.sampled_ns = sampling.sampled_ns.saturating_add(length_ns);
            sampling.ticks += stored.ticks;
        }
        sampling
    }

    /// Ticks a second that were made; `None` without any time.
    pub(crate) fn rate_hz(&self) -> Option<f64> {
        (self.sampled_ns > 0).then(|| self.ticks.made as f64 * 1e9 / self.sampled_ns as f64)
    }

    /// Share of the expected ticks that were made; `None` if none was expected.
    pub(crate) fn share(&self) -> Option<f64> {
        let Ticks { made, expected, .. } = self.ticks;
        (expected > 0).then(|| made as f64 / expected as f64)
    }
}

/// A profile, and what it was made from.
#[derive(Clone, Debug)]
pub(crate) struct ProfileAnswer {
    pub(crate) profile: Profile,
    pub(crate) sampling: Sampling,
    /// Workers that have windows in the range, by id.
    pub(crate) workers: Vec<WorkerId>,
    /// The span of all windows that are held.
    pub(crate) data: Option<TimeRange>,
}

/// The windows of a range that a filter keeps, taken under a short lock.
pub(crate) struct Taken {
    pub(crate) windows: Vec<Arc<StoredWindow>>,
    pub(crate) data: Option<TimeRange>,
}

impl Taken {
    pub(crate) fn of(collector: &Collector, range: TimeRange, filter: &Filter) -> Taken {
        let (mut windows, data) = {
            let hot = read(&collector.hot);
            (hot.starting_in(range), hot.span())
        };
        windows.retain(|stored| filter.keeps_worker(&stored.window.worker));
        Taken { windows, data }
    }

    /// The part of the tree that the windows' nodes need.
    pub(crate) fn excerpt(&self, collector: &Collector) -> Excerpt {
        let deltas = self.windows.iter().map(|stored| &stored.window.delta);
        let touched = deltas.flat_map(Delta::entries).map(|(node, _, _)| *node);
        Excerpt::of(&collector.tree, touched)
    }
}

impl Collector {
    /// Sums the windows that start in the range.
    pub(crate) fn profile(&self, query: &ProfileQuery) -> ProfileAnswer {
        let taken = Taken::of(self, query.range, &query.filter);
        let excerpt = taken.excerpt(self);
        let mut sums = vec![Weight::ZERO; excerpt.trie.node_count() as usize];
        for stored in &taken.windows {
            for (node, state, nanoseconds) in stored.window.delta.entries() {
                sums[excerpt.node(*node).index()].count(*state, *nanoseconds);
            }
        }
        let sum: Delta = (0..).map(NodeId).zip(sums).collect();
        let profile = Profile::collect(&excerpt.symbols, &excerpt.trie, [&sum], &query.filter);
        let workers = taken.windows.iter().map(|stored| stored.window.worker.clone());
        let workers: BTreeSet<WorkerId> = workers.collect();
        ProfileAnswer {
            profile: match query.by {
                By::Function => profile.by_function(),
                By::Line => profile,
            },
            sampling: Sampling::of(&taken.windows),
            workers: workers.into_iter().collect(),
            data: taken.data,
        }
    }
}
