//! From the rows that guards left to the ledger's records: which tasks are open, what was said of
//! them meanwhile, and which of those that ended have a row of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::bucket::bucket;
use profiler_core::{Outcome, PhaseInterval, TaskId, TaskRecord, TaskTotals, Timestamp};
use rustc_hash::FxHashMap;

use crate::detail::{self, Interval, Phases};
use crate::registry::{
    self, Drained, LocalTaskId, NameId, PhaseRow, ResultRow, Row, TaskRow, ThreadCell,
};
use crate::spill::SpillSum;
use crate::threads::ThreadIdentity;

/// Most open tasks that are known at a time. A task beyond has a row when it ends, without its phases.
const OPEN_MAX: usize = 200_000;
/// Most tasks of which phases are known and neither start nor end: these had no room, or other threads
/// went on with the task after its end.
const ORPHANS_MAX: usize = 10_000;
/// Most ends that wait for one more drain.
const HELD_MAX: usize = 200_000;
/// Most rows of ended tasks of one cycle, whatever the setting.
const CYCLE_ROWS_MAX: usize = 200_000;
/// Most running tasks that are told once more in a cycle, for more is known of them; others come in a
/// later one.
const CYCLE_RETOLD_MAX: usize = 1_000;
/// Most sums of one cycle, by name, outcome and second; what is past it counts as `[overflow]`.
const CYCLE_TOTALS_MAX: usize = 20_000;
/// Part of the rows that is kept for tasks that did not end well.
const RESERVE_PART: u32 = 10;

/// Takes rows in, gives records once a cycle.
pub(crate) struct Ledger {
    rows_per_second: u32,
    open: FxHashMap<LocalTaskId, Open>,
    /// Ends, held back for one drain: what was written before an end, on whatever thread, is read by
    /// then. Otherwise a start could be read after the end and overwrite it, and the task would seem to
    /// run for ever; or a phase would come too late.
    held: Vec<Told>,
    ended: Vec<TaskRecord>,
    /// The second that rows were last kept for, and how many.
    second: i64,
    rows_kept: u32,
    totals: BTreeMap<TotalsKey, Sums>,
    aggregated_tasks: u64,
    lost_tasks: u64,
}

/// What a cycle has of tasks.
pub(crate) struct Ended {
    /// Tasks that started or ended, each once, in its latest state, in the order of their starts.
    pub(crate) tasks: Vec<TaskRecord>,
    pub(crate) totals: Vec<TaskTotals>,
    pub(crate) lost_tasks: u64,
    pub(crate) aggregated_tasks: u64,
}

/// A task that has not ended, as far as it is known.
#[derive(Default)]
struct Open {
    start: Option<Told>,
    /// Whether it went out as running: then its end must go out too.
    is_told: bool,
    /// Whether more was said of it since.
    has_more: bool,
    phases: Phases,
    result_bytes: Option<u64>,
    type_name: NameId,
}

/// A row, and the thread that wrote it.
#[derive(Clone)]
struct Told {
    row: TaskRow,
    thread: Arc<ThreadIdentity>,
}

/// Second, name, and outcome by its place among all.
type TotalsKey = (i64, NameId, usize);

#[derive(Default)]
struct Sums {
    duration_ns: u64,
    buckets: BTreeMap<u32, u64>,
    phases: Vec<PhaseInterval>,
}

impl Ledger {
    pub(crate) fn new(rows_per_second: u32) -> Ledger {
        Ledger {
            rows_per_second,
            open: FxHashMap::default(),
            held: Vec::new(),
            ended: Vec::new(),
            second: i64::MIN,
            rows_kept: 0,
            totals: BTreeMap::new(),
            aggregated_tasks: 0,
            lost_tasks: 0,
        }
    }

