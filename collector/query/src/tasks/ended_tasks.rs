//! Sums of ended tasks in the tables.

use std::ops::Range;

use profiler_core::hash::KeyedMap;
use profiler_core::{Filter, NodeId, Outcome, ThreadKind, Timestamp};

use crate::Queries;
use crate::QueryError;
use crate::by_name::ByName;
use crate::table_reader::{Rows, ScanFilter, TableReader};
use base::sync::read;
use state::ledger::{NameTotal, PhaseTotal, TaskFilter};
use state::tree::TopNode;
use store::{Batch, SumTable};

impl Queries<'_> {
    /// Adds what the tables have counted, by name.
    pub(crate) fn add_stored(
        &self,
        stored: &mut TableReader<'_>,
        filter: &TaskFilter,
        totals: &mut ByName<NameTotal>,
    ) -> Result<(), QueryError> {
        let tops = self.tops_named(filter);
        let mut sums: Vec<Option<StoredTotal>> = vec![None; tops.len()];
        for sum_table in [
            SumTable::Durations,
            SumTable::DurationSums,
            SumTable::Phases,
            SumTable::PhaseSums,
        ] {
            scan_ended(stored, sum_table, &tops, filter, |top, ended| {
                sums[top].get_or_insert_default().add(sum_table, &ended);
            })?;
        }
        for (top, sum) in tops.iter().zip(sums) {
            if let Some(sum) = sum {
                let duration_ns = sum.total.durations.total_ns();
                totals
                    .of(&top.name, duration_ns)
                    .absorb(self.with_phases(sum, top)?);
            }
        }
        Ok(())
    }

    /// The first-level nodes of the requested tasks.
    pub(crate) fn tops_named(&self, filter: &TaskFilter) -> Vec<TopNode> {
        let by_name = Filter {
            tasks: filter.names.to_vec(),
            threads: ThreadKind::All,
            ..Filter::default()
        };
        read(&self.tree).tops_kept(&by_name)
    }

    /// A task's total, with its phases by name.
    fn with_phases(&self, sum: StoredTotal, top: &TopNode) -> Result<NameTotal, QueryError> {
        let StoredTotal { mut total, phases } = sum;
        for (node, phase) in phases {
            if node == top.node.0 {
                total.aggregated = phase.count;
                total.phases.inside_ns = phase.duration_ns;
            } else {
                let name = read(&self.tree)
                    .name(NodeId(node))
                    .ok_or(QueryError::UnknownNodes { rows: 1 })?;
                let known = total.phases.by_name.entry(name).or_default();
                known.add(phase.count, phase.duration_ns);
            }
        }
        Ok(total)
    }
}

/// The tables' sums of one task.
#[derive(Clone, Default)]
struct StoredTotal {
    /// Without phases.
    total: NameTotal,
    /// By node. The task's own node has the tasks without rows, and the duration of the phases.
    phases: KeyedMap<u32, PhaseTotal>,
}

impl StoredTotal {
    fn add(&mut self, sum_table: SumTable, ended: &Ended<'_>) {
        let outcome = ended.outcome;
        let phases = &mut self.phases;
        match sum_table {
            SumTable::Durations => self.total.count_in_buckets(outcome, ended.rows()),
            SumTable::DurationSums => {
                ended
                    .values()
                    .iter()
                    .for_each(|sum| self.total.add_to_total(outcome, *sum));
            }
            _ if outcome == Outcome::Lost => {}
            SumTable::Phases => {
                let counts = ended.rows();
                counts.for_each(|(node, count)| phases.entry(node).or_default().add(count, 0));
            }
            _ => ended
                .rows()
                .for_each(|(node, sum)| phases.entry(node).or_default().add(0, sum)),
        }
    }
}

/// Rows of a table for tasks of one name and outcome.
pub(crate) struct Ended<'a> {
    pub(crate) outcome: Outcome,
    batch: &'a Batch,
    range: Range<usize>,
    periods: Rows<'a>,
}

