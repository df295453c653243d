//! Profiles in the processed format of the Firefox Profiler, <https://profiler.firefox.com>. The collector
//! writes tasks with the same tables.

pub mod format;
pub mod markers;

use std::cmp::Reverse;
use std::collections::HashMap;

use profiler_core::{Frame, FrameId, FrameKind, NodeId, Profile, State, Weight};

use self::format::{Category, File, Lib, Meta, Thread};
use crate::export::ExportOptions;
use crate::prune::{NODES_MAX, bounded};
use crate::symbols::portable_file;
use crate::text::printable;

/// Most threads: the heaviest tasks. The others share one more, below frames of their own.
const THREADS_MAX: usize = 100;

/// Name of the thread of the lighter tasks.
const OTHERS: &str = "[other tasks]";

/// Most stacks, which is what the reader draws without long pauses. A node is at most one stack.
const STACKS_MAX: usize = NODES_MAX;

/// Writes a file for the Firefox Profiler.
///
/// Each task is a thread, the heaviest first. A profile has no order in time: the samples of a thread
/// follow each other, each as long as its weight, so that the track shows its share of CPU. Weights
/// are milliseconds of thread time over all states. More than 100 tasks share one more thread.
#[must_use]
pub fn firefox(profile: &Profile, options: &ExportOptions) -> String {
    let profile = bounded(profile, STACKS_MAX, u64::MAX, |_| 1);
    let mut libs = Libs::default();
    let threads = Tracks::of(&profile).threads(&profile, &mut libs);
    let start_ns = options.range.map_or(0, |range| range.start().unix_ns());
    let meta = Meta::new(&options.title, start_ns as f64 / 1e6, options.interval_ns());
    let mut file = File::new(meta);
    file.libs = libs.list;
    file.threads = threads;
    serde_json::to_string(&file).expect("memory takes texts and numbers")
}

/// Modules, each once.
#[derive(Default)]
struct Libs {
    list: Vec<Lib>,
    numbers: HashMap<(String, String), u32>,
}

impl Libs {
    fn number(&mut self, frame: &Frame<&str>) -> Option<u32> {
        if frame.module.is_empty() {
            return None;
        }
        let path = printable(frame.module).into_owned();
        let build_id = printable(frame.build_id).into_owned();
        let list = &mut self.list;
        let number = self
            .numbers
            .entry((path, build_id))
            .or_insert_with_key(|(path, build_id)| {
                list.push(Lib::new(path, build_id));
                number_of(list.len() - 1)
            });
        Some(*number)
    }
}

fn number_of(index: usize) -> u32 {
    u32::try_from(index).expect("a profile has fewer than 2^32 frames and nodes")
}

/// First-level nodes that are threads of their own.
struct Tracks {
    /// Heaviest first.
    tops: Vec<NodeId>,
    has_others: bool,
}

impl Tracks {
    fn of(profile: &Profile) -> Tracks {
        let totals = profile.totals();
        let ids = (1..).map(NodeId).zip(profile.nodes());
        let mut tops: Vec<NodeId> = ids
            .filter(|(_, node)| node.parent == NodeId::ROOT)
            .map(|(id, _)| id)
            .collect();
        tops.sort_by_key(|id| (Reverse(totals[id.index()].total_ns()), *id));
        let has_others = tops.len() > THREADS_MAX;
        tops.truncate(THREADS_MAX);
        Tracks { tops, has_others }
    }

