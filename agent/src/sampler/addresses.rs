//! The sampler's tree: weights by stack, with frames as code addresses. The symbolizer resolves the
//! addresses later, on its own thread.

use std::sync::Arc;

use profiler_core::limits::AGENT_NODES_MAX;
use profiler_core::{FrameId, NoStack, NodeId, Weight};

use super::audit::Times;
use super::foreign;
use super::pages::page_map::PageMap;
use super::pages::page_trie::{Full, PageTrie, RawDelta};
use super::sys::modules::Module;
use super::unwind::Stack;
use crate::foreign::ForeignName;
use crate::registry::NameId;
use symbolize::CodeModule;
use system::page_vec::PageVec;
use system::task_list::ThreadName;

/// Meaning of a frame in the sampler's tree.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum AddressFrame {
    Task(NameId),
    /// Second level.
    Phase(NameId),
    NoTask,
    Agent,
    Truncated,
    NoStack(NoStack),
    Overflow,
    /// The sampler's thread, which does not sample its own stack.
    Sampler,
    /// A thread by name and id; id 0 stands for all threads of that name that are counted together.
    Thread {
        name: ThreadName,
        id: u32,
    },
    /// First level: the task of a thread that is in none, by the thread's name and id, as in `Thread`.
    TaskOfThread {
        name: ThreadName,
        id: u32,
    },
    /// A function of an interpreter.
    Foreign(Arc<ForeignName>),
    /// Code at an address; `None` outside every module.
    Code {
        address: u64,
        module: Option<Arc<CodeModule>>,
    },
}

/// The levels of the tree above a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TaskLevels {
    pub(super) first: AddressFrame,
    /// No second level if [`NameId::NONE`].
    pub(super) phase: NameId,
}

/// Where a weight is counted: at a stack, and once more at the thread below the same task and
/// phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attribution {
    pub(crate) node: NodeId,
    pub(crate) thread: NodeId,
}

/// Additions to the tree since it was last sealed.
#[derive(Debug)]
pub(crate) struct TreeDelta {
    pub(crate) frames: PageVec<AddressFrame>,
    /// Parent and frame of each new node.
    pub(crate) nodes: PageVec<(NodeId, FrameId)>,
    pub(crate) delta: RawDelta,
    /// The same weights at nodes of threads.
    pub(crate) threads: RawDelta,
    /// Time that is missing in `delta`, because there was no memory.
    pub(crate) lost_ns: u64,
}

/// Counts stacks of addresses.
pub(super) struct AddressTrie {
    pub(super) trie: PageTrie,
    frames: PageVec<AddressFrame>,
    frame_ids: PageMap<AddressFrame, FrameId>,
    /// Ids of addresses in the modules that are loaded now.
    code_ids: PageMap<u64, FrameId>,
    modules: Vec<(std::ops::Range<u64>, Arc<CodeModule>)>,
    sealed_frames: usize,
    sealed_nodes: u32,
    /// Time for which there was no memory, since the last seal.
    lost_ns: u64,
    /// All time that was added.
    added: Times,
}

impl AddressTrie {
    pub(super) fn new(modules: &[Module]) -> Self {
        let mut addresses = AddressTrie {
            trie: PageTrie::new(AGENT_NODES_MAX),
            frames: PageVec::new(),
            frame_ids: PageMap::default(),
            code_ids: PageMap::default(),
            modules: Vec::new(),
            sealed_frames: 0,
            sealed_nodes: 1,
            lost_ns: 0,
            added: Times::default(),
        };
        addresses.set_modules(modules);
        addresses
    }

    /// Replaces the list of modules: from now on an address may be different code.
    pub(super) fn set_modules(&mut self, modules: &[Module]) {
        self.code_ids.clear();
        self.modules = modules
            .iter()
            .map(|module| {
                let code = CodeModule {
                    path: module.path.clone(),
                    build_id: module.build_id.clone(),
                    file: module.file,
                    base: module.base,
                };
                (module.range.clone(), Arc::new(code))
            })
            .collect();
        self.modules.sort_unstable_by_key(|(range, _)| range.start);
    }

    /// The node of `stack` below `levels`.
    pub(super) fn node_of(&mut self, levels: &TaskLevels, stack: &Stack) -> NodeId {
        let (first, mut node) = self.insert_levels(levels);
        if !stack.complete {
            let frame = self.frame_id(AddressFrame::Truncated);
            node = node.and_then(|node| self.trie.insert(node, frame?));
        }
        for address in stack.addresses.iter().rev() {
            let frame = self.code_id(*address);
            node = node.and_then(|node| self.trie.insert(node, frame?));
        }
        self.or_overflow(node, first)
    }

