//! Recordings of Java's Flight Recorder: of the JDK, of async-profiler, of Pyroscope's agent for Java.
//!
//! The recording is read three times, because events are not in the order of time: for its settings, for
//! waits, and for samples, whose time may be in waits already. `docs/FORMATS.md` has the table of events.

mod contexts;
mod settings;
mod stacks;
mod waits;

use std::collections::{BTreeMap, HashMap};

use jfr::{Chunk, Event, JfrError, Key, Record, Recording};
use profiler_core::{NodeId, State, Timestamp};

use self::contexts::Contexts;
use self::settings::{Interval, Meaning, Settings};
use self::stacks::Stacks;
use self::waits::{Attribution, Wait, Waits};
use super::builder::{Builder, Sample, Times};
use super::error::{ImportError, echo};
use super::labels::SampleLabels;
use super::limits::{NAMED_EVENTS_MAX, TABLE_ENTRIES_MAX, WAIT_PARTS_MAX};
use super::model::{ImportFormat, ImportOptions, Imported};

const SECOND_NS: i64 = 1_000_000_000;

/// Parses a recording, decompressed.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let recording = Recording::new(content);
    let mut parser = Parser::new(options)?;
    let mut settings = Vec::new();
    for chunk in recording.chunks() {
        let chunk = chunk?;
        let known = settings.last().cloned().unwrap_or_default();
        let kinds = EventKind::of_types(&chunk);
        // async-profiler writes them into its first chunk only.
        let of_chunk = Settings::of(&chunk, &kinds)?.unwrap_or(known);
        parser.read_waits(&chunk, &kinds, &of_chunk)?;
        settings.push(of_chunk);
    }
    parser.add_waits()?;
    for (chunk, settings) in recording.chunks().zip(&settings) {
        let chunk = chunk?;
        let kinds = EventKind::of_types(&chunk);
        parser.read_samples(&chunk, &kinds, settings)?;
    }
    parser.finish()
}

impl From<JfrError> for ImportError {
    fn from(error: JfrError) -> ImportError {
        match error {
            JfrError::TooMany { what, limit, .. } => ImportError::TooMany { what, limit },
            error => ImportError::Invalid {
                format: ImportFormat::Jfr,
                reason: error.to_string(),
            },
        }
    }
}

/// Use of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EventKind {
    Setting,
    ExecutionSample,
    NativeSample,
    WallSample,
    Wait(State),
    DataLoss,
    /// An event with a stack that does not count as time of a thread.
    Unused,
    Ignored,
}

impl EventKind {
    /// The kinds of a chunk's types.
    fn of_types(chunk: &Chunk<'_>) -> Vec<EventKind> {
        let kinds = chunk
            .types()
            .map(|(name, has_stack)| EventKind::of(name, has_stack));
        kinds.collect()
    }

    fn of(name: &str, has_stack: bool) -> EventKind {
        match name {
            "jdk.ActiveSetting" => EventKind::Setting,
            "jdk.ExecutionSample" => EventKind::ExecutionSample,
            "jdk.NativeMethodSample" => EventKind::NativeSample,
            "profiler.WallClockSample" => EventKind::WallSample,
            "jdk.JavaMonitorEnter" | "jdk.JavaMonitorWait" | "jdk.ThreadPark" => {
                EventKind::Wait(State::Lock)
            }
            "jdk.ThreadSleep" => EventKind::Wait(State::Sleep),
            "jdk.SocketRead" | "jdk.SocketWrite" => EventKind::Wait(State::Network),
            "jdk.FileRead" | "jdk.FileWrite" | "jdk.FileForce" => EventKind::Wait(State::Disk),
            "jdk.DataLoss" => EventKind::DataLoss,
            _ if has_stack => EventKind::Unused,
            _ => EventKind::Ignored,
        }
    }
}

/// A task or phase, and the number of a set of labels.
#[derive(Clone, Copy, Debug)]
struct Context {
    top: NodeId,
    labels: u16,
}

/// Numbers of events by their type.
#[derive(Default)]
struct EventCounts(BTreeMap<String, u64>);

struct Parser<'a> {
    builder: Builder<'a>,
    labels: Contexts,
    contexts: HashMap<u64, Context>,
    /// Of all chunks, in nanoseconds since 1970.
    start_ns: Option<i64>,
    stop_ns: i64,
    waits: Vec<Wait>,
    sorted_waits: Waits,
    wait_counts: EventCounts,
    unused_counts: EventCounts,
    /// Whether samples tell the time on a CPU.
    has_cpu: bool,
    has_wall: bool,
    native_samples: u64,
    lost_bytes: u64,
    /// Time of samples that is in others or in waits already.
    covered_ns: u64,
    stack_frames: usize,
}

