//! The epoch's tables of names and call nodes. They never exceed what a collector accepts.

use profiler_core::StringId;
use profiler_core::limits::{
    AGENT_TASK_NAMES_MAX, DEPTH_MAX, DICTIONARY_FRAMES_MAX, DICTIONARY_NODES_MAX,
    DICTIONARY_STRINGS_MAX,
};
use profiler_core::{CallTrie, Frame, FrameId, FrameKind, NodeId, SymbolTable};

/// Most functions of a stack: above them are its task, its phase and `[truncated]`.
const FUNCTIONS_MAX: usize = DEPTH_MAX as usize - 3;

/// How many outer functions are cut at once. If as few as possible were cut, stacks that differ by one call
/// would have no node in common.
const CUT_FUNCTIONS: usize = 128;

/// Frames and strings that are added past the limits: those of `[overflow]`, `[truncated]` and other threads.
const RESERVE: usize = 16;

/// Most nodes of tasks and their `[overflow]` that are added past the tree's limit.
const TASKS_PAST_LIMIT_MAX: usize = 2 * (AGENT_TASK_NAMES_MAX + 64);

/// Most nodes of threads that are added past the tree's limit.
const THREADS_PAST_LIMIT_MAX: usize = 16 << 10;

/// Most other nodes of the tree.
const NODES_MAX: usize = DICTIONARY_NODES_MAX - TASKS_PAST_LIMIT_MAX - THREADS_PAST_LIMIT_MAX;

/// The name of threads past a limit.
pub const OTHER_THREADS: &str = "[other threads]";

/// The epoch's tables, which only grow. The symbolizer adds to them; the shipper sends the part
/// that the collector does not hold yet.
#[derive(Debug)]
pub struct Tables {
    /// Names and frames.
    pub symbols: SymbolTable,
    /// The tree of calls.
    pub trie: CallTrie,
    nodes_max: usize,
}

/// A node of the tree, at which a stack ends or goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackNode {
    /// The node.
    pub id: NodeId,
    /// Functions from the outermost one to here, with those that were cut.
    functions: u32,
}

impl StackNode {
    /// The root of the tree, above all tasks.
    pub const ROOT: StackNode = StackNode {
        id: NodeId::ROOT,
        functions: 0,
    };
}

impl Default for Tables {
    fn default() -> Self {
        Tables::with_nodes_max(NODES_MAX)
    }
}

impl Tables {
    fn with_nodes_max(nodes_max: usize) -> Self {
        Tables {
            symbols: SymbolTable::new(),
            trie: CallTrie::new(nodes_max),
            nodes_max,
        }
    }

    /// The id of a frame; that of `[overflow]` if it is new and there is no room for it.
    pub fn frame_id<S: AsRef<str>>(&mut self, frame: &Frame<S>) -> FrameId {
        let has_room = self.symbols.frame_count() as usize + RESERVE < DICTIONARY_FRAMES_MAX
            && self.has_room_for_strings();
        if has_room {
            return self.symbols.intern(frame);
        }
        let known = self.symbols.find(frame);
        known.unwrap_or_else(|| self.symbols.intern(&Frame::overflow()))
    }

    /// The id of a text; that of `[overflow]` if it is new and there is no room for it.
    pub fn string_id(&mut self, text: &str) -> StringId {
        if self.has_room_for_strings() {
            return self.symbols.intern_string(text);
        }
        let known = self.symbols.string_id(text);
        known.unwrap_or_else(|| self.symbols.intern_string(&Frame::overflow().label()))
    }

    fn has_room_for_strings(&self) -> bool {
        self.symbols.string_count() as usize + RESERVE < DICTIONARY_STRINGS_MAX
    }

    /// Returns the node at the end of `path` below `parent`; adds missing nodes. Of a stack that would be too
    /// deep, the outer functions are replaced by `[truncated]`.
    pub fn node(&mut self, parent: StackNode, path: &[FrameId]) -> StackNode {
        let new = path
            .iter()
            .filter(|frame| self.is_function(**frame))
            .count();
        let before = parent.functions as usize;
        let newly_cut = cut(before + new) - cut(before);
        let functions = u32::try_from(before + new).unwrap_or(u32::MAX);
        if newly_cut == 0 {
            return StackNode {
                id: self.insert(parent.id, path),
                functions,
            };
        }
        let (levels, mut stack) = self.stack_to(parent.id);
        stack.extend(path);
        let truncated = self.symbols.intern(&Frame::truncated());
        let truncated = self.insert(levels, &[truncated]);
        let kept = stack.get(newly_cut..).unwrap_or_default();
        StackNode {
            id: self.insert(truncated, kept),
            functions,
        }
    }

