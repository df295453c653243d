//! Profiles in the format of pprof, `profile.proto` in gzip.

use std::collections::HashMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use profiler_core::profile::ProfileNode;
use profiler_core::{CodePlace, Frame, FrameId, FrameKind, Profile, State, TimeRange};
use prost::Message as _;

use crate::export::{ExportOptions, TickCounter};
use crate::messages::pprof::{self as proto, NO_STACK};
use crate::prune::bounded;
use crate::symbols::portable_file;
use crate::text::printable;

/// Largest list of stacks in bytes, before compression; beyond it, small subtrees become `[pruned]`.
const STACKS_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a location in a stack: numbers below 2,097,152 take three.
const LOCATION_BYTES: usize = 3;

/// Addresses of a module start at a multiple of this, so that modules do not overlap. Profiles hold
/// offsets in modules, but not where a worker had mapped them.
const MODULE_SPAN: u64 = 1 << 40;

/// Writes a profile for `go tool pprof` and other readers of its format.
///
/// Sample types are `samples/count`, `wall/nanoseconds` (the default: time over all states) and
/// `cpu/nanoseconds`. Tasks, phases and groups are not frames but labels: `task`, `phase`, and
/// `worker`, `host` or the label's key. Each sample has the label `state`. Inlined functions are
/// lines of the location into which they were inlined.
///
/// A profile holds time, not counts: `samples` is the time divided by the mean interval, rounded so
/// that it sums to that of the whole.
///
/// ```
/// use emberline_flamegraph::{ExportOptions, pprof};
///
/// let gzip = pprof(&profiler_core::Profile::default(), &ExportOptions::default());
/// assert_eq!(gzip[..2], [0x1f, 0x8b]);
/// ```
#[must_use]
pub fn pprof(profile: &Profile, options: &ExportOptions) -> Vec<u8> {
    let bounded = bounded(profile, usize::MAX, STACKS_BYTES_MAX, |_| LOCATION_BYTES);
    compressed(&message(&bounded, options).encode_to_vec())
}

/// A profile in the format of pprof, as its receivers want it to be pushed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushedPprof {
    /// The message in gzip.
    pub gzip: Vec<u8>,
    /// Size of the message, which receivers limit.
    pub bytes: usize,
}

/// Writes a profile of `range` for receivers that make a series of each set of labels, such as Pyroscope.
///
/// Samples have only the label `task`, and one sample has the time of all states. Sample types are
/// `wall/nanoseconds` and `cpu/nanoseconds`. Nothing is pruned.
///
/// ```
/// use profiler_core::{Profile, TimeRange, Timestamp};
///
/// let start = Timestamp::from_unix_ns(1_000_000_000);
/// let range = TimeRange::new(start, start.shifted(1_000_000_000)).expect("it is not empty");
/// let pushed = emberline_flamegraph::pushed_pprof(&Profile::default(), range);
/// assert_eq!(pushed.gzip[..2], [0x1f, 0x8b]);
/// ```
#[must_use]
pub fn pushed_pprof(profile: &Profile, range: TimeRange) -> PushedPprof {
    let message = pushed_message(profile, range).encode_to_vec();
    PushedPprof {
        gzip: compressed(&message),
        bytes: message.len(),
    }
}

/// The message of [`pushed_pprof`].
pub(crate) fn pushed_message(profile: &Profile, range: TimeRange) -> proto::Profile {
    let mut tables = Tables::default();
    let wall = tables.value_type("wall", "nanoseconds");
    let cpu = tables.value_type("cpu", "nanoseconds");
    let options = ExportOptions::default();
    let sample = Samples::new(profile, &options, &mut tables).collect_pushed();
    proto::Profile {
        sample_type: vec![wall, cpu],
        sample,
        mapping: program_first(tables.mappings.list, &tables.texts.list),
        location: tables.locations,
        function: tables.functions.list,
        time_nanos: range.start().unix_ns(),
        duration_nanos: signed(range.length_ns()),
        period_type: Some(cpu),
        period: signed(options.interval_ns()),
        comment: Vec::new(),
        default_sample_type: cpu.kind,
        string_table: tables.texts.list,
    }
}

