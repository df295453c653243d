//! The processed format of the Firefox Profiler, of our exports, of samply and of Firefox itself. Versions differ:
//! up to 40, threads have libraries of their own, 58 has names of sources in a table, 60 shares tables between threads, 66 has distances between stacks, and 70
//! has the library of a frame at the frame.

mod raw;

use std::borrow::Cow;

use profiler_core::{Frame, FrameId, NodeId, State, Timestamp};
use serde::Deserialize;

use super::builder::{Builder, Sample, Times, frame_of_label};
use super::error::{ImportError, echo};
use super::json::{Table, nanoseconds, unit_ns};
use super::limits::FRAMES_MAX;
use super::model::{ImportFormat, ImportOptions, Imported};

const MILLISECOND_NS: f64 = 1e6;

/// The newest version that is known.
const VERSION_MAX: u32 = 70;

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    meta: Meta<'a>,
    #[serde(borrow, default)]
    libs: Table<Lib<'a>>,
    #[serde(borrow, default)]
    shared: Tables<'a>,
    #[serde(borrow)]
    threads: Table<Thread<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    /// Milliseconds between two samples.
    #[serde(default)]
    interval: f64,
    /// Milliseconds since 1970.
    #[serde(default)]
    start_time: f64,
    #[serde(borrow, default)]
    product: Cow<'a, str>,
    #[serde(borrow, default)]
    sample_units: Option<SampleUnits<'a>>,
    #[serde(default)]
    preprocessed_profile_version: Option<u32>,
}

