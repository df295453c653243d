//! Tasks for the Firefox Profiler, <https://profiler.firefox.com>: workers are processes, tasks, phases and
//! transfers are markers of their threads, and the first thread of a process has its CPU usage.

mod markers;

use std::collections::HashMap;

use api::{Phase, ResourceSeries, ResourcesAnswer, Task, Transfer};
use axum::response::Response;
use flamegraph::text::printable;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StringHandle, ThreadHandle,
    Timestamp,
};
use profiler_core::Resource;

use self::markers::{PhaseMarker, TaskMarker, TransferMarker};
use super::answer;
use base::limits::TASK_ROWS_MAX;
use front::error::ErrorAnswer;
use query::{Asking, Queries};
use query::{ResourceQuery, TaskQuery, TransferFilter, TransferQuery};

const NS_PER_MS: i64 = 1_000_000;

/// The rows that a file shows.
#[derive(Default, Debug)]
struct Rows {
    tasks: Vec<Task>,
    transfers: Vec<Transfer>,
    /// Of [`Resource::ProcessCpu`] and [`Resource::ProcessMemory`].
    resources: ResourcesAnswer,
}

/// Answers with the tasks of a query as a file, and with what their workers moved and used meanwhile. Headers
/// have the numbers of rows.
pub(super) fn response(asking: &Asking<'_>, query: &TaskQuery) -> Result<Response, ErrorAnswer> {
    let Asking { collector, now, cancel, .. } = *asking;
    let mut tasks = answer::tasks(query, Queries(&collector.state).tasks(query, cancel)?, now);
    let mut corrupt_files = tasks.corrupt_files.len();
    let mut transfers = api::TransfersAnswer::default();
    if has_transfers(query) {
        let query = transfers_of(query);
        transfers = answer::transfers(&query, Queries(&collector.state).transfers(&query, cancel)?);
        corrupt_files += transfers.corrupt_files.len();
    }
    let measures = vec![Resource::ProcessCpu, Resource::ProcessMemory];
    let used = ResourceQuery::of_workers(query.range, query.filter.workers.clone(), measures);
    let resources = answer::resources(&used, Queries(&collector.state).resources(&used, cancel)?);
    tasks.tasks.sort_by_key(|task| (task.start_ns, task.id));
    let facts = [
        ("x-emberline-rows", tasks.tasks.len() as u64),
        ("x-emberline-total", tasks.total),
        ("x-emberline-aggregated", tasks.aggregated),
        ("x-emberline-transfers", transfers.transfers.len() as u64),
        ("x-emberline-transfers-total", transfers.total),
        ("x-emberline-corrupt-files", corrupt_files as u64),
    ];
    let rows = Rows { tasks: tasks.tasks, transfers: transfers.transfers, resources };
    let mut response = answer::json(&profile(&rows))?;
    for (name, value) in facts {
        response.headers_mut().insert(name, value.into());
    }
    Ok(response)
}

/// Whether tasks are selected by no more than their names and workers, which select transfers too.
fn has_transfers(query: &TaskQuery) -> bool {
    let filter = &query.filter;
    let is_by_task =
        filter.keys.is_empty() && filter.types.is_empty() && filter.outcomes.is_empty();
    is_by_task && query.limit == TASK_ROWS_MAX
}

fn transfers_of(query: &TaskQuery) -> TransferQuery {
    let workers = query.filter.workers.clone();
    TransferQuery {
        range: query.range,
        filter: TransferFilter { workers, ..TransferFilter::default() },
        tasks: query.filter.names.clone(),
        limit: TASK_ROWS_MAX,
        summary: false,
        format: None,
    }
}

/// A thread of one life of a worker.
#[derive(PartialEq, Eq, Hash)]
struct ThreadKey {
    worker: String,
    epoch: String,
    thread_id: u32,
}

#[derive(Clone, Copy)]
struct Process {
    handle: ProcessHandle,
    /// The thread with the CPU usage of the process.
    main: ThreadHandle,
}

