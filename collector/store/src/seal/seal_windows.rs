//! Sealing of samples: windows become rows of every tier, in order, without all rows in memory at once.
//! The unit that is sorted is a window's part: its weights of one task in one state. A part is decoded
//! when it is written.

use std::hash::Hash;
use std::sync::Arc;

use profiler_core::NodeId;
use profiler_core::hash::KeyedMap;

use crate::error::StoreError;
use crate::manifest::FileEntry;
use crate::packed::{PackedWeights, Part};
use crate::rows::StoredWindow;
use crate::seal::seal_buffer::{NumberedWindow, SealBuffer, TaskParts};
use crate::seal::{TierWriter, same_row_tiers};
use crate::sums::row::{Fields, WorkerNumber};
use crate::sums::table::{Measure, SumTable};
use crate::sums::tier::{Period, Second, Tier};
use crate::tables::Tables;
use base::sync::write;

/// The tables of one kind of weights.
#[derive(Clone, Copy)]
struct WeightTables {
    weights: fn(&StoredWindow) -> &PackedWeights,
    rows: SumTable,
    /// The table without nodes, and the one over all workers, if they exist.
    totals: Option<SumTable>,
    over_workers: Option<SumTable>,
}

const SAMPLES: WeightTables = WeightTables {
    weights: |stored| &stored.samples,
    rows: SumTable::Samples,
    totals: Some(SumTable::Totals),
    over_workers: Some(SumTable::SamplesAll),
};

const THREADS: WeightTables = WeightTables {
    weights: |stored| &stored.threads,
    rows: SumTable::Threads,
    totals: None,
    over_workers: None,
};

/// Capacity that a hash table always keeps.
const CAPACITY_KEPT: usize = 1024;

impl Tables {
    pub(crate) fn seal_windows(
        &self,
        windows: &[Arc<StoredWindow>],
        buffer: &mut SealBuffer,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let windows = &mut self.numbered(windows);
        self.seal_weights(windows, SAMPLES, buffer, files)?;
        self.seal_weights(windows, THREADS, buffer, files)?;
        buffer.free_unused();
        self.seal_cycles(windows, files)
    }

