//! The sampler's tree: stacks as code addresses, counted where they are seen. Names come later, on
//! another thread.

use std::sync::Arc;

use profiler_core::limits::AGENT_NODES_MAX;
use profiler_core::{CallTrie, Delta, FrameId, Full, NodeId, Weight};
use rustc_hash::FxHashMap;

use super::budget::{Known, Place};
use super::sys::modules::Module;
use super::unwind::Stack;
use crate::registry::NameId;

/// What a node of the address tree stands for, as the folder gets it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum AddressFrame {
    Task(NameId),
    /// Second level.
    Phase(NameId),
    NoTask,
    Agent,
    Truncated,
    Overflow,
    /// The sampler's thread, which does not look at its own stack.
    Sampler,
    /// A thread, by name and id; id 0 stands for all of that name that are counted together.
    Thread {
        name: Arc<str>,
        id: u32,
    },
    /// Code at an address; `None` outside every module.
    Code {
        address: u64,
        module: Option<Arc<CodeModule>>,
    },
}

/// The levels above a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Top {
    pub(super) first: AddressFrame,
    /// [`NameId::NONE`]: no second level.
    pub(super) phase: NameId,
}

/// The module that an address lay in when it was seen.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct CodeModule {
    pub(crate) path: Arc<str>,
    pub(crate) build_id: Arc<str>,
    /// What to take from an address to get the file's own.
    pub(crate) base: u64,
}

/// What the tree gained since it was last sealed.
#[derive(Debug)]
pub(crate) struct Growth {
    pub(crate) frames: Vec<AddressFrame>,
    /// Parent and frame of each new node.
    pub(crate) nodes: Vec<(NodeId, FrameId)>,
    pub(crate) delta: Delta,
    /// The same weights once more, at nodes of threads.
    pub(crate) threads: Delta,
}

/// Counts stacks of addresses.
pub(super) struct AddressTrie {
    pub(super) trie: CallTrie,
    pub(super) known: Known,
    frames: Vec<AddressFrame>,
    frame_ids: FxHashMap<AddressFrame, FrameId>,
    /// Ids of the addresses of the modules as they are now.
    code_ids: FxHashMap<u64, FrameId>,
    modules: Vec<(std::ops::Range<u64>, Arc<CodeModule>)>,
    sealed_frames: usize,
    sealed_nodes: u32,
}

impl AddressTrie {
    pub(super) fn new(modules: &[Module]) -> Self {
        let mut addresses = AddressTrie {
            trie: CallTrie::new(AGENT_NODES_MAX),
            known: Known::default(),
            frames: Vec::new(),
            frame_ids: FxHashMap::default(),
            code_ids: FxHashMap::default(),
            modules: Vec::new(),
            sealed_frames: 0,
            sealed_nodes: 1,
        };
        addresses.set_modules(modules);
        addresses
    }

    /// Takes over a changed list of modules: from now on an address may be other code than before.
    pub(super) fn set_modules(&mut self, modules: &[Module]) {
        self.code_ids.clear();
        self.modules = modules
            .iter()
            .map(|module| {
                let Module { path, build_id, base, .. } = module;
                let (path, build_id) = (path.clone(), build_id.clone());
                (module.range.clone(), Arc::new(CodeModule { path, build_id, base: *base }))
            })
            .collect();
        self.modules.sort_unstable_by_key(|(range, _)| range.start);
    }

    /// The node of `stack` below `top`.
    pub(super) fn node_of(&mut self, top: &Top, stack: &Stack) -> NodeId {
        let (first, mut node) = self.levels_of(top);
        if !stack.complete {
            let frame = self.frame_id(AddressFrame::Truncated);
            node = node.and_then(|node| self.trie.insert(node, frame));
        }
        for address in stack.addresses.iter().rev() {
            let frame = self.code_id(*address);
            node = node.and_then(|node| self.trie.insert(node, frame));
        }
        node.unwrap_or_else(|_| {
            let frame = self.frame_id(AddressFrame::Overflow);
            self.trie.insert_past_limit(first, frame)
        })
    }

    /// The nodes of the first level and of the last one above a stack.
    pub(super) fn levels_of(&mut self, top: &Top) -> (NodeId, Result<NodeId, Full>) {
        let first = self.frame_id(top.first.clone());
        // Task names have a limit of their own, so first-level nodes need none.
        let first = self.trie.insert_past_limit(NodeId::ROOT, first);
        if top.phase == NameId::NONE {
            return (first, Ok(first));
        }
        let phase = self.frame_id(AddressFrame::Phase(top.phase));
        (first, self.trie.insert(first, phase))
    }

    /// The place of the sampler's own thread, whose frame is `thread`.
    pub(super) fn sampler_place(&mut self, thread: FrameId) -> Place {
        let top = Top { first: AddressFrame::Agent, phase: NameId::NONE };
        let (agent, _) = self.levels_of(&top);
        let sampler = self.frame_id(AddressFrame::Sampler);
        let node = self.trie.insert_past_limit(agent, sampler);
        Place { node, thread: self.thread_node(&top, thread) }
    }

