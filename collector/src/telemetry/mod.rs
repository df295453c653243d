//! What agents tell beside samples and tasks: transfers, what was used, what is expected, runs.
//!
//! Here is what is in no table yet, beside the version of the tables that lack it. As in the hot
//! window, a row is here until the version with it takes its place, so a reader sees each once.

mod runs;
mod transfer_sums;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use profiler_core::{Epoch, ExpectedTasks, RunMarker, Telemetry, Timestamp, WorkerId};

use crate::limits::EXPECTATIONS_MAX;
use crate::rows::{ExpectedRow, ResourceRow, RunRow, TelemetryBatch, TransferRow};
use crate::store::{Manifest, Second};

pub(crate) use runs::{RunChange, Runs};
pub(crate) use transfer_sums::LinkSum;

/// Rows by second and arrival: what comes late still lands in its place.
type BySecond<R> = BTreeMap<(Second, u64), Arc<R>>;

#[derive(Default, Debug)]
struct Rows {
    /// By the second in which they ended.
    transfers: BySecond<TransferRow>,
    samples: BySecond<ResourceRow>,
    bytes: usize,
}

/// What a reader works with: it is complete, and does not change.
#[derive(Clone, Debug)]
pub(crate) struct RowSnapshot<R> {
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) rows: Vec<Arc<R>>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct UnsealedTelemetry {
    manifest: Arc<Manifest>,
    open: Rows,
    /// Those that are being written to tables: in none of them until [`UnsealedTelemetry::sealed`].
    sealing: Rows,
    arrivals: u64,
    runs: Runs,
    expected: BTreeMap<(WorkerId, Epoch, Arc<str>), ExpectedTasks>,
    /// How often runs or expectations changed, in all, up to the last taking, and in the tables.
    changes: [u64; 3],
}

impl UnsealedTelemetry {
    /// A book that lacks nothing beside the tables of `manifest`.
    pub(crate) fn new(manifest: Arc<Manifest>, runs_max: usize) -> UnsealedTelemetry {
        UnsealedTelemetry {
            manifest,
            open: Rows::default(),
            sealing: Rows::default(),
            arrivals: 0,
            runs: Runs::new(runs_max),
            expected: BTreeMap::new(),
            changes: [0; 3],
        }
    }

    /// Takes in what the tables hold of runs and expectations.
    pub(crate) fn restore(&mut self, runs: Vec<RunRow>, expected: Vec<ExpectedRow>) {
        for run in runs {
            let _ = self.runs.put(run);
        }
        expected.into_iter().for_each(|row| self.expect(row));
        self.changes = [0; 3];
    }

    /// Takes in what one flush told. Gives the runs that began or ended by it.
    pub(crate) fn insert(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
        records: Telemetry,
    ) -> Vec<RunChange> {
        let Telemetry { totals: _, transfers, resources, expected, runs } = records;
        for record in transfers {
            let row = TransferRow { worker: worker.clone(), epoch, record };
            self.open.bytes += row.bytes();
            let place = self.place(row.record.stop);
            self.open.transfers.insert(place, Arc::new(row));
        }
        for sample in resources {
            let row = ResourceRow { worker: worker.clone(), epoch, sample };
            self.open.bytes += row.bytes();
            let place = self.place(row.sample.at);
            self.open.samples.insert(place, Arc::new(row));
        }
        for expected in expected {
            self.expect(ExpectedRow { worker: worker.clone(), epoch, expected });
        }
        let worker = Some(worker.clone());
        let put = |run: RunMarker| self.put_run(RunRow::marked(worker.clone(), epoch, run));
        runs.into_iter().filter_map(put).collect()
    }

    /// Puts in a run, in place of what was known of it. Gives what that changes, if anything.
    pub(crate) fn put_run(&mut self, run: RunRow) -> Option<RunChange> {
        self.changes[0] += 1;
        self.runs.put(run)
    }

    /// The worker's life is over, and with it its runs. Gives those that went on until now.
    pub(crate) fn end_runs_as_lost(
        &mut self,
        worker: &WorkerId,
        epoch: Epoch,
        last_seen: Timestamp,
    ) -> Vec<RunChange> {
        let ended = self.runs.end_as_lost(worker, epoch, last_seen);
        self.changes[0] += ended.len() as u64;
        ended
    }

    /// The worker is there again, and its runs go on.
    pub(crate) fn resume_lost_runs(&mut self, worker: &WorkerId, epoch: Epoch) {
        self.changes[0] += self.runs.resume_lost(worker, epoch) as u64;
    }

    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// All that is expected: the latest of each life of each worker.
    pub(crate) fn expected(&self) -> Vec<ExpectedRow> {
        let row =
            |((worker, epoch, _), expected): (&(WorkerId, Epoch, Arc<str>), &ExpectedTasks)| {
                ExpectedRow { worker: worker.clone(), epoch: *epoch, expected: expected.clone() }
            };
        self.expected.iter().map(row).collect()
    }

    /// The transfers that ended in these seconds and are in no table.
    pub(crate) fn transfers(&self, seconds: Range<Second>) -> RowSnapshot<TransferRow> {
        self.view([&self.sealing.transfers, &self.open.transfers], seconds)
    }

    /// The samples of these seconds that are in no table.
    pub(crate) fn samples(&self, seconds: Range<Second>) -> RowSnapshot<ResourceRow> {
        self.view([&self.sealing.samples, &self.open.samples], seconds)
    }

    fn view<R>(&self, parts: [&BySecond<R>; 2], seconds: Range<Second>) -> RowSnapshot<R> {
        let places = (seconds.start, 0)..(seconds.end.max(seconds.start), 0);
        let rows = parts.into_iter().flat_map(|part| part.range(places.clone()));
        RowSnapshot {
            manifest: self.manifest.clone(),
            rows: rows.map(|(_, row)| row.clone()).collect(),
        }
    }