#[derive(Deserialize)]
struct SampleUnits<'a> {
    #[serde(rename = "threadCPUDelta", borrow, default)]
    cpu_delta: Cow<'a, str>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lib<'a> {
    #[serde(borrow, default)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    code_id: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Tables<'a> {
    #[serde(borrow, default)]
    string_array: Table<Cow<'a, str>>,
    #[serde(default)]
    frame_table: FrameTable,
    #[serde(default)]
    func_table: FuncTable,
    #[serde(default)]
    resource_table: ResourceTable,
    #[serde(default)]
    stack_table: StackTable,
    #[serde(default)]
    sources: SourceTable,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    tid: ThreadId,
    /// Milliseconds, by the same clock as samples.
    #[serde(default)]
    process_startup_time: f64,
    samples: Samples<'a>,
    /// Up to version 40.
    #[serde(borrow, default)]
    libs: Table<Lib<'a>>,
    #[serde(borrow, default)]
    string_array: Table<Cow<'a, str>>,
    #[serde(default)]
    frame_table: FrameTable,
    #[serde(default)]
    func_table: FuncTable,
    #[serde(default)]
    resource_table: ResourceTable,
    #[serde(default)]
    stack_table: StackTable,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FrameTable {
    func: Vec<u32>,
    line: Vec<Option<u32>>,
    #[serde(rename = "inlineDepth")]
    inline_depth: Vec<u32>,
    /// From version 70 on; negative for none.
    lib: Option<Vec<i64>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FuncTable {
    name: Vec<u32>,
    resource: Vec<i64>,
    /// Up to version 57.
    file_name: Vec<Option<u32>>,
    source: Vec<Option<u32>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SourceTable {
    filename: Vec<u32>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ResourceTable {
    lib: Vec<Option<u32>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StackTable {
    prefix: Vec<Option<u32>>,
    /// From version 66 on: the distance to the prefix, 0 for none.
    prefix_offset: Option<Vec<u32>>,
    frame: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Samples<'a> {
    stack: Vec<Option<u32>>,
    /// Milliseconds since the start.
    #[serde(default)]
    time: Option<Vec<f64>>,
    /// Milliseconds since the sample before.
    #[serde(default)]
    time_deltas: Option<Vec<f64>>,
    #[serde(default)]
    weight: Option<Vec<Option<f64>>>,
    #[serde(borrow, default)]
    weight_type: Option<Cow<'a, str>>,
    #[serde(rename = "threadCPUDelta", default)]
    cpu_delta: Option<Vec<Option<f64>>>,
}

/// Parses a processed profile.
pub(super) fn parse(content: &[u8], options: &ImportOptions) -> Result<Imported, ImportError> {
    let file: File<'_> = match super::json::parse(content, ImportFormat::Firefox) {
        Ok(file) => file,
        Err(error) => raw::processed(content).unwrap_or(Err(error))?,
    };
    let mut builder = Builder::new(ImportFormat::Firefox, options);
    let version = file.meta.preprocessed_profile_version;
    if let Some(version) = version.filter(|version| *version > VERSION_MAX) {
        builder.note(format!(
            "version {version} is newer than those that are known: up to {VERSION_MAX}"
        ));
    }
    let units = file.meta.sample_units.as_ref();
    let cpu_unit_ns = units.and_then(|units| unit_ns(&units.cpu_delta));
    let product = &*file.meta.product;
    let is_named_ours = product == "Emberline" || product.starts_with("Emberline: ");
    // Ours share no tables.
    let is_ours = is_named_ours && file.shared.stack_table.frame.is_empty();
    let interval_ns = match options.interval_ns {
        Some(interval_ns) => interval_ns as f64,
        None => file.meta.interval * MILLISECOND_NS,
    };
    let mut parser = Parser {
        builder,
        file: &file,
        is_ours,
        interval_ns,
        cpu_unit_ns,
        origin_ms: file.origin_ms(),
        stop_ns: 0,
        shared_nodes: None,
        without_time: None,
    };
    for thread in file.threads.iter() {
        parser.thread(thread)?;
    }
    let Parser {
        mut builder,
        stop_ns,
        without_time,
        ..
    } = parser;
    if let Some(found) = without_time {
        if builder.is_empty() {
            return Err(ImportError::NoTime {
                format: ImportFormat::Firefox,
                found,
            });
        }
        builder.note(format!("threads whose samples are {found} were skipped"));
    }
    let start_ns = file.started_ms() * MILLISECOND_NS;
    let is_known = (1.0..9e18).contains(&start_ns);
    let started_at = is_known.then(|| Timestamp::from_unix_ns(start_ns as i64));
    let duration_ns = (!is_ours && stop_ns > 0).then_some(stop_ns);
    builder.finish(Times {
        started_at,
        duration_ns,
    })
}

impl File<'_> {
    /// The time of the earliest sample, rounded down to a second: a profile begins there. Times are relative to
    /// `meta.startTime` in profiles of Firefox, which may have run for days before; to the start of the machine or of
    /// 1970 in those of other programs.
    fn origin_ms(&self) -> f64 {
        const SECOND_MS: f64 = 1e3;
        let threads = self.threads.iter();
        let first_ms = threads
            .filter_map(|thread| thread.samples.first_ms())
            .fold(f64::INFINITY, f64::min);
        if first_ms.is_finite() {
            (first_ms / SECOND_MS).floor().max(0.0) * SECOND_MS
        } else {
            0.0
        }
    }

    /// Milliseconds since 1970 at [`File::origin_ms`].
    fn started_ms(&self) -> f64 {
        let origin_ms = self.origin_ms();
        let start_ms = self.meta.start_time;
        let threads = self.threads.iter();
        let clock_ms = threads
            .map(|thread| thread.process_startup_time)
            .fold(f64::INFINITY, f64::min);
        if origin_ms >= start_ms {
            origin_ms
        } else if clock_ms.is_finite() && clock_ms >= 1.0 && clock_ms <= origin_ms + 1e3 {
            // The clock of all threads began before the profile did.
            start_ms + (origin_ms - clock_ms).max(0.0)
        } else {
            start_ms + origin_ms
        }
    }
}

impl Samples<'_> {
    /// The time of the earliest sample.
    fn first_ms(&self) -> Option<f64> {
        match (&self.time, &self.time_deltas) {
            (Some(times), _) => times.iter().copied().reduce(f64::min),
            (None, Some(deltas)) => {
                let sums = deltas.iter().scan(0.0, |at, delta| {
                    *at += delta;
                    Some(*at)
                });
                sums.reduce(f64::min)
            }
            (None, None) => None,
        }
    }
}

struct Parser<'a, 'f> {
    builder: Builder<'a>,
    file: &'f File<'f>,
    /// Threads are tasks, and their samples have no real times.
    is_ours: bool,
    interval_ns: f64,
    cpu_unit_ns: Option<u64>,
    /// The time that counts as 0.
    origin_ms: f64,
    stop_ns: u64,
    /// Of the stacks that threads share, which are all below one task.
    shared_nodes: Option<Vec<NodeId>>,
    /// The type of weights of a thread that are no time.
    without_time: Option<String>,
}

/// The tables of a thread: its own, or the shared ones.
struct ThreadTables<'f> {
    strings: &'f [Cow<'f, str>],
    frames: &'f FrameTable,
    funcs: &'f FuncTable,
    resources: &'f ResourceTable,
    stacks: &'f StackTable,
    libs: &'f [Lib<'f>],
    is_shared: bool,
}

