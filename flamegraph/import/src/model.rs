//! The result of an import, and options for facts that a file lacks.

use std::collections::BTreeMap;
use std::fmt;

use profiler_core::{
    CallTrie, Delta, Filter, FrameKind, NodeId, Profile, State, SymbolTable, ThreadKind, Timestamp,
};

use super::limits::CONTENT_BYTES_MAX;

/// The task of stacks whose file knows no tasks.
pub const TASK_DEFAULT: &str = "imported";

/// The label of samples that names their task, unless told otherwise.
pub const TASK_LABEL_DEFAULT: &str = "task";

/// Labels of samples, by key.
pub type Labels = BTreeMap<String, String>;

/// A format that can be imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportFormat {
    /// `profile.proto`.
    Pprof,
    /// `frame;frame weight`, of this crate, async-profiler, py-spy and many others.
    Collapsed,
    /// The text of `perf script`.
    Perf,
    /// speedscope's own JSON.
    Speedscope,
    /// The processed format of the Firefox Profiler.
    Firefox,
    /// A CPU profile of Chrome or Node.js.
    Chrome,
    /// A recording of Java's Flight Recorder.
    Jfr,
}

impl ImportFormat {
    /// All formats.
    pub const ALL: [ImportFormat; 7] = [
        ImportFormat::Pprof,
        ImportFormat::Collapsed,
        ImportFormat::Perf,
        ImportFormat::Speedscope,
        ImportFormat::Firefox,
        ImportFormat::Chrome,
        ImportFormat::Jfr,
    ];

    /// The name, as it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ImportFormat::Pprof => "pprof",
            ImportFormat::Collapsed => "collapsed",
            ImportFormat::Perf => "perf",
            ImportFormat::Speedscope => "speedscope",
            ImportFormat::Firefox => "firefox",
            ImportFormat::Chrome => "chrome",
            ImportFormat::Jfr => "jfr",
        }
    }

    pub(super) fn names() -> String {
        ImportFormat::ALL.map(ImportFormat::name).join(", ")
    }
}

impl fmt::Display for ImportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The unit of the weights of collapsed stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollapsedUnit {
    /// Time, as exports of this crate have it. The first frame is the task.
    Nanoseconds,
    /// Time, as bcc and austin have it.
    Microseconds,
    /// Time.
    Milliseconds,
    /// Numbers of samples.
    Samples,
}

/// Options of an import: facts that a file lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportOptions {
    /// The format; by content if `None`.
    pub format: Option<ImportFormat>,
    /// The task of all stacks; that of the file if `None`.
    pub task: Option<String>,
    /// The task of stacks for which the file has none.
    pub task_default: String,
    /// The label of pprof's samples that names their task.
    pub task_label: String,
    /// Whether [`ImportedSample::labels`] keeps the labels of pprof's samples that have no place in our
    /// profiles.
    pub keep_labels: bool,
    /// Whether a name such as `[overflow]` is that of a function, and not what it stands for in our own exports.
    pub has_own_names: bool,
    /// The state of time whose state the file does not say. If `None`: `cpu`, or `other` where the file says that
    /// it measures all time that passes.
    pub state: Option<State>,
    /// The unit of collapsed stacks; by their weights if `None`.
    pub unit: Option<CollapsedUnit>,
    /// The time of one sample where the file has only samples.
    pub interval_ns: Option<u64>,
    /// The time of one sample of a pprof profile that states no period.
    pub interval_default_ns: Option<u64>,
    /// The labels of the samples of a recording of Java's Flight Recorder, as Pyroscope's agent sends them with it;
    /// empty if there are none.
    pub jfr_labels: Vec<u8>,
    /// Largest content after decompression, at most [`CONTENT_BYTES_MAX`].
    pub content_bytes_max: usize,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions {
            format: None,
            task: None,
            task_default: TASK_DEFAULT.to_owned(),
            task_label: TASK_LABEL_DEFAULT.to_owned(),
            keep_labels: false,
            has_own_names: false,
            state: None,
            unit: None,
            interval_ns: None,
            interval_default_ns: None,
            jfr_labels: Vec::new(),
            content_bytes_max: CONTENT_BYTES_MAX,
        }
    }
}

impl ImportOptions {
    /// The state of time whose state the file does not say.
    pub(crate) fn state(&self) -> State {
        self.state.unwrap_or(State::Cpu)
    }
}

/// A profile from a file.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The format that was chosen or detected.
    pub format: ImportFormat,
    /// Names.
    pub symbols: SymbolTable,
    /// Stacks below their task and phase, and threads below the same; without weights.
    pub trie: CallTrie,
    /// In rising order, each combination once.
    pub samples: Vec<ImportedSample>,
    /// Those whose stack and thread are nodes of [known tables](crate::import_into), and not of `trie`.
    pub known_samples: Vec<ImportedSample>,
    /// The distinct labels of samples. The first are those of samples without labels.
    pub label_sets: Vec<Labels>,
    /// When it was recorded, if the file says it.
    pub started_at: Option<Timestamp>,
    /// Length of the recording; at least 1.
    pub duration_ns: u64,
    /// Number of times that a frame had an invalid build id, which was left out.
    pub invalid_build_ids: u64,
    /// Whether waiting is only that of events above a threshold, so that shorter waits are missing.
    pub has_long_waits_only: bool,
    /// Notes on assumptions and dropped data, for people.
    pub notes: Vec<String>,
}

/// Weight of a stack and thread in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImportedSample {
    /// Seconds since the start; 0 throughout if the file has no times.
    pub second: u32,
    /// The stack.
    pub node: NodeId,
    /// State of the thread.
    pub state: State,
    /// The thread, below the stack's task and phase.
    pub thread: NodeId,
    /// The weight; above 0.
    pub nanoseconds: u64,
    /// Its labels: an index of [`Imported::label_sets`].
    pub labels: u16,
}

impl Imported {
    /// The whole as a profile, without samples of known tables.
    #[must_use]
    pub fn profile(&self) -> Profile {
        let samples = self.samples.iter();
        let delta: Delta = samples
            .map(|sample| (sample.node, sample.state, sample.nanoseconds))
            .collect();
        let all = Filter {
            threads: ThreadKind::All,
            ..Filter::default()
        };
        Profile::collect(&self.symbols, &self.trie, [&delta], &all)
    }

    /// Sum of all weights.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        let samples = self.samples.iter().chain(&self.known_samples);
        samples.map(|sample| sample.nanoseconds).sum()
    }

    /// The names of the tasks, in order of appearance.
    #[must_use]
    pub fn tasks(&self) -> Vec<&str> {
        let ids = (1..self.trie.node_count()).map(NodeId);
        let tops = ids
            .filter_map(|id| self.trie.node(id))
            .filter(|(parent, _)| *parent == NodeId::ROOT);
        let frames = tops.map(|(_, frame)| self.symbols.frame(frame));
        frames
            .filter(|frame| frame.kind == FrameKind::Task)
            .map(|frame| frame.function)
            .collect()
    }
}
