//! Collects the samples of a file, whatever its format, within the limits.

use std::collections::{BTreeSet, HashMap, HashSet};

use flamegraph::messages::pprof::NO_STACK;
use profiler_core::hash::KeyedMap;
use profiler_core::limits::{AGENT_TASK_NAMES_MAX, LABELS_MAX, bounded_name};
use profiler_core::{
    CallTrie, CodePlace, Frame, FrameId, FrameKind, NoStack, NodeId, State, StringId, SymbolTable,
    Timestamp, valid_build_id,
};
use symbols::demangled_name;

use super::error::ImportError;
use super::limits::{
    DURATION_MAX, FRAMES_MAX, LABEL_SETS_MAX, NAMES_BYTES_MAX, NODES_MAX, SAMPLES_MAX,
};
use super::model::{ImportFormat, ImportOptions, Imported, ImportedSample, Labels};

const SECOND_NS: u64 = 1_000_000_000;
const DURATION_MAX_NS: u64 = DURATION_MAX.as_secs() * SECOND_NS;

/// Bytes that a frame and a string count for, in addition to their texts, so that their tables stay below the
/// limits of the wire too.
const FRAME_BYTES: usize = 64;
const STRING_BYTES: usize = 32;

/// Weight of one thread at one stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) node: NodeId,
    pub(super) thread: NodeId,
    pub(super) state: State,
    /// Nanoseconds; or samples, until [`Builder::scale`].
    pub(super) weight: u64,
    /// Nanoseconds since the profile's start.
    pub(super) at_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    /// Whether the nodes are those of known tables.
    is_known: bool,
    second: u32,
    node: NodeId,
    state: u8,
    thread: NodeId,
    labels: u16,
}

/// The stack that was added last. The next one mostly begins alike, and finds its nodes there.
#[derive(Default)]
pub(super) struct LastStack {
    top: Option<NodeId>,
    nodes: Vec<(FrameId, NodeId)>,
}

impl LastStack {
    /// Forgets the nodes of other frames than these, and returns the number of the others.
    pub(super) fn keep(&mut self, top: NodeId, frames: &[FrameId]) -> usize {
        let is_same = self.top.replace(top) == Some(top);
        let common = frames
            .iter()
            .zip(&self.nodes)
            .take_while(|(frame, (known, _))| is_same && *frame == known)
            .count();
        self.nodes.truncate(common);
        common
    }

    /// The node of the frames that are kept; `None` if there are none.
    pub(super) fn node(&self) -> Option<NodeId> {
        self.nodes.last().map(|(_, node)| *node)
    }

    pub(super) fn push(&mut self, frame: FrameId, node: NodeId) {
        self.nodes.push((frame, node));
    }
}

