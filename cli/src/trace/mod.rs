//! Tasks as a trace: the Trace Event Format, which Perfetto and chrome://tracing open.
//!
//! Each life of a worker is a process there. A thread has a track, on which a task is inside another
//! only if it is its child; tasks that overlap otherwise, as futures do, are on further tracks of
//! the thread. Phases are inside their task. Anything that fits on no track, such as waiting in a
//! queue before the start, is a pair of asynchronous events. So are transfers, which are of the process.

mod lanes;
mod task;
mod transfer;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::io::{self, Write};

use api::{Phase, Task, Transfer};
use serde::Serialize;

use self::lanes::Lane;
pub(crate) use self::task::end_ns;
use self::task::{Interval, args, earliest_ns, parts};
use crate::output::json_text;

/// Most tracks of a thread, because nobody reads more. Beyond it tasks are asynchronous events,
/// whose tracks the viewer makes.
const LANES_MAX: usize = 64;

const DAY_NS: i64 = 86_400_000_000_000;

/// Facts about the whole trace, written at its end.
#[derive(Serialize, Debug)]
pub(crate) struct About {
    /// The requested range, in RFC 3339.
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) tasks: u64,
    /// Tasks that have rows, but too many for a response.
    pub(crate) omitted: u64,
    /// Tasks without rows.
    pub(crate) aggregated: u64,
    pub(crate) transfers: u64,
    /// Transfers that a response has no room for.
    pub(crate) omitted_transfers: u64,
    /// Files of the store that could not be read.
    pub(crate) corrupt_files: Vec<String>,
}

#[derive(Serialize)]
struct OtherData<'a> {
    tool: &'a str,
    ts_from_unix_ns: i64,
    #[serde(flatten)]
    about: &'a About,
}

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Trace<W> {
    out: W,
    /// Origin of `ts`: midnight before the first task, so that a viewer that reads numbers as 64-bit
    /// floats keeps the nanoseconds of 50 days.
    base_ns: Option<i64>,
    events: u64,
    processes: HashMap<(String, String), u64>,
    threads: HashMap<(u64, u32), Thread>,
    /// The last number of a process or a track; they share the sequence.
    numbers: u64,
    /// The last id of a pair of asynchronous events.
    ids: u64,
    /// Events of phases that start after the last written task.
    pending: BinaryHeap<Reverse<Pending>>,
}

#[derive(Debug)]
struct Thread {
    /// Its index among all threads, by which viewers sort.
    index: u64,
    lanes: Vec<(Track, Lane)>,
}

/// A row of a viewer.
#[derive(Clone, Copy, Debug)]
struct Track {
    process: u64,
    id: u64,
}

/// Identity that two asynchronous events share, by which a viewer pairs them.
#[derive(Clone, Copy, Debug)]
struct PairId {
    track: Track,
    id: u64,
    category: &'static str,
}

/// The category of parts of tasks.
const ASYNC: &str = "async";
/// The category of transfers.
const TRANSFER: &str = "transfer";

/// An event that waits for its time, ordered by start, the longer first, then by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Pending {
    start_ns: i64,
    longer_first: Reverse<i64>,
    number: u64,
    text: String,
}

/// Nanoseconds as microseconds, without rounding.
struct Microseconds(i128);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ns = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", ns / 1_000, ns % 1_000)
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    json_text(text).expect("a text can be written")
}

