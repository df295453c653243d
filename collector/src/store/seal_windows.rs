//! Sealing of samples: windows become rows of every tier, in order, without all rows ever being in
//! memory. What is put in order is what each window counted of a task in a state; what that holds is
//! read when its turn has come.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::{NodeId, State};
use rustc_hash::FxHashMap;

use super::error::StoreError;
use super::manifest::FileEntry;
use super::row::{Fields, Key, Row, WorkerNumber};
use super::seal::{TierWriter, twins};
use super::table::{Counting, Measure};
use super::tables::Tables;
use super::tier::{Period, Tier};
use crate::packed::{PackedWeights, Part};
use crate::rows::StoredWindow;
use crate::sync::write;

/// Which weights of windows go where.
#[derive(Clone, Copy)]
struct Kind {
    weights: fn(&StoredWindow) -> &PackedWeights,
    rows: Counting,
    /// The same without nodes, and over all workers, where there are such tables.
    totals: Option<Counting>,
    over_workers: Option<Counting>,
}

const SAMPLES: Kind = Kind {
    weights: |stored| &stored.samples,
    rows: Counting::Samples,
    totals: Some(Counting::Totals),
    over_workers: Some(Counting::SamplesAll),
};

const THREADS: Kind = Kind {
    weights: |stored| &stored.threads,
    rows: Counting::Threads,
    totals: None,
    over_workers: None,
};

/// Sums for which a table keeps its room.
const ROOM_KEPT: usize = 1024;

/// A window with its worker's number.
type Numbered<'a> = (WorkerNumber, &'a StoredWindow);

impl Tables {
    pub(super) fn seal_windows(
        &self,
        windows: &[Arc<StoredWindow>],
        room: &mut Parts,
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let windows = &self.numbered(windows)?;
        self.seal_weights(windows, (SAMPLES, room), files)?;
        self.seal_weights(windows, (THREADS, room), files)?;
        let cycles = windows.iter().flat_map(|(worker, stored)| cycle_rows(stored, *worker));
        self.put_tiers(Counting::Cycles, cycles.collect(), files)
    }

    /// Windows with the numbers of their workers; new ones where they have none.
    fn numbered<'a>(
        &self,
        windows: &'a [Arc<StoredWindow>],
    ) -> Result<Vec<Numbered<'a>>, StoreError> {
        let mut workers = write(&self.workers);
        windows.iter().map(|stored| Ok((workers.give(&stored.worker)?, &**stored))).collect()
    }

    fn seal_weights(
        &self,
        windows: &[Numbered<'_>],
        (kind, room): (Kind, &mut Parts),
        files: &mut Vec<FileEntry>,
    ) -> Result<(), StoreError> {
        let seconds = windows.iter().map(|(_, stored)| stored.second());
        let seconds = (seconds.clone().min(), seconds.max());
        let tasks = room.fill(windows, kind);
        let mut tier = Tier::Second;
        loop {
            let twins = twins(seconds, tier);
            let mut writers = Writers::new((self, &twins), kind, tier);
            for (task, parts) in room.in_order(&tasks, tier) {
                writers.write_group(task, room, parts)?;
            }
            files.append(&mut writers.finish()?);
            let Some(coarser) = tier.coarser().filter(|_| twins.is_empty()) else { return Ok(()) };
            room.roll_up(tier, coarser);
            tier = coarser;
        }
    }
}

/// What windows counted, each task's side by side: to look for it in the windows, part by part, would
/// mostly be waiting for memory. It is used again by the next sealing, for the kernel takes long to
/// give so much memory anew.
#[derive(Debug, Default)]
pub(super) struct Parts {
    parts: Vec<PlacedPart>,
    bytes: Vec<u8>,
}

/// What one window counted of a task in one state, and where that is.
#[derive(Clone, Copy, Debug, Default)]
struct PlacedPart {
    order: Order,
    at: u32,
    length: u32,
}

/// Period, worker and state in one number: what the parts of a task are in order of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Order(u64);

const STATE_BITS: u32 = 3;
const PERIOD_AT: u32 = 27;
const _: () = assert!(State::ALL.len() <= 1 << STATE_BITS);
const _: () = assert!(WorkerNumber::MAX.0 < 1 << (PERIOD_AT - STATE_BITS));

