//! Tasks for the Firefox Profiler, <https://profiler.firefox.com>: workers are processes, tasks, phases and
//! transfers are markers of their threads, and the first thread of a process has its CPU usage.

use std::collections::HashMap;
use std::ops::Range;

use api::{ResourceSeries, ResourcesAnswer, Task, Transfer};
use axum::response::Response;
use flamegraph::firefox::format::{Category, Counter, CounterSamples, File, Meta, Thread};
use flamegraph::firefox::markers::Marker;
use flamegraph::text::printable;
use profiler_core::Resource;

use super::answer;
use base::limits::TASK_ROWS_MAX;
use front::error::ErrorAnswer;
use query::Asking;
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
    let queries = asking.queries();
    let cancel = asking.cancel;
    let now = asking.now;
    let mut tasks = answer::tasks(query, queries.tasks(query, cancel)?, now);
    let mut corrupt_files = tasks.corrupt_files.len();
    let mut transfers = api::TransfersAnswer::default();
    if has_transfers(query) {
        let query = transfers_of(query);
        transfers = answer::transfers(&query, queries.transfers(&query, cancel)?);
        corrupt_files += transfers.corrupt_files.len();
    }
    let measures = vec![Resource::ProcessCpu, Resource::ProcessMemory];
    let used = ResourceQuery::of_workers(query.range, query.filter.workers.clone(), measures);
    let resources = answer::resources(&used, queries.resources(&used, cancel)?);
    tasks.tasks.sort_by_key(|task| (task.start_ns, task.id));
    let facts = [
        ("x-emberline-rows", tasks.tasks.len() as u64),
        ("x-emberline-total", tasks.total),
        ("x-emberline-aggregated", tasks.aggregated),
        ("x-emberline-transfers", transfers.transfers.len() as u64),
        ("x-emberline-transfers-total", transfers.total),
        ("x-emberline-corrupt-files", corrupt_files as u64),
    ];
    let rows = Rows {
        tasks: tasks.tasks,
        transfers: transfers.transfers,
        resources,
    };
    let mut response = answer::json(&file(&rows))?;
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
        filter: TransferFilter {
            workers,
            ..TransferFilter::default()
        },
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

/// Writes the rows as a file; the same rows give the same bytes.
fn file(rows: &Rows) -> File {
    let mut writer = Writer::new(rows.earliest_ns());
    rows.resources
        .series
        .iter()
        .for_each(|series| writer.series(series, &rows.resources));
    rows.tasks.iter().for_each(|task| writer.task(task));
    rows.transfers
        .iter()
        .for_each(|transfer| writer.transfer(transfer));
    writer.file()
}

impl Rows {
    fn earliest_ns(&self) -> i64 {
        let tasks = self
            .tasks
            .iter()
            .map(|task| first_phase_ns(task).map_or(task.start_ns, |ns| ns.min(task.start_ns)));
        let transfers = self.transfers.iter().map(|transfer| transfer.start_ns);
        let series = &self.resources.series;
        let points = series
            .iter()
            .filter_map(|series| Some(series.points.first()?.0));
        tasks.chain(transfers).chain(points).min().unwrap_or(0)
    }
}

fn first_phase_ns(task: &Task) -> Option<i64> {
    task.phases.iter().map(|phase| phase.start_ns).min()
}

struct Writer {
    /// The time of the file's 0, since Unix 0.
    origin_ms: i64,
    threads: Vec<Thread>,
    /// Places of the threads with the CPU usage of a worker's process.
    main_threads: HashMap<String, usize>,
    /// Places of the others.
    places: HashMap<ThreadKey, usize>,
    /// Threads with an id, which several lives may have used.
    thread_ids: HashMap<u32, u32>,
    counters: Vec<Counter>,
}

impl Writer {
    fn new(earliest_ns: i64) -> Writer {
        Writer {
            origin_ms: earliest_ns.div_euclid(NS_PER_MS),
            threads: Vec::new(),
            main_threads: HashMap::new(),
            places: HashMap::new(),
            thread_ids: HashMap::new(),
            counters: Vec::new(),
        }
    }

    /// Milliseconds since the file's start.
    fn at_ms(&self, ns: i64) -> f64 {
        let origin_ns = i128::from(self.origin_ms) * i128::from(NS_PER_MS);
        (i128::from(ns) - origin_ns).max(0) as f64 / NS_PER_MS as f64
    }

    fn times_ms(&self, start_ns: i64, duration_ns: u64) -> Range<f64> {
        let stop_ns = start_ns.saturating_add_unsigned(duration_ns);
        self.at_ms(start_ns)..self.at_ms(stop_ns)
    }

    fn main_thread(&mut self, worker: &str) -> usize {
        if let Some(known) = self.main_threads.get(worker) {
            return *known;
        }
        let number = u32::try_from(self.main_threads.len() + 1).unwrap_or(u32::MAX);
        let place = self.add_thread(worker, number.to_string(), worker, number);
        self.threads[place].is_main_thread = true;
        self.main_threads.insert(worker.to_owned(), place);
        place
    }