/// The bytes in gzip.
pub(crate) fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes).expect("memory takes bytes");
    gzip.finish().expect("memory takes bytes")
}

fn message(profile: &Profile, options: &ExportOptions) -> proto::Profile {
    let mut tables = Tables::default();
    let samples = tables.value_type("samples", "count");
    let wall = tables.value_type("wall", "nanoseconds");
    let cpu = tables.value_type("cpu", "nanoseconds");
    let title = [Some(options.title.as_str()), options.subtitle.as_deref()];
    let comment = title
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .map(|text| tables.text(text))
        .collect();
    let sample = Samples::new(profile, options, &mut tables).collect();
    let range = options.range;
    proto::Profile {
        sample_type: vec![samples, wall, cpu],
        sample,
        mapping: program_first(tables.mappings.list, &tables.texts.list),
        location: tables.locations,
        function: tables.functions.list,
        time_nanos: range.map_or(0, |range| range.start().unix_ns()),
        duration_nanos: range.map_or(0, |range| signed(range.length_ns())),
        period_type: Some(wall),
        period: signed(options.interval_ns()),
        comment,
        default_sample_type: wall.kind,
        string_table: tables.texts.list,
    }
}

/// pprof's numbers are signed; a larger one becomes the largest.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Numbers of equal values, in order of first use.
#[derive(Debug)]
struct Table<K, V> {
    numbers: HashMap<K, u64>,
    list: Vec<V>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table {
            numbers: HashMap::new(),
            list: Vec::new(),
        }
    }
}

impl<K: std::hash::Hash + Eq, V> Table<K, V> {
    /// The number of the value of `key`, counted from 1; `make` gets the number of a new one.
    fn number(&mut self, key: K, make: impl FnOnce(u64) -> V) -> u64 {
        let Table { numbers, list } = self;
        *numbers.entry(key).or_insert_with(|| {
            let number = list.len() as u64 + 1;
            list.push(make(number));
            number
        })
    }
}

/// The message's tables under construction.
#[derive(Default)]
struct Tables {
    texts: Table<String, String>,
    functions: Table<(i64, i64), proto::Function>,
    /// By file and build id.
    mappings: Table<(i64, i64), proto::Mapping>,
    locations: Vec<proto::Location>,
    /// By the location into which the frame is inlined, and the frame.
    location_numbers: HashMap<(Option<u64>, FrameId), u64>,
}

impl Tables {
    fn text(&mut self, text: &str) -> i64 {
        // The first entry is the empty text.
        if self.texts.list.is_empty() {
            self.texts.number(String::new(), |_| String::new());
        }
        let text = printable(text).into_owned();
        let number = self.texts.number(text.clone(), |_| text);
        signed(number - 1)
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            kind: self.text(kind),
            unit: self.text(unit),
        }
    }

    fn label(&mut self, key: &str, text: &str) -> proto::Label {
        proto::Label {
            key: self.text(key),
            text: self.text(text),
            ..proto::Label::default()
        }
    }

    /// The location of a frame. `outer` is that of the function into which it was inlined.
    fn location(&mut self, id: FrameId, frame: &Frame<&str>, outer: Option<u64>) -> u64 {
        if let Some(known) = self.location_numbers.get(&(outer, id)) {
            return *known;
        }
        let number = self.locations.len() as u64 + 1;
        let mut line = vec![self.line(frame)];
        let location = match outer.map(|outer| &self.locations[index(outer)]) {
            Some(outer) => {
                line.extend_from_slice(&outer.line);
                proto::Location {
                    id: number,
                    line,
                    ..*outer
                }
            }
            None => {
                let mapping_id = self.mapping(frame);
                let start = mapping_id.saturating_mul(MODULE_SPAN);
                let (CodePlace::Address(place) | CodePlace::FileOffset(place)) =
                    CodePlace::of(frame.offset);
                let address = match place {
                    0 => 0,
                    place => start.saturating_add(place.min(MODULE_SPAN - 1)),
                };
                proto::Location {
                    id: number,
                    mapping_id,
                    address,
                    line,
                }
            }
        };
        self.locations.push(location);
        self.location_numbers.insert((outer, id), number);
        number
    }

    fn line(&mut self, frame: &Frame<&str>) -> proto::Line {
        let label = frame.label();
        let name = self.text(if label.trim().is_empty() {
            "[unnamed]"
        } else {
            &label
        });
        let filename = self.text(portable_file(frame.file));
        let function_id = self
            .functions
            .number((name, filename), |id| proto::Function {
                id,
                name,
                filename,
                ..proto::Function::default()
            });
        proto::Line {
            function_id,
            line: frame.line.into(),
        }
    }

    /// The number of the frame's module; 0 if it has none.
    fn mapping(&mut self, frame: &Frame<&str>) -> u64 {
        if frame.module.is_empty() && frame.build_id.is_empty() {
            return 0;
        }
        let filename = self.text(frame.module);
        let build_id = self.text(frame.build_id);
        self.mappings
            .number((filename, build_id), |id| proto::Mapping {
                id,
                memory_start: id.saturating_mul(MODULE_SPAN),
                memory_limit: (id + 1).saturating_mul(MODULE_SPAN),
                file_offset: 0,
                filename,
                build_id,
                // Otherwise readers would look for the module to name its functions.
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            })
    }
}