    /// Counts a weight at its stack and at its thread.
    pub(super) fn add(&mut self, place: Place, weight: Weight) {
        self.trie.add_weight(place.node, weight);
        self.trie.add_weight(place.thread, weight);
    }

    /// Shows what is new since the last seal to `send`. If it has no room, everything is kept and
    /// goes into the next seal.
    pub(super) fn seal(&mut self, send: impl FnOnce(Growth) -> Result<(), Growth>) -> bool {
        let end = self.trie.node_count();
        let new_nodes = (self.sealed_nodes..end).filter_map(|id| self.trie.node(NodeId(id)));
        let nodes = new_nodes.collect();
        let both = self.trie.take_delta();
        let is_thread = |node: NodeId| {
            let frame = self.trie.node(node).map(|(_, frame)| &self.frames[frame.0 as usize]);
            matches!(frame, Some(AddressFrame::Thread { .. }))
        };
        let part = |threads: bool| {
            let entries = both.entries().iter().copied();
            entries.filter(|(node, ..)| is_thread(*node) == threads).collect()
        };
        let growth = Growth {
            frames: self.frames[self.sealed_frames..].to_vec(),
            nodes,
            delta: part(false),
            threads: part(true),
        };
        match send(growth) {
            Ok(()) => {
                self.sealed_frames = self.frames.len();
                self.sealed_nodes = end;
                true
            }
            Err(back) => {
                for (node, state, nanoseconds) in
                    back.delta.entries().iter().chain(back.threads.entries())
                {
                    self.trie.add(*node, *state, *nanoseconds);
                }
                false
            }
        }
    }

    /// Whether the frame is known already.
    pub(super) fn has_frame(&self, frame: &AddressFrame) -> bool {
        self.frame_ids.contains_key(frame)
    }

    #[cfg(test)]
    pub(super) fn frame(&self, id: FrameId) -> &AddressFrame {
        &self.frames[id.0 as usize]
    }

    pub(super) fn frame_id(&mut self, frame: AddressFrame) -> FrameId {
        if let Some(id) = self.frame_ids.get(&frame) {
            return *id;
        }
        let id = FrameId(u32::try_from(self.frames.len()).expect("fewer than nodes"));
        self.frames.push(frame.clone());
        self.frame_ids.insert(frame, id);
        id
    }

    fn code_id(&mut self, address: u64) -> FrameId {
        if let Some(id) = self.code_ids.get(&address) {
            return *id;
        }
        let after = self.modules.partition_point(|(range, _)| range.start <= address);
        let module = after
            .checked_sub(1)
            .map(|index| &self.modules[index])
            .filter(|(range, _)| range.contains(&address))
            .map(|(_, module)| module.clone());
        let id = self.frame_id(AddressFrame::Code { address, module });
        self.code_ids.insert(address, id);
        id
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::State;

    use super::*;

    fn top(first: AddressFrame) -> Top {
        Top { first, phase: NameId::NONE }
    }

    #[test]
    fn a_seal_without_room_keeps_everything_for_the_next() {
        let mut addresses = AddressTrie::new(&[]);
        let stack = Stack { addresses: vec![10, 20], complete: true };
        let top = top(AddressFrame::NoTask);
        let node = addresses.node_of(&top, &stack);
        let frame = addresses.thread_frame("main".into(), 7, false);
        let place = Place { node, thread: addresses.thread_node(&top, frame) };
        addresses.add(place, Weight::of(State::Cpu, 5));
        assert!(!addresses.seal(Err));
        addresses.add(place, Weight::of(State::Cpu, 2));
        let mut seen = None;
        assert!(addresses.seal(|growth| {
            seen = Some(growth);
            Ok(())
        }));
        let growth = seen.take().unwrap();
        assert_eq!(growth.delta.total(), Weight::of(State::Cpu, 7));
        assert_eq!(growth.threads.total(), Weight::of(State::Cpu, 7));
        let outer = AddressFrame::Code { address: 20, module: None };
        let inner = AddressFrame::Code { address: 10, module: None };
        let thread = AddressFrame::Thread { name: "main".into(), id: 7 };
        assert_eq!(growth.frames, [AddressFrame::NoTask, outer, inner, thread]);
        assert_eq!(growth.nodes.len(), 4);
        assert!(addresses.seal(|growth| {
            seen = Some(growth);
            Ok(())
        }));
        let growth = seen.unwrap();
        assert!(growth.frames.is_empty() && growth.nodes.is_empty() && growth.delta.is_empty());
    }

    #[test]
    fn an_incomplete_stack_hangs_below_truncated() {
        let mut addresses = AddressTrie::new(&[]);
        let stack = Stack { addresses: vec![10], complete: false };
        addresses.node_of(&top(AddressFrame::Task(NameId(5))), &stack);
        addresses.seal(|growth| {
            assert_eq!(growth.frames[1], AddressFrame::Truncated);
            assert_eq!(growth.nodes[1].0, NodeId(1));
            Ok(())
        });
    }
}
