//! The program of a simulated fleet: tasks, and stacks below them that share prefixes.

use std::ops::RangeInclusive;

use profiler_core::NodeId;
use profiler_core::wire::v1::FrameKind;
use rustc_hash::FxHashMap;

use crate::random::Random;

/// Size of a program.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Task names.
    pub tasks: usize,
    /// Distinct stacks per task.
    pub stacks_per_task: usize,
    /// Distinct stacks of threads outside any task.
    pub idle: usize,
    /// Fewest and most frames below the task.
    pub depths: RangeInclusive<usize>,
}

/// Most nodes that a stack of a task adds to those it shares with an earlier one.
const OWN_NODES_MAX: usize = 6;
/// Number of call sites per function.
const NODES_PER_FUNCTION: usize = 8;

/// A frame: indices of strings, as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProgramFrame {
    pub(crate) kind: FrameKind,
    pub(crate) function: u32,
    pub(crate) file: u32,
    pub(crate) line: u32,
}

/// A task: its name, and the leaves of its samples, most frequent first.
#[derive(Clone, Debug)]
pub struct ProgramTask {
    /// Index of its name in the program's strings.
    pub name: u32,
    /// Its first-level node.
    pub top: NodeId,
    /// Distinct leaves.
    pub leaves: Vec<NodeId>,
}

/// Strings, frames and nodes that every agent of a fleet meets, each in its own order. String 0 is
/// empty, node 0 is the root, and every parent comes before its children.
#[derive(Clone, Debug)]
pub struct Program {
    /// All strings.
    pub strings: Vec<String>,
    pub(crate) frames: Vec<ProgramFrame>,
    /// Parent and frame; the root's are 0.
    pub(crate) nodes: Vec<(NodeId, u32)>,
    /// The tasks.
    pub tasks: Vec<ProgramTask>,
    /// Leaves of stacks outside any task.
    pub idle: Vec<NodeId>,
}

impl Program {
    /// A program with string 0 and the root alone.
    pub(crate) fn empty() -> Program {
        Program {
            strings: vec![String::new()],
            frames: Vec::new(),
            nodes: vec![(NodeId::ROOT, 0)],
            tasks: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// Grows a program from a seed.
    #[must_use]
    pub fn generate(shape: Shape, random: &mut Random) -> Program {
        let functions =
            (shape.tasks * shape.stacks_per_task * OWN_NODES_MAX / 2 / NODES_PER_FUNCTION).max(64);
        let mut growth = Growth::new(functions);
        for index in 0..shape.tasks {
            let name = growth.string(format!("task-{index}"));
            let top = growth.top(FrameKind::Task, name);
            let leaves = growth.stacks(top, shape.stacks_per_task, &shape.depths, random);
            growth.program.tasks.push(ProgramTask { name, top, leaves });
        }
        let name = growth.string("[no task]".into());
        let top = growth.top(FrameKind::NoTask, name);
        growth.program.idle = growth.stacks(top, shape.idle, &shape.depths, random);
        growth.program.add_threads();
        growth.program
    }

    /// Adds the frame of its threads, which agents count together: a collector accepts the time of shown threads.
    pub(crate) fn add_threads(&mut self) {
        self.frames.push(ProgramFrame {
            kind: FrameKind::Thread,
            function: 0,
            file: 0,
            line: 0,
        });
    }

    /// Number of nodes without the root.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len() - 1
    }

    /// Functions from the outermost to `node`'s, preceded by the first-level name.
    #[must_use]
    pub fn path(&self, node: NodeId) -> Vec<&str> {
        let mut names = Vec::new();
        let mut here = node;
        while here != NodeId::ROOT {
            let (parent, frame) = self.nodes[here.index()];
            names.push(&*self.strings[self.frames[frame as usize].function as usize]);
            here = parent;
        }
        names.reverse();
        names
    }

    /// Function, file and line of each frame from the innermost to `node`'s first level.
    #[must_use]
    pub fn frames_of(&self, node: NodeId) -> Vec<(&str, &str, u32)> {
        let mut frames = Vec::new();
        let mut here = node;
        while here != NodeId::ROOT {
            let (parent, frame) = self.nodes[here.index()];
            let frame = self.frames[frame as usize];
            let text = |index: u32| &*self.strings[index as usize];
            frames.push((text(frame.function), text(frame.file), frame.line));
            here = parent;
        }
        frames
    }

    /// The first-level node above `node`, or itself.
    #[must_use]
    pub fn top_of(&self, node: NodeId) -> NodeId {
        let mut here = node;
        while self.nodes[here.index()].0 != NodeId::ROOT {
            here = self.nodes[here.index()].0;
        }
        here
    }
}

/// A program under construction.
struct Growth {
    program: Program,
    children: FxHashMap<(NodeId, u32), NodeId>,
    /// Frames from here on are functions.
    functions: u32,
}

impl Growth {
    fn new(functions: usize) -> Growth {
        let mut growth = Growth {
            program: Program::empty(),
            children: FxHashMap::default(),
            functions: id(functions),
        };
        // Names are as long as in real programs; a few files hold all functions.
        let files = (functions / 20).max(1);
        let files: Vec<u32> = (0..files)
            .map(|file| {
                growth.string(format!(
                    "/home/build/src/stage_{}/part_{file}.rs",
                    file % 61
                ))
            })
            .collect();
        for function in 0..functions {
            let name = format!(
                "worker_{}::pipeline::stage_{}::<impl Transform for Block>::apply_{function}",
                function % 7,
                function % 61
            );
            let frame = ProgramFrame {
                kind: FrameKind::Function,
                function: growth.string(name),
                file: files[function % files.len()],
                line: id(function % 900) + 1,
            };
            growth.program.frames.push(frame);
        }
        growth
    }

