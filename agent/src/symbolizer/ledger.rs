//! Turns the rows of task guards into task records: tracks open tasks and their phases and results,
//! and decides which ended tasks get a row of their own and which are summed.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::bucket::bucket;
use profiler_core::{Outcome, PhaseInterval, TaskId, TaskRecord, TaskTotals, Timestamp};
use rustc_hash::FxHashMap;

use crate::detail::{self, Interval, Phases};
use crate::registry::{
    self, Drained, LocalTaskId, NameId, PhaseRow, ResultRow, Row, SpillSum, TaskRow, ThreadCell,
};
use crate::threads::ThreadIdentity;
use ship::batch::add_to_totals;

/// Most open tasks that are tracked. A task beyond gets a row when it ends, without its phases.
const OPEN_MAX: usize = 200_000;
/// Most tasks with phases but without a start: the start found the ring full, or another thread
/// added a phase after the task's end.
const ORPHANS_MAX: usize = 10_000;
/// Most ends that are delayed until the next drain.
const DELAYED_ENDS_MAX: usize = 200_000;
/// Most rows of ended tasks in one cycle, whatever the setting.
const CYCLE_ROWS_MAX: usize = 200_000;
/// Most running tasks re-sent per cycle because their details changed; others follow in a later
/// cycle.
const CYCLE_UPDATES_MAX: usize = 1_000;
/// Most sums in one cycle, by name, outcome and second; names past it count as `[overflow]`.
const CYCLE_TOTALS_MAX: usize = 20_000;
/// One row in this many is reserved for tasks that did not end with `ok`.
const RESERVE_PART: u32 = 10;

/// Collects rows, and returns records once per cycle.
pub(crate) struct Ledger {
    rows_per_second: u32,
    open: FxHashMap<LocalTaskId, OpenTask>,
    /// Ends are delayed by one drain, so that everything that any thread wrote before an end is
    /// read by then. Otherwise a start could be read after the end and overwrite it, and the task
    /// would seem to run forever; or a phase would come too late.
    delayed_ends: Vec<ThreadRow>,
    ended: Vec<TaskRecord>,
    /// The second of the latest end, and the number of rows kept for it.
    second: i64,
    rows_kept: u32,
    totals: BTreeMap<TotalsKey, Sums>,
    aggregated_tasks: u64,
    lost_tasks: u64,
    /// Tasks that have begun and are not in `open`: their starts found no room, in the ring of their thread or here. Below
    /// 0 while ends are read before the counts of their starts, or are of tasks that began before this agent.
    unseen: i64,
}

/// The tasks of one cycle.
pub(crate) struct SealedTasks {
    /// Tasks that started or ended, each once, in its latest state, in the order of their starts.
    pub(crate) tasks: Vec<TaskRecord>,
    pub(crate) totals: Vec<TaskTotals>,
    pub(crate) lost_tasks: u64,
    pub(crate) aggregated_tasks: u64,
}

/// A task that has not ended.
#[derive(Default)]
struct OpenTask {
    start: Option<ThreadRow>,
    /// Whether it was sent as running: then its end must be sent too.
    is_sent: bool,
    /// Whether its details changed since it was sent.
    is_changed: bool,
    phases: Phases,
    result_bytes: Option<u64>,
    type_name: NameId,
}

/// A row, and the thread that wrote it.
#[derive(Clone)]
struct ThreadRow {
    row: TaskRow,
    thread: Arc<ThreadIdentity>,
}

