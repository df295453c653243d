//! Sealing of samples: windows become rows of every tier, in order, without all rows in memory at once.
//! The unit that is sorted is a window's part: its weights of one task in one state. A part is decoded
//! when it is written.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::{NodeId, State};

use crate::error::StoreError;
use crate::manifest::FileEntry;
use crate::packed::{PackedWeights, Part};
use crate::rows::StoredWindow;
use crate::seal::{TierWriter, same_row_tiers};
use crate::sums::row::{Fields, Key, Row, WorkerNumber};
use crate::sums::table::{Measure, SumTable};
use crate::sums::tier::{Period, Tier};
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

/// A window with its worker's number.
type Numbered<'a> = (WorkerNumber, &'a StoredWindow);

impl Tables {
    pub(crate) fn seal_windows(
        &self,
        windows: &[Arc<StoredWindow>],
        buffer: &mut SealBuffer,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let windows = &self.numbered(windows);
        self.seal_weights(windows, SAMPLES, buffer, files)?;
        self.seal_weights(windows, THREADS, buffer, files)?;
        let cycles = windows
            .iter()
            .flat_map(|(worker, stored)| cycle_rows(stored, *worker));
        self.put_tiers(SumTable::Cycles, cycles.collect(), files)
    }

    /// Windows with the numbers of their workers, which are assigned to new workers.
    fn numbered<'a>(&self, windows: &'a [Arc<StoredWindow>]) -> Vec<Numbered<'a>> {
        let mut workers = write(&self.workers);
        windows
            .iter()
            .map(|stored| (workers.assign(&stored.worker), &**stored))
            .collect()
    }

    fn seal_weights(
        &self,
        windows: &[Numbered<'_>],
        tables: WeightTables,
        buffer: &mut SealBuffer,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let seconds = windows.iter().map(|(_, stored)| stored.second());
        let span = seconds.clone().min().zip(seconds.max());
        let tasks = buffer.fill(windows, tables.weights);
        let mut tier = Tier::Second;
        loop {
            let same_row_tiers = same_row_tiers(span, tier);
            let writer = |sum_table| TierWriter::new(self, sum_table, tier, &same_row_tiers);
            let over_workers = tables.over_workers.filter(|sum_table| sum_table.has(tier));
            let mut writers = Writers {
                rows: writer(tables.rows),
                totals: tables.totals.map(writer),
                over_workers: over_workers.map(writer),
                all: KeyedMap::default(),
                one: KeyedMap::default(),
                sums: Vec::new(),
            };
            for group in buffer.sort(&tasks, tier) {
                writers.write_group(buffer, &group)?;
            }
            files.append(&mut writers.finish()?);
            let coarser = tier.coarser().filter(|_| same_row_tiers.is_empty());
            let Some(coarser) = coarser else {
                return Ok(());
            };
            buffer.roll_up(tier, coarser);
            tier = coarser;
        }
    }
}

/// The parts of windows, copied so that those of a task are adjacent: fetching each from its window would
/// mostly wait for memory. The next sealing reuses the memory, because the kernel takes long to provide
/// so much.
#[derive(Debug, Default)]
pub(crate) struct SealBuffer {
    parts: Vec<BufferedPart>,
    bytes: Vec<u8>,
}

/// A part of a window, and where its bytes are.
#[derive(Clone, Copy, Debug, Default)]
struct BufferedPart {
    key: PartKey,
    at: u32,
    length: u32,
}

/// Period, worker and state in one number: the order of a task's parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct PartKey(u64);

const STATE_BITS: u32 = 3;
const PERIOD_AT: u32 = 27;
const _: () = assert!(State::ALL.len() <= 1 << STATE_BITS);
const _: () = assert!(WorkerNumber::MAX.0 < 1 << (PERIOD_AT - STATE_BITS));

impl PartKey {
    fn new(period: Period, worker: WorkerNumber, state: State) -> PartKey {
        let worker_and_state = u64::from(worker.0) << STATE_BITS | state as u64;
        PartKey(u64::from(period.0) << PERIOD_AT | worker_and_state)
    }