impl<'f> ThreadTables<'f> {
    fn new(thread: &'f Thread<'f>, file: &'f File<'f>) -> ThreadTables<'f> {
        let shared = &file.shared;
        let libs = if thread.libs.is_empty() {
            &file.libs
        } else {
            &thread.libs
        };
        let own_strings = &*thread.string_array;
        let strings = if own_strings.is_empty() {
            &shared.string_array
        } else {
            own_strings
        };
        if thread.stack_table.frame.is_empty() {
            return ThreadTables {
                strings: &shared.string_array,
                frames: &shared.frame_table,
                funcs: &shared.func_table,
                resources: &shared.resource_table,
                stacks: &shared.stack_table,
                libs: &file.libs,
                is_shared: true,
            };
        }
        ThreadTables {
            strings,
            frames: &thread.frame_table,
            funcs: &thread.func_table,
            resources: &thread.resource_table,
            stacks: &thread.stack_table,
            libs,
            is_shared: false,
        }
    }
}

/// A thread's id, which some versions write as a text.
#[derive(Clone, Copy, Default, Debug)]
struct ThreadId(u32);

impl<'de> Deserialize<'de> for ThreadId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ThreadId, D::Error> {
        deserializer.deserialize_any(ThreadIdVisitor)
    }
}

struct ThreadIdVisitor;