/// Writes the rows as a profile; the same rows give the same bytes.
fn profile(rows: &Rows) -> Profile {
    let mut writer = Writer::new(rows.earliest_ns());
    rows.resources.series.iter().for_each(|series| writer.series(series, &rows.resources));
    rows.tasks.iter().for_each(|task| writer.task(task));
    rows.transfers.iter().for_each(|transfer| writer.transfer(transfer));
    writer.profile
}

impl Rows {
    fn earliest_ns(&self) -> i64 {
        let phases = |task: &Task| task.phases.iter().map(|phase| phase.start_ns).min();
        let tasks = self
            .tasks
            .iter()
            .map(|task| phases(task).map_or(task.start_ns, |ns| ns.min(task.start_ns)));
        let transfers = self.transfers.iter().map(|transfer| transfer.start_ns);
        let series = &self.resources.series;
        let points = series.iter().filter_map(|series| Some(series.points.first()?.0));
        tasks.chain(transfers).chain(points).min().unwrap_or(0)
    }
}

struct Writer {
    profile: Profile,
    /// The time of the file's 0, a whole millisecond, since Unix 0.
    origin_ns: i64,
    task: CategoryHandle,
    phase: CategoryHandle,
    transfer: CategoryHandle,
    processes: HashMap<String, Process>,
    threads: HashMap<ThreadKey, ThreadHandle>,
}

impl Writer {
    fn new(earliest_ns: i64) -> Writer {
        let origin_ms = earliest_ns.div_euclid(NS_PER_MS);
        let reference = ReferenceTimestamp::from_millis_since_unix_epoch(origin_ms as f64);
        let interval = SamplingInterval::from_millis(1_000);
        let mut profile = Profile::new("Emberline", reference, interval);
        let task = profile.add_category("Task", CategoryColor::Orange);
        let phase = profile.add_category("Phase", CategoryColor::Yellow);
        let transfer = profile.add_category("Transfer", CategoryColor::Purple);
        Writer {
            profile,
            origin_ns: origin_ms.saturating_mul(NS_PER_MS),
            task,
            phase,
            transfer,
            processes: HashMap::new(),
            threads: HashMap::new(),
        }
    }

    fn at(&self, ns: i64) -> Timestamp {
        let after_ns = i128::from(ns) - i128::from(self.origin_ns);
        Timestamp::from_nanos_since_reference(u64::try_from(after_ns.max(0)).unwrap_or(u64::MAX))
    }

    fn interval(&self, start_ns: i64, duration_ns: u64) -> MarkerTiming {
        let stop_ns = start_ns.saturating_add_unsigned(duration_ns);
        MarkerTiming::Interval(self.at(start_ns), self.at(stop_ns))
    }

    fn text(&mut self, text: &str) -> StringHandle {
        self.profile.intern_string(&printable(text))
    }

    fn process(&mut self, worker: &str) -> Process {
        if let Some(known) = self.processes.get(worker) {
            return *known;
        }
        let number = u32::try_from(self.processes.len() + 1).unwrap_or(u32::MAX);
        let begin = Timestamp::from_nanos_since_reference(0);
        let handle = self.profile.add_process(&printable(worker), number, begin);
        // The crate names a main thread like its process.
        let main = self.profile.add_thread(handle, number, begin, true);
        let process = Process { handle, main };
        self.processes.insert(worker.to_owned(), process);
        process
    }

    fn thread(&mut self, key: ThreadKey, name: &str) -> ThreadHandle {
        if let Some(known) = self.threads.get(&key) {
            return *known;
        }
        let process = self.process(&key.worker).handle;
        let begin = Timestamp::from_nanos_since_reference(0);
        let thread = self.profile.add_thread(process, key.thread_id, begin, false);
        let name =
            if name.is_empty() { format!("thread {}", key.thread_id) } else { name.to_owned() };
        self.profile.set_thread_name(thread, &printable(&name));
        self.profile.set_thread_show_markers_in_timeline(thread, true);
        self.threads.insert(key, thread);
        thread
    }