impl<'a> Parser<'a> {
    fn new(options: &'a ImportOptions) -> Result<Parser<'a>, ImportError> {
        let builder = Builder::new(ImportFormat::Jfr, options);
        Ok(Parser {
            labels: Contexts::read(&builder, &options.jfr_labels)?,
            builder,
            contexts: HashMap::new(),
            start_ns: None,
            stop_ns: 0,
            waits: Vec::new(),
            sorted_waits: Waits::default(),
            wait_counts: EventCounts::default(),
            unused_counts: EventCounts::default(),
            has_cpu: false,
            has_wall: false,
            native_samples: 0,
            lost_bytes: 0,
            covered_ns: 0,
            stack_frames: 0,
        })
    }

    /// Reads a chunk's waits, and counts the events that are no time.
    fn read_waits(
        &mut self,
        chunk: &Chunk<'_>,
        kinds: &[EventKind],
        settings: &Settings,
    ) -> Result<(), ImportError> {
        let start_ns = chunk.start_ns();
        self.start_ns = Some(
            self.start_ns
                .map_or(start_ns, |known_ns| known_ns.min(start_ns)),
        );
        let stop_ns = start_ns.saturating_add_unsigned(chunk.duration_ns());
        self.stop_ns = self.stop_ns.max(stop_ns);
        let mut stacks = Stacks::new(chunk);
        let mut counts = vec![0_u64; kinds.len()];
        for event in chunk.events() {
            let event = event?;
            counts[event.type_index] += 1;
            match kinds[event.type_index] {
                EventKind::Wait(state) => self.read_wait(chunk, &mut stacks, &event, state)?,
                EventKind::DataLoss => {
                    let amount = event.record()?.number(Key::Amount);
                    self.lost_bytes = self.lost_bytes.saturating_add(amount.unwrap_or(0));
                }
                EventKind::Unused => {
                    let stack = event.record()?.constant(Key::StackTrace);
                    // Settings of the JVM have an empty one.
                    if stack.is_none_or(|stack| stack.key == 0) {
                        counts[event.type_index] -= 1;
                    }
                }
                kind @ EventKind::ExecutionSample if !self.has_cpu => {
                    let record = event.record()?;
                    let meaning = self.meaning(chunk, &record, kind, settings)?;
                    self.has_cpu = matches!(meaning, Meaning::Cpu(_));
                }
                _ => {}
            }
        }
        for (((name, _), kind), count) in chunk.types().zip(kinds).zip(counts) {
            match kind {
                EventKind::Wait(_) => self.wait_counts.add(name, count),
                EventKind::Unused => self.unused_counts.add(name, count),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_wait(
        &mut self,
        chunk: &Chunk<'_>,
        stacks: &mut Stacks<'_, '_>,
        event: &Event<'_, '_>,
        state: State,
    ) -> Result<(), ImportError> {
        if self.waits.len() >= TABLE_ENTRIES_MAX {
            return Err(ImportError::TooMany {
                what: "too many waits",
                limit: TABLE_ENTRIES_MAX,
            });
        }
        let record = event.record()?;
        let attribution = self.attribution(stacks, &record)?;
        let start_ns = chunk.time_ns(record.number(Key::StartTime).unwrap_or(0));
        let length_ns = chunk.length_ns(record.number(Key::Duration).unwrap_or(0));
        self.waits.push(Wait::new(
            thread_key(&record),
            start_ns,
            length_ns,
            state,
            attribution,
        ));
        Ok(())
    }

    fn attribution(
        &mut self,
        stacks: &mut Stacks<'_, '_>,
        record: &Record<'_>,
    ) -> Result<Attribution, ImportError> {
        let context = self.context(record.number(Key::ContextId).unwrap_or(0))?;
        let stack = record.constant(Key::StackTrace);
        let inserted = &mut self.stack_frames;
        let node = stacks.node(&mut self.builder, context.top, stack, inserted)?;
        let thread = record.constant(Key::Thread);
        Ok(Attribution {
            node,
            thread: stacks.thread(&mut self.builder, context.top, thread)?,
            labels: context.labels,
        })
    }

    fn context(&mut self, id: u64) -> Result<Context, ImportError> {
        if let Some(context) = self.contexts.get(&id) {
            return Ok(*context);
        }
        if id != 0 && self.labels.is_empty() {
            self.builder
                .note("the labels of samples are not in the recording");
        }
        let mut labels = SampleLabels::default();
        for (key, text) in self.labels.labels(id) {
            labels.add(&mut self.builder, key, Some(text));
        }
        let context = Context {
            top: self.builder.top(labels.task, labels.phase)?,
            labels: self.builder.label_set(labels.others),
        };
        self.contexts.insert(id, context);
        Ok(context)
    }

    fn meaning(
        &self,
        chunk: &Chunk<'_>,
        record: &Record<'_>,
        kind: EventKind,
        settings: &Settings,
    ) -> Result<Meaning, JfrError> {
        let state = chunk.text(record, Key::State)?.unwrap_or_default();
        Ok(settings.meaning(kind, &state, self.builder.options.interval_ns))
    }

    fn add_waits(&mut self) -> Result<(), ImportError> {
        self.sorted_waits = Waits::new(std::mem::take(&mut self.waits));
        let waits = std::mem::take(&mut self.sorted_waits);
        for wait in waits.iter() {
            let length_ns = (wait.stop_ns - wait.start_ns).unsigned_abs();
            self.add(
                wait.attribution,
                wait.state,
                wait.start_ns,
                length_ns,
                length_ns,
            )?;
        }
        self.sorted_waits = waits;
        Ok(())
    }

    fn read_samples(
        &mut self,
        chunk: &Chunk<'_>,
        kinds: &[EventKind],
        settings: &Settings,
    ) -> Result<(), ImportError> {
        let mut stacks = Stacks::new(chunk);
        for event in chunk.events() {
            let event = event?;
            let kind = kinds[event.type_index];
            if let EventKind::ExecutionSample | EventKind::NativeSample | EventKind::WallSample =
                kind
            {
                let record = event.record()?;
                let meaning = self.meaning(chunk, &record, kind, settings)?;
                self.add_sample(chunk, &mut stacks, &record, meaning)?;
            }
        }
        Ok(())
    }

    fn add_sample(
        &mut self,
        chunk: &Chunk<'_>,
        stacks: &mut Stacks<'_, '_>,
        record: &Record<'_>,
        meaning: Meaning,
    ) -> Result<(), ImportError> {
        let samples = record.number(Key::Samples).unwrap_or(1);
        let (state, interval, may_be_counted) = match meaning {
            Meaning::NoTime(event) => {
                let name = format!("jdk.ExecutionSample of {}", echo(&event));
                self.unused_counts.add(&name, 1);
                return Ok(());
            }
            Meaning::Cpu(interval) => (State::Cpu, interval, false),
            Meaning::Wall(state, interval) => {
                self.has_wall = true;
                (state, interval, true)
            }
            Meaning::Native(interval) => {
                self.native_samples += 1;
                (State::Other, interval, true)
            }
        };
        self.note_interval(interval);
        let length_ns = interval
            .nanoseconds
            .checked_mul(samples)
            .filter(|length_ns| *length_ns <= i64::MAX.unsigned_abs())
            .ok_or_else(|| {
                self.builder
                    .invalid("a sample is longer than 63 bits of nanoseconds")
            })?;
        let start_ns = chunk.time_ns(record.number(Key::StartTime).unwrap_or(0));
        let mut weight_ns = length_ns;
        if may_be_counted {
            let stop_ns = start_ns.saturating_add_unsigned(length_ns);
            let is_cpu = state == State::Cpu && self.has_cpu;
            let covered_ns = if is_cpu {
                length_ns
            } else {
                self.sorted_waits
                    .covered_ns(thread_key(record), start_ns, stop_ns)
            };
            weight_ns = length_ns.saturating_sub(covered_ns);
            self.covered_ns = self.covered_ns.saturating_add(length_ns - weight_ns);
        }
        if weight_ns == 0 {
            return Ok(());
        }
        let attribution = self.attribution(stacks, record)?;
        self.add(attribution, state, start_ns, length_ns, weight_ns)
    }

    fn note_interval(&mut self, interval: Interval) {
        if interval.is_assumed {
            let interval_ms = interval.nanoseconds as f64 / 1e6;
            self.builder.note(format!(
                "a sample is {interval_ms} ms, assumed; --interval sets another time"
            ));
        }
    }

    /// Adds time that began at `start_ns`, spread over its length. What is outside of the recording counts at its
    /// start or end.
    fn add(
        &mut self,
        attribution: Attribution,
        state: State,
        start_ns: i64,
        length_ns: u64,
        weight_ns: u64,
    ) -> Result<(), ImportError> {
        let begin_ns = self.start_ns.unwrap_or(0);
        let recorded_ns = self.stop_ns.saturating_sub(begin_ns).max(0);
        let within = |at_ns: i64| at_ns.saturating_sub(begin_ns).clamp(0, recorded_ns);
        let stop_ns = within(start_ns.saturating_add_unsigned(length_ns));
        let start_ns = within(start_ns);
        let seconds = (stop_ns - start_ns) / SECOND_NS;
        // Parts end with seconds.
        let part_ns = (1 + seconds / WAIT_PARTS_MAX) * SECOND_NS;
        let mut at_ns = start_ns;
        let mut added_ns = 0;
        loop {
            let next_ns = ((at_ns / part_ns + 1) * part_ns).min(stop_ns);
            let is_last = next_ns >= stop_ns;
            let share = |until_ns: i64| {
                let done = u128::from((until_ns - start_ns).unsigned_abs());
                let whole = u128::from((stop_ns - start_ns).unsigned_abs());
                (u128::from(weight_ns) * done / whole) as u64
            };
            let until_now_ns = if is_last { weight_ns } else { share(next_ns) };
            let sample = Sample {
                node: attribution.node,
                thread: attribution.thread,
                state,
                weight: until_now_ns - added_ns,
                at_ns: at_ns.unsigned_abs(),
            };
            self.builder.add_labeled(sample, attribution.labels)?;
            added_ns = until_now_ns;
            at_ns = next_ns;
            if is_last {
                return Ok(());
            }
        }
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        let unused = self.unused_counts.text();
        if self.builder.is_empty() && !unused.is_empty() {
            return Err(ImportError::NoTime {
                format: ImportFormat::Jfr,
                found: unused,
            });
        }
        self.note_all(&unused);
        let start_ns = self.start_ns.unwrap_or(0);
        let duration_ns = self.stop_ns.saturating_sub(start_ns);
        let has_waits = !self.wait_counts.text().is_empty();
        let imported = self.builder.finish(Times {
            started_at: Some(Timestamp::from_unix_ns(start_ns)),
            duration_ns: u64::try_from(duration_ns).ok(),
        })?;
        Ok(Imported {
            has_long_waits_only: has_waits && !self.has_wall,
            ..imported
        })
    }

    fn note_all(&mut self, unused: &str) {
        let builder = &mut self.builder;
        if !unused.is_empty() {
            builder.note(format!(
                "events that are no time of a thread do not count: {unused}"
            ));
        }
        let waits = self.wait_counts.text();
        if !waits.is_empty() && !self.has_wall {
            builder.note(format!(
                "waiting is that of events above the recording's thresholds ({waits}): shorter waits are missing"
            ));
        }
        let native_samples = self.native_samples;
        if native_samples > 0 {
            builder.note(format!(
                "samples of threads in native code, which may run or wait, are in state other: {native_samples}"
            ));
        }
        if self.covered_ns > 0 {
            let seconds = self.covered_ns as f64 / 1e9;
            builder.note(format!(
                "{seconds:.3} s of samples do not count again: CPU samples or events with a length have that time"
            ));
        }
        let lost_bytes = self.lost_bytes;
        if lost_bytes > 0 {
            builder.note(format!("the JVM lost {lost_bytes} bytes of events"));
        }
    }
}

/// The constant of an event's thread; 0 if it has none.
fn thread_key(record: &Record<'_>) -> u64 {
    record.constant(Key::Thread).map_or(0, |thread| thread.key)
}

impl EventCounts {
    fn add(&mut self, name: &str, count: u64) {
        if count == 0 {
            return;
        }
        match self.0.get_mut(name) {
            Some(known) => *known += count,
            None => drop(self.0.insert(name.to_owned(), count)),
        }
    }

    /// The most frequent ones; empty if there are none.
    fn text(&self) -> String {
        let mut counts: Vec<(&String, &u64)> = self.0.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named = counts.iter().take(NAMED_EVENTS_MAX);
        let mut texts: Vec<String> = named
            .map(|(name, count)| format!("{count} {}", echo(name)))
            .collect();
        let others = counts.len().saturating_sub(NAMED_EVENTS_MAX);
        if others > 0 {
            texts.push(format!("and {others} other types"));
        }
        texts.join(", ")
    }
}