    fn threads(&self, profile: &Profile, libs: &mut Libs) -> Vec<Thread> {
        let name = |id: &NodeId| profile.frame(profile.nodes()[id.index() - 1].frame).label();
        let names = self
            .tops
            .iter()
            .map(name)
            .chain(self.has_others.then(|| OTHERS.to_owned()));
        let mut tracks: Vec<Track> = names
            .zip(0..)
            .map(|(name, tid)| Track::new(&name, tid))
            .collect();
        let tops: HashMap<NodeId, usize> = self
            .tops
            .iter()
            .enumerate()
            .map(|(track, id)| (*id, track))
            .collect();
        // Of each node: its track, and its stack there.
        let mut stacks: Vec<(usize, Option<u32>)> = vec![(self.tops.len(), None)];
        for (id, node) in (1..).map(NodeId).zip(profile.nodes()) {
            let (mut track, mut prefix) = stacks[node.parent.index()];
            match tops.get(&id) {
                Some(own) => track = *own,
                None => {
                    let frame = tracks[track].frame(profile, node.frame, libs);
                    prefix = Some(tracks[track].stack(prefix, frame));
                }
            }
            stacks.push((track, prefix));
            if !node.own.is_zero() {
                tracks[track].sample(prefix, node.own);
            }
        }
        tracks.into_iter().map(|track| track.thread).collect()
    }
}

/// A thread under construction.
struct Track {
    thread: Thread,
    funcs: HashMap<FuncKey, u32>,
    frames: HashMap<FrameId, u32>,
    resources: HashMap<u32, u32>,
}

/// Key of a function. Two frames with the same key are lines of one function.
#[derive(PartialEq, Eq, Hash)]
struct FuncKey {
    name: u32,
    file: Option<u32>,
    resource: Option<u32>,
}

impl Track {
    fn new(name: &str, tid: u32) -> Track {
        Track {
            thread: Thread::new(name, tid, "tracing-ms"),
            funcs: HashMap::new(),
            frames: HashMap::new(),
            resources: HashMap::new(),
        }
    }

    fn frame(&mut self, profile: &Profile, id: FrameId, libs: &mut Libs) -> u32 {
        if let Some(known) = self.frames.get(&id) {
            return *known;
        }
        let frame = profile.frame(id);
        let name = self.thread.string(&frame.label());
        let file = (!frame.file.is_empty()).then(|| self.thread.string(portable_file(frame.file)));
        let resource = libs.number(&frame).map(|lib| self.resource(lib, &frame));
        let key = FuncKey {
            name,
            file,
            resource,
        };
        let table = &mut self.thread.func_table;
        let func = *self
            .funcs
            .entry(key)
            .or_insert_with(|| table.push(name, file, resource));
        let category = Category::of(frame.kind);
        let number = self.thread.frame_table.push(func, category, frame.line);
        self.frames.insert(id, number);
        number
    }

    fn resource(&mut self, lib: u32, frame: &Frame<&str>) -> u32 {
        if let Some(known) = self.resources.get(&lib) {
            return *known;
        }
        let file_name = frame.module.rsplit('/').next().unwrap_or_default();
        let name = self.thread.string(file_name);
        let number = self.thread.resource_table.push(lib, name);
        self.resources.insert(lib, number);
        number
    }

    /// A node is visited once, so each stack is new.
    fn stack(&mut self, prefix: Option<u32>, frame: u32) -> u32 {
        self.thread.stack_table.push(prefix, frame)
    }

    fn sample(&mut self, stack: Option<u32>, own: Weight) {
        // A sample ends its own time, as the reader expects of CPU time.
        let weight_ms = own.total_ns() as f64 / 1e6;
        let cpu_us = own.get(State::Cpu) / 1_000;
        self.thread
            .samples
            .push(stack, weight_ms, weight_ms, cpu_us);
    }
}

impl Category {
    fn of(kind: FrameKind) -> Category {
        match kind {
            FrameKind::Group | FrameKind::Task | FrameKind::Phase | FrameKind::Thread => {
                Category::Task
            }
            FrameKind::Function | FrameKind::Unresolved => Category::Function,
            FrameKind::NoTask
            | FrameKind::Agent
            | FrameKind::Truncated
            | FrameKind::NoStack
            | FrameKind::Overflow => Category::Other,
        }
    }
}

#[cfg(test)]
mod tests;