    /// Takes what the guards wrote. Ends wait for the next time.
    pub(crate) fn drain(&mut self) {
        let due = std::mem::take(&mut self.held);
        let lost = registry::drain(|left| match left {
            Drained::Row(cell, row) => self.take(cell, row),
            Drained::Sum(sum) => self.take_sum(sum),
        });
        self.lost_tasks += lost;
        due.into_iter().for_each(|row| self.settle(row));
    }

    /// Waits for nothing any more.
    pub(crate) fn settle_all(&mut self) {
        std::mem::take(&mut self.held).into_iter().for_each(|row| self.settle(row));
    }

    /// Whether a seal would give anything.
    pub(crate) fn has_news(&self) -> bool {
        !self.ended.is_empty()
            || !self.totals.is_empty()
            || self.lost_tasks > 0
            || self.open.values().any(Open::is_news)
    }

    /// What there is since the last seal.
    pub(crate) fn seal(&mut self) -> Ended {
        let mut tasks = std::mem::take(&mut self.ended);
        let mut retold = 0;
        for open in self.open.values_mut().filter(|open| open.is_news()) {
            retold += usize::from(open.is_told);
            if open.is_told && retold > CYCLE_RETOLD_MAX {
                continue;
            }
            (open.is_told, open.has_more) = (true, false);
            tasks.extend(open.start.clone().map(|row| open.record(row)));
        }
        let orphans = self.open.values().filter(|open| open.start.is_none()).count();
        if orphans > ORPHANS_MAX {
            self.open.retain(|_, open| open.start.is_some());
        }
        tasks.sort_unstable_by_key(|task| (task.start, task.id));
        let totals = std::mem::take(&mut self.totals).into_iter();
        Ended {
            tasks,
            totals: totals.map(|(key, sums)| sums.totals(key)).collect(),
            lost_tasks: std::mem::take(&mut self.lost_tasks),
            aggregated_tasks: std::mem::take(&mut self.aggregated_tasks),
        }
    }

    fn take(&mut self, cell: &ThreadCell, row: Row) {
        match row {
            Row::Task(row) => {
                let row = Told { row, thread: cell.thread.clone() };
                if row.row.stop().is_none() {
                    if let Some(open) = self.open(row.row.id) {
                        open.start = Some(row);
                    }
                } else if self.held.len() < HELD_MAX {
                    self.held.push(row);
                } else {
                    self.settle(row);
                }
            }
            Row::Phase(PhaseRow { task, phase, start, stop }) => match self.open(task) {
                Some(open) => {
                    open.phases.add(Interval { phase, start, stop });
                    open.has_more = true;
                }
                None => self.lost_tasks += 1,
            },
            Row::Result(ResultRow { task, bytes, type_name }) => {
                if let Some(open) = self.open(task) {
                    open.has_more = true;
                    open.result_bytes = bytes.or(open.result_bytes);
                    open.type_name =
                        if type_name == NameId::NONE { open.type_name } else { type_name };
                }
            }
        }
    }