impl<'a> Ended<'a> {
    fn values(&self) -> &'a [u64] {
        &self.batch.values[self.range.clone()]
    }

    /// Node or bucket, and value, of a table with such a column.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u32, u64)> + Clone + 'a {
        self.rows_in(self.range.clone())
    }

    /// The same rows by period, with the period's start.
    pub(crate) fn periods(
        &self,
    ) -> impl Iterator<Item = (Timestamp, impl Iterator<Item = (u32, u64)> + Clone + 'a)> {
        alike(&self.batch.ts, self.range.clone())
            .map(|range| (self.periods.start(range.start), self.rows_in(range)))
    }

    fn rows_in(&self, range: Range<usize>) -> impl Iterator<Item = (u32, u64)> + Clone + 'a {
        let nodes = self.batch.node.get(range.clone()).unwrap_or(&[]);
        let values = &self.batch.values[range];
        debug_assert_eq!(nodes.len(), values.len(), "the table has no nodes");
        // Zipped slices need no bounds check per row.
        nodes.iter().copied().zip(values.iter().copied())
    }
}

/// Visits the rows with a requested outcome, all neighbors of one task and outcome at once, with
/// the index of the task among `tops`.
pub(crate) fn scan_ended(
    stored: &mut TableReader<'_>,
    sum_table: SumTable,
    tops: &[TopNode],
    filter: &TaskFilter,
    mut visit: impl FnMut(usize, Ended<'_>),
) -> Result<(), QueryError> {
    let tasks: Vec<NodeId> = tops.iter().map(|top| top.node).collect();
    let asked = ScanFilter {
        tasks: Some(&tasks),
        workers: None,
        columns: sum_table.columns(),
        sums_only: false,
    };
    stored.scan(
        |_| sum_table,
        asked,
        |batch, rows| {
            rows.each_range(|range| {
                for of_task in alike(&batch.task, range) {
                    let Ok(top) = tasks.binary_search(&NodeId(batch.task[of_task.start])) else {
                        continue;
                    };
                    for of_outcome in alike(&batch.kind, of_task) {
                        let outcome = Outcome::ALL.get(usize::from(batch.kind[of_outcome.start]));
                        let kept = outcome.filter(|outcome| filter.keeps_outcome(**outcome));
                        if let Some(outcome) = kept.copied() {
                            visit(
                                top,
                                Ended {
                                    outcome,
                                    batch,
                                    range: of_outcome,
                                    periods: rows,
                                },
                            );
                        }
                    }
                }
            });
        },
    )
}

/// Values that are compared without a branch in between, by SIMD instructions.
const COMPARED_AT_ONCE: usize = 32;

/// Splits a range into the longest parts of equal values.
fn alike<T: PartialEq>(values: &[T], mut rest: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    std::iter::from_fn(move || {
        let (first, others) = values.get(rest.clone())?.split_first()?;
        let (parts, _) = others.as_chunks::<COMPARED_AT_ONCE>();
        let equal = parts
            .iter()
            .take_while(|part: &&[T; COMPARED_AT_ONCE]| {
                part.iter().fold(true, |all, value| all & (value == first))
            })
            .count()
            * COMPARED_AT_ONCE;
        let more = others[equal..]
            .iter()
            .take_while(|value| *value == first)
            .count();
        let part = rest.start..rest.start + 1 + equal + more;
        rest.start = part.end;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::alike;

    proptest! {
        #[test]
        fn ranges_of_equal_values_match_a_comparison_one_by_one(
            runs in prop::collection::vec((0..3u8, 1..150usize), 0..9),
            ends in any::<[prop::sample::Index; 2]>(),
        ) {
            let values: Vec<u8> =
                runs.iter().flat_map(|(value, count)| vec![*value; *count]).collect();
            let mut ends = ends.map(|end| end.index(values.len() + 1));
            ends.sort_unstable();
            let range = ends[0]..ends[1];
            let mut at = range.start;
            let expected: Vec<_> = values[range.clone()].chunk_by(|a, b| a == b).map(|part| {
                at += part.len();
                at - part.len()..at
            }).collect();
            prop_assert_eq!(alike(&values, range).collect::<Vec<_>>(), expected);
        }
    }
}