impl Order {
    fn new(period: Period, worker: WorkerNumber, state: State) -> Order {
        let of_worker = u64::from(worker.0) << STATE_BITS | state as u64;
        Order(u64::from(period.0) << PERIOD_AT | of_worker)
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

    /// The same in a tier with periods so many times as long.
    fn rolled_up(self, times: u32) -> Order {
        Order::new(Period(self.period().0 / times), self.worker(), self.state())
    }
}

/// A task, and where its parts are.
type OfTask = (NodeId, Range<usize>);

impl Parts {
    /// Copies what windows counted; gives the tasks, rising.
    fn fill(&mut self, windows: &[Numbered<'_>], kind: Kind) -> Vec<OfTask> {
        // How many parts and bytes each task has, then where its next ones go.
        let mut places: BTreeMap<NodeId, (usize, usize)> = BTreeMap::new();
        for (_, stored) in windows {
            for part in (kind.weights)(stored).parts() {
                let (count, bytes) = places.entry(part.task).or_default();
                (*count, *bytes) = (*count + 1, *bytes + part.written_bytes());
            }
        }
        let (mut count, mut bytes) = (0, 0);
        for place in places.values_mut() {
            let first = (count, bytes);
            (count, bytes) = (count + place.0, bytes + place.1);
            *place = first;
        }
        let tasks: Vec<usize> = places.values().map(|(count, _)| *count).collect();
        let ends = tasks.iter().skip(1).copied().chain([count]);
        let tasks = tasks.iter().zip(ends).map(|(from, to)| *from..to);
        let tasks = places.keys().copied().zip(tasks).collect();
        self.make_room(count, bytes);
        const SMALL: &str = "what waits to be sealed has less than 2^32 bytes";
        for (worker, stored) in windows {
            let period = Period(stored.second().0);
            for part in (kind.weights)(stored).parts() {
                let (at, byte) = places.get_mut(&part.task).expect("it was counted");
                let length = part.written_bytes();
                part.write(&mut self.bytes[*byte..][..length]);
                self.parts[*at] = PlacedPart {
                    order: Order::new(period, *worker, part.state),
                    at: u32::try_from(*byte).expect(SMALL),
                    length: u32::try_from(length).expect(SMALL),
                };
                (*at, *byte) = (*at + 1, *byte + length);
            }
        }
        tasks
    }

    fn make_room(&mut self, count: usize, bytes: usize) {
        // Room for what was much and is little again is given back.
        self.parts.shrink_to(count * 4);
        self.bytes.shrink_to(bytes * 4);
        self.parts.reserve_exact(count.saturating_sub(self.parts.len()));
        self.parts.resize(count, PlacedPart::default());
        self.bytes.reserve_exact(bytes.saturating_sub(self.bytes.len()));
        self.bytes.resize(bytes, 0);
    }

    /// Makes the parts those of a coarser tier.
    fn roll_up(&mut self, from: Tier, to: Tier) {
        let times = to.seconds() / from.seconds();
        self.parts.iter_mut().for_each(|part| part.order = part.order.rolled_up(times));
    }

    /// Puts parts in the order of a tier's rows, each task's by period, worker and state; gives group by
    /// group of periods what each task has of it.
    fn in_order(&mut self, tasks: &[OfTask], tier: Tier) -> Vec<OfTask> {
        let mut groups = Vec::new();
        let group = |part: &PlacedPart| part.order.period().0 / tier.periods_in_group();
        for (task, range) in tasks {
            let parts = &mut self.parts[range.clone()];
            parts.sort_unstable_by_key(|part| part.order);
            let mut at = range.start;
            for parts in parts.chunk_by(|a, b| group(a) == group(b)) {
                groups.push((group(&parts[0]), (*task, at..at + parts.len())));
                at += parts.len();
            }
        }
        // Those of a group stay in the order of tasks.
        groups.sort_by_key(|(group, _)| *group);
        groups.into_iter().map(|(_, of_task)| of_task).collect()
    }

    fn part(&self, task: NodeId, part: &PlacedPart) -> Part<'_> {
        let bytes = &self.bytes[part.at as usize..][..part.length as usize];
        Part::read((task, part.order.state()), bytes)
    }
}

/// Writes what windows counted, in one tier.
struct Writers<'a> {
    rows: TierWriter<'a>,
    totals: Option<TierWriter<'a>>,
    over_workers: Option<TierWriter<'a>>,
    /// Over all workers, of one task and period, by state and node.
    all: FxHashMap<(u8, NodeId), u64>,
    /// Of one worker's task, period and state, by node.
    one: FxHashMap<NodeId, u64>,
    /// The same in order.
    sums: Vec<(NodeId, u64)>,
}