    /// Whether the tables lack anything.
    pub(crate) fn has_unsealed(&self) -> bool {
        self.bytes() > 0 || self.changes[0] != self.changes[2]
    }

    /// Memory of the rows that are in no table.
    pub(crate) fn bytes(&self) -> usize {
        self.open.bytes + self.sealing.bytes
    }

    /// What is to be written to tables. It stays here until [`UnsealedTelemetry::sealed`]; if writing fails,
    /// the next call gives it again.
    pub(crate) fn take_for_sealing(&mut self) -> TelemetryBatch {
        let Rows { transfers, samples, bytes } = &mut self.open;
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

    /// What was last taken is in the tables of `manifest`. Gives it back, to be let go without the
    /// lock.
    #[must_use = "to be dropped when the lock is free again"]
    pub(crate) fn sealed(&mut self, manifest: Arc<Manifest>) -> impl Sized + use<> {
        self.manifest = manifest;
        self.changes[2] = self.changes[1];
        std::mem::take(&mut self.sealing)
    }

    /// A version whose tables hold the same as those of the one before, or less by what is too old.
    pub(crate) fn set_manifest(&mut self, manifest: Arc<Manifest>) {
        self.manifest = manifest;
    }

    fn place(&mut self, at: Timestamp) -> (Second, u64) {
        self.arrivals += 1;
        (Second::of(at), self.arrivals)
    }

    /// Forgets a tenth at once, so that however many come, few are looked at for each.
    fn forget_expectations(&mut self) {
        let aged = self.expected.iter().map(|(key, expected)| (expected.since, key.clone()));
        let mut aged: Vec<_> = aged.collect();
        aged.sort_unstable();
        tracing::warn!(limit = EXPECTATIONS_MAX, "the oldest expectations are forgotten");
        for (_, key) in aged.into_iter().take(EXPECTATIONS_MAX / 10) {
            self.expected.remove(&key);
        }
    }

    fn expect(&mut self, row: ExpectedRow) {
        let key = (row.worker, row.epoch, row.expected.name.clone());
        if self.expected.len() >= EXPECTATIONS_MAX && !self.expected.contains_key(&key) {
            self.forget_expectations();
        }
        self.changes[0] += 1;
        self.expected.insert(key, row.expected);
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{ResourceSample, RunId};

    use super::*;
    use crate::testing::at;

    fn sampled(seconds: i64) -> Telemetry {
        let sample = ResourceSample { at: at(seconds), period_ns: 5, values: Vec::new() };
        Telemetry { resources: vec![sample], ..Telemetry::default() }
    }

    #[test]
    fn a_row_is_here_until_the_version_with_it_takes_its_place() {
        let mut book = UnsealedTelemetry::new(Arc::new(Manifest::default()), 9);
        let worker = WorkerId("w".into());
        let check = |book: &UnsealedTelemetry, version: u64, expected: &[i64]| {
            let view = book.samples(Second::of(at(0))..Second::of(at(9)));
            let found: Vec<_> = view.rows.iter().map(|row| row.sample.at).collect();
            let expected: Vec<_> = expected.iter().map(|seconds| at(*seconds)).collect();
            assert_eq!((view.manifest.version, found), (version, expected));
        };
        book.insert(&worker, Epoch(1), sampled(3));
        let taken = book.take_for_sealing();
        assert_eq!(taken.samples.len(), 1);
        book.insert(&worker, Epoch(1), sampled(2));
        book.insert(&worker, Epoch(1), sampled(9));
        check(&book, 0, &[3, 2]);
        // Writing failed: the next sealing gives both.
        assert_eq!(book.take_for_sealing().samples.len(), 3);
        book.insert(&worker, Epoch(1), sampled(4));
        drop(book.sealed(Arc::new(Manifest { version: 1, ..Manifest::default() })));
        check(&book, 1, &[4]);
        assert!(book.has_unsealed());
        drop(book.take_for_sealing());
        drop(book.sealed(Arc::new(Manifest { version: 2, ..Manifest::default() })));
        assert_eq!((book.has_unsealed(), book.bytes()), (false, 0));

        // A run that is marked while others are written is not in the tables yet.
        drop(book.take_for_sealing());
        let run = RunMarker { id: RunId(1), name: "r".into(), start: at(1), stop: None };
        book.put_run(RunRow::marked(None, Epoch(0), run));
        drop(book.sealed(Arc::new(Manifest::default())));
        assert!(book.has_unsealed());
    }

    #[test]
    fn the_oldest_expectations_go_when_there_are_too_many() {
        let mut book = UnsealedTelemetry::new(Arc::new(Manifest::default()), 9);
        let worker = WorkerId("w".into());
        let expect = |book: &mut UnsealedTelemetry, n: usize| {
            let since = at(i64::try_from(n).unwrap());
            let expected = ExpectedTasks { name: n.to_string().into(), total: 1, since };
            let expected = vec![expected];
            book.insert(&worker, Epoch(1), Telemetry { expected, ..Telemetry::default() });
        };
        (0..EXPECTATIONS_MAX + 2).for_each(|n| expect(&mut book, n));
        let names: Vec<_> = book.expected().into_iter().map(|row| row.expected.name).collect();
        let gone = EXPECTATIONS_MAX / 10;
        assert_eq!(names.len(), EXPECTATIONS_MAX + 2 - gone);
        assert!(!names.contains(&(gone - 1).to_string().into()));
        assert!(names.contains(&gone.to_string().into()));
    }
}