/// A profile under construction.
pub(super) struct Builder<'a> {
    pub(super) format: ImportFormat,
    pub(super) options: &'a ImportOptions,
    symbols: SymbolTable,
    names_bytes: usize,
    /// Names as in the source, by the linker's.
    demangled: HashMap<Box<str>, StringId>,
    trie: CallTrie,
    last_stack: LastStack,
    tasks: HashSet<FrameId>,
    weights: KeyedMap<Key, u64>,
    label_sets: Vec<Labels>,
    label_set_ids: HashMap<Labels, u16>,
    total: u64,
    invalid_build_ids: u64,
    notes: BTreeSet<String>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(format: ImportFormat, options: &'a ImportOptions) -> Builder<'a> {
        Builder {
            format,
            options,
            symbols: SymbolTable::new(),
            names_bytes: 0,
            demangled: HashMap::new(),
            trie: CallTrie::new(NODES_MAX),
            last_stack: LastStack::default(),
            tasks: HashSet::new(),
            weights: KeyedMap::default(),
            label_sets: vec![Labels::new()],
            label_set_ids: HashMap::from([(Labels::new(), 0)]),
            total: 0,
            invalid_build_ids: 0,
            notes: BTreeSet::new(),
        }
    }

    pub(super) fn invalid(&self, reason: impl Into<String>) -> ImportError {
        ImportError::Invalid {
            format: self.format,
            reason: reason.into(),
        }
    }

    /// Tells people about something that was assumed or dropped, once.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.insert(note.into());
    }

    /// A frame with names within their limits.
    pub(super) fn frame(&mut self, frame: &Frame<&str>) -> Result<FrameId, ImportError> {
        let build_id = valid_build_id(frame.build_id);
        if build_id != frame.build_id {
            self.invalid_build_ids += 1;
            self.note("invalid build ids were left out");
        }
        let function = match frame.kind {
            FrameKind::Function => self.function_name(frame.function),
            _ => self.name(frame.function),
        };
        let others = Frame {
            function: "",
            build_id,
            ..frame.clone()
        };
        let named = Frame {
            function,
            ..others.map(|text| self.name(text))
        };
        self.named_frame(named)
    }

    /// The number of a function's name, as in the source.
    fn function_name(&mut self, name: &str) -> StringId {
        if !name.starts_with('_') {
            return self.name(name);
        }
        if let Some(id) = self.demangled.get(name) {
            return *id;
        }
        let Some(demangled) = demangled_name(name) else {
            return self.name(name);
        };
        let id = self.name(&demangled);
        self.names_bytes += STRING_BYTES + name.len();
        self.demangled.insert(name.into(), id);
        id
    }

    /// The number of a name, which is cut to its limit.
    pub(super) fn name(&mut self, text: &str) -> StringId {
        let strings = self.symbols.string_count();
        let text = bounded_name(text);
        let id = self.symbols.intern_string(&text);
        if self.symbols.string_count() > strings {
            self.names_bytes += STRING_BYTES + text.len();
        }
        id
    }

    /// A frame with [names](Builder::name) and a valid build id.
    pub(super) fn named_frame(&mut self, frame: Frame<StringId>) -> Result<FrameId, ImportError> {
        let frames = self.symbols.frame_count();
        let id = self.symbols.intern_ids(frame);
        self.names_bytes += (self.symbols.frame_count() - frames) as usize * FRAME_BYTES;
        if self.names_bytes > NAMES_BYTES_MAX {
            return Err(ImportError::TOO_MANY_NAMES);
        }
        Ok(id)
    }

    /// Whether a frame is what our exports have in place of a stack.
    pub(super) fn is_no_stack(&self, frame: FrameId) -> bool {
        self.symbols.frame(frame) == Frame::function(NO_STACK, "", 0)
    }

    /// The node of a task, and of its phase.
    pub(super) fn top(
        &mut self,
        task: Option<&str>,
        phase: Option<&str>,
    ) -> Result<NodeId, ImportError> {
        let frame = self.frame(&task_frame(self.options, task))?;
        let is_full = self.tasks.len() >= AGENT_TASK_NAMES_MAX && !self.tasks.contains(&frame);
        let frame = if is_full {
            self.frame(&Frame::task("[overflow]"))?
        } else {
            frame
        };
        self.tasks.insert(frame);
        let top = self.child(NodeId::ROOT, frame);
        match phase.filter(|phase| !phase.is_empty()) {
            Some(phase) => {
                let phase = self.frame(&Frame::phase(phase))?;
                Ok(self.child(top, phase))
            }
            None => Ok(top),
        }
    }

    /// The task of a node.
    pub(super) fn top_of(&self, node: NodeId) -> NodeId {
        let mut top = node;
        while let Some((parent, _)) = self
            .trie
            .node(top)
            .filter(|(parent, _)| *parent != NodeId::ROOT)
        {
            top = parent;
        }
        top
    }

    pub(super) fn child(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        self.trie
            .insert_or_overflow(parent, frame, &mut self.symbols)
    }

    /// The node of a stack, outermost frame first. Too deep a stack loses its outer frames.
    pub(super) fn stack(&mut self, top: NodeId, frames: &[FrameId]) -> Result<NodeId, ImportError> {
        if frames.len() <= FRAMES_MAX {
            let common = self.last_stack.keep(top, frames);
            let mut node = self.last_stack.node().unwrap_or(top);
            for frame in &frames[common..] {
                node = self.child(node, *frame);
                self.last_stack.push(*frame, node);
            }
            return Ok(node);
        }
        let truncated = self.frame(&Frame::truncated())?;
        let first = self.child(top, truncated);
        let inner = &frames[frames.len() - (FRAMES_MAX - 1)..];
        Ok(inner
            .iter()
            .fold(first, |node, frame| self.child(node, *frame)))
    }

    /// The node of a thread in the time by thread.
    pub(super) fn thread(
        &mut self,
        top: NodeId,
        name: &str,
        id: u32,
    ) -> Result<NodeId, ImportError> {
        let frame = self.frame(&Frame::thread(name, id))?;
        Ok(self.child(top, frame))
    }

    /// The number of a set of labels. Past the limits, labels are dropped.
    pub(super) fn label_set(&mut self, mut labels: Labels) -> u16 {
        if labels.is_empty() {
            return 0;
        }
        if labels.len() > LABELS_MAX {
            let last = labels.keys().nth(LABELS_MAX).cloned();
            last.map(|key| labels.split_off(&key));
            self.note(format!("a sample keeps {LABELS_MAX} of its labels"));
        }
        if let Some(id) = self.label_set_ids.get(&labels) {
            return *id;
        }
        if self.label_sets.len() >= LABEL_SETS_MAX {
            self.note(format!(
                "samples with further labels count without them: at most {LABEL_SETS_MAX} distinct sets of \
                 labels are kept"
            ));
            return 0;
        }
        let id = self.label_sets.len() as u16;
        self.label_sets.push(labels.clone());
        self.label_set_ids.insert(labels, id);
        id
    }

    pub(super) fn add(&mut self, sample: Sample) -> Result<(), ImportError> {
        self.add_labeled(sample, 0)
    }

    /// Adds a sample with the labels of [`Builder::label_set`].
    pub(super) fn add_labeled(&mut self, sample: Sample, labels: u16) -> Result<(), ImportError> {
        self.count(sample, labels, false)
    }

    /// The same for nodes of known tables.
    pub(super) fn add_known(&mut self, sample: Sample, labels: u16) -> Result<(), ImportError> {
        self.count(sample, labels, true)
    }

    fn count(&mut self, sample: Sample, labels: u16, is_known: bool) -> Result<(), ImportError> {
        let Sample {
            node,
            thread,
            state,
            weight,
            at_ns,
        } = sample;
        if weight == 0 {
            return Ok(());
        }
        self.check_duration(at_ns)?;
        let second = u32::try_from(at_ns / SECOND_NS).expect("the duration is limited");
        let key = Key {
            is_known,
            second,
            node,
            state: state as u8,
            thread,
            labels,
        };
        let full = self.weights.len() >= SAMPLES_MAX;
        match self.weights.get_mut(&key) {
            // The total bounds every sum.
            Some(sum) => *sum += weight,
            None if full => {
                let what = "too many combinations of second, stack, thread and state";
                return Err(ImportError::TooMany {
                    what,
                    limit: SAMPLES_MAX,
                });
            }
            None => drop(self.weights.insert(key, weight)),
        }
        self.total = self
            .total
            .checked_add(weight)
            .ok_or_else(|| self.too_heavy())?;
        Ok(())
    }

    /// Whether nothing was added.
    pub(super) fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    pub(super) fn too_heavy(&self) -> ImportError {
        self.invalid("the sum of all weights exceeds 64 bits of nanoseconds")
    }

    fn check_duration(&self, duration_ns: u64) -> Result<(), ImportError> {
        let seconds = duration_ns / SECOND_NS;
        // The range of an imported run is longer than the profile by up to a second.
        if duration_ns > DURATION_MAX_NS + SECOND_NS {
            Err(ImportError::TooLong { seconds })
        } else {
            Ok(())
        }
    }

    /// Turns weights that are samples into nanoseconds.
    pub(super) fn scale(&mut self, interval_ns: u64) -> Result<(), ImportError> {
        self.total = self
            .total
            .checked_mul(interval_ns)
            .ok_or_else(|| self.too_heavy())?;
        self.weights
            .values_mut()
            .for_each(|weight| *weight *= interval_ns);
        Ok(())
    }

    /// Sum of all weights.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Turns weights that are shares of a time into nanoseconds.
    pub(super) fn share(&mut self, total_ns: u64) {
        let sum = u128::from(self.total.max(1));
        let part = |weight: u64| u128::from(weight) * u128::from(total_ns) / sum;
        self.weights.retain(|_, weight| {
            *weight = u64::try_from(part(*weight)).expect("a part of the total");
            *weight > 0
        });
        self.total = self.weights.values().sum();
    }

    /// The profile. Without a duration, it is as long as its last sample is late, or as one thread takes for
    /// the whole weight.
    pub(super) fn finish(self, times: Times) -> Result<Imported, ImportError> {
        if self.weights.is_empty() {
            return Err(ImportError::Empty {
                format: self.format,
            });
        }
        let duration_ns = times
            .duration_ns
            .filter(|length| *length > 0)
            .unwrap_or(self.total);
        // A total over threads says little about the length.
        if times.duration_ns.is_some() {
            self.check_duration(duration_ns)?;
        }
        let duration_ns = duration_ns.min(DURATION_MAX_NS);
        let mut weights: Vec<(Key, u64)> = self.weights.into_iter().collect();
        weights.sort_unstable();
        let own = weights.partition_point(|(key, _)| !key.is_known);
        let known = weights.split_off(own);
        let sample = |(key, nanoseconds): (Key, u64)| ImportedSample {
            second: key.second,
            node: key.node,
            state: State::ALL[usize::from(key.state)],
            thread: key.thread,
            nanoseconds,
            labels: key.labels,
        };
        Ok(Imported {
            format: self.format,
            symbols: self.symbols,
            trie: self.trie,
            samples: weights.into_iter().map(sample).collect(),
            known_samples: known.into_iter().map(sample).collect(),
            label_sets: self.label_sets,
            started_at: times.started_at,
            duration_ns,
            invalid_build_ids: self.invalid_build_ids,
            has_long_waits_only: false,
            notes: self.notes.into_iter().collect(),
        })
    }
}

