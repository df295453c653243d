//! Time by thread: each weight is counted once more in the same tree, at a path of task, phase and
//! thread. Where a program creates new threads all the time, threads are counted together by name,
//! so that the tree does not grow with each of them.

use profiler_core::limits::AGENT_NODES_MAX;
use profiler_core::{FrameId, NodeId};

use super::addresses::{AddressFrame, AddressTrie, Attribution, TaskLevels};
use super::page_map::PageMap;
use super::thread::{Thread, ThreadFrame};
use crate::registry::NameId;
use crate::sys::process;
use crate::sys::task_list::ThreadName;

/// Threads that are counted on their own as soon as they are seen.
const OWN_AT_ONCE_MAX: usize = 256;
/// Threads that are counted on their own at all. Those beyond, and young threads past
/// [`OWN_AT_ONCE_MAX`], are counted together by name.
const OWN_MAX: usize = 4_096;
/// Names of threads that are counted together; threads with further names are [`OTHER_THREADS`].
const NAMES_MAX: usize = 1_024;
/// A thread is young for this long.
const YOUNG_NS: u64 = 1_000_000_000;
/// Part of the tree that may be threads; past it they are the [`OTHER_THREADS`] of their task.
const NODES_MAX: usize = AGENT_NODES_MAX / 4;

/// The name of threads past a limit.
pub(crate) const OTHER_THREADS: &str = "[other threads]";

/// The frames and nodes of threads, within the limits.
#[derive(Debug, Default)]
pub(super) struct ThreadFrames {
    /// Number of threads that are counted on their own.
    own: usize,
    /// Number of names under which threads are counted together.
    names: usize,
    /// By the node above and the thread's frame.
    nodes: PageMap<(NodeId, FrameId), NodeId>,
}

impl ThreadFrames {
    /// Where time of `thread` with the stack of `node` below `levels` is counted.
    pub(super) fn attribution(
        &mut self,
        tree: &mut AddressTrie,
        node: NodeId,
        levels: &TaskLevels,
        thread: &mut Thread,
    ) -> Attribution {
        let frame = self.frame_of(tree, thread);
        Attribution { node, thread: self.node(tree, levels, frame) }
    }

    /// Where time of the sampler's own thread is counted; its frame is `thread`.
    pub(super) fn sampler_attribution(
        &mut self,
        tree: &mut AddressTrie,
        thread: FrameId,
    ) -> Attribution {
        let levels = TaskLevels { first: AddressFrame::Agent, phase: NameId::NONE };
        let (agent, _) = tree.insert_levels(&levels);
        let sampler = tree.frame_id(AddressFrame::Sampler);
        let node = tree.trie.insert_past_limit(agent, sampler);
        Attribution { node, thread: self.node(tree, &levels, thread) }
    }

    fn frame_of(&mut self, tree: &mut AddressTrie, thread: &mut Thread) -> FrameId {
        let is_young = thread.age_ns() < YOUNG_NS;
        if let Some(known) = thread.frame
            && (known.is_final || is_young)
        {
            return known.frame;
        }
        let name = match (&thread.cell, thread.first_name.take()) {
            (Some(cell), _) => ThreadName::from(&*cell.thread.name),
            (None, Some(first)) if is_young => first,
            (None, _) => process::thread_name(thread.id),
        };
        let frame = self.frame(tree, name, thread.id, is_young);
        thread.frame = Some(ThreadFrame { frame, is_final: !is_young });
        frame
    }

    /// The frame of a thread with this name and id, or of all those that it is counted with.
    pub(super) fn frame(
        &mut self,
        tree: &mut AddressTrie,
        name: ThreadName,
        id: u32,
        is_young: bool,
    ) -> FrameId {
        let own = AddressFrame::Thread { name, id };
        let own_max = if is_young { OWN_AT_ONCE_MAX } else { OWN_MAX };
        if tree.has_frame(&own) {
            return tree.frame_id(own);
        }
        if self.own < own_max {
            self.own += 1;
            return tree.frame_id(own);
        }
        let together = AddressFrame::Thread { name, id: 0 };
        if tree.has_frame(&together) {
            return tree.frame_id(together);
        }
        if self.names < NAMES_MAX {
            self.names += 1;
            return tree.frame_id(together);
        }
        tree.frame_id(AddressFrame::Thread { name: OTHER_THREADS.into(), id: 0 })
    }

    /// The node of a thread's frame below `levels`.
    fn node(&mut self, tree: &mut AddressTrie, levels: &TaskLevels, frame: FrameId) -> NodeId {
        let (first, above) = tree.insert_levels(levels);
        if let Ok(above) = above {
            if let Some(node) = self.nodes.get(&(above, frame)) {
                return *node;
            }
            if self.nodes.len() < NODES_MAX
                && let Ok(node) = tree.trie.insert(above, frame)
            {
                self.nodes.insert((above, frame), node);
                return node;
            }
        }
        let others = tree.frame_id(AddressFrame::Thread { name: OTHER_THREADS.into(), id: 0 });
        tree.trie.insert_past_limit(first, others)
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{State, Weight};

    use super::super::addresses::TreeDelta;
    use super::*;

    fn seal(addresses: &mut AddressTrie) -> TreeDelta {
        let mut sealed = None;
        assert!(addresses.seal(|growth| {
            sealed = Some(growth);
            Ok(())
        }));
        sealed.unwrap()
    }

    #[test]
    fn each_weight_counts_at_its_stack_and_at_its_thread() {
        let mut addresses = AddressTrie::new(&[]);
        let mut threads = ThreadFrames::default();
        let stack = Default::default();
        let mut weights = Weight::ZERO;
        for (task, phase, id) in [(1, 0, 7), (1, 3, 7), (1, 3, 8), (2, 0, 7)] {
            let first = AddressFrame::Task(NameId(task));
            let levels = TaskLevels { first, phase: NameId(phase) };
            let node = addresses.node_of(&levels, &stack);
            let frame = threads.frame(&mut addresses, "pool".into(), id, true);
            let thread = threads.node(&mut addresses, &levels, frame);
            let weight = Weight::of(State::Lock, u64::from(task * 10 + phase + id));
            addresses.add(Attribution { node, thread }, weight);
            weights += weight;
        }
        let TreeDelta { delta, threads, frames, nodes, .. } = seal(&mut addresses);
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
        let mut threads = ThreadFrames::default();
        let mut check = |name: &str, id, is_young, expected: (&str, u32)| {
            let frame = threads.frame(&mut addresses, name.into(), id, is_young);
            let (name, id) = expected;
            let expected = AddressFrame::Thread { name: name.into(), id };
            assert_eq!(*addresses.frame(frame), expected);
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
