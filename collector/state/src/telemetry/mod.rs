//! Telemetry in memory: transfers, resource samples, expected tasks, runs.
//!
//! Rows of transfers and samples are here until a version of the tables has them, as in
//! [`UnsealedWindows`](crate::windows::UnsealedWindows). So a reader sees each once. Runs and
//! expected tasks are all in memory.

mod holdings;
mod runs;
mod transfer_sums;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::{Epoch, ExpectedTasks, Telemetry, Timestamp, WorkerId};

use self::holdings::{Candidate, Holdings, surplus};
use base::limits::EXPECTATIONS_MAX;
use base::log_limit::{Admitted, LineLimit};
use shares::identity::Identity;
use store::rows::{ExpectedRow, ResourceRow, RunRow, TelemetryBatch, TransferRow};
use store::{Manifest, Second};

pub use runs::{RunChange, Runs};
pub use transfer_sums::LinkSum;

/// Any agent can cause these lines.
static DROPPED: LineLimit = LineLimit::new();

/// Most expectations of one identity.
const EXPECTATIONS_OF_IDENTITY_MAX: usize = EXPECTATIONS_MAX / 10;

/// Rows by second, then by arrival: a late row is inserted at its time.
type BySecond<R> = BTreeMap<(Second, u64), Arc<R>>;

#[derive(Default, Debug)]
struct Rows {
    /// By the second of their stop.
    transfers: BySecond<TransferRow>,
    samples: BySecond<ResourceRow>,
    bytes: usize,
}

/// Snapshot that one query reads: complete and immutable.
#[derive(Clone, Debug)]
pub struct RowSnapshot<R> {
    pub manifest: Arc<Manifest>,
    pub rows: Vec<Arc<R>>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct UnsealedTelemetry {
    manifest: Arc<Manifest>,
    open: Rows,
    /// Rows being written to tables. Readers find them here until [`UnsealedTelemetry::sealed`].
    sealing: Rows,
    arrivals: u64,
    runs: Runs,
    expected: BTreeMap<(WorkerId, Epoch, Arc<str>), ExpectedTasks>,
    /// The holders of the expected tasks.
    expecting: Holdings,
    /// Number of changes of runs and expected tasks: in all, up to the last
    /// [`UnsealedTelemetry::take_for_sealing`], and in the tables.
    changes: [u64; 3],
}

impl UnsealedTelemetry {
    /// Telemetry that lacks nothing compared with the tables of `manifest`.
    pub fn new(manifest: Arc<Manifest>, runs_max: usize) -> UnsealedTelemetry {
        UnsealedTelemetry {
            manifest,
            open: Rows::default(),
            sealing: Rows::default(),
            arrivals: 0,
            runs: Runs::new(runs_max),
            expected: BTreeMap::new(),
            expecting: Holdings::default(),
            changes: [0; 3],
        }
    }

    /// Restores runs and expected tasks from the tables.
    pub fn restore(&mut self, runs: Vec<RunRow>, expected: Vec<ExpectedRow>) {
        for run in runs {
            let _ = self.runs.put(run, None);
        }
        expected.into_iter().for_each(|row| self.expect(row, None));
        self.changes = [0; 3];
    }

    /// Adds everything that another store has in memory.
    pub fn add_all(&mut self, other: &UnsealedTelemetry) {
        for rows in [&other.sealing, &other.open] {
            rows.transfers
                .values()
                .for_each(|row| self.insert_transfer(row.clone()));
            rows.samples
                .values()
                .for_each(|row| self.insert_sample(row.clone()));
        }
        for run in other.runs.all() {
            let _ = self.runs.put(RunRow::clone(run), None);
        }
        other
            .expected()
            .into_iter()
            .for_each(|row| self.expect(row, None));
    }