/// The mappings with that of a program before those of libraries: readers take the first one for the program.
fn program_first(mut mappings: Vec<proto::Mapping>, texts: &[String]) -> Vec<proto::Mapping> {
    let is_program = |mapping: &proto::Mapping| {
        let text = usize::try_from(mapping.filename).ok();
        let file = text.and_then(|index| texts.get(index));
        file.is_some_and(|file| is_program(file))
    };
    if let Some(at) = mappings.iter().position(is_program) {
        mappings[..=at].rotate_right(1);
    }
    mappings
}

/// Whether a file is neither a library nor a part of the kernel, by its name, as `go tool pprof` decides it.
fn is_program(file: &str) -> bool {
    let file = file.trim_end_matches(" (deleted)").trim();
    let is_library = file.ends_with(".so")
        || file.match_indices(".so").any(|(at, mark)| {
            let after = &file[at + mark.len()..];
            after
                .strip_prefix(['.', '_'])
                .is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
        });
    !file.is_empty() && !file.starts_with('[') && !is_library
}

/// Index of the entry with this number.
fn index(number: u64) -> usize {
    usize::try_from(number - 1).expect("a table in memory has fewer entries")
}

/// A node's place in the stacks, and its labels, while its subtree is visited.
#[derive(Clone, Copy, Default)]
struct Context {
    /// Its location, unless it is a level above the stacks.
    location: Option<u64>,
    /// Node of the caller's location; 0 if there is none.
    caller: usize,
    labels: Labels,
}

/// Texts of labels, by number.
#[derive(Clone, Copy, Default)]
struct Labels {
    group: Option<proto::Label>,
    task: Option<proto::Label>,
    phase: Option<proto::Label>,
    thread: Option<proto::Label>,
}

/// One sample for each node and state with weight.
struct Samples<'a> {
    profile: &'a Profile,
    tables: &'a mut Tables,
    /// By node.
    contexts: Vec<Context>,
    worker: Option<proto::Label>,
    group: String,
    states: [proto::Label; State::ALL.len()],
    ticks: TickCounter,
    /// The location of time without a stack, once there is some.
    no_stack: Option<u64>,
}