    /// What is known of a task; `None` if there is no room for it.
    fn open(&mut self, id: LocalTaskId) -> Option<&mut Open> {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&id) {
            return None;
        }
        Some(self.open.entry(id).or_default())
    }

    /// A task has ended, and all that was said of it is in.
    fn settle(&mut self, ended: Told) {
        let open = self.open.remove(&ended.row.id).unwrap_or_default();
        let must_have_row = open.is_told;
        let record = open.record(ended);
        if self.has_room_for_row(&record, must_have_row) {
            self.ended.push(record);
        } else if must_have_row {
            self.lost_tasks += 1;
        } else {
            self.aggregated_tasks += 1;
            self.sum(&record);
        }
    }

    /// Whether an ended task gets a row; and counts that.
    fn has_room_for_row(&mut self, record: &TaskRecord, must_have_row: bool) -> bool {
        let second = record.stop.unwrap_or(record.start).second();
        // Ends come nearly in order; one of the second before is counted with this one's.
        if second > self.second {
            (self.second, self.rows_kept) = (second, 0);
        }
        let reserve = match record.outcome {
            Outcome::Ok => self.rows_per_second / RESERVE_PART,
            _ => 0,
        };
        let room = self.rows_per_second - reserve;
        let has_room =
            self.ended.len() < CYCLE_ROWS_MAX && (must_have_row || self.rows_kept < room);
        self.rows_kept += u32::from(has_room);
        has_room
    }

    fn sum(&mut self, record: &TaskRecord) {
        let stop = record.stop.unwrap_or(record.start);
        let duration_ns = stop.since_ns(record.start);
        let sums = self.sums_of(stop, registry::name_id(&record.name), record.outcome);
        sums.add(duration_ns, [(bucket(duration_ns), 1)]);
        let phases = record.detail.iter().flat_map(|detail| &detail.phases);
        phases.for_each(|phase| detail::add_to_totals(&mut sums.phases, phase));
    }

    /// Takes what a thread summed because its ring was full.
    fn take_sum(&mut self, sum: SpillSum) {
        match sum {
            SpillSum::Tasks { name, outcome, stop, duration_ns, buckets } => {
                self.aggregated_tasks += buckets.iter().map(|(_, count)| count).sum::<u64>();
                self.sums_of(stop, name, outcome).add(duration_ns, buckets);
            }
            SpillSum::Phases { task_name, phase, stop, duration_ns, count } => {
                let name = registry::name(phase);
                let phase = PhaseInterval { name, start_ns: 0, duration_ns, count };
                // Their tasks have rows or sums of their own, which are without these.
                let sums = self.sums_of(stop, task_name, Outcome::Ok);
                detail::add_to_totals(&mut sums.phases, &phase);
            }
        }
    }

    fn sums_of(&mut self, stop: Timestamp, name: NameId, outcome: Outcome) -> &mut Sums {
        let mut key = (stop.second(), name, outcome as usize);
        if self.totals.len() >= CYCLE_TOTALS_MAX && !self.totals.contains_key(&key) {
            key.1 = NameId::OVERFLOW;
        }
        self.totals.entry(key).or_default()
    }
}

impl Sums {
    fn add(&mut self, duration_ns: u64, buckets: impl IntoIterator<Item = (u32, u64)>) {
        self.duration_ns = self.duration_ns.saturating_add(duration_ns);
        for (bucket, count) in buckets {
            let sum = self.buckets.entry(bucket).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

impl Open {
    /// Whether it runs and there is something to tell.
    fn is_news(&self) -> bool {
        self.start.is_some() && (!self.is_told || self.has_more)
    }

    /// The record of the task as it was told.
    fn record(&self, told: Told) -> TaskRecord {
        let Told { mut row, thread } = told;
        let stop = row.stop();
        let phases = self.phases.intervals(row.start, stop);
        if self.result_bytes.is_some() || self.type_name != NameId::NONE {
            let detail = row.detail.get_or_insert_default();
            detail.set_result(self.result_bytes, self.type_name);
        }
        let detail = row.detail.as_deref();
        let thread = detail.and_then(|detail| detail.began_on.as_ref()).unwrap_or(&thread);
        TaskRecord {
            id: row.id.into(),
            name: registry::name(row.name),
            thread_id: thread.id,
            thread_name: thread.name.clone(),
            parent: row.parent.map(TaskId::from),
            start: row.start,
            stop,
            outcome: row.outcome,
            cause: detail.and_then(|detail| detail.cause.clone()).unwrap_or_default(),
            detail: detail::told(detail, phases),
            key: row.key.unwrap_or_default(),
        }
    }
}

impl Sums {
    fn totals(self, (second, name, outcome): TotalsKey) -> TaskTotals {
        TaskTotals {
            name: registry::name(name),
            outcome: Outcome::ALL[outcome],
            second: Timestamp::from_unix_ns(second.saturating_mul(1_000_000_000)),
            duration_ns: self.duration_ns,
            buckets: self.buckets.into_iter().collect(),
            phases: self.phases,
        }
    }
}