impl<'a> Writers<'a> {
    fn new(
        (tables, twins): (&'a Tables, &'a [(Tier, Period)]),
        kind: Kind,
        tier: Tier,
    ) -> Writers<'a> {
        let writer = |counting| TierWriter::new(tables, (counting, tier), twins);
        Writers {
            rows: writer(kind.rows),
            totals: kind.totals.map(writer),
            over_workers: kind.over_workers.filter(|counting| counting.has(tier)).map(writer),
            all: FxHashMap::default(),
            one: FxHashMap::default(),
            sums: Vec::new(),
        }
    }

    /// Writes all parts of a task in some periods, which are in order.
    fn write_group(
        &mut self,
        task: NodeId,
        room: &Parts,
        parts: Range<usize>,
    ) -> Result<(), StoreError> {
        let period = |part: &PlacedPart| part.order.period();
        for parts in room.parts[parts].chunk_by(|a, b| period(a) == period(b)) {
            let ts = period(&parts[0]);
            for parts in parts.chunk_by(|a, b| a.order == b.order) {
                let (worker, state) = (parts[0].order.worker(), parts[0].order.state());
                let fields = Fields { ts, task, worker, kind: state as u8, node: 0 };
                self.sum(parts.iter().map(|part| room.part(task, part)));
                self.write(fields)?;
            }
            self.end_period(Fields { ts, task, worker: WorkerNumber::ALL, kind: 0, node: 0 })?;
        }
        Ok(())
    }

    /// Sums parts of one worker's task, period and state. A single one, as all are in the tier of
    /// seconds, is in order.
    fn sum<'p>(&mut self, mut parts: impl ExactSizeIterator<Item = Part<'p>>) {
        let Writers { one, sums, .. } = self;
        sums.clear();
        if parts.len() == 1 {
            let part = parts.next().expect("there is one");
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

    /// Writes the sums over all workers of a task and period.
    fn end_period(&mut self, fields: Fields) -> Result<(), StoreError> {
        let Some(over_workers) = &mut self.over_workers else { return Ok(()) };
        let mut sums = Vec::new();
        take_sorted(&mut self.all, &mut sums);
        for ((kind, node), value) in sums {
            over_workers.push(Fields { kind, node: node.0, ..fields }, value)?;
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

fn add<K: Hash + Eq>(sums: &mut FxHashMap<K, u64>, key: K, value: u64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(value);
}

/// Appends the sums by rising keys, and leaves none.
fn take_sorted<K: Copy + Ord>(sums: &mut FxHashMap<K, u64>, sorted: &mut Vec<(K, u64)>) {
    sorted.extend(sums.drain());
    sorted.sort_unstable_by_key(|(key, _)| *key);
    // Draining looks at all the room there is: after one large task it would for each small one.
    if sums.capacity() > ROOM_KEPT.max(8 * sorted.len()) {
        *sums = FxHashMap::default();
    }
}

fn cycle_rows(stored: &StoredWindow, worker: WorkerNumber) -> impl Iterator<Item = Row> + use<> {
    let (ts, ticks) = (Period(stored.second().0), stored.ticks);
    let length_ns = stored.range.length_ns();
    let rows = Measure::ALL.into_iter().map(move |measure| {
        let value = match measure {
            Measure::Windows => 1,
            Measure::SampledNs => length_ns,
            Measure::Ticks => ticks.made,
            Measure::TicksExpected => ticks.expected,
            Measure::TicksThrottled => ticks.throttled,
        };
        let fields = Fields { ts, task: NodeId::ROOT, worker, kind: measure as u8, node: 0 };
        Row { key: Key::new(Tier::Second, fields), value }
    });
    rows.filter(|row| row.value > 0)
}
