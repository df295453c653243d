//! The parts of windows, in the order of a tier's rows: a bounded number of them is copied at once.

use std::collections::BTreeMap;

use profiler_core::{NodeId, State};

use crate::error::StoreError;
use crate::packed::{PackedWeights, Part};
use crate::rows::StoredWindow;
use crate::sums::row::WorkerNumber;
use crate::sums::tier::{Period, Second, Tier};
use base::limits::SEAL_BUFFER_BYTES_MAX;

/// Most memory of the buffer, unless the windows of one worker in one period have more. Little in tests, so that
/// few windows need several pieces.
const BYTES_MAX: usize = if cfg!(test) {
    256
} else {
    SEAL_BUFFER_BYTES_MAX
};

/// A window with its worker's number.
#[derive(Clone, Copy)]
pub(crate) struct NumberedWindow<'a> {
    pub second: Second,
    pub worker: WorkerNumber,
    pub stored: &'a StoredWindow,
}

impl NumberedWindow<'_> {
    /// Its place among the rows of one task.
    pub(crate) fn order(&self, tier: Tier) -> (Period, WorkerNumber) {
        (tier.period(self.second), self.worker)
    }

    /// The group of periods that share a row group.
    pub(crate) fn group(&self, tier: Tier) -> u32 {
        tier.period(self.second).0 / tier.periods_in_group()
    }
}

/// The parts of windows, copied so that those of a task are adjacent: fetching each from its window would
/// mostly wait for memory. Of many windows only as many as fit are copied at once. The next sealing reuses the
/// memory, because the kernel takes long to provide so much.
#[derive(Debug, Default)]
pub(crate) struct SealBuffer {
    parts: Vec<BufferedPart>,
    bytes: Vec<u8>,
    /// Most parts and bytes since the memory was last looked at.
    used: PartsSize,
}

/// A part of a window, and where its bytes are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BufferedPart {
    pub key: PartKey,
    at: u32,
    length: u32,
}

/// Period, worker and state in one number: the order of a task's parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct PartKey(u64);

const STATE_BITS: u32 = 3;
const PERIOD_AT: u32 = 27;
const _: () = assert!(State::ALL.len() <= 1 << STATE_BITS);
const _: () = assert!(WorkerNumber::MAX.0 < 1 << (PERIOD_AT - STATE_BITS));

impl PartKey {
    fn new(period: Period, worker: WorkerNumber, state: State) -> PartKey {
        let worker_and_state = u64::from(worker.0) << STATE_BITS | state as u64;
        PartKey(u64::from(period.0) << PERIOD_AT | worker_and_state)
    }

    pub(crate) fn period(self) -> Period {
        Period(u32::try_from(self.0 >> PERIOD_AT).expect("a period has 32 bits"))
    }

    pub(crate) fn worker(self) -> WorkerNumber {
        let worker = self.0 >> STATE_BITS & u64::from(WorkerNumber::MAX.0);
        WorkerNumber(u32::try_from(worker).expect("a worker has 24 bits"))
    }

    pub(crate) fn state(self) -> State {
        State::ALL[(self.0 & ((1 << STATE_BITS) - 1)) as usize]
    }

    /// Period and worker.
    fn of_worker(self) -> u64 {
        self.0 >> STATE_BITS
    }
}

/// Parts of a task in the order of a tier's rows.
pub(crate) struct TaskParts<'a> {
    pub task: NodeId,
    pub parts: &'a [BufferedPart],
    bytes: &'a [u8],
}

impl<'a> TaskParts<'a> {
    pub(crate) fn part(&self, part: &BufferedPart) -> Part<'a> {
        let bytes = &self.bytes[part.at as usize..][..part.length as usize];
        Part::read(self.task, part.key.state(), bytes)
    }
}

/// A number of parts, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct PartsSize {
    parts: usize,
    bytes: usize,
}

impl PartsSize {
    fn of(part: &Part<'_>) -> PartsSize {
        PartsSize {
            parts: 1,
            bytes: part.written_bytes(),
        }
    }

    fn plus(self, other: PartsSize) -> PartsSize {
        PartsSize {
            parts: self.parts + other.parts,
            bytes: self.bytes + other.bytes,
        }
    }

    /// Memory in the buffer.
    fn memory(self) -> usize {
        self.parts * size_of::<BufferedPart>() + self.bytes
    }

    fn fits(self) -> bool {
        self.memory() <= BYTES_MAX
    }
}

