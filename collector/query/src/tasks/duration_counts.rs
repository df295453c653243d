//! Durations of tasks by name and step, as buckets with their counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::Timestamp;

use crate::Queries;
use crate::QueryError;
use crate::profiles::step_sums::Steps;
use crate::profiles::timeline::coarsest_in;
use crate::table_reader::Cancel;
use crate::tasks::ended_each::EndedTasks;
use crate::tasks::task_durations::TaskDurationsQuery;
use base::limits::DURATION_BUCKETS_MAX;

/// A histogram: buckets with the number of tasks in each.
pub type BucketCounts = BTreeMap<u32, u64>;

/// The durations of one name in one step.
#[derive(Clone, PartialEq, Debug)]
pub struct DurationInterval {
    pub start: Timestamp,
    pub name: Arc<str>,
    pub counts: BucketCounts,
}

/// Histograms by step, then by name. There is none of a step in which no task of the name ended.
#[derive(Clone, PartialEq, Debug)]
pub struct DurationCounts {
    pub step_ns: u64,
    pub intervals: Vec<DurationInterval>,
    pub damaged: Vec<String>,
}

impl Queries<'_> {
    /// The durations of the tasks that ended in each step, by name.
    pub fn duration_counts(
        &self,
        query: &TaskDurationsQuery,
        cancel: &Cancel,
    ) -> Result<DurationCounts, QueryError> {
        let TaskDurationsQuery {
            range,
            filter,
            step_ns,
            ..
        } = query;
        let mut ended = EndedTasks::of(self, *range, filter, coarsest_in(*step_ns), cancel);
        let layout = Steps::new(*range, *step_ns);
        let mut intervals: BTreeMap<(usize, Arc<str>), BucketCounts> = BTreeMap::new();
        let mut buckets = 0_usize;
        ended.each(|group| {
            if !group.is_timed() || buckets > DURATION_BUCKETS_MAX {
                return;
            }
            let key = (layout.index(group.at), group.name.clone());
            let interval = intervals.entry(key).or_default();
            let before = interval.len();
            for (bucket, count) in group.counts {
                let sum = interval.entry(*bucket).or_default();
                *sum = sum.saturating_add(*count);
            }
            buckets += interval.len() - before;
        })?;
        if buckets > DURATION_BUCKETS_MAX {
            return Err(QueryError::Buckets {
                limit: DURATION_BUCKETS_MAX,
            });
        }
        let start = |index: usize| {
            layout
                .first
                .shifted((index as i64).saturating_mul(*step_ns as i64))
        };
        let intervals = intervals
            .into_iter()
            .map(|((index, name), counts)| DurationInterval {
                start: start(index),
                name,
                counts,
            });
        Ok(DurationCounts {
            step_ns: *step_ns,
            intervals: intervals.collect(),
            damaged: ended.damaged(),
        })
    }
}
