//! Time by thread: each weight is counted once more in the same tree, at a path of task, phase and
//! thread. Where a program creates new threads all the time, threads are counted together by name,
//! so that the tree does not grow with each of them.

use profiler_core::limits::AGENT_NODES_MAX;
use profiler_core::{FrameId, NoStack, NodeId};

use super::addresses::{AddressFrame, AddressTrie, Attribution, TaskLevels};
use super::pages::page_map::PageMap;
use super::pages::page_trie::Full;
use super::thread::{Thread, ThreadFrame};
use crate::registry::NameId;
use ship::tables::OTHER_THREADS;
use system::process;
use system::task_list::ThreadName;

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
        Attribution {
            node,
            thread: self.node_or_root(tree, levels, frame),
        }
    }

    /// Where time of the sampler's own thread is counted; its frame is `thread`.
    pub(super) fn sampler_attribution(
        &mut self,
        tree: &mut AddressTrie,
        thread: Result<FrameId, Full>,
    ) -> Attribution {
        let levels = TaskLevels {
            first: AddressFrame::Agent,
            phase: NameId::NONE,
        };
        let (agent, above) = tree.insert_levels(&levels);
        let sampler = above.and_then(|_| tree.frame_id(AddressFrame::Sampler));
        let node = sampler.map_or(agent, |frame| tree.trie.insert_past_limit(agent, frame));
        Attribution {
            node,
            thread: self.node_or_root(tree, &levels, thread),
        }
    }

    /// Where time of threads that were never seen is counted. They are in no task.
    pub(super) fn unseen_attribution(&mut self, tree: &mut AddressTrie) -> Attribution {
        let levels = TaskLevels {
            first: AddressFrame::NoTask,
            phase: NameId::NONE,
        };
        let others = tree.frame_id(AddressFrame::Thread {
            name: OTHER_THREADS.into(),
            id: 0,
        });
        Attribution {
            node: tree.node_without_stack(&levels, NoStack::ShortThread),
            thread: self.node_or_root(tree, &levels, others),
        }
    }

    fn frame_of(&mut self, tree: &mut AddressTrie, thread: &mut Thread) -> Result<FrameId, Full> {
        let is_young = thread.age_ns() < YOUNG_NS;
        if let Some(known) = thread.frame.filter(|known| known.is_final || is_young) {
            return Ok(known.frame);
        }
        let first_name = thread.first_name.take();
        let name = match (&thread.cell, first_name) {
            _ if thread.is_renamed => thread.kernel_name.unwrap_or_default(),
            (Some(cell), _) => ThreadName::from(&*cell.thread.name),
            (None, Some(first)) if is_young => first,
            (None, _) => process::thread_name(thread.id),
        };
        // A thread that has ended has no name to read: its last time belongs to the one that it had.
        let frame = match (thread.frame, first_name) {
            (Some(known), _) if name.is_empty() => known.frame,
            (None, Some(first)) if name.is_empty() => {
                self.frame(tree, first, thread.id, is_young)?
            }
            _ => self.frame(tree, name, thread.id, is_young)?,
        };
        thread.frame = Some(ThreadFrame {
            frame,
            is_final: !is_young,
        });
        Ok(frame)
    }

    /// The task of a thread that is in none, by its name or that of those that it is counted with. `None` without
    /// memory for it.
    pub(super) fn task_of(
        &mut self,
        tree: &mut AddressTrie,
        name: ThreadName,
        id: u32,
    ) -> Option<AddressFrame> {
        let frame = self.frame(tree, name, id, true).ok()?;
        match *tree.frame(frame) {
            AddressFrame::Thread { name, id } => Some(AddressFrame::TaskOfThread { name, id }),
            _ => None,
        }
    }

    /// The frame of a thread with this name and id, or of all those that it is counted with.
    ///
    /// # Errors
    /// [`Full`] if there is no memory for it.
    pub(super) fn frame(
        &mut self,
        tree: &mut AddressTrie,
        name: ThreadName,
        id: u32,
        is_young: bool,
    ) -> Result<FrameId, Full> {
        let own = AddressFrame::Thread { name, id };
        let own_max = if is_young { OWN_AT_ONCE_MAX } else { OWN_MAX };
        if tree.has_frame(&own) {
            return tree.frame_id(own);
        }
        if self.own < own_max {
            let frame = tree.frame_id(own)?;
            self.own += 1;
            return Ok(frame);
        }
        let together = AddressFrame::Thread { name, id: 0 };
        if tree.has_frame(&together) {
            return tree.frame_id(together);
        }
        if self.names < NAMES_MAX {
            let frame = tree.frame_id(together)?;
            self.names += 1;
            return Ok(frame);
        }
        tree.frame_id(AddressFrame::Thread {
            name: OTHER_THREADS.into(),
            id: 0,
        })
    }

    /// The node of a thread's frame below `levels`. Without memory it is the root, where no time is
    /// counted.
    pub(super) fn node_or_root(
        &mut self,
        tree: &mut AddressTrie,
        levels: &TaskLevels,
        frame: Result<FrameId, Full>,
    ) -> NodeId {
        frame
            .and_then(|frame| self.node(tree, levels, frame))
            .unwrap_or(NodeId::ROOT)
    }

    fn node(
        &mut self,
        tree: &mut AddressTrie,
        levels: &TaskLevels,
        frame: FrameId,
    ) -> Result<NodeId, Full> {
        let (first, above) = tree.insert_levels(levels);
        if first == NodeId::ROOT {
            return Err(Full);
        }
        if let Ok(above) = above {
            if let Some(node) = self.nodes.get(&(above, frame)) {
                return Ok(*node);
            }
            if self.nodes.len() < NODES_MAX {
                if let Ok(node) = tree.trie.insert(above, frame) {
                    self.nodes.insert((above, frame), node);
                    return Ok(node);
                }
            }
        }
        let others = tree.frame_id(AddressFrame::Thread {
            name: OTHER_THREADS.into(),
            id: 0,
        })?;
        // The task's own node is not a thread's: time there would count twice at stacks.
        let node = tree.trie.insert_past_limit(first, others);
        if node == first { Err(Full) } else { Ok(node) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use profiler_core::{State, Weight};

    use super::super::addresses::TreeDelta;
    use super::super::time_account::TimeAccount;
    use super::super::unwind::Stack;
    use super::*;
    use system::page_vec;

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
        let stack = Stack::default();
        let mut weights = Weight::ZERO;
        for (task, phase, id) in [(1, 0, 7), (1, 3, 7), (1, 3, 8), (2, 0, 7)] {
            let first = AddressFrame::Task(NameId(task));
            let levels = TaskLevels {
                first,
                phase: NameId(phase),
            };
            let node = addresses.node_of(&levels, &stack);
            let frame = threads
                .frame(&mut addresses, "pool".into(), id, true)
                .unwrap();
            let thread = threads.node(&mut addresses, &levels, frame).unwrap();
            let weight = Weight::of(State::Lock, u64::from(task * 10 + phase + id));
            addresses.add(Attribution { node, thread }, weight);
            weights += weight;
        }
        let TreeDelta {
            delta,
            threads,
            frames,
            nodes,
            ..
        } = seal(&mut addresses);
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
        let thread = AddressFrame::Thread {
            name: "pool".into(),
            id: 8,
        };
        let expected = [
            thread,
            AddressFrame::Phase(NameId(3)),
            AddressFrame::Task(NameId(1)),
        ];
        assert_eq!(path, expected);
    }

    /// Adds time of stack `number` of many to the tree. Returns its task and the time.
    fn add_stack(tree: &mut AddressTrie, threads: &mut ThreadFrames, number: u32) -> (u32, u64) {
        let task = 1 + number % 40;
        let levels = TaskLevels {
            first: AddressFrame::Task(NameId(task)),
            phase: NameId(number % 3),
        };
        let addresses = (0..number % 30).map(|at| u64::from(number + at)).collect();
        let stack = Stack {
            addresses,
            complete: !number.is_multiple_of(5),
            ..Stack::default()
        };
        let node = match number % 7 {
            0 => tree.node_without_stack(&levels, NoStack::NotSampled),
            _ => tree.node_of(&levels, &stack),
        };
        let mut thread = Thread::new(1 + number % 50, 0);
        let attribution = threads.attribution(tree, node, &levels, &mut thread);
        tree.add(attribution, Weight::of(State::Cpu, 10));
        (task, 10)
    }

    #[test]
    fn time_that_no_memory_holds_is_lost_and_nothing_else_is() {
        for granted in 0..60 {
            let mut tree = AddressTrie::new(&[]);
            let mut threads = ThreadFrames::default();
            let mut added = BTreeMap::<u32, u64>::new();
            page_vec::refuse_after(granted);
            for number in 0..300 {
                if number == 200 {
                    // It has no room, so everything stays in the tree.
                    assert!(!tree.seal(Err));
                    page_vec::refuse_after(usize::MAX);
                }
                let (task, ns) = add_stack(&mut tree, &mut threads, number);
                *added.entry(task).or_default() += ns;
            }
            let TreeDelta {
                delta,
                threads,
                lost_ns,
                frames,
                nodes,
            } = seal(&mut tree);
            let mut counted = BTreeMap::<u32, u64>::new();
            for (node, _, ns) in delta.entries() {
                let mut at = *node;
                while nodes[at.index() - 1].0 != NodeId::ROOT {
                    at = nodes[at.index() - 1].0;
                }
                let AddressFrame::Task(task) = &frames[nodes[at.index() - 1].1.0 as usize] else {
                    panic!("the first level is a task, with {granted} growths");
                };
                *counted.entry(task.0).or_default() += ns;
            }
            let all_ns: u64 = added.values().sum();
            assert_eq!(
                delta.total().total_ns() + lost_ns,
                all_ns,
                "{granted} growths"
            );
            assert!(threads.total().total_ns() <= all_ns, "{granted} growths");
            assert!(
                counted.iter().all(|(task, ns)| *ns <= added[task]),
                "{granted} growths: {counted:?} of {added:?}"
            );
            assert!(lost_ns < all_ns, "the last ones have memory");
        }
    }

    #[test]
    fn a_thread_that_ended_keeps_the_name_that_it_had() {
        // No thread has this id, so its name cannot be read.
        let ended = u32::MAX;
        let expected = AddressFrame::Thread {
            name: "pool".into(),
            id: ended,
        };
        for is_seen_young in [true, false] {
            let mut tree = AddressTrie::new(&[]);
            let mut threads = ThreadFrames::default();
            let mut thread = Thread::new(ended, 0);
            thread.first_name = Some("pool".into());
            if is_seen_young {
                let frame = threads.frame_of(&mut tree, &mut thread).unwrap();
                assert_eq!(*tree.frame(frame), expected);
            }
            thread.time = TimeAccount::new(2 * YOUNG_NS);
            let frame = threads.frame_of(&mut tree, &mut thread).unwrap();
            assert_eq!(*tree.frame(frame), expected, "seen young: {is_seen_young}");
        }
    }

    #[test]
    fn new_threads_past_the_limits_are_counted_together() {
        let mut addresses = AddressTrie::new(&[]);
        let mut threads = ThreadFrames::default();
        let mut check = |name: &str, id, is_young, expected: (&str, u32)| {
            let frame = threads
                .frame(&mut addresses, name.into(), id, is_young)
                .unwrap();
            let (name, id) = expected;
            let expected = AddressFrame::Thread {
                name: name.into(),
                id,
            };
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