/// The frame of a task. That of the options has precedence.
pub(super) fn task_frame<'t>(options: &'t ImportOptions, task: Option<&'t str>) -> Frame<&'t str> {
    match (options.task.as_deref(), task) {
        (Some(name), _) => Frame::task(name),
        (None, Some("[no task]")) => Frame::no_task(),
        (None, Some("[agent]")) => Frame::agent(),
        (None, Some("")) => Frame::task("[unnamed]"),
        (None, Some(name)) => Frame::task(name),
        (None, None) => Frame::task(&options.task_default),
    }
}

/// Start and duration of a recording, if the file has them.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Times {
    pub(super) started_at: Option<Timestamp>,
    pub(super) duration_ns: Option<u64>,
}

/// Whether [`frame_of_label`] may change a function with that name.
pub(super) fn may_be_label(name: &str) -> bool {
    name.starts_with('[') || name.trim_start().is_empty() || place_of_label(name).is_some()
}

/// A frame of the kind that its name stands for in our exports.
pub(super) fn frame_of_label<'f>(frame: Frame<&'f str>, options: &ImportOptions) -> Frame<&'f str> {
    if let Some(unresolved) = unresolved(&frame) {
        return unresolved;
    }
    match frame.function {
        name if options.has_own_names && !name.trim().is_empty() => frame,
        "[truncated]" => Frame::truncated(),
        "[overflow]" => Frame::overflow(),
        name => match NoStack::ALL
            .into_iter()
            .find(|reason| reason.label() == name)
        {
            Some(reason) => Frame::no_stack(reason),
            None if name.trim().is_empty() => Frame {
                function: "[unnamed]",
                ..frame
            },
            None => frame,
        },
    }
}

/// The file and the place of a name such as `file+0x1a2b`. Looked for from the end, because nearly no name is one.
fn place_of_label(name: &str) -> Option<(&str, CodePlace)> {
    let before = name.trim_end_matches(|digit: char| digit.is_ascii_hexdigit());
    let file = before.strip_suffix("0x")?;
    let number = u64::from_str_radix(&name[before.len()..], 16).ok()?;
    match file.strip_suffix('+') {
        Some(file) => Some((file, CodePlace::Address(number))),
        None => Some((file.strip_suffix('@')?, CodePlace::FileOffset(number))),
    }
}

/// The place in a module that a frame stands for which has the [label](Frame::label) of one.
fn unresolved<'f>(frame: &Frame<&'f str>) -> Option<Frame<&'f str>> {
    let (name, place) = place_of_label(frame.function)?;
    let offset = place.number();
    let base_name = frame.module.rsplit('/').next().unwrap_or_default();
    let file = if base_name.is_empty() {
        "[unknown]"
    } else {
        base_name
    };
    let kind = FrameKind::Unresolved;
    (file == name).then(|| Frame {
        kind,
        function: "",
        offset,
        ..frame.clone()
    })
}