impl<W: Write> Trace<W> {
    /// Starts a trace.
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Trace {
            out,
            base_ns: None,
            events: 0,
            processes: HashMap::new(),
            threads: HashMap::new(),
            numbers: 0,
            ids: 0,
            pending: BinaryHeap::new(),
        })
    }

    /// Number of lives of workers so far.
    pub(crate) fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Writes tasks, none of which started before those of an earlier call.
    pub(crate) fn write(&mut self, mut tasks: Vec<Task>) -> io::Result<()> {
        tasks.sort_by_key(|task| (task.start_ns, Reverse(end_ns(task)), task.id));
        self.begin_at(tasks.iter().map(earliest_ns).min());
        tasks.iter().try_for_each(|task| self.task(task))
    }

    /// Writes transfers, in any order, each as a pair of asynchronous events of its process.
    pub(crate) fn write_transfers(&mut self, transfers: &[Transfer]) -> io::Result<()> {
        self.begin_at(transfers.iter().map(|transfer| transfer.start_ns).min());
        for transfer in transfers {
            let process = self.process(&transfer.worker, &transfer.epoch)?;
            let pair = self.next_pair(
                Track {
                    process,
                    id: process,
                },
                TRANSFER,
            );
            let name = quoted(&transfer::name(transfer));
            let args = json_text(&transfer::args(transfer))?;
            self.begin(pair, &name, transfer.start_ns, &args)?;
            self.end(pair, &name, transfer.stop_ns.max(transfer.start_ns))?;
        }
        Ok(())
    }

    /// Sets the origin at the first events.
    fn begin_at(&mut self, earliest_ns: Option<i64>) {
        self.base_ns = self
            .base_ns
            .or(earliest_ns.map(|ns: i64| ns.div_euclid(DAY_NS).saturating_mul(DAY_NS)));
    }

    /// Writes pending events and the end.
    pub(crate) fn finish(mut self, about: &About) -> io::Result<()> {
        self.pend_until(i64::MAX)?;
        let base_ns = self.base_ns.unwrap_or(0);
        self.out.write_all(b"\n],\"otherData\":")?;
        let tool = concat!("emberline ", env!("CARGO_PKG_VERSION"));
        let other_data = OtherData {
            tool,
            ts_from_unix_ns: base_ns,
            about,
        };
        self.out.write_all(json_text(&other_data)?.as_bytes())?;
        self.out.write_all(b"}\n")?;
        self.out.flush()
    }

    fn task(&mut self, task: &Task) -> io::Result<()> {
        self.pend_until(task.start_ns)?;
        let process = self.process(&task.worker, &task.epoch)?;
        let parts = parts(task);
        let (track, fits) = self.track(process, task, &parts.inside)?;
        let interval = Interval::of_task(task);
        let name = quoted(&task.name);
        let args = json_text(&args(task, &parts.summed))?;
        if fits {
            self.event(&(self.complete(&name, "task", track, interval) + &args + "}"))?;
            for phase in &parts.inside {
                let interval = Interval::of_phase(phase);
                let text = self.complete(&quoted(&phase.name), "phase", track, interval);
                self.pend(interval, text + "{}}");
            }
        } else {
            let pair = self.next_pair(track, ASYNC);
            self.begin(pair, &name, interval.start_ns, &args)?;
            for phase in &parts.inside {
                self.pair(pair, phase, "{}")?;
            }
            self.end(pair, &name, interval.stop_ns)?;
        }
        for phase in &parts.outside {
            let pair = self.next_pair(track, ASYNC);
            let args = format!("{{\"task\":{},\"key\":{}}}", task.id, quoted(&task.key));
            self.pair(pair, phase, &args)?;
        }
        Ok(())
    }

    /// The number of a worker's life; writes its name if it is new.
    fn process(&mut self, worker: &str, epoch: &str) -> io::Result<u64> {
        let key = (worker.to_owned(), epoch.to_owned());
        if let Some(known) = self.processes.get(&key) {
            return Ok(*known);
        }
        self.numbers += 1;
        let process = self.numbers;
        let sort_index = self.processes.len().to_string();
        self.processes.insert(key, process);
        let track = Track {
            process,
            id: process,
        };
        self.metadata("process_name", track, "name", &quoted(worker))?;
        let label = quoted(&format!("epoch {epoch}"));
        self.metadata("process_labels", track, "labels", &label)?;
        self.metadata("process_sort_index", track, "sort_index", &sort_index)?;
        Ok(process)
    }

    /// A track on which a task with these phases fits; if there is none, the thread's first, and
    /// `false`.
    fn track(&mut self, process: u64, task: &Task, inside: &[&Phase]) -> io::Result<(Track, bool)> {
        let index = self.threads.len() as u64;
        let thread = self
            .threads
            .entry((process, task.thread_id))
            .or_insert_with(|| Thread {
                index,
                lanes: Vec::new(),
            });
        for (track, lane) in &mut thread.lanes {
            if lane.add(task, inside) {
                return Ok((*track, true));
            }
        }
        let above = thread.lanes.len();
        if above >= LANES_MAX {
            return Ok((thread.lanes[0].0, false));
        }
        self.numbers += 1;
        let track = Track {
            process,
            id: self.numbers,
        };
        let mut lane = Lane::default();
        lane.add(task, inside);
        thread.lanes.push((track, lane));
        let sort_index = thread.index * LANES_MAX as u64 + above as u64;
        let mut name = match task.thread_name.as_str() {
            "" => format!("thread {}", task.thread_id),
            name => name.to_owned(),
        };
        if above > 0 {
            name += &format!(" ({})", above + 1);
        }
        self.metadata("thread_name", track, "name", &quoted(&name))?;
        self.metadata(
            "thread_sort_index",
            track,
            "sort_index",
            &sort_index.to_string(),
        )?;
        Ok((track, true))
    }

    /// Writes metadata of a track.
    fn metadata(&mut self, what: &str, track: Track, field: &str, value: &str) -> io::Result<()> {
        let Track { process, id } = track;
        self.event(&format!(
            "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{id},\
             \"args\":{{\"{field}\":{value}}}}}"
        ))
    }

    fn microseconds(&self, ns: i64) -> Microseconds {
        Microseconds(i128::from(ns) - i128::from(self.base_ns.unwrap_or(0)))
    }

    /// A complete event, up to its arguments.
    fn complete(&self, name: &str, category: &str, track: Track, interval: Interval) -> String {
        let Track { process, id } = track;
        let ts = self.microseconds(interval.start_ns);
        let dur = Microseconds(i128::from(interval.stop_ns) - i128::from(interval.start_ns));
        format!(
            "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":{name},\"pid\":{process},\
             \"tid\":{id},\"ts\":{ts},\"dur\":{dur},\"args\":"
        )
    }

    fn next_pair(&mut self, track: Track, category: &'static str) -> PairId {
        self.ids += 1;
        PairId {
            track,
            id: self.ids,
            category,
        }
    }

    /// Writes a phase as a pair of asynchronous events.
    fn pair(&mut self, pair: PairId, phase: &Phase, args: &str) -> io::Result<()> {
        let name = quoted(&phase.name);
        let interval = Interval::of_phase(phase);
        self.begin(pair, &name, interval.start_ns, args)?;
        self.end(pair, &name, interval.stop_ns)
    }

    fn begin(&mut self, pair: PairId, name: &str, ns: i64, args: &str) -> io::Result<()> {
        self.half('b', pair, name, ns, args)
    }

    fn end(&mut self, pair: PairId, name: &str, ns: i64) -> io::Result<()> {
        self.half('e', pair, name, ns, "{}")
    }

    /// Writes one event of a pair.
    fn half(
        &mut self,
        kind: char,
        pair: PairId,
        name: &str,
        ns: i64,
        args: &str,
    ) -> io::Result<()> {
        let PairId {
            track,
            id,
            category,
        } = pair;
        let Track { process, id: track } = track;
        let ts = self.microseconds(ns);
        self.event(&format!(
            "{{\"ph\":\"{kind}\",\"cat\":\"{category}\",\"id\":\"{id:#x}\",\"name\":{name},\
             \"pid\":{process},\"tid\":{track},\"ts\":{ts},\"args\":{args}}}"
        ))
    }

    /// Holds an event back until its time.
    fn pend(&mut self, interval: Interval, text: String) {
        self.numbers += 1;
        self.pending.push(Reverse(Pending {
            start_ns: interval.start_ns,
            longer_first: Reverse(interval.stop_ns),
            number: self.numbers,
            text,
        }));
    }

    /// Writes pending events that start no later than that.
    fn pend_until(&mut self, ns: i64) -> io::Result<()> {
        while let Some(Reverse(next)) = self.pending.peek()
            && next.start_ns <= ns
        {
            let Some(Reverse(next)) = self.pending.pop() else {
                break;
            };
            self.event(&next.text)?;
        }
        Ok(())
    }

    /// Writes one event, on a line of its own.
    fn event(&mut self, text: &str) -> io::Result<()> {
        let between: &[u8] = if self.events == 0 { b"\n" } else { b",\n" };
        self.events += 1;
        self.out.write_all(between)?;
        self.out.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests;