    /// Inserts the telemetry of one flush of this identity, if it is known. Returns the runs that started or
    /// stopped.
    pub fn insert(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
        telemetry: Telemetry,
        sender: Option<&Identity>,
    ) -> Vec<RunChange> {
        let Telemetry {
            totals: _,
            transfers,
            resources,
            expected,
            runs,
        } = telemetry;
        for record in transfers {
            let row = TransferRow {
                worker: worker.clone(),
                epoch,
                record,
            };
            self.insert_transfer(Arc::new(row));
        }
        for sample in resources {
            let row = ResourceRow {
                worker: worker.clone(),
                epoch,
                sample,
            };
            self.insert_sample(Arc::new(row));
        }
        for expected in expected {
            self.expect(
                ExpectedRow {
                    worker: worker.clone(),
                    epoch,
                    expected,
                },
                sender,
            );
        }
        let worker = Some(worker.clone());
        runs.into_iter()
            .filter_map(|run| self.put_run(RunRow::marked(worker.clone(), epoch, run), sender))
            .collect()
    }

    fn insert_transfer(&mut self, row: Arc<TransferRow>) {
        self.open.bytes += row.bytes();
        let place = self.place(row.record.stop);
        self.open.transfers.insert(place, row);
    }

    fn insert_sample(&mut self, row: Arc<ResourceRow>) {
        self.open.bytes += row.bytes();
        let place = self.place(row.sample.at);
        self.open.samples.insert(place, row);
    }

    /// Inserts or replaces a run that this identity sent, if it is known. Returns the change, if any.
    pub fn put_run(&mut self, run: RunRow, sender: Option<&Identity>) -> Option<RunChange> {
        self.changes[0] += 1;
        self.runs.put(run, sender)
    }

    /// Ends the open runs of a worker's life. Returns them.
    pub fn end_runs_as_lost(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
        last_seen: Timestamp,
    ) -> Vec<RunChange> {
        let ended = self.runs.end_as_lost(worker, epoch, last_seen);
        self.changes[0] += ended.len() as u64;
        ended
    }

    /// Forgets the open runs and the expected tasks of a worker's life, which continue at another collector.
    pub fn forget_open(&mut self, worker: &WorkerId, epoch: Epoch) {
        let runs = self.runs.forget_open(worker, epoch);
        let before = self.expected.len();
        self.expected
            .retain(|(of, life, _), _| of != worker || *life != epoch);
        let expected = before - self.expected.len();
        (0..expected).for_each(|_| self.expecting.remove(worker));
        self.changes[0] += (runs + expected) as u64;
    }

    /// Reverts [`UnsealedTelemetry::end_runs_as_lost`] for a worker that reconnected.
    pub fn resume_lost_runs(&mut self, worker: &WorkerId, epoch: Epoch) {
        self.changes[0] += self.runs.resume_lost(worker, epoch) as u64;
    }

    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// All expected tasks: the latest number of each name and life.
    pub fn expected(&self) -> Vec<ExpectedRow> {
        self.expected
            .iter()
            .map(
                |((worker, epoch, _), expected): (&(WorkerId, Epoch, Arc<str>), &ExpectedTasks)| {
                    ExpectedRow {
                        worker: worker.clone(),
                        epoch: *epoch,
                        expected: expected.clone(),
                    }
                },
            )
            .collect()
    }

    /// The unsealed transfers that stopped in these seconds.
    pub fn transfers(&self, seconds: Range<Second>) -> RowSnapshot<TransferRow> {
        self.view([&self.sealing.transfers, &self.open.transfers], seconds)
    }

    /// The unsealed samples of these seconds.
    pub fn samples(&self, seconds: Range<Second>) -> RowSnapshot<ResourceRow> {
        self.view([&self.sealing.samples, &self.open.samples], seconds)
    }

    fn view<R>(&self, parts: [&BySecond<R>; 2], seconds: Range<Second>) -> RowSnapshot<R> {
        let places = (seconds.start, 0)..(seconds.end.max(seconds.start), 0);
        let rows = parts
            .into_iter()
            .flat_map(|part| part.range(places.clone()));
        RowSnapshot {
            manifest: self.manifest.clone(),
            rows: rows.map(|(_, row)| row.clone()).collect(),
        }
    }