    /// The node of time without a stack below `levels`.
    pub(super) fn node_without_stack(&mut self, levels: &TaskLevels, reason: NoStack) -> NodeId {
        let (first, node) = self.insert_levels(levels);
        let frame = self.frame_id(AddressFrame::NoStack(reason));
        let node = node.and_then(|node| self.trie.insert(node, frame?));
        self.or_overflow(node, first)
    }

    fn or_overflow(&mut self, node: Result<NodeId, Full>, first: NodeId) -> NodeId {
        match node {
            Ok(node) => node,
            Err(Full) if first == NodeId::ROOT => first,
            Err(Full) => {
                let frame = self.frame_id(AddressFrame::Overflow);
                frame.map_or(first, |frame| self.trie.insert_past_limit(first, frame))
            }
        }
    }

    /// The nodes of the first level and of the last level above a stack. Without memory for the first
    /// level it is the root, where no time is counted.
    pub(super) fn insert_levels(&mut self, levels: &TaskLevels) -> (NodeId, Result<NodeId, Full>) {
        let Ok(frame) = self.frame_id(levels.first.clone()) else {
            return (NodeId::ROOT, Err(Full));
        };
        // The number of task names is limited, so first-level nodes need no limit of their own.
        let first = self.trie.insert_past_limit(NodeId::ROOT, frame);
        if first == NodeId::ROOT {
            return (first, Err(Full));
        }
        if levels.phase == NameId::NONE {
            return (first, Ok(first));
        }
        let phase = self.frame_id(AddressFrame::Phase(levels.phase));
        (
            first,
            phase.and_then(|phase| self.trie.insert(first, phase)),
        )
    }

    /// Counts a weight at its stack and at its thread.
    pub(super) fn add(&mut self, attribution: Attribution, weight: Weight) {
        self.add_at_stack(attribution.node, weight);
        self.added += Times::of(weight);
        // Without memory, only the split by thread lacks it.
        if attribution.thread != NodeId::ROOT {
            let _ = self.trie.add_weight(attribution.thread, weight);
        }
    }

    /// All time that was added so far.
    pub(super) fn added(&self) -> Times {
        self.added
    }

    /// The root stands for a node that there was no memory for: such time is lost.
    fn add_at_stack(&mut self, node: NodeId, weight: Weight) {
        if node == NodeId::ROOT || !self.trie.add_weight(node, weight) {
            self.lost_ns += weight.total_ns();
        }
    }

    /// Passes everything new since the last seal to `send`. If `send` has no room and returns it,
    /// it stays in the tree for the next seal, as it does without memory. Returns whether it was sent.
    pub(super) fn seal(&mut self, send: impl FnOnce(TreeDelta) -> Result<(), TreeDelta>) -> bool {
        let end = self.trie.node_count();
        let frames = &self.frames;
        let [threads, delta] = self.trie.take_delta(|trie, node| {
            let frame = trie.node(node).map(|(_, frame)| &frames[frame.0 as usize]);
            matches!(frame, Some(AddressFrame::Thread { .. }))
        });
        let delta = TreeDelta {
            frames: frames[self.sealed_frames..].iter().cloned().collect(),
            nodes: self
                .trie
                .nodes_from(NodeId(self.sealed_nodes))
                .iter()
                .copied()
                .collect(),
            lost_ns: std::mem::take(&mut self.lost_ns) + delta.lost_ns,
            delta,
            threads,
        };
        let is_whole = delta.frames.len() == frames.len() - self.sealed_frames
            && delta.nodes.len() == (end - self.sealed_nodes) as usize;
        match if is_whole { send(delta) } else { Err(delta) } {
            Ok(()) => {
                self.sealed_frames = self.frames.len();
                self.sealed_nodes = end;
                true
            }
            Err(back) => {
                self.lost_ns = back.lost_ns;
                for (node, state, nanoseconds) in back.delta.entries() {
                    self.add_at_stack(*node, Weight::of(*state, *nanoseconds));
                }
                for (node, state, nanoseconds) in back.threads.entries() {
                    let _ = self
                        .trie
                        .add_weight(*node, Weight::of(*state, *nanoseconds));
                }
                false
            }
        }
    }

    /// Whether the frame has an id.
    pub(super) fn has_frame(&self, frame: &AddressFrame) -> bool {
        self.frame_ids.contains_key(frame)
    }

    pub(super) fn frame(&self, id: FrameId) -> &AddressFrame {
        &self.frames[id.0 as usize]
    }