    fn period(self) -> Period {
        Period(u32::try_from(self.0 >> PERIOD_AT).expect("a period has 32 bits"))
    }

    fn worker(self) -> WorkerNumber {
        let worker = self.0 >> STATE_BITS & u64::from(WorkerNumber::MAX.0);
        WorkerNumber(u32::try_from(worker).expect("a worker has 24 bits"))
    }

    fn state(self) -> State {
        State::ALL[(self.0 & ((1 << STATE_BITS) - 1)) as usize]
    }

    /// The key in a tier with periods `times` as long.
    fn rolled_up(self, times: u32) -> PartKey {
        PartKey::new(Period(self.period().0 / times), self.worker(), self.state())
    }
}

/// A task, and the range of its parts in the buffer.
struct TaskParts {
    task: NodeId,
    parts: Range<usize>,
}

/// Where the next part of a task goes, and its bytes.
#[derive(Clone, Copy, Default)]
struct Cursor {
    part: usize,
    byte: usize,
}

impl SealBuffer {
    /// Copies the parts of windows. Returns the tasks in rising order.
    fn fill(
        &mut self,
        windows: &[Numbered<'_>],
        weights: fn(&StoredWindow) -> &PackedWeights,
    ) -> Vec<TaskParts> {
        // First the number of parts and bytes of each task, then where its first ones go.
        let mut cursors: BTreeMap<NodeId, Cursor> = BTreeMap::new();
        for (_, stored) in windows {
            for part in weights(stored).parts() {
                let cursor = cursors.entry(part.task).or_default();
                cursor.part += 1;
                cursor.byte += part.written_bytes();
            }
        }
        let mut end = Cursor::default();
        let mut tasks = Vec::with_capacity(cursors.len());
        for (task, cursor) in &mut cursors {
            let first = end;
            end = Cursor {
                part: first.part + cursor.part,
                byte: first.byte + cursor.byte,
            };
            tasks.push(TaskParts {
                task: *task,
                parts: first.part..end.part,
            });
            *cursor = first;
        }
        self.resize(end);
        const SMALL: &str = "unsealed windows have less than 2^32 bytes";
        for (worker, stored) in windows {
            let period = Period(stored.second().0);
            for part in weights(stored).parts() {
                let cursor = cursors.get_mut(&part.task).expect("all tasks were counted");
                let length = part.written_bytes();
                part.write(&mut self.bytes[cursor.byte..][..length]);
                self.parts[cursor.part] = BufferedPart {
                    key: PartKey::new(period, *worker, part.state),
                    at: u32::try_from(cursor.byte).expect(SMALL),
                    length: u32::try_from(length).expect(SMALL),
                };
                cursor.part += 1;
                cursor.byte += length;
            }
        }
        tasks
    }

    fn resize(&mut self, end: Cursor) {
        let Cursor {
            part: count,
            byte: bytes,
        } = end;
        // Free memory that an unusually large sealing needed.
        self.parts.shrink_to(count * 4);
        self.bytes.shrink_to(bytes * 4);
        self.parts
            .reserve_exact(count.saturating_sub(self.parts.len()));
        self.parts.resize(count, BufferedPart::default());
        self.bytes
            .reserve_exact(bytes.saturating_sub(self.bytes.len()));
        self.bytes.resize(bytes, 0);
    }

    /// Changes the parts to a coarser tier.
    fn roll_up(&mut self, from: Tier, to: Tier) {
        let times = to.seconds() / from.seconds();
        self.parts
            .iter_mut()
            .for_each(|part| part.key = part.key.rolled_up(times));
    }

    /// Sorts the parts of each task by period, worker and state. Returns for each group of periods the
    /// parts of each task, in the order of a tier's rows.
    fn sort(&mut self, tasks: &[TaskParts], tier: Tier) -> Vec<TaskParts> {
        let mut groups = Vec::new();
        let group = |part: &BufferedPart| part.key.period().0 / tier.periods_in_group();
        for TaskParts { task, parts: range } in tasks {
            let parts = &mut self.parts[range.clone()];
            parts.sort_unstable_by_key(|part| part.key);
            let mut at = range.start;
            for parts in parts.chunk_by(|a, b| group(a) == group(b)) {
                let of_group = TaskParts {
                    task: *task,
                    parts: at..at + parts.len(),
                };
                groups.push((group(&parts[0]), of_group));
                at += parts.len();
            }
        }
        // The sort is stable, so the tasks of a group stay in order.
        groups.sort_by_key(|(group, _)| *group);
        groups.into_iter().map(|(_, parts)| parts).collect()
    }

    fn part(&self, task: NodeId, part: &BufferedPart) -> Part<'_> {
        let bytes = &self.bytes[part.at as usize..][..part.length as usize];
        Part::read(task, part.key.state(), bytes)
    }
}