    /// Whether the tables lack anything.
    pub fn has_unsealed(&self) -> bool {
        self.bytes() > 0 || self.changes[0] != self.changes[2]
    }

    /// Memory of the unsealed rows.
    pub fn bytes(&self) -> usize {
        self.open.bytes + self.sealing.bytes
    }

    /// Data to be written to tables. It stays here until [`UnsealedTelemetry::sealed`]; if the
    /// write fails, the next call returns it again.
    pub fn take_for_sealing(&mut self) -> TelemetryBatch {
        let Rows {
            transfers,
            samples,
            bytes,
        } = &mut self.open;
        self.sealing.bytes += std::mem::take(bytes);
        self.sealing.transfers.append(transfers);
        self.sealing.samples.append(samples);
        self.changes[1] = self.changes[0];
        TelemetryBatch {
            transfers: self.sealing.transfers.values().cloned().collect(),
            samples: self.sealing.samples.values().cloned().collect(),
            runs: self.runs.all().cloned().collect(),
            expected: self.expected(),
        }
    }

    /// Makes `manifest`, which has the rows last taken, the version of readers. Returns these rows,
    /// to be dropped without the lock.
    #[must_use = "to be dropped when the lock is free again"]
    pub fn sealed(&mut self, manifest: Arc<Manifest>) -> impl Sized + use<> {
        self.manifest = manifest;
        self.changes[2] = self.changes[1];
        std::mem::take(&mut self.sealing)
    }

    /// Replaces the version by one whose tables hold the same, or less by expired data.
    pub fn set_manifest(&mut self, manifest: Arc<Manifest>) {
        self.manifest = manifest;
    }

    fn place(&mut self, at: Timestamp) -> (Second, u64) {
        self.arrivals += 1;
        (Second::of(at), self.arrivals)
    }

    /// Drops that many at once, so that the cost per insertion stays small: those of everybody, or of the
    /// identity of one worker.
    fn drop_oldest_expected(&mut self, of: Option<&WorkerId>, count: usize) {
        let only = of.and_then(|worker| self.expecting.holder(worker));
        let candidates = self.expected.iter().filter_map(|(key, expected)| {
            let holder = self.expecting.holder(&key.0);
            let is_in = only.is_none() || holder == only;
            is_in.then(|| Candidate {
                holder,
                age: (expected.since, key.clone()),
            })
        });
        let oldest = surplus(candidates, count);
        if let Some(Admitted { suppressed }) = DROPPED.admit() {
            let dropped = oldest.len();
            let limit = EXPECTATIONS_MAX;
            tracing::warn!(
                dropped,
                limit,
                suppressed,
                "the oldest expected tasks are dropped"
            );
        }
        for (_, key) in oldest {
            self.expecting.remove(&key.0);
            self.expected.remove(&key);
        }
    }