    /// Returns the node at the end of `path` below the functions of `parent`, all of them moved below `task`.
    pub fn node_of_task(
        &mut self,
        task: FrameId,
        parent: StackNode,
        path: &[FrameId],
    ) -> StackNode {
        let (_, mut stack) = self.stack_to(parent.id);
        stack.extend(path);
        let task = StackNode {
            id: self.insert(NodeId::ROOT, &[task]),
            functions: 0,
        };
        self.node(task, &stack)
    }

    /// Returns the node of a thread. When the tree is full, it is that of all other threads: at most one more
    /// node for each parent.
    pub fn thread_node(&mut self, parent: StackNode, thread: FrameId) -> StackNode {
        let inserted = self.trie.insert(parent.id, thread);
        let id = inserted.unwrap_or_else(|_| {
            let others = self.symbols.intern(&Frame::thread(OTHER_THREADS, 0));
            let past_limit = (self.trie.node_count() as usize).saturating_sub(self.nodes_max);
            if past_limit < THREADS_PAST_LIMIT_MAX {
                return self.trie.insert_past_limit(parent.id, others);
            }
            self.insert(parent.id, &[others])
        });
        StackNode { id, functions: 0 }
    }

    fn insert(&mut self, parent: NodeId, path: &[FrameId]) -> NodeId {
        let Tables { symbols, trie, .. } = self;
        path.iter().fold(parent, |node, frame| {
            trie.insert_or_overflow(node, *frame, symbols)
        })
    }

    /// The functions down to a node, outermost first, and the node above them and above `[truncated]`.
    fn stack_to(&self, node: NodeId) -> (NodeId, Vec<FrameId>) {
        let mut stack = Vec::new();
        let mut levels = node;
        while let Some((parent, frame)) = self.trie.node(levels) {
            match self.symbols.frame_ids(frame).kind {
                FrameKind::Function | FrameKind::Unresolved => stack.push(frame),
                FrameKind::Truncated => {}
                _ => break,
            }
            levels = parent;
        }
        stack.reverse();
        (levels, stack)
    }

    fn is_function(&self, frame: FrameId) -> bool {
        let kind = self.symbols.frame_ids(frame).kind;
        matches!(kind, FrameKind::Function | FrameKind::Unresolved)
    }
}

/// How many outer functions a stack of that many loses.
fn cut(functions: usize) -> usize {
    functions
        .saturating_sub(FUNCTIONS_MAX)
        .next_multiple_of(CUT_FUNCTIONS)
}

#[cfg(test)]
mod tests {
    use profiler_core::wire::{Marks, Translation, dictionary_since};
    use proptest::prelude::*;

    use super::*;

    /// Frames of a node, outermost first.
    fn path(tables: &Tables, node: NodeId) -> Vec<String> {
        let mut frames = Vec::new();
        let mut at = node;
        while let Some((parent, frame)) = tables.trie.node(at) {
            frames.push(tables.symbols.frame(frame).function.to_owned());
            at = parent;
        }
        frames.reverse();
        frames
    }

    /// Checks that a receiver accepts the tables in messages of that size.
    fn check_accepted(tables: &Tables, bytes_max: usize) {
        let mut receiver = (
            Translation::default(),
            SymbolTable::new(),
            CallTrie::new(1 << 20),
        );
        let mut held = Marks::default();
        let mut next = || dictionary_since(&tables.symbols, &tables.trie, &mut held, bytes_max);
        while let Some(message) = next() {
            receiver.0.check(&message, &receiver.2).unwrap();
            receiver
                .0
                .apply(&message, &mut receiver.1, &mut receiver.2)
                .unwrap();
        }
        assert_eq!(receiver.0.marks(), Marks::of(&tables.symbols, &tables.trie));
    }

