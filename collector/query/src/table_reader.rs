//! Reading the tables for an answer, and noting what could not be read.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use profiler_core::{NodeId, TimeRange, Timestamp, WorkerId};

use super::QueryError;
use base::id_set::IdSet;
use base::log_limit::{Admitted, LineLimit};
use state::CollectorState;
use state::ledger::{NewestTasks, TaskFilter, TaskSnapshot};
use state::telemetry::RowSnapshot;
use state::windows::WindowSnapshot;
use store::rows::TaskRow;
use store::{
    Batch, Column, Coverage, DataSpan, FileEntry, ListRow, LostLog, Manifest, NewestTaskScan,
    Period, Piece, Plan, RowScan, Scan, SealedTask, Second, StoreError, SumTable, TableName,
    Tables, TaskScan, Tier, UnionPart, WorkerNumber,
};

/// Any query about a damaged file causes this line.
static MISSING: LineLimit = LineLimit::new();

/// How long a query may compute.
pub trait Allowance: Send + Sync {
    /// Whether it may go on. Once false, it stays so.
    fn goes_on(&self) -> bool;
}

/// Whether a query must stop, because its reader has disconnected or its allowance is used up. Queries look
/// between batches of rows.
#[derive(Default)]
pub struct Cancel {
    is_set: AtomicBool,
    allowance: Option<Arc<dyn Allowance>>,
    rows_read: AtomicU64,
}

impl Cancel {
    pub fn new(allowance: Option<Arc<dyn Allowance>>) -> Cancel {
        Cancel {
            is_set: AtomicBool::new(false),
            allowance,
            rows_read: AtomicU64::new(0),
        }
    }

    /// Rows that the query has read from tables: its cost.
    pub fn rows_read(&self) -> u64 {
        self.rows_read.load(Ordering::Relaxed)
    }

    fn count_rows(&self, rows: usize) {
        self.rows_read.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub fn set(&self) {
        self.is_set.store(true, Ordering::Relaxed);
    }

    pub fn check(&self) -> Result<(), QueryError> {
        if self.is_set.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled);
        }
        match &self.allowance {
            Some(allowance) if !allowance.goes_on() => Err(QueryError::AllowanceUsed),
            _ => Ok(()),
        }
    }
}

/// One version of the tables, and the plan for reading some seconds from it.
pub(crate) struct TableReader<'a> {
    tables: &'a Tables,
    cancel: &'a Cancel,
    now: Timestamp,
    manifest: Arc<Manifest>,
    pub plan: Plan,
    coverage: Coverage,
    /// The seconds of the plan to read; `None` for all.
    spans: Option<Vec<Range<Second>>>,
    /// Names of unreadable files, which are missing from the answer.
    damaged: BTreeSet<String>,
}

/// Names of the data that is missing from every answer about some seconds.
fn lost_to_all(tables: &Tables, manifest: &Manifest, seconds: &Range<Second>) -> BTreeSet<String> {
    let of_log = manifest
        .lost_log
        .iter()
        .filter(|lost: &&LostLog| lost.from < seconds.end.0 && seconds.start.0 < lost.to)
        .map(|lost| lost.path.clone());
    manifest
        .lost_lists()
        .map(|file| tables.path_of(file))
        .chain(of_log)
        .collect()
}

/// Unsealed data with the version of the tables that lacks it.
pub(crate) trait Unsealed {
    fn manifest(&self) -> &Arc<Manifest>;
}

impl Unsealed for WindowSnapshot {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }
}

impl<R> Unsealed for RowSnapshot<R> {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }
}

impl Unsealed for TaskSnapshot {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }
}

/// The rows of a table to read.
#[derive(Clone, Copy)]
pub(crate) struct ScanFilter<'a> {
    /// Ascending; `None` for all.
    pub tasks: Option<&'a [NodeId]>,
    /// Ascending; `None` for all.
    pub workers: Option<&'a [WorkerNumber]>,
    /// Those that the visitor reads.
    pub columns: &'a [Column],
    /// Whether the visitor does not ask when a row is from.
    pub sums_only: bool,
}