/// The key of a sum of tasks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TotalsKey {
    second: i64,
    name: NameId,
    /// Index in [`Outcome::ALL`].
    outcome: usize,
}

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
            delayed_ends: Vec::new(),
            ended: Vec::new(),
            second: i64::MIN,
            rows_kept: 0,
            totals: BTreeMap::new(),
            aggregated_tasks: 0,
            lost_tasks: 0,
            unseen: 0,
        }
    }

    /// Reads what the guards wrote, and returns its number of rows. Ends are delayed until the next
    /// drain.
    pub(crate) fn drain(&mut self) -> usize {
        let due = std::mem::take(&mut self.delayed_ends);
        let mut rows = 0;
        let unwritten = registry::drain(|drained| {
            rows += 1;
            match drained {
                Drained::Row(cell, row) => self.add_row(cell, row),
                Drained::Sum(sum) => self.add_sum(sum),
            }
        });
        self.lost_tasks += unwritten.lost;
        self.unseen += unwritten.silent_starts as i64;
        due.into_iter().for_each(|row| self.finish(row));
        rows
    }

    /// Finishes the delayed ends without another drain. What has begun unseen has no end any more.
    pub(crate) fn finish_all(&mut self) {
        std::mem::take(&mut self.delayed_ends)
            .into_iter()
            .for_each(|row| self.finish(row));
        self.lost_tasks += u64::try_from(std::mem::take(&mut self.unseen)).unwrap_or(0);
    }

    /// Whether a seal would return anything.
    pub(crate) fn has_changes(&self) -> bool {
        !self.ended.is_empty()
            || !self.totals.is_empty()
            || self.lost_tasks > 0
            || self.open.values().any(OpenTask::needs_sending)
    }

    /// The tasks since the last seal.
    pub(crate) fn seal(&mut self) -> SealedTasks {
        let mut tasks = std::mem::take(&mut self.ended);
        let mut updates = 0;
        for open in self.open.values_mut().filter(|open| open.needs_sending()) {
            updates += usize::from(open.is_sent);
            if open.is_sent && updates > CYCLE_UPDATES_MAX {
                continue;
            }
            open.is_sent = true;
            open.is_changed = false;
            tasks.extend(open.start.clone().map(|row| open.record(row)));
        }
        let orphans = self
            .open
            .values()
            .filter(|open| open.start.is_none())
            .count();
        if orphans > ORPHANS_MAX {
            self.open.retain(|_, open| open.start.is_some());
        }
        tasks.sort_unstable_by_key(|task| (task.start, task.id));
        let totals = std::mem::take(&mut self.totals).into_iter();
        SealedTasks {
            tasks,
            totals: totals.map(|(key, sums)| sums.totals(key)).collect(),
            lost_tasks: std::mem::take(&mut self.lost_tasks),
            aggregated_tasks: std::mem::take(&mut self.aggregated_tasks),
        }
    }

    fn add_row(&mut self, cell: &ThreadCell, row: Row) {
        match row {
            Row::Task(row) => {
                let row = ThreadRow {
                    row,
                    thread: cell.thread.clone(),
                };
                if row.row.stop().is_none() {
                    match self.open(row.row.id) {
                        Some(open) => open.start = Some(row),
                        None => self.unseen += 1,
                    }
                } else if self.delayed_ends.len() < DELAYED_ENDS_MAX {
                    self.delayed_ends.push(row);
                } else {
                    self.finish(row);
                }
            }
            Row::Phase(PhaseRow {
                task,
                phase,
                start,
                stop,
            }) => match self.open(task) {
                Some(open) => {
                    open.phases.add(Interval { phase, start, stop });
                    open.is_changed = true;
                }
                None => self.lost_tasks += 1,
            },
            Row::Result(ResultRow {
                task,
                bytes,
                type_name,
            }) => {
                if let Some(open) = self.open(task) {
                    open.is_changed = true;
                    open.result_bytes = bytes.or(open.result_bytes);
                    if type_name != NameId::NONE {
                        open.type_name = type_name;
                    }
                }
            }
        }
    }

    /// The open task with this id, which is added if needed; `None` if there is no room for it.
    fn open(&mut self, id: LocalTaskId) -> Option<&mut OpenTask> {
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&id) {
            return None;
        }
        Some(self.open.entry(id).or_default())
    }

    /// Finishes a task that has ended and of which every row is read.
    fn finish(&mut self, ended: ThreadRow) {
        let open = self.open.remove(&ended.row.id).unwrap_or_default();
        if open.start.is_none() {
            self.unseen -= 1;
        }
        let must_have_row = open.is_sent;
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

    /// Whether an ended task gets a row, which is then counted.
    fn has_room_for_row(&mut self, record: &TaskRecord, must_have_row: bool) -> bool {
        let second = record.stop.unwrap_or(record.start).second();
        // Ends are nearly in order; an end of the previous second is counted with this second.
        if second > self.second {
            self.second = second;
            self.rows_kept = 0;
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
        phases.for_each(|phase| add_to_totals(&mut sums.phases, phase));
    }

    /// Adds a sum of a thread whose ring was full.
    fn add_sum(&mut self, sum: SpillSum) {
        match sum {
            SpillSum::Tasks {
                name,
                outcome,
                stop,
                duration_ns,
                buckets,
            } => {
                let count: u64 = buckets.iter().map(|(_, count)| count).sum();
                self.aggregated_tasks += count;
                self.unseen -= count as i64;
                self.sums_of(stop, name, outcome).add(duration_ns, buckets);
            }
            SpillSum::Phases {
                task_name,
                phase,
                stop,
                duration_ns,
                count,
            } => {
                let name = registry::name(phase);
                let phase = PhaseInterval {
                    name,
                    start_ns: 0,
                    duration_ns,
                    count,
                };
                // The tasks themselves have rows or sums of their own, which do not include these
                // phases.
                let sums = self.sums_of(stop, task_name, Outcome::Ok);
                add_to_totals(&mut sums.phases, &phase);
            }
        }
    }

    fn sums_of(&mut self, stop: Timestamp, name: NameId, outcome: Outcome) -> &mut Sums {
        let mut key = TotalsKey {
            second: stop.second(),
            name,
            outcome: outcome as usize,
        };
        if self.totals.len() >= CYCLE_TOTALS_MAX && !self.totals.contains_key(&key) {
            key.name = NameId::OVERFLOW;
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

impl OpenTask {
    /// Whether it runs and must be sent or re-sent.
    fn needs_sending(&self) -> bool {
        self.start.is_some() && (!self.is_sent || self.is_changed)
    }

    /// The record of the task with this row.
    fn record(&self, row: ThreadRow) -> TaskRecord {
        let ThreadRow { mut row, thread } = row;
        let stop = row.stop();
        let phases = self.phases.intervals(row.start, stop);
        if self.result_bytes.is_some() || self.type_name != NameId::NONE {
            let detail = row.detail.get_or_insert_default();
            detail.set_result(self.result_bytes, self.type_name);
        }
        let detail = row.detail.as_deref();
        let thread = detail
            .and_then(|detail| detail.started_on.as_ref())
            .unwrap_or(&thread);
        TaskRecord {
            id: row.id.into(),
            name: registry::name(row.name),
            thread_id: thread.id,
            thread_name: thread.name.clone(),
            parent: row.parent.map(TaskId::from),
            start: row.start,
            stop,
            outcome: row.outcome,
            cause: detail
                .and_then(|detail| detail.cause.clone())
                .unwrap_or_default(),
            detail: detail::task_detail(detail, phases),
            key: row.key.unwrap_or_default(),
        }
    }
}

impl Sums {
    fn totals(self, key: TotalsKey) -> TaskTotals {
        TaskTotals {
            name: registry::name(key.name),
            outcome: Outcome::ALL[key.outcome],
            second: Timestamp::from_unix_ns(key.second.saturating_mul(1_000_000_000)),
            duration_ns: self.duration_ns,
            buckets: self.buckets.into_iter().collect(),
            phases: self.phases,
        }
    }
}
