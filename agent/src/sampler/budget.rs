//! Whose time is counted: each weight once more by thread, in the same tree, at a path of task, phase
//! and thread. Where a program makes new threads all the time they are counted together, by their
//! names, so that the tree does not grow with every one.

use std::sync::Arc;

use profiler_core::limits::AGENT_NODES_MAX;
use profiler_core::{FrameId, NodeId};
use rustc_hash::FxHashMap;

use super::addresses::{AddressFrame, AddressTrie, Top};
use super::thread::Thread;
use crate::sys::process;

/// Threads that are counted on their own as soon as they are seen.
const OWN_AT_ONCE_MAX: usize = 256;
/// Threads that are counted on their own at all; of those beyond, and of the young ones past
/// [`OWN_AT_ONCE_MAX`], all of one name count together.
const OWN_MAX: usize = 4_096;
/// Names of threads that are counted together; threads with further ones are [`OTHER_THREADS`].
const NAMES_MAX: usize = 1_024;
/// A thread is young for so long.
const YOUNG_NS: u64 = 1_000_000_000;
/// Part of the tree that may be threads; past it they are [`OTHER_THREADS`] of their task.
const NODES_MAX: usize = AGENT_NODES_MAX / 4;

/// What is counted of threads past a limit.
pub(crate) const OTHER_THREADS: &str = "[other threads]";

/// A place where time is counted: a stack, and the thread below its task and phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) node: NodeId,
    pub(crate) thread: NodeId,
}

/// What is known of threads, within the limits.
#[derive(Debug, Default)]
pub(super) struct Known {
    own: usize,
    names: usize,
    /// By the node above and the thread's frame.
    nodes: FxHashMap<(NodeId, FrameId), NodeId>,
}

/// What a thread is counted as.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadFrame {
    frame: FrameId,
    /// Whether its name was read when it was no longer young: threads name themselves, and what is
    /// read before that is the name of who started them.
    is_settled: bool,
}

impl AddressTrie {
    /// The place of a thread with the stack of `node` below `top`.
    pub(super) fn place(&mut self, node: NodeId, top: &Top, thread: &mut Thread) -> Place {
        let frame = self.frame_of(thread);
        Place { node, thread: self.thread_node(top, frame) }
    }

    /// What a thread is counted as now.
    fn frame_of(&mut self, thread: &mut Thread) -> FrameId {
        let is_young = thread.age_ns() < YOUNG_NS;
        if let Some(known) = thread.frame
            && (known.is_settled || is_young)
        {
            return known.frame;
        }
        let name = match &thread.cell {
            Some(cell) => cell.thread.name.clone(),
            None => process::thread_name(thread.id).into(),
        };
        let frame = self.thread_frame(name, thread.id, is_young);
        thread.frame = Some(ThreadFrame { frame, is_settled: !is_young });
        frame
    }

    /// The frame of a thread of that name and id, or of all those that it is counted with.
    pub(super) fn thread_frame(&mut self, name: Arc<str>, id: u32, is_young: bool) -> FrameId {
        let own = AddressFrame::Thread { name: name.clone(), id };
        let own_max = if is_young { OWN_AT_ONCE_MAX } else { OWN_MAX };
        if self.has_frame(&own) {
            return self.frame_id(own);
        }
        if self.known.own < own_max {
            self.known.own += 1;
            return self.frame_id(own);
        }
        let together = AddressFrame::Thread { name, id: 0 };
        if self.has_frame(&together) {
            return self.frame_id(together);
        }
        if self.known.names < NAMES_MAX {
            self.known.names += 1;
            return self.frame_id(together);
        }
        self.frame_id(AddressFrame::Thread { name: OTHER_THREADS.into(), id: 0 })
    }

    /// The node of a thread's frame below `top`.
    pub(super) fn thread_node(&mut self, top: &Top, frame: FrameId) -> NodeId {
        let (first, above) = self.levels_of(top);
        if let Ok(above) = above {
            if let Some(node) = self.known.nodes.get(&(above, frame)) {
                return *node;
            }
            if self.known.nodes.len() < NODES_MAX
                && let Ok(node) = self.trie.insert(above, frame)
            {
                self.known.nodes.insert((above, frame), node);
                return node;
            }
        }
        let others = self.frame_id(AddressFrame::Thread { name: OTHER_THREADS.into(), id: 0 });
        self.trie.insert_past_limit(first, others)
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{State, Weight};

    use super::super::addresses::Growth;
    use super::*;
    use crate::registry::NameId;

    fn top(first: AddressFrame, phase: u32) -> Top {
        Top { first, phase: NameId(phase) }
    }

    fn seal(addresses: &mut AddressTrie) -> Growth {
        let mut sealed = None;
        assert!(addresses.seal(|growth| {
            sealed = Some(growth);
            Ok(())
        }));
        sealed.unwrap()
    }

    fn name_and_id(addresses: &mut AddressTrie, name: &str, id: u32, young: bool) -> (String, u32) {
        let frame = addresses.thread_frame(name.into(), id, young);
        match addresses.frame(frame) {
            AddressFrame::Thread { name, id } => (name.to_string(), *id),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_weight_counts_at_its_stack_and_at_its_thread() {
        let mut addresses = AddressTrie::new(&[]);
        let stack = Default::default();
        let mut weights = Weight::ZERO;
        for (task, phase, id) in [(1, 0, 7), (1, 3, 7), (1, 3, 8), (2, 0, 7)] {
            let top = top(AddressFrame::Task(NameId(task)), phase);
            let node = addresses.node_of(&top, &stack);
            let frame = addresses.thread_frame("pool".into(), id, true);
            let thread = addresses.thread_node(&top, frame);
            let weight = Weight::of(State::Lock, u64::from(task * 10 + phase + id));
            addresses.add(Place { node, thread }, weight);
            weights += weight;
        }
        let Growth { delta, threads, frames, nodes } = seal(&mut addresses);
        assert_eq!((delta.total(), threads.total()), (weights, weights));
        assert_eq!((delta.entries().len(), threads.entries().len()), (3, 4));
        // Task, phase and thread, from the innermost out.
        let (node, ..) = threads.entries()[2];
        let mut path = vec![];
        let mut at = node;
        while at != NodeId::ROOT {
            let (parent, frame) = nodes[at.index() - 1];
            path.push(frames[frame.0 as usize].clone());
            at = parent;
        }
        let thread = AddressFrame::Thread { name: "pool".into(), id: 8 };
        let expected = [thread, AddressFrame::Phase(NameId(3)), AddressFrame::Task(NameId(1))];
        assert_eq!(path, expected);
    }

    #[test]
    fn new_threads_past_the_limits_are_counted_together() {
        let mut addresses = AddressTrie::new(&[]);
        let mut check = |name: &str, id, young, expected: (&str, u32)| {
            let (name, id) = name_and_id(&mut addresses, name, id, young);
            assert_eq!((&*name, id), expected);
        };
        let first = OWN_AT_ONCE_MAX as u32;
        (1..=first).for_each(|id| check("a", id, true, ("a", id)));
        check("a", first + 1, true, ("a", 0));
        check("a", first, true, ("a", first));
        check("a", first + 1, false, ("a", first + 1));
        for id in first + 2..=OWN_MAX as u32 {
            check("a", id, false, ("a", id));
        }
        check("a", 5_000, false, ("a", 0));
        (1..NAMES_MAX).for_each(|n| check(&format!("n{n}"), 1, true, (&format!("n{n}"), 0)));
        check("one more", 1, true, (OTHER_THREADS, 0));
        check("n7", 1, true, ("n7", 0));
    }
}