    fn thread(&mut self, key: ThreadKey, name: &str) -> usize {
        if let Some(known) = self.places.get(&key) {
            return *known;
        }
        let main = self.main_thread(&key.worker);
        let pid = self.threads[main].pid.clone();
        let unnamed = format!("thread {}", key.thread_id);
        let name = if name.is_empty() { &unnamed } else { name };
        let place = self.add_thread(&key.worker, pid, name, key.thread_id);
        self.threads[place].show_markers_in_timeline = true;
        self.places.insert(key, place);
        place
    }

    fn add_thread(&mut self, worker: &str, pid: String, name: &str, id: u32) -> usize {
        let uses = self.thread_ids.entry(id).or_default();
        let tid = match *uses {
            0 => id.to_string(),
            uses => format!("{id}.{uses}"),
        };
        *uses += 1;
        let mut thread = Thread::new(name, tid, "samples");
        thread.pid = pid;
        thread.process_name = printable(worker).into_owned();
        self.threads.push(thread);
        self.threads.len() - 1
    }

    fn task(&mut self, task: &Task) {
        let Task {
            worker,
            epoch,
            thread_id,
            ..
        } = task;
        let key = ThreadKey {
            worker: worker.clone(),
            epoch: epoch.clone(),
            thread_id: *thread_id,
        };
        let place = self.thread(key, &task.thread_name);
        let times_ms = self.times_ms(task.start_ns, task.duration_ns);
        let thread = &mut self.threads[place];
        let name = thread.string(&task.name);
        let task_key = thread.string(&task.key);
        let marker = Marker::Task {
            key: task_key,
            outcome: thread.string(&task.outcome),
            reason: thread.string(&task.cause),
            result_type: thread.string(&task.type_name),
            id: task.id,
            result_bytes: task.result_bytes.unwrap_or(0),
        };
        thread.markers.push(name, times_ms, marker);
        // The places of a sum of several intervals are unknown.
        for phase in task.phases.iter().filter(|phase| phase.count <= 1) {
            let times_ms = self.times_ms(phase.start_ns, phase.duration_ns);
            let thread = &mut self.threads[place];
            let name = thread.string(&phase.name);
            thread
                .markers
                .push(name, times_ms, Marker::Phase { key: task_key });
        }
    }

    fn transfer(&mut self, transfer: &Transfer) {
        let place = self.main_thread(&transfer.worker);
        let times_ms = self.times_ms(transfer.start_ns, transfer.duration_ns);
        let main = &mut self.threads[place];
        let name = main.string(&transfer.direction);
        let marker = Marker::Transfer {
            peer: main.string(&transfer.peer),
            moved_type: main.string(&transfer.type_name),
            outcome: main.string(&transfer.outcome),
            bytes: transfer.bytes,
        };
        main.markers.push(name, times_ms, marker);
    }

    /// Points of a worker: CPU cores become samples of its process, bytes a counter.
    fn series(&mut self, series: &ResourceSeries, resources: &ResourcesAnswer) {
        let place = self.main_thread(&series.worker);
        if series.measure == Resource::ProcessCpu.name() {
            self.cpu_usage(place, &series.points, resources);
        } else if series.measure == Resource::ProcessMemory.name() {
            self.memory(place, &series.points);
        }
    }

    /// A sample at the end of each step, with the CPU time of the step.
    fn cpu_usage(
        &mut self,
        place: usize,
        points: &[(i64, f64, f64, f64)],
        resources: &ResourcesAnswer,
    ) {
        let Some((begin_ns, ..)) = points.first() else {
            return;
        };
        let mut last_ms = self.at_ms(*begin_ns);
        let main = &mut self.threads[place];
        let name = main.string("process");
        let func = main.func_table.push(name, None, None);
        let frame = main.frame_table.push(func, Category::Other, 0);
        let stack = main.stack_table.push(None, frame);
        // Usage is drawn from one sample to the next.
        main.samples.push(Some(stack), last_ms, 1.0, 0);
        for (start_ns, cores, ..) in points {
            // The last step may not be over.
            let step_end_ns = start_ns.saturating_add_unsigned(resources.step_ns);
            let stop_ns = step_end_ns.min(resources.range.to_ns);
            let cpu_ns = stop_ns.saturating_sub(*start_ns) as f64 * cores.max(0.0);
            let at_ms = self.at_ms(stop_ns);
            let samples = &mut self.threads[place].samples;
            samples.push(Some(stack), at_ms - last_ms, 1.0, cpu_ns as u64 / 1_000);
            last_ms = at_ms;
        }
    }

    fn memory(&mut self, place: usize, points: &[(i64, f64, f64, f64)]) {
        let mut samples = CounterSamples::default();
        let mut last_ms = 0.0;
        let mut last_bytes = 0.0;
        for (ns, bytes, ..) in points {
            let at_ms = self.at_ms(*ns);
            samples.push(at_ms - last_ms, bytes - last_bytes);
            last_ms = at_ms;
            last_bytes = *bytes;
        }
        self.counters.push(Counter {
            // By this category the reader draws a track of memory.
            category: "Memory",
            name: "malloc",
            description: "Resident memory of the process",
            main_thread_index: place,
            pid: self.threads[place].pid.clone(),
            samples,
        });
    }

    fn file(self) -> File {
        let mut file = File::new(Meta::of_markers(self.origin_ms as f64));
        file.threads = self.threads;
        file.counters = self.counters;
        file
    }
}

#[cfg(test)]
mod tests;