impl serde::de::Visitor<'_> for ThreadIdVisitor {
    type Value = ThreadId;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a number or a text")
    }

    fn visit_u64<E>(self, id: u64) -> Result<ThreadId, E> {
        Ok(ThreadId(u32::try_from(id).unwrap_or(0)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<ThreadId, E> {
        Ok(ThreadId(0))
    }

    fn visit_f64<E>(self, _: f64) -> Result<ThreadId, E> {
        Ok(ThreadId(0))
    }

    fn visit_str<E>(self, id: &str) -> Result<ThreadId, E> {
        Ok(ThreadId(id.parse().unwrap_or(0)))
    }

    fn visit_unit<E>(self) -> Result<ThreadId, E> {
        Ok(ThreadId(0))
    }
}

impl<'f> Parser<'_, 'f> {
    fn entry<T: Copy>(&self, what: &str, table: &[T], index: usize) -> Result<T, ImportError> {
        table.get(index).copied().ok_or_else(|| {
            let count = table.len();
            self.builder
                .invalid(format!("{what} {index} is outside of its table of {count}"))
        })
    }

    fn thread(&mut self, thread: &'f Thread<'f>) -> Result<(), ImportError> {
        if thread.samples.stack.is_empty() {
            return Ok(());
        }
        match thread.samples.weight_type.as_deref() {
            None | Some("samples" | "tracing-ms") => {}
            Some(other) => {
                self.without_time = Some(echo(other));
                return Ok(());
            }
        }
        let tables = ThreadTables::new(thread, self.file);
        let task = self.is_ours.then_some(&*thread.name);
        let top = self.builder.top(task, None)?;
        let name = if self.is_ours { "" } else { &thread.name };
        let id = if self.is_ours { 0 } else { thread.tid.0 };
        let thread_node = self.builder.thread(top, name, id)?;
        let own_nodes = if tables.is_shared {
            Vec::new()
        } else {
            self.nodes(&tables, top)?
        };
        if tables.is_shared && self.shared_nodes.is_none() {
            self.shared_nodes = Some(self.nodes(&tables, top)?);
        }
        let mut at = 0.0;
        for index in 0..thread.samples.stack.len() {
            let node = match thread.samples.stack[index] {
                Some(stack) => {
                    let shared = self.shared_nodes.as_ref().filter(|_| tables.is_shared);
                    self.entry("stack", shared.unwrap_or(&own_nodes), stack as usize)?
                }
                None => top,
            };
            let samples = &thread.samples;
            let time_ns = match (&samples.time, &samples.time_deltas) {
                _ if self.is_ours => 0,
                (Some(times), _) => self.time_ns(self.entry("time", times, index)?)?,
                (None, Some(deltas)) => {
                    at += self.entry("time", deltas, index)?;
                    self.time_ns(at)?
                }
                (None, None) => 0,
            };
            self.sample(
                samples,
                index,
                Position {
                    node,
                    thread: thread_node,
                    at_ns: time_ns,
                },
            )?;
        }
        Ok(())
    }

    fn time_ns(&mut self, time_ms: f64) -> Result<u64, ImportError> {
        nanoseconds(
            &self.builder,
            "the time of a sample",
            time_ms - self.origin_ms,
            MILLISECOND_NS,
        )
    }

    fn sample(
        &mut self,
        samples: &Samples<'_>,
        index: usize,
        position: Position,
    ) -> Result<(), ImportError> {
        let weight = match &samples.weight {
            Some(weights) => self.entry("weight", weights, index)?.unwrap_or(0.0),
            None => 1.0,
        };
        let is_time = samples.weight_type.as_deref() == Some("tracing-ms");
        let weight_unit_ns = if is_time {
            MILLISECOND_NS
        } else if self.interval_ns > 0.0 {
            self.interval_ns
        } else {
            let reason = "meta.interval is not the time of a sample; --interval sets it";
            return Err(self.builder.invalid(reason));
        };
        let weight_ns = nanoseconds(&self.builder, "a weight", weight, weight_unit_ns)?;
        let Position {
            node,
            thread,
            at_ns,
        } = position;
        self.stop_ns = self.stop_ns.max(at_ns.saturating_add(weight_ns));
        let cpu = match (&samples.cpu_delta, self.cpu_unit_ns) {
            (Some(deltas), Some(unit_ns)) => self
                .entry("CPU time", deltas, index)?
                .map(|delta| (delta, unit_ns)),
            _ => None,
        };
        let parts = match cpu {
            Some((delta, unit_ns)) => {
                let rounded_ns =
                    nanoseconds(&self.builder, "a CPU time", delta, unit_ns as f64)?.min(weight_ns);
                // Numbers of the unit are rounded down.
                let cpu_ns = if weight_ns - rounded_ns < unit_ns {
                    weight_ns
                } else {
                    rounded_ns
                };
                [(State::Cpu, cpu_ns), (State::Other, weight_ns - cpu_ns)]
            }
            None => [(self.builder.options.state(), weight_ns), (State::Other, 0)],
        };
        for (state, weight) in parts {
            self.builder.add(Sample {
                node,
                thread,
                state,
                weight,
                at_ns,
            })?;
        }
        Ok(())
    }

    /// The node of each stack. A stack's prefix has a smaller index, so there are no cycles.
    fn nodes(
        &mut self,
        tables: &ThreadTables<'_>,
        top: NodeId,
    ) -> Result<Vec<NodeId>, ImportError> {
        let frames = self.frames(tables)?;
        let mut nodes: Vec<NodeId> = Vec::with_capacity(tables.stacks.frame.len());
        let mut depths: Vec<usize> = Vec::with_capacity(tables.stacks.frame.len());
        for (index, frame) in tables.stacks.frame.iter().enumerate() {
            let (parent, depth) = match self.prefix(tables.stacks, index)? {
                Some(prefix) => (nodes[prefix], depths[prefix]),
                None => (top, 0),
            };
            let frame = self.entry("frame", &frames, *frame as usize)?;
            // Frames beyond the limit count for the deepest one.
            let is_deep = depth >= FRAMES_MAX;
            nodes.push(if is_deep {
                parent
            } else {
                self.builder.child(parent, frame)
            });
            depths.push(depth + 1);
        }
        Ok(nodes)
    }

    /// The prefix of a stack, which has a smaller index.
    fn prefix(&self, stacks: &StackTable, index: usize) -> Result<Option<usize>, ImportError> {
        let Some(distances) = &stacks.prefix_offset else {
            let prefix = self
                .entry("stack", &stacks.prefix, index)?
                .map(|prefix| prefix as usize);
            if let Some(prefix) = prefix.filter(|prefix| *prefix >= index) {
                let reason = format!("stack {index} has the prefix {prefix}; it must be smaller");
                return Err(self.builder.invalid(reason));
            }
            return Ok(prefix);
        };
        let distance = self.entry("stack", distances, index)? as usize;
        let prefix = index.checked_sub(distance).ok_or_else(|| {
            let reason = format!("stack {index} has its prefix {distance} before it");
            self.builder.invalid(reason)
        })?;
        Ok((distance > 0).then_some(prefix))
    }

    /// The string that names the file of a function.
    fn file_of(&self, tables: &ThreadTables<'_>, func: usize) -> Result<Option<u32>, ImportError> {
        match tables.funcs.source.get(func).copied().flatten() {
            Some(source) => {
                let sources = &self.file.shared.sources.filename;
                self.entry("source", sources, source as usize).map(Some)
            }
            None => Ok(tables.funcs.file_name.get(func).copied().flatten()),
        }
    }

    /// The library of a frame.
    fn lib_of<'t>(tables: &ThreadTables<'t>, frame: usize, func: usize) -> Option<&'t Lib<'t>> {
        let lib = match &tables.frames.lib {
            Some(libs) => libs.get(frame).copied(),
            None => {
                let resource = tables.funcs.resource.get(func).copied().unwrap_or(-1);
                let lib = tables.resources.lib.get(usize::try_from(resource).ok()?);
                lib.copied().flatten().map(i64::from)
            }
        };
        tables.libs.get(usize::try_from(lib?).ok()?)
    }

    fn frames(&mut self, tables: &ThreadTables<'_>) -> Result<Vec<FrameId>, ImportError> {
        let mut frames = Vec::with_capacity(tables.frames.func.len());
        for (index, func) in tables.frames.func.iter().enumerate() {
            let func = *func as usize;
            let name = self.entry("function", &tables.funcs.name, func)?;
            let text = |parser: &Self, index: u32| -> Result<&str, ImportError> {
                let count = tables.strings.len();
                tables
                    .strings
                    .get(index as usize)
                    .map(AsRef::as_ref)
                    .ok_or_else(|| {
                        parser
                            .builder
                            .invalid(format!("string {index} is outside of its table of {count}"))
                    })
            };
            let function = text(self, name)?;
            let file = self
                .file_of(tables, func)?
                .map_or(Ok(""), |file| text(self, file))?;
            let line = tables
                .frames
                .line
                .get(index)
                .copied()
                .flatten()
                .unwrap_or(0);
            let lib = Self::lib_of(tables, index, func);
            let module = lib.map_or("", |lib| &lib.path);
            let build_id = lib.and_then(|lib| lib.code_id.as_deref()).unwrap_or("");
            let inlined = tables
                .frames
                .inline_depth
                .get(index)
                .is_some_and(|depth| *depth > 0);
            let frame = Frame {
                module,
                build_id,
                inlined,
                ..Frame::function(function, file, line)
            };
            frames.push(
                self.builder
                    .frame(&frame_of_label(frame, self.builder.options))?,
            );
        }
        Ok(frames)
    }
}

/// Where and when a sample is.
#[derive(Clone, Copy)]
struct Position {
    node: NodeId,
    thread: NodeId,
    at_ns: u64,
}