    /// Windows with the numbers of their workers, which are assigned to new workers.
    fn numbered<'a>(&self, windows: &'a [Arc<StoredWindow>]) -> Vec<NumberedWindow<'a>> {
        let mut workers = write(&self.workers);
        let numbered = windows.iter().map(|stored| NumberedWindow {
            second: stored.second(),
            worker: workers.assign(&stored.worker),
            stored,
        });
        numbered.collect()
    }

    fn seal_weights(
        &self,
        windows: &mut [NumberedWindow<'_>],
        tables: WeightTables,
        buffer: &mut SealBuffer,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let span = span_of(windows);
        let mut tier = Tier::Second;
        loop {
            let same_row_tiers = same_row_tiers(span, tier);
            let writer = |sum_table| TierWriter::new(self, sum_table, tier, &same_row_tiers);
            let over_workers = tables.over_workers.filter(|sum_table| sum_table.has(tier));
            let mut writers = Writers {
                rows: writer(tables.rows),
                totals: tables.totals.map(writer),
                over_workers: over_workers.map(writer),
                period: None,
                all: KeyedMap::default(),
                one: KeyedMap::default(),
                sums: Vec::new(),
            };
            sort_for(windows, tier);
            for group in windows.chunk_by(|a, b| a.group(tier) == b.group(tier)) {
                buffer.each_task(group, tier, tables.weights, &mut |parts| {
                    writers.write_task(&parts)
                })?;
            }
            files.append(&mut writers.finish()?);
            let coarser = tier.coarser().filter(|_| same_row_tiers.is_empty());
            let Some(coarser) = coarser else {
                return Ok(());
            };
            tier = coarser;
        }
    }

    /// Writes the rows about the windows themselves.
    fn seal_cycles(
        &self,
        windows: &mut [NumberedWindow<'_>],
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let span = span_of(windows);
        let mut tier = Tier::Second;
        loop {
            let same_row_tiers = same_row_tiers(span, tier);
            let mut writer = TierWriter::new(self, SumTable::Cycles, tier, &same_row_tiers);
            sort_for(windows, tier);
            for cycles in windows.chunk_by(|a, b| a.order(tier) == b.order(tier)) {
                let first = &cycles[0];
                for measure in Measure::ALL {
                    let values = cycles.iter().map(|cycle| measured(cycle.stored, measure));
                    let value = values.fold(0, u64::saturating_add);
                    if value > 0 {
                        let fields = Fields {
                            ts: tier.period(first.second),
                            task: NodeId::ROOT,
                            worker: first.worker,
                            kind: measure as u8,
                            node: 0,
                        };
                        writer.push(fields, value)?;
                    }
                }
            }
            files.append(&mut writer.finish()?);
            let coarser = tier.coarser().filter(|_| same_row_tiers.is_empty());
            let Some(coarser) = coarser else {
                return Ok(());
            };
            tier = coarser;
        }
    }
}

/// First and last second of windows.
fn span_of(windows: &[NumberedWindow<'_>]) -> Option<(Second, Second)> {
    let seconds = windows.iter().map(|window| window.second);
    seconds.clone().min().zip(seconds.max())
}

/// Brings windows into the order of a tier's rows of one task.
fn sort_for(windows: &mut [NumberedWindow<'_>], tier: Tier) {
    windows.sort_by_key(|window| window.order(tier));
}

fn measured(stored: &StoredWindow, measure: Measure) -> u64 {
    match measure {
        Measure::Windows => 1,
        Measure::SampledNs => stored.range.length_ns(),
        Measure::Ticks => stored.ticks.made,
        Measure::TicksExpected => stored.ticks.expected,
        Measure::TicksThrottled => stored.ticks.throttled,
    }
}

/// A task in a period of the tier that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TaskPeriod {
    ts: Period,
    task: NodeId,
}

/// Writes the parts of windows in one tier.
struct Writers<'a> {
    rows: TierWriter<'a>,
    totals: Option<TierWriter<'a>>,
    over_workers: Option<TierWriter<'a>>,
    /// The task and period that was written last.
    period: Option<TaskPeriod>,
    /// Its sums over all workers, by state and node.
    all: KeyedMap<(u8, NodeId), u64>,
    /// Sums of one worker's task, period and state, by node.
    one: KeyedMap<NodeId, u64>,
    /// The same, sorted.
    sums: Vec<(NodeId, u64)>,
}

impl Writers<'_> {
    /// Writes parts of a task, which follow those before in the order of the tier's rows.
    fn write_task(&mut self, task: &TaskParts<'_>) -> Result<(), StoreError> {
        for parts in task.parts.chunk_by(|a, b| a.key == b.key) {
            let key = parts[0].key;
            let period = TaskPeriod {
                ts: key.period(),
                task: task.task,
            };
            if self.period != Some(period) {
                self.end_period()?;
                self.period = Some(period);
            }
            let fields = Fields {
                ts: period.ts,
                task: period.task,
                worker: key.worker(),
                kind: key.state() as u8,
                node: 0,
            };
            self.sum(parts.iter().map(|part| task.part(part)));
            self.write(fields)?;
        }
        Ok(())
    }

    /// Sums parts of one worker's task, period and state. A single part is sorted; in the tier of seconds
    /// nearly all are single.
    fn sum<'p>(&mut self, mut parts: impl ExactSizeIterator<Item = Part<'p>>) {
        let Writers { one, sums, .. } = self;
        sums.clear();
        if parts.len() == 1 {
            let part = parts.next().expect("its length is 1");
            return part.each(|node, value| sums.push((node, value)));
        }
        for part in parts {
            part.each(|node, value| add(one, node, value));
        }
        take_sorted(one, sums);
    }

    /// Writes the sums of one worker's task, period and state.
    fn write(&mut self, fields: Fields) -> Result<(), StoreError> {
        if self.over_workers.is_some() {
            for (node, value) in &self.sums {
                add(&mut self.all, (fields.kind, *node), *value);
            }
        }
        if let Some(totals) = &mut self.totals {
            let values = self.sums.iter().map(|(_, value)| *value);
            totals.push(fields, values.fold(0, u64::saturating_add))?;
        }
        self.rows.push_nodes(fields, &self.sums)
    }

    /// Writes the sums over all workers of the task and period that was written last.
    fn end_period(&mut self) -> Result<(), StoreError> {
        let (Some(over_workers), Some(period)) = (&mut self.over_workers, self.period) else {
            return Ok(());
        };
        let mut sums = Vec::new();
        take_sorted(&mut self.all, &mut sums);
        for ((kind, node), value) in sums {
            let fields = Fields {
                ts: period.ts,
                task: period.task,
                worker: WorkerNumber::ALL,
                kind,
                node: node.0,
            };
            over_workers.push(fields, value)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<FileEntry>, StoreError> {
        self.end_period()?;
        let writers = [Some(self.rows), self.totals, self.over_workers];
        let mut files = Vec::new();
        for writer in writers.into_iter().flatten() {
            files.append(&mut writer.finish()?);
        }
        Ok(files)
    }
}

fn add<K: Hash + Eq>(sums: &mut KeyedMap<K, u64>, key: K, value: u64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(value);
}

/// Moves the sums to `sorted` by rising keys.
fn take_sorted<K: Copy + Ord>(sums: &mut KeyedMap<K, u64>, sorted: &mut Vec<(K, u64)>) {
    sorted.extend(sums.drain());
    sorted.sort_unstable_by_key(|(key, _)| *key);
    // Draining takes time for the whole capacity: after one large task also for each small one.
    if sums.capacity() > CAPACITY_KEPT.max(8 * sorted.len()) {
        *sums = KeyedMap::default();
    }
}