/// A file of a piece of the plan.
pub(super) struct PieceFile {
    pub(super) piece: Piece,
    pub(super) file: FileEntry,
    /// Of the file's store in a union; else 0.
    pub(super) place: usize,
}

impl<'a> TableReader<'a> {
    /// A reader for the seconds that start in `range`, or for more where the tables have no finer
    /// periods. `take` reads the unsealed data; `plan` chooses the periods of the tables.
    pub(crate) fn of<B: Unsealed>(
        state: &'a CollectorState,
        cancel: &'a Cancel,
        range: TimeRange,
        take: impl Fn(&CollectorState, Range<Second>) -> B,
        plan: impl Fn(&Coverage, Range<Second>) -> Plan,
    ) -> (TableReader<'a>, B) {
        let asked = Second::starting_in(range);
        let mut seconds = asked.clone();
        loop {
            let unsealed = take(state, seconds.clone());
            let manifest = unsealed.manifest().clone();
            let coverage = Coverage::of(&manifest);
            let plan = plan(&coverage, asked.clone());
            // If the plan is wider than the request, the unsealed data must be as wide.
            if plan.seconds == seconds {
                let tables = &*state.tables;
                let damaged = lost_to_all(tables, &manifest, &plan.seconds);
                let stored = TableReader {
                    tables,
                    cancel,
                    now: state.clock.now(),
                    manifest,
                    plan,
                    coverage,
                    spans: None,
                    damaged,
                };
                return (stored, unsealed);
            }
            seconds = plan.seconds;
        }
    }

    /// Reads other seconds from here on.
    pub(crate) fn plan_for(&mut self, seconds: Range<Second>) {
        self.spans = None;
        self.plan = self.coverage.plan(seconds);
    }

    /// Plans the same seconds with the fewest periods, for queries without steps.
    pub(crate) fn coarsen(&mut self) {
        let plan = self.coverage.plan(self.plan.seconds.clone());
        if plan.seconds == self.plan.seconds {
            self.plan = plan;
        }
    }

    /// Plans the same seconds in periods of `coarsest` at most that each lie between two neighbors of `cuts`, which rise.
    /// Returns whether finer detail that this needs is still retained.
    pub(crate) fn split(&mut self, cuts: &[Second], coarsest: Tier) -> bool {
        let Range { start, end } = self.plan.seconds;
        let inner = cuts
            .iter()
            .copied()
            .filter(|cut| start < *cut && *cut < end);
        let mut pieces = Vec::new();
        let mut from = start;
        for to in inner.chain([end]) {
            let plan = self.coverage.plan_in(from..to, coarsest);
            if plan.seconds != (from..to) {
                return false;
            }
            pieces.extend(plan.pieces);
            from = to;
        }
        self.plan.pieces = pieces;
        true
    }

    /// The first second with data in tables: the period that it is read from may begin earlier.
    pub(crate) fn first_second(&self) -> Second {
        self.coverage.first_second().unwrap_or(Second(0))
    }

    /// Plans the same seconds in periods of `coarsest` at most, if these cover them exactly, and only those that overlap
    /// `spans`; `None` for all. Returns whether it did.
    pub(crate) fn refine(&mut self, coarsest: Tier, spans: Option<&[Range<Second>]>) -> bool {
        let plan = self.coverage.plan_in(self.plan.seconds.clone(), coarsest);
        let is_exact = plan.seconds == self.plan.seconds;
        if is_exact {
            self.narrow(&plan, spans);
        }
        is_exact
    }

    /// Reads the part of a plan of the same seconds that overlaps `spans`; `None` for all of it.
    pub(crate) fn narrow(&mut self, plan: &Plan, spans: Option<&[Range<Second>]>) {
        self.plan = spans.map_or_else(|| plan.clone(), |spans| plan.within(spans));
        self.spans = spans.map(<[_]>::to_vec);
    }