    fn task(&mut self, task: &Task) {
        let Task { worker, epoch, thread_id, .. } = task;
        let key = ThreadKey { worker: worker.clone(), epoch: epoch.clone(), thread_id: *thread_id };
        let thread = self.thread(key, &task.thread_name);
        let marker = TaskMarker {
            category: self.task,
            name: self.text(&task.name),
            key: self.text(&task.key),
            outcome: self.text(&task.outcome),
            reason: self.text(&task.cause),
            result_type: self.text(&task.type_name),
            id: task.id,
            result_bytes: task.result_bytes.unwrap_or(0),
        };
        let timing = self.interval(task.start_ns, task.duration_ns);
        self.profile.add_marker(thread, timing, marker);
        // The places of a sum of several intervals are unknown.
        for phase in task.phases.iter().filter(|phase| phase.count <= 1) {
            self.phase(thread, phase, &task.key);
        }
    }

    fn phase(&mut self, thread: ThreadHandle, phase: &Phase, key: &str) {
        let marker =
            PhaseMarker { category: self.phase, name: self.text(&phase.name), key: self.text(key) };
        let timing = self.interval(phase.start_ns, phase.duration_ns);
        self.profile.add_marker(thread, timing, marker);
    }

    fn transfer(&mut self, transfer: &Transfer) {
        let process = self.process(&transfer.worker);
        let marker = TransferMarker {
            category: self.transfer,
            name: self.text(&transfer.direction),
            peer: self.text(&transfer.peer),
            moved_type: self.text(&transfer.type_name),
            outcome: self.text(&transfer.outcome),
            bytes: transfer.bytes,
        };
        let timing = self.interval(transfer.start_ns, transfer.duration_ns);
        self.profile.add_marker(process.main, timing, marker);
    }

    /// Points of a worker: CPU cores become samples of its process, bytes a counter.
    fn series(&mut self, series: &ResourceSeries, resources: &ResourcesAnswer) {
        let process = self.process(&series.worker);
        if series.measure == Resource::ProcessCpu.name() {
            self.cpu_usage(process.main, &series.points, resources);
        } else if series.measure == Resource::ProcessMemory.name() {
            self.memory(process.handle, &series.points);
        }
    }

    /// A sample at the end of each step, with the CPU time of the step.
    fn cpu_usage(
        &mut self,
        thread: ThreadHandle,
        points: &[(i64, f64, f64, f64)],
        resources: &ResourcesAnswer,
    ) {
        let label = Frame::Label(self.text("process"));
        let category_pair = CategoryHandle::OTHER.into();
        let frame = FrameInfo { frame: label, category_pair, flags: FrameFlags::empty() };
        let frame = self.profile.intern_frame(thread, frame);
        let stack = self.profile.intern_stack(thread, None, frame);
        // Usage is drawn from one sample to the next.
        if let Some((begin_ns, ..)) = points.first() {
            let begin = self.at(*begin_ns);
            self.profile.add_sample(thread, begin, Some(stack), CpuDelta::ZERO, 1);
        }
        for (start_ns, cores, ..) in points {
            // The last step may not be over.
            let step_end_ns = start_ns.saturating_add_unsigned(resources.step_ns);
            let stop_ns = step_end_ns.min(resources.range.to_ns);
            let cpu_ns = stop_ns.saturating_sub(*start_ns) as f64 * cores.max(0.0);
            let cpu = CpuDelta::from_nanos(cpu_ns as u64);
            let at = self.at(stop_ns);
            self.profile.add_sample(thread, at, Some(stack), cpu, 1);
        }
    }

    fn memory(&mut self, process: ProcessHandle, points: &[(i64, f64, f64, f64)]) {
        // By this category the reader draws a track of memory.
        let description = "Resident memory of the process";
        let counter = self.profile.add_counter(process, "malloc", "Memory", description);
        let mut before = 0.0;
        for (ns, bytes, ..) in points {
            let at = self.at(*ns);
            self.profile.add_counter_sample(counter, at, bytes - before, 0);
            before = *bytes;
        }
    }
}

#[cfg(test)]
mod tests;