    /// The id of a frame, which is added if it is new.
    ///
    /// # Errors
    /// [`Full`] if there is no memory for it.
    pub(super) fn frame_id(&mut self, frame: AddressFrame) -> Result<FrameId, Full> {
        if let Some(id) = self.frame_ids.get(&frame) {
            return Ok(*id);
        }
        let id = FrameId(u32::try_from(self.frames.len()).map_err(|_| Full)?);
        // The frame before its id: nodes of an id without a frame could not be named.
        if !self.frames.push(frame.clone()) {
            return Err(Full);
        }
        if !self.frame_ids.insert(frame, id) {
            self.frames.pop();
            return Err(Full);
        }
        Ok(id)
    }

    fn code_id(&mut self, address: u64) -> Result<FrameId, Full> {
        if let Some(frame) = foreign::frame_of(address) {
            return Ok(frame);
        }
        if let Some(id) = self.code_ids.get(&address) {
            return Ok(*id);
        }
        let after = self
            .modules
            .partition_point(|(range, _)| range.start <= address);
        let module = after
            .checked_sub(1)
            .map(|index| &self.modules[index])
            .filter(|(range, _)| range.contains(&address))
            .map(|(_, module)| module.clone());
        let id = self.frame_id(AddressFrame::Code { address, module })?;
        // Without memory it is looked up by its module again.
        self.code_ids.insert(address, id);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::State;

    use super::*;

    fn levels(first: AddressFrame) -> TaskLevels {
        TaskLevels {
            first,
            phase: NameId::NONE,
        }
    }

    #[test]
    fn a_seal_without_room_keeps_everything_for_the_next() {
        let mut addresses = AddressTrie::new(&[]);
        let stack = Stack {
            addresses: vec![10, 20],
            complete: true,
            ..Stack::default()
        };
        let levels = levels(AddressFrame::NoTask);
        let node = addresses.node_of(&levels, &stack);
        let frame = addresses
            .frame_id(AddressFrame::Thread {
                name: "main".into(),
                id: 7,
            })
            .unwrap();
        let above = addresses.insert_levels(&levels).0;
        let thread = addresses.trie.insert(above, frame).unwrap();
        let attribution = Attribution { node, thread };
        addresses.add(attribution, Weight::of(State::Cpu, 5));
        // As without memory for the weight.
        addresses.lost_ns = 3;
        assert!(!addresses.seal(Err));
        addresses.add(attribution, Weight::of(State::Cpu, 2));
        let mut sealed = None;
        assert!(addresses.seal(|tree| {
            sealed = Some(tree);
            Ok(())
        }));
        let tree = sealed.take().unwrap();
        assert_eq!(tree.delta.total(), Weight::of(State::Cpu, 7));
        assert_eq!(tree.threads.total(), Weight::of(State::Cpu, 7));
        let outer = AddressFrame::Code {
            address: 20,
            module: None,
        };
        let inner = AddressFrame::Code {
            address: 10,
            module: None,
        };
        let thread = AddressFrame::Thread {
            name: "main".into(),
            id: 7,
        };
        assert_eq!(*tree.frames, [AddressFrame::NoTask, outer, inner, thread]);
        assert_eq!((tree.nodes.len(), tree.lost_ns), (4, 3));
        assert!(addresses.seal(|tree| {
            sealed = Some(tree);
            Ok(())
        }));
        let tree = sealed.unwrap();
        assert!(tree.frames.is_empty() && tree.nodes.is_empty() && tree.delta.is_empty());
        assert_eq!(tree.lost_ns, 0, "lost time is counted once");
    }

    #[test]
    fn an_incomplete_stack_is_below_truncated() {
        let mut addresses = AddressTrie::new(&[]);
        let stack = Stack {
            addresses: vec![10],
            complete: false,
            ..Stack::default()
        };
        addresses.node_of(&levels(AddressFrame::Task(NameId(5))), &stack);
        addresses.seal(|tree| {
            assert_eq!(tree.frames[1], AddressFrame::Truncated);
            assert_eq!(tree.nodes[1].0, NodeId(1));
            Ok(())
        });
    }

    #[test]
    fn each_reason_for_no_stack_is_a_node_of_its_own() {
        let mut addresses = AddressTrie::new(&[]);
        let levels = levels(AddressFrame::Task(NameId(5)));
        let nodes = NoStack::ALL.map(|reason| addresses.node_without_stack(&levels, reason));
        let cut = addresses.node_of(
            &levels,
            &Stack {
                addresses: vec![],
                complete: false,
                ..Stack::default()
            },
        );
        assert!(nodes.is_sorted() && !nodes.contains(&cut));
        assert_eq!(
            addresses.node_without_stack(&levels, NoStack::ShortThread),
            nodes[1]
        );
    }
}