    /// The files of the plan's periods, those of a piece together.
    pub(super) fn files(&mut self, table_of: &dyn Fn(&Piece) -> SumTable) -> Vec<PieceFile> {
        let pieces = self.plan.pieces.clone();
        let manifest = self.manifest.clone();
        let mut files = Vec::new();
        for piece in pieces {
            let table = TableName::Sums(table_of(&piece), piece.tier);
            self.note_lost(&manifest, table, &piece.periods);
            let periods = &piece.periods;
            files.extend(
                manifest
                    .files_of(table)
                    .filter(|file: &&FileEntry| file.from < periods.end && periods.start < file.to)
                    .map(|file| PieceFile {
                        piece: piece.clone(),
                        file: file.clone(),
                        place: self.tables.place_of(file),
                    }),
            );
        }
        files
    }

    /// The stores of a union; none if the tables are those of one store.
    pub(super) fn parts(&self) -> Vec<Arc<UnionPart>> {
        self.tables.parts()
    }

    /// A file's path, which begins with the name of its store in a union.
    pub(super) fn path_of(&self, file: &FileEntry) -> String {
        self.tables.path_of(file)
    }

    pub(super) fn cancel(&self) -> &'a Cancel {
        self.cancel
    }

    /// Visits every requested row of the plan's periods: its batch and its index there.
    pub(crate) fn scan(
        &mut self,
        table_of: impl Fn(&Piece) -> SumTable,
        asked: ScanFilter<'_>,
        mut visit: impl FnMut(&Batch, Rows<'_>),
    ) -> Result<(), QueryError> {
        self.scan_files(&table_of, asked, &mut |batch, rows| {
            visit(batch, rows);
            ControlFlow::Continue(())
        })
    }

    /// Like [`TableReader::scan`], until `visit` has enough.
    pub(crate) fn scan_while(
        &mut self,
        table_of: impl Fn(&Piece) -> SumTable,
        asked: ScanFilter<'_>,
        mut visit: impl FnMut(&Batch, Rows<'_>) -> ControlFlow<()>,
    ) -> Result<(), QueryError> {
        self.scan_files(&table_of, asked, &mut visit)
    }

    /// Like [`TableReader::scan_while`]. Not generic, so that it is compiled once.
    fn scan_files(
        &mut self,
        table_of: &dyn Fn(&Piece) -> SumTable,
        asked: ScanFilter<'_>,
        visit: &mut dyn FnMut(&Batch, Rows<'_>) -> ControlFlow<()>,
    ) -> Result<(), QueryError> {
        let mut has_enough = false;
        let workers = asked
            .workers
            .map(|asked| asked.iter().map(|number| number.0).collect());
        for PieceFile { piece, file, .. } in self.files(table_of) {
            self.cancel.check()?;
            let Piece { tier, periods } = piece;
            let scan = Scan {
                periods: periods.clone(),
                spans: self.spans.as_deref(),
                tasks: asked.tasks,
                workers: asked.workers,
                columns: asked.columns,
                sums_only: asked.sums_only,
            };
            let mut each = |batch: &Batch| {
                self.cancel.count_rows(batch.row_count());
                let rows = Rows {
                    batch,
                    tier,
                    periods: &periods,
                    workers: workers.as_ref(),
                };
                has_enough = visit(batch, rows).is_break();
                if has_enough || self.cancel.check().is_err() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            };
            if let Err(error) = self.tables.scan(&file, &scan, &mut each) {
                self.note_unread(&file, &error);
            }
            self.cancel.check()?;
            if has_enough {
                break;
            }
        }
        Ok(())
    }

    /// Visits the ended tasks that overlap `seconds`, and possibly others; `filter` skips what it
    /// can.
    pub(crate) fn scan_tasks(
        &mut self,
        seconds: &Range<Second>,
        filter: &TaskFilter,
        mut visit: impl FnMut(&Arc<TaskRow>),
    ) -> Result<(), QueryError> {
        let manifest = self.manifest.clone();
        let periods = Period(seconds.start.0)..Period(seconds.end.0);
        self.note_lost(&manifest, TableName::Tasks, &periods);
        fn only(texts: &[String]) -> Option<&str> {
            let [text] = texts else { return None };
            Some(text)
        }
        let span_ns = seconds.start.start().unix_ns()..seconds.end.start().unix_ns();
        let scan = TaskScan {
            span_ns: Some(span_ns),
            name: only(&filter.names),
            key: only(&filter.keys),
        };
        for file in manifest
            .files_of(TableName::Tasks)
            .filter(|file: &&FileEntry| file.from < periods.end && periods.start < file.to)
        {
            self.cancel.check()?;
            let mut each = |rows: Vec<SealedTask>| {
                self.cancel.count_rows(rows.len());
                rows.iter().for_each(|task| visit(&task.row));
                match self.cancel.check() {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            };
            if let Err(error) = self.tables.tasks(file, &scan, &mut each) {
                self.note_unread(file, &error);
            }
            self.cancel.check()?;
        }
        Ok(())
    }

    /// Counts the ended tasks that overlap `range` and pass `filter`, and selects the newest.
    pub(crate) fn newest_tasks(
        &mut self,
        range: TimeRange,
        filter: &TaskFilter,
        selecting: &mut NewestTasks,
    ) -> Result<(), QueryError> {
        let manifest = self.manifest.clone();
        let seconds = seconds_touched(range);
        let periods = Period(seconds.start.0)..Period(seconds.end.0);
        self.note_lost(&manifest, TableName::Tasks, &periods);
        let scan = NewestTaskScan::new(range, filter);
        let mut files: Vec<_> = manifest
            .files_of(TableName::Tasks)
            .filter(|file: &&FileEntry| file.from < periods.end && periods.start < file.to)
            .collect();
        // The sooner the newest are known, the fewer others are read.
        files.sort_by_key(|file| Reverse(file.to));
        for file in files {
            self.cancel.check()?;
            let read = self
                .tables
                .newest_tasks(file, &scan, selecting, &mut || match self.cancel.check() {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                });
            if let Err(error) = read {
                self.note_unread(file, &error);
            }
            self.cancel.check()?;
        }
        Ok(())
    }

    /// Visits the rows of a list table that `scan` requests, and possibly others.
    pub(crate) fn scan_rows<R: ListRow>(
        &mut self,
        table: TableName,
        seconds: &Range<Second>,
        scan: &RowScan<'_>,
        mut visit: impl FnMut(&R),
    ) -> Result<(), QueryError> {
        let manifest = self.manifest.clone();
        let periods = Period(seconds.start.0)..Period(seconds.end.0);
        self.note_lost(&manifest, table, &periods);
        for file in manifest
            .files_of(table)
            .filter(|file: &&FileEntry| file.from < periods.end && periods.start < file.to)
        {
            self.cancel.check()?;
            let mut each = |rows: Vec<R>| {
                self.cancel.count_rows(rows.len());
                rows.iter().for_each(&mut visit);
                match self.cancel.check() {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            };
            if let Err(error) = self.tables.list_rows(file, scan, &mut each) {
                self.note_unread(file, &error);
            }
            self.cancel.check()?;
        }
        Ok(())
    }

    /// Notes files of the requested time that are known to be damaged.
    fn note_lost(&mut self, manifest: &Manifest, table: TableName, periods: &Range<Period>) {
        let lost = manifest
            .lost
            .iter()
            .map(|lost| &lost.file)
            .filter(|file| file.table == table)
            .filter(|file| file.from < periods.end && periods.start < file.to);
        self.damaged
            .extend(lost.map(|file| self.tables.path_of(file)));
    }

    fn note_unread(&mut self, file: &FileEntry, error: &StoreError) {
        if let Some(Admitted { suppressed }) = MISSING.admit() {
            tracing::error!(%error, suppressed, "a file is missing from an answer");
        }
        self.damaged.insert(self.tables.path_of(file));
    }

    /// Names of the files that are missing from the answer.
    pub(crate) fn damaged(self) -> Vec<String> {
        self.damaged.into_iter().collect()
    }

    /// The workers' numbers in the tables, ascending; workers in no table have none.
    pub(crate) fn worker_numbers(&self, workers: &[String]) -> Option<Vec<WorkerNumber>> {
        if workers.is_empty() {
            return None;
        }
        let mut numbers: Vec<WorkerNumber> = workers
            .iter()
            .filter_map(|id| self.tables.worker_number(&WorkerId(id.as_str().into())))
            .collect();
        numbers.sort_unstable();
        Some(numbers)
    }

    /// All workers in the tables: the first has number 1.
    pub(crate) fn all_workers(&self) -> Vec<WorkerId> {
        self.tables.worker_ids()
    }

    /// The answered range: the requested one, unless the tables no longer have its resolution.
    pub(crate) fn range(&self, asked: TimeRange) -> TimeRange {
        let seconds = &self.plan.seconds;
        if *seconds == Second::starting_in(asked) {
            return asked;
        }
        time_range(seconds).unwrap_or(asked)
    }

    /// The span of all data, in tables or not.
    pub(crate) fn data(&self, unsealed: Option<DataSpan>) -> Option<TimeRange> {
        [self.coverage.data(self.now), unsealed]
            .into_iter()
            .flatten()
            .reduce(DataSpan::hull)?
            .range()
    }
}

/// The seconds that overlap a range.
pub(crate) fn seconds_touched(range: TimeRange) -> Range<Second> {
    Second::of(range.start())..Second(Second::of(range.stop()).0.saturating_add(1))
}

fn time_range(seconds: &Range<Second>) -> Option<TimeRange> {
    TimeRange::new(seconds.start.start(), seconds.end.start())
}

/// The requested rows of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    batch: &'a Batch,
    tier: Tier,
    periods: &'a Range<Period>,
    workers: Option<&'a IdSet>,
}

impl Rows<'_> {
    /// When the row's period starts.
    pub(crate) fn start(&self, index: usize) -> Timestamp {
        let seconds = i64::from(self.batch.ts[index]) * i64::from(self.tier.seconds());
        Timestamp::from_unix_ns(seconds * 1_000_000_000)
    }

    /// The length of each period.
    pub(crate) fn period_ns(&self) -> u64 {
        u64::from(self.tier.seconds()) * 1_000_000_000
    }

    /// Whether each period is a single second.
    pub(crate) fn are_seconds(&self) -> bool {
        self.tier == Tier::Second
    }

    /// Their places in the batch, neighbours together.
    pub(crate) fn each_range(&self, mut visit: impl FnMut(Range<usize>)) {
        if self.are_all() {
            return visit(0..self.batch.row_count());
        }
        let mut range = 0..0;
        self.each(|index| {
            if index != range.end {
                visit(std::mem::replace(&mut range, index..index));
            }
            range.end = index + 1;
        });
        visit(range);
    }

    /// Visits the index of each requested row once.
    #[inline]
    pub(crate) fn each(&self, mut visit: impl FnMut(usize)) {
        let Batch {
            ts, worker, values, ..
        } = self.batch;
        if self.are_all() {
            return (0..values.len()).for_each(visit);
        }
        let start = self.periods.start.0;
        let end = self.periods.end.0;
        let is_asked = |index: usize| {
            start <= ts[index]
                && ts[index] < end
                && self
                    .workers
                    .is_none_or(|asked| asked.contains(worker[index]))
        };
        (0..values.len())
            .filter(|index| is_asked(*index))
            .for_each(&mut visit);
    }

    /// Whether every row is requested. Most batches lie within the periods, and the check costs a
    /// tenth of a sum.
    fn are_all(&self) -> bool {
        if self.batch.is_summed {
            return true;
        }
        let ts = self.batch.ts.iter();
        let bounds = ts.fold((u32::MAX, 0), |(min, max), ts| (min.min(*ts), max.max(*ts)));
        self.workers.is_none() && self.periods.start.0 <= bounds.0 && bounds.1 < self.periods.end.0
    }
}