/// How much of some windows is a task's.
#[derive(Clone, Copy)]
struct TaskSize {
    task: NodeId,
    size: PartsSize,
}

/// The weights of a window that are sealed.
type Weights = fn(&StoredWindow) -> &PackedWeights;

/// Takes the parts of one task after another.
type ShowTask<'a> = dyn FnMut(TaskParts<'_>) -> Result<(), StoreError> + 'a;

impl SealBuffer {
    /// Shows the parts of windows of one group of periods, in the order of a tier's rows: by task, period, worker and
    /// state. The windows must be in their [order](NumberedWindow::order). A task's parts come in several pieces if they
    /// are large, which end where a worker or a period ends.
    pub(crate) fn each_task(
        &mut self,
        windows: &[NumberedWindow<'_>],
        tier: Tier,
        weights: Weights,
        show: &mut ShowTask<'_>,
    ) -> Result<(), StoreError> {
        let tasks = sizes(windows, weights);
        let mut rest = &tasks[..];
        while let [first, ..] = rest {
            if !first.size.fits() {
                self.each_piece(first.task, windows, tier, weights, show)?;
                rest = &rest[1..];
                continue;
            }
            let mut size = PartsSize::default();
            let fit = rest.iter().take_while(|task| {
                size = size.plus(task.size);
                size.fits()
            });
            let (piece, later) = rest.split_at(fit.count());
            self.copy(windows, piece, tier, weights);
            self.show(piece, show)?;
            rest = later;
        }
        Ok(())
    }

    /// Shows the parts of a task that do not fit all at once.
    fn each_piece(
        &mut self,
        task: NodeId,
        windows: &[NumberedWindow<'_>],
        tier: Tier,
        weights: Weights,
        show: &mut ShowTask<'_>,
    ) -> Result<(), StoreError> {
        let mut size = PartsSize::default();
        let mut first = 0;
        let mut end = 0;
        for of_worker in windows.chunk_by(|a, b| a.order(tier) == b.order(tier)) {
            let parts = of_worker
                .iter()
                .flat_map(|window| parts_of(weights(window.stored), task));
            let more = parts.fold(PartsSize::default(), |sum, part| {
                sum.plus(PartsSize::of(&part))
            });
            if !size.plus(more).fits() && size.parts > 0 {
                let piece = [TaskSize { task, size }];
                self.copy(&windows[first..end], &piece, tier, weights);
                self.show(&piece, show)?;
                size = PartsSize::default();
                first = end;
            }
            size = size.plus(more);
            end += of_worker.len();
        }
        let piece = [TaskSize { task, size }];
        self.copy(&windows[first..], &piece, tier, weights);
        self.show(&piece, show)
    }

    /// Copies the parts of some tasks, which have these sizes.
    fn copy(
        &mut self,
        windows: &[NumberedWindow<'_>],
        tasks: &[TaskSize],
        tier: Tier,
        weights: Weights,
    ) {
        const SMALL: &str = "unsealed windows have less than 2^32 bytes";
        let (Some(first), Some(last)) = (tasks.first(), tasks.last()) else {
            return;
        };
        let mut end = PartsSize::default();
        let mut places = Vec::with_capacity(tasks.len());
        for task in tasks {
            places.push(end);
            end = end.plus(task.size);
        }
        self.resize(end);
        for window in windows {
            let period = tier.period(window.second);
            let parts = weights(window.stored)
                .parts()
                .skip_while(|part| part.task < first.task)
                .take_while(|part| part.task <= last.task);
            for part in parts {
                let task = tasks
                    .binary_search_by_key(&part.task, |task| task.task)
                    .expect("all tasks were counted");
                let place = &mut places[task];
                let size = PartsSize::of(&part);
                part.write(&mut self.bytes[place.bytes..][..size.bytes]);
                self.parts[place.parts] = BufferedPart {
                    key: PartKey::new(period, window.worker, part.state),
                    at: u32::try_from(place.bytes).expect(SMALL),
                    length: u32::try_from(size.bytes).expect(SMALL),
                };
                *place = place.plus(size);
            }
        }
    }

    /// Shows the tasks that were copied.
    fn show(&mut self, tasks: &[TaskSize], show: &mut ShowTask<'_>) -> Result<(), StoreError> {
        let mut rest = &mut self.parts[..];
        for TaskSize { task, size } in tasks {
            let (parts, later) = rest.split_at_mut(size.parts);
            rest = later;
            // Windows are in order, so only the states of a worker with several windows are not.
            for parts in parts.chunk_by_mut(|a, b| a.key.of_worker() == b.key.of_worker()) {
                parts.sort_unstable_by_key(|part| part.key);
            }
            show(TaskParts {
                task: *task,
                parts,
                bytes: &self.bytes,
            })?;
        }
        Ok(())
    }

    /// Makes room for so many parts. Their contents are those of earlier ones.
    fn resize(&mut self, size: PartsSize) {
        self.used.parts = self.used.parts.max(size.parts);
        self.used.bytes = self.used.bytes.max(size.bytes);
        if self.parts.len() < size.parts {
            self.parts.reserve_exact(size.parts - self.parts.len());
            self.parts.resize(size.parts, BufferedPart::default());
        }
        if self.bytes.len() < size.bytes {
            self.bytes.reserve_exact(size.bytes - self.bytes.len());
            self.bytes.resize(size.bytes, 0);
        }
    }

    /// Frees the memory that an unusually large sealing before this one needed.
    pub(crate) fn free_unused(&mut self) {
        let used = std::mem::take(&mut self.used);
        self.parts.truncate(used.parts * 4);
        self.parts.shrink_to(used.parts * 4);
        self.bytes.truncate(used.bytes * 4);
        self.bytes.shrink_to(used.bytes * 4);
    }
}

/// The tasks of windows, in rising order.
fn sizes(windows: &[NumberedWindow<'_>], weights: Weights) -> Vec<TaskSize> {
    let mut sizes: BTreeMap<NodeId, PartsSize> = BTreeMap::new();
    for window in windows {
        for part in weights(window.stored).parts() {
            let size = sizes.entry(part.task).or_default();
            *size = size.plus(PartsSize::of(&part));
        }
    }
    sizes
        .into_iter()
        .map(|(task, size)| TaskSize { task, size })
        .collect()
}

/// The parts of one task.
fn parts_of(weights: &PackedWeights, task: NodeId) -> impl Iterator<Item = Part<'_>> {
    weights
        .parts()
        .skip_while(move |part| part.task < task)
        .take_while(move |part| part.task == task)
}

#[cfg(test)]
mod tests {
    use profiler_core::{Epoch, Ticks, TimeRange, Timestamp, WorkerId};

    use super::*;

    /// A window of two tasks in three states.
    fn window(second: u32) -> StoredWindow {
        let start = Timestamp::from_unix_ns(i64::from(second) * 1_000_000_000);
        let entries = (0..12).map(|n| (NodeId(1 + n % 2), State::ALL[(n % 3) as usize], 1));
        StoredWindow {
            worker: WorkerId("w".into()),
            range: TimeRange::new(start, start.shifted(1_000_000_000)).unwrap(),
            samples: PackedWeights::of(entries, 1, |node| node),
            epoch: Epoch(1),
            raw_start: start,
            clock_error_ns: 0,
            ticks: Ticks::default(),
            threads: PackedWeights::default(),
        }
    }

    /// Sealing copied all windows of all workers at once.
    #[test]
    fn a_sealing_copies_no_more_at_once_however_many_workers_there_are() {
        let windows: Vec<_> = (600..660).map(window).collect();
        let mut numbered: Vec<_> = (0..100)
            .flat_map(|worker| {
                windows.iter().map(move |stored| NumberedWindow {
                    second: stored.second(),
                    worker: WorkerNumber(worker),
                    stored,
                })
            })
            .collect();
        for tier in [Tier::Second, Tier::Minute] {
            numbered.sort_by_key(|window| window.order(tier));
            let mut buffer = SealBuffer::default();
            let mut shown = Vec::new();
            let mut pieces = 0;
            let mut show = |task: TaskParts<'_>| {
                pieces += 1;
                shown.extend(task.parts.iter().map(|part| (task.task, part.key)));
                Ok(())
            };
            buffer
                .each_task(&numbered, tier, |stored| &stored.samples, &mut show)
                .unwrap();
            assert!(shown.is_sorted() && pieces > 100, "{pieces}");
            assert_eq!(shown.len(), numbered.len() * 6);
            let bytes =
                buffer.parts.capacity() * size_of::<BufferedPart>() + buffer.bytes.capacity();
            // A worker's minute of a task is larger than the buffer, and one piece.
            let largest = PartsSize {
                parts: 60 * 3,
                bytes: 60 * 3 * 4,
            };
            let bytes_max = if tier == Tier::Second {
                2 * BYTES_MAX
            } else {
                largest.memory()
            };
            assert!(bytes <= bytes_max, "{bytes} of {bytes_max} in {tier:?}");
        }
    }
}