    fn expect(&mut self, row: ExpectedRow, sender: Option<&Identity>) {
        let worker = row.worker.clone();
        let key = (row.worker, row.epoch, row.expected.name.clone());
        self.changes[0] += 1;
        if self.expected.insert(key, row.expected).is_some() {
            return;
        }
        self.expecting.add(&worker, sender);
        if self.expecting.rows_with(&worker) > EXPECTATIONS_OF_IDENTITY_MAX {
            self.drop_oldest_expected(Some(&worker), EXPECTATIONS_OF_IDENTITY_MAX / 10);
        }
        if self.expected.len() > EXPECTATIONS_MAX {
            self.drop_oldest_expected(None, EXPECTATIONS_MAX / 10);
        }
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{ResourceSample, RunId, RunMarker};

    use super::*;
    use crate::testing::at;

    fn sampled(seconds: i64) -> Telemetry {
        let sample = ResourceSample {
            at: at(seconds),
            period_ns: 5,
            values: Vec::new(),
        };
        Telemetry {
            resources: vec![sample],
            ..Telemetry::default()
        }
    }

    #[test]
    fn a_row_is_in_memory_until_the_version_that_has_it_is_shown() {
        let mut book = UnsealedTelemetry::new(Arc::new(Manifest::default()), 9);
        let worker = WorkerId("w".into());
        book.insert(&worker, Epoch(1), sampled(3), None);
        let taken = book.take_for_sealing();
        assert_eq!(taken.samples.len(), 1);
        book.insert(&worker, Epoch(1), sampled(2), None);
        book.insert(&worker, Epoch(1), sampled(9), None);
        check_samples(&book, 0, &[3, 2]);
        // The write failed: the next sealing has both.
        assert_eq!(book.take_for_sealing().samples.len(), 3);
        book.insert(&worker, Epoch(1), sampled(4), None);
        drop(book.sealed(Arc::new(Manifest {
            version: 1,
            ..Manifest::default()
        })));
        check_samples(&book, 1, &[4]);
        assert!(book.has_unsealed());
        drop(book.take_for_sealing());
        drop(book.sealed(Arc::new(Manifest {
            version: 2,
            ..Manifest::default()
        })));
        assert_eq!((book.has_unsealed(), book.bytes()), (false, 0));

        // A run marked during a sealing is not in the tables yet.
        drop(book.take_for_sealing());
        let run = RunMarker {
            id: RunId(1),
            name: "r".into(),
            start: at(1),
            stop: None,
        };
        book.put_run(RunRow::marked(None, Epoch(0), run), None);
        drop(book.sealed(Arc::new(Manifest::default())));
        assert!(book.has_unsealed());
    }

    fn check_samples(book: &UnsealedTelemetry, version: u64, expected: &[i64]) {
        let view = book.samples(Second::of(at(0))..Second::of(at(9)));
        let found: Vec<_> = view.rows.iter().map(|row| row.sample.at).collect();
        let expected: Vec<_> = expected.iter().map(|seconds| at(*seconds)).collect();
        assert_eq!((view.manifest.version, found), (version, expected));
    }

    /// Tells that `worker` expects a task of this number, since that second.
    fn expect(
        book: &mut UnsealedTelemetry,
        worker: &str,
        sender: Option<&Identity>,
        number: usize,
    ) {
        let since = at(i64::try_from(number).unwrap());
        let expected = ExpectedTasks {
            name: number.to_string().into(),
            total: 1,
            since,
        };
        let telemetry = Telemetry {
            expected: vec![expected],
            ..Telemetry::default()
        };
        book.insert(&WorkerId(worker.into()), Epoch(1), telemetry, sender);
    }

    #[test]
    fn past_the_limit_of_an_identity_its_own_oldest_expectations_are_dropped() {
        let mut book = UnsealedTelemetry::new(Arc::new(Manifest::default()), 9);
        expect(&mut book, "honest", None, 0);
        let greedy = Identity::User(1);
        let limit = EXPECTATIONS_OF_IDENTITY_MAX;
        for number in 0..limit + 2 {
            expect(
                &mut book,
                &format!("w-{}", number % 3),
                Some(&greedy),
                number,
            );
        }
        let names: Vec<_> = book
            .expected()
            .into_iter()
            .map(|row| row.expected.name)
            .collect();
        assert_eq!(names.len(), 1 + limit + 2 - limit / 10);
        assert_eq!(names[0], "0".into(), "that of the honest worker");
        let has = |number: usize| names.contains(&number.to_string().into());
        assert!(!has(limit / 10 - 1) && has(limit / 10));
    }

    #[test]
    fn many_identities_leave_the_expectations_of_others() {
        let mut book = UnsealedTelemetry::new(Arc::new(Manifest::default()), 9);
        expect(&mut book, "honest", None, 0);
        let each = EXPECTATIONS_OF_IDENTITY_MAX;
        for user in 0..11_u32 {
            (1..=each).for_each(|n| {
                expect(
                    &mut book,
                    &format!("w-{user}"),
                    Some(&Identity::User(user)),
                    n,
                )
            });
        }
        let rows = book.expected();
        assert!(rows.len() <= EXPECTATIONS_MAX);
        assert!(rows.iter().any(|row| &*row.worker.0 == "honest"));
    }
}