/// Writes the parts of windows in one tier.
struct Writers<'a> {
    rows: TierWriter<'a>,
    totals: Option<TierWriter<'a>>,
    over_workers: Option<TierWriter<'a>>,
    /// Sums of one task and period over all workers, by state and node.
    all: KeyedMap<(u8, NodeId), u64>,
    /// Sums of one worker's task, period and state, by node.
    one: KeyedMap<NodeId, u64>,
    /// The same, sorted.
    sums: Vec<(NodeId, u64)>,
}

impl Writers<'_> {
    /// Writes the sorted parts of a task in a group of periods.
    fn write_group(&mut self, buffer: &SealBuffer, group: &TaskParts) -> Result<(), StoreError> {
        let task = group.task;
        let parts = &buffer.parts[group.parts.clone()];
        for parts in parts.chunk_by(|a, b| period_of(a) == period_of(b)) {
            let ts = period_of(&parts[0]);
            for parts in parts.chunk_by(|a, b| a.key == b.key) {
                let worker = parts[0].key.worker();
                let kind = parts[0].key.state() as u8;
                let fields = Fields {
                    ts,
                    task,
                    worker,
                    kind,
                    node: 0,
                };
                self.sum(parts.iter().map(|part| buffer.part(task, part)));
                self.write(fields)?;
            }
            self.end_period(Fields {
                ts,
                task,
                worker: WorkerNumber::ALL,
                kind: 0,
                node: 0,
            })?;
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

    /// Writes the sums of a task and period over all workers.
    fn end_period(&mut self, fields: Fields) -> Result<(), StoreError> {
        let Some(over_workers) = &mut self.over_workers else {
            return Ok(());
        };
        let mut sums = Vec::new();
        take_sorted(&mut self.all, &mut sums);
        for ((kind, node), value) in sums {
            over_workers.push(
                Fields {
                    kind,
                    node: node.0,
                    ..fields
                },
                value,
            )?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<FileEntry>, StoreError> {
        let writers = [Some(self.rows), self.totals, self.over_workers];
        let mut files = Vec::new();
        for writer in writers.into_iter().flatten() {
            files.append(&mut writer.finish()?);
        }
        Ok(files)
    }
}

fn period_of(part: &BufferedPart) -> Period {
    part.key.period()
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

fn cycle_rows(stored: &StoredWindow, worker: WorkerNumber) -> impl Iterator<Item = Row> + use<> {
    let ts = Period(stored.second().0);
    let ticks = stored.ticks;
    let length_ns = stored.range.length_ns();
    let rows = Measure::ALL.into_iter().map(move |measure| {
        let value = match measure {
            Measure::Windows => 1,
            Measure::SampledNs => length_ns,
            Measure::Ticks => ticks.made,
            Measure::TicksExpected => ticks.expected,
            Measure::TicksThrottled => ticks.throttled,
        };
        let fields = Fields {
            ts,
            task: NodeId::ROOT,
            worker,
            kind: measure as u8,
            node: 0,
        };
        Row {
            key: Key::new(Tier::Second, fields),
            value,
        }
    });
    rows.filter(|row| row.value > 0)
}