impl<'a> Samples<'a> {
    fn new(profile: &'a Profile, options: &ExportOptions, tables: &'a mut Tables) -> Samples<'a> {
        let worker = options
            .worker
            .as_deref()
            .map(|worker| tables.label("worker", worker));
        let group = options.group.clone().unwrap_or_else(|| "group".to_owned());
        // A group of workers says which worker it is.
        let worker = worker.filter(|_| group != "worker");
        Samples {
            profile,
            contexts: Vec::with_capacity(profile.nodes().len() + 1),
            worker,
            group,
            states: State::ALL.map(|state| tables.label("state", state.name())),
            ticks: TickCounter::new(options),
            no_stack: None,
            tables,
        }
    }

    fn collect(mut self) -> Vec<proto::Sample> {
        self.contexts.push(Context::default());
        let mut samples = Vec::new();
        for node in self.profile.nodes() {
            let context = self.context(node);
            self.contexts.push(context);
            for (at, state) in State::ALL.into_iter().enumerate() {
                let weight_ns = node.own.get(state);
                if weight_ns > 0 {
                    let ticks = self.ticks.count(weight_ns);
                    let cpu_ns = if state == State::Cpu { weight_ns } else { 0 };
                    samples.push(proto::Sample {
                        location_id: self.stack(),
                        value: [ticks, weight_ns, cpu_ns].map(signed).to_vec(),
                        label: self.labels(context.labels, self.states[at]),
                    });
                }
            }
        }
        samples
    }

    /// One sample for each node with weight, without the label of its state.
    fn collect_pushed(mut self) -> Vec<proto::Sample> {
        self.contexts.push(Context::default());
        let mut samples = Vec::new();
        for node in self.profile.nodes() {
            let context = self.context(node);
            self.contexts.push(context);
            let wall_ns = node.own.total_ns();
            if wall_ns > 0 {
                let cpu_ns = node.own.get(State::Cpu);
                samples.push(proto::Sample {
                    location_id: self.stack(),
                    value: [wall_ns, cpu_ns].map(signed).to_vec(),
                    label: context.labels.task.into_iter().collect(),
                });
            }
        }
        samples
    }

    fn context(&mut self, node: &ProfileNode) -> Context {
        let frame = self.profile.frame(node.frame);
        let parent_index = node.parent.index();
        let parent = self.contexts[parent_index];
        let mut labels = parent.labels;
        let name = frame.label();
        match frame.kind {
            FrameKind::Group => labels.group = Some(self.tables.label(&self.group, &name)),
            FrameKind::Task | FrameKind::NoTask | FrameKind::Agent => {
                labels.task = Some(self.tables.label("task", &name));
            }
            FrameKind::Phase => labels.phase = Some(self.tables.label("phase", &name)),
            FrameKind::Thread => labels.thread = Some(self.tables.label("thread", &name)),
            FrameKind::Truncated
            | FrameKind::NoStack
            | FrameKind::Overflow
            | FrameKind::Function
            | FrameKind::Unresolved => {
                let outer = parent.location.filter(|_| frame.inlined);
                let location = Some(self.tables.location(node.frame, &frame, outer));
                let caller = if outer.is_some() {
                    parent.caller
                } else {
                    parent_index
                };
                return Context {
                    location,
                    caller,
                    labels,
                };
            }
        }
        Context { labels, ..parent }
    }

    /// Locations of the newest node, innermost first. Readers drop samples without any, so that the time of
    /// a task without a stack has one of that name.
    fn stack(&mut self) -> Vec<u64> {
        let mut stack = Vec::new();
        let mut at = self.contexts.len() - 1;
        while let Some(location) = self.contexts[at].location {
            stack.push(location);
            at = self.contexts[at].caller;
        }
        if stack.is_empty() {
            stack.push(self.no_stack());
        }
        stack
    }

    fn no_stack(&mut self) -> u64 {
        *self.no_stack.get_or_insert_with(|| {
            let id = self.tables.locations.len() as u64 + 1;
            let line = vec![self.tables.line(&Frame::function(NO_STACK, "", 0))];
            self.tables.locations.push(proto::Location {
                id,
                mapping_id: 0,
                address: 0,
                line,
            });
            id
        })
    }

    fn labels(&self, labels: Labels, state: proto::Label) -> Vec<proto::Label> {
        let Labels {
            group,
            task,
            phase,
            thread,
        } = labels;
        let all = [task, self.worker, group, phase, thread, Some(state)];
        all.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