    /// The functions of each address of a stack, outermost first: some are few, some are many.
    fn stack() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let functions = prop_oneof![
            40 => prop::collection::vec(0..3u8, 1..5),
            2 => prop::collection::vec(0..3u8, 60..70),
            1 => prop::collection::vec(0..3u8, 900..1_300),
        ];
        let addresses = prop_oneof![1..8usize, 200..520usize];
        addresses.prop_flat_map(move |count| prop::collection::vec(functions.clone(), count))
    }

    fn insert(tables: &mut Tables, levels: &[Frame<&str>], stack: &[Vec<u8>]) -> NodeId {
        let mut node = StackNode::ROOT;
        for level in levels {
            let frame = tables.frame_id(level);
            node = tables.node(node, &[frame]);
        }
        for functions in stack {
            let name = |function: &u8| format!("f{function}");
            let functions: Vec<_> = functions
                .iter()
                .map(|function| tables.frame_id(&Frame::function(&name(function), "a.rs", 1)))
                .collect();
            node = tables.node(node, &functions);
        }
        node.id
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn deep_stacks_keep_their_inner_functions_and_are_accepted(
            stacks in prop::collection::vec(stack(), 1..4),
            levels in 1..4usize,
            bytes_max in prop_oneof![Just(1usize), Just(4 << 10), Just(1 << 20)],
        ) {
            let levels = &[Frame::task("load"), Frame::phase("read"), Frame::truncated()][..levels];
            let mut tables = Tables::default();
            for stack in &stacks {
                let node = insert(&mut tables, levels, stack);
                let functions: Vec<_> = stack.iter().flatten().map(|name| format!("f{name}")).collect();
                let lost = functions.len() - functions[cut(functions.len())..].len();
                prop_assert_eq!(lost > 0, functions.len() > FUNCTIONS_MAX);
                prop_assert!(functions.len() - lost > FUNCTIONS_MAX - CUT_FUNCTIONS || lost == 0);
                let mut expected: Vec<_> =
                    levels.iter().map(|level| level.function.to_owned()).collect();
                if lost > 0 && levels.len() < 3 {
                    expected.push("[truncated]".to_owned());
                }
                expected.extend_from_slice(&functions[lost..]);
                let path = path(&tables, node);
                prop_assert!(path.len() <= DEPTH_MAX as usize, "{} levels", path.len());
                prop_assert_eq!(path, expected);
            }
            check_accepted(&tables, bytes_max);
        }
    }

    /// Stacks that differ by one call share all but a few nodes, also where they are cut.
    #[test]
    fn deep_recursion_takes_few_nodes() {
        let mut tables = Tables::default();
        let stack = vec![vec![0, 1, 2, 1]; 512];
        insert(&mut tables, &[Frame::task("load")], &stack);
        let nodes = tables.trie.node_count();
        assert!(nodes < 10 * 4 * 512, "{nodes} nodes");
        for depth in 0..512 {
            insert(&mut tables, &[Frame::task("load")], &stack[..depth]);
        }
        assert_eq!(tables.trie.node_count(), nodes);
    }

    #[test]
    fn a_full_tree_stays_within_the_receivers_limit() {
        let nodes_max = 50;
        let mut tables = Tables::with_nodes_max(nodes_max);
        insert(&mut tables, &[Frame::task("deep")], &vec![vec![0, 1]; 600]);
        let tasks = AGENT_TASK_NAMES_MAX + 10;
        let mut threads = 0;
        for number in 0..tasks {
            let task = format!("task {number}");
            insert(&mut tables, &[Frame::task(&task)], &[vec![1]]);
            let levels = tables.frame_id(&Frame::task(&task));
            let task = tables.node(StackNode::ROOT, &[levels]);
            for thread in 0..3 {
                let phase = tables.frame_id(&Frame::phase(&format!("phase {thread}")));
                let phase = tables.node(task, &[phase]);
                let frame = tables.frame_id(&Frame::thread("pool", thread));
                let node = tables.thread_node(phase, frame).id;
                let (_, frame) = tables.trie.node(node).unwrap();
                let kind = tables.symbols.frame(frame).kind;
                assert!(matches!(kind, FrameKind::Thread | FrameKind::Overflow));
                threads += 1;
            }
        }
        assert!(threads > THREADS_PAST_LIMIT_MAX);
        let past_limit = tables.trie.node_count() as usize - nodes_max;
        assert!(
            past_limit <= TASKS_PAST_LIMIT_MAX + THREADS_PAST_LIMIT_MAX,
            "{past_limit}"
        );
        check_accepted(&tables, 1 << 20);
    }
}