    fn string(&mut self, text: String) -> u32 {
        self.program.strings.push(text);
        id(self.program.strings.len() - 1)
    }

    /// A child of the root.
    fn top(&mut self, kind: FrameKind, name: u32) -> NodeId {
        self.program.frames.push(ProgramFrame {
            kind,
            function: name,
            file: 0,
            line: 0,
        });
        self.child(NodeId::ROOT, id(self.program.frames.len() - 1))
    }

    fn child(&mut self, parent: NodeId, frame: u32) -> NodeId {
        let nodes = &mut self.program.nodes;
        *self.children.entry((parent, frame)).or_insert_with(|| {
            nodes.push((parent, frame));
            NodeId(id(nodes.len() - 1))
        })
    }

    /// `count` distinct stacks below `top`. Each branches off an earlier one near its end, because
    /// event loops and pools are shared, and continues with frames of its own.
    fn stacks(
        &mut self,
        top: NodeId,
        count: usize,
        depths: &RangeInclusive<usize>,
        random: &mut Random,
    ) -> Vec<NodeId> {
        let depth_min = *depths.start();
        let depth_max = *depths.end();
        let mut stacks: Vec<Vec<NodeId>> = Vec::new();
        while stacks.len() < count {
            let (mut stack, depth) = if stacks.is_empty() {
                (vec![top], random.between(depth_min, depth_max))
            } else {
                let earlier = &stacks[random.below(stacks.len())];
                let shared = (0..3)
                    .map(|_| random.between(1, earlier.len()))
                    .max()
                    .unwrap_or(1)
                    .min(depth_max);
                let own = random.between(1, OWN_NODES_MAX);
                (
                    earlier[..shared].to_vec(),
                    (shared - 1 + own).clamp(depth_min, depth_max),
                )
            };
            let known = self.program.nodes.len();
            while stack.len() <= depth {
                let frame = id(random.below(self.functions as usize));
                let parent = stack[stack.len() - 1];
                stack.push(self.child(parent, frame));
            }
            // A stack that ends at an existing node may be the end of another.
            if stack[stack.len() - 1].index() >= known {
                stacks.push(stack);
            }
        }
        stacks.iter().map(|stack| stack[stack.len() - 1]).collect()
    }
}

fn id(index: usize) -> u32 {
    u32::try_from(index).expect("programs are small")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_program_has_distinct_stacks_of_the_requested_depths() {
        let shape = Shape {
            tasks: 5,
            stacks_per_task: 40,
            idle: 7,
            depths: 10..=30,
        };
        let program = Program::generate(shape, &mut Random(3));
        let leaves = program
            .tasks
            .iter()
            .flat_map(|task| &task.leaves)
            .chain(&program.idle);
        let paths: HashSet<_> = leaves.clone().map(|leaf| program.path(*leaf)).collect();
        assert_eq!(paths.len(), 207);
        assert!(
            paths.iter().all(|path| (11..=31).contains(&path.len())),
            "task and 10 to 30"
        );
        for task in &program.tasks {
            assert_eq!(
                program.path(task.top),
                [&*program.strings[task.name as usize]]
            );
            assert!(
                task.leaves
                    .iter()
                    .all(|leaf| program.top_of(*leaf) == task.top)
            );
        }
        assert!(
            program
                .nodes
                .iter()
                .enumerate()
                .skip(1)
                .all(|(id, (parent, _))| parent.index() < id)
        );
    }
}
