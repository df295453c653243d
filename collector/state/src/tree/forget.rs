//! Names and stacks that nobody has used for a while leave memory. Tables have them, and the ids stay.

use profiler_core::wire::{Marks, ReceiverId, Translation};
use profiler_core::{FrameId, FrameKind, NodeId, StringId};

use super::{OVERFLOW, Tree, TreeLock};
use base::heartbeat;
use base::id_set::IdSet;
use base::sync::{read, write};
use store::TreeSize;

/// Entries that are looked at or forgotten under one lock of the tree: below a millisecond.
const AT_ONCE: usize = 4_096;

/// Entries of the tree.
#[derive(Clone, Default, Debug)]
pub struct UsedIds {
    strings: IdSet,
    frames: IdSet,
    nodes: IdSet,
}

impl UsedIds {
    /// Adds all that a session has.
    pub fn add(&mut self, translation: &Translation) {
        let none = Marks {
            strings: 0,
            frames: 0,
            nodes: 0,
        };
        translation.each_since(none, |id| match id {
            ReceiverId::String(id) => self.strings.insert(id.0),
            ReceiverId::Frame(id) => self.frames.insert(id.0),
            ReceiverId::Node(id) => self.nodes.insert(id.0),
        });
    }
}

/// Sizes before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgotten {
    pub nodes_before: usize,
    pub nodes: usize,
    pub symbol_bytes_before: usize,
    pub symbol_bytes: usize,
}

/// Forgets the nodes, frames and strings before `end` that are not in `sessions` and that nothing has used since
/// the call before the last one. Forgets nothing if that is less than half of the nodes and both limits of the tree
/// are half free. First-level nodes, phases and threads stay. `end` must be in tables and in the log.
pub fn forget_idle(tree: &TreeLock, sessions: UsedIds, end: TreeSize) -> Option<Forgotten> {
    let held = read(tree).trie.held_nodes();
    let mut kept = Retained { ids: sessions, end };
    kept.keep_nodes(tree, &held);
    let is_worth = kept.ids.nodes.count() * 2 <= held.len() || read(tree).is_half_full();
    let forgotten = is_worth.then(|| kept.forget_others(tree, &held));
    write(tree).used.start_generation();
    forgotten
}

/// Entries that stay.
struct Retained {
    ids: UsedIds,
    end: TreeSize,
}

impl Retained {
    /// Adds the nodes that stay, with their ancestors and frames.
    fn keep_nodes(&mut self, tree: &TreeLock, held: &[NodeId]) {
        for piece in held.rchunks(AT_ONCE) {
            heartbeat::beat();
            let tree = read(tree);
            for id in piece.iter().rev() {
                let Some((parent, frame)) = tree.trie.node(*id) else {
                    continue;
                };
                let kind = tree.symbols.frame_ids(frame).kind;
                let is_fixed =
                    parent == NodeId::ROOT || matches!(kind, FrameKind::Phase | FrameKind::Thread);
                if is_fixed || self.keeps_node(&tree, *id) {
                    self.ids.nodes.insert(id.0);
                    self.ids.nodes.insert(parent.0);
                    self.ids.frames.insert(frame.0);
                }
            }
        }
    }

    fn keeps_node(&self, tree: &Tree, id: NodeId) -> bool {
        id.0 >= self.end.nodes || self.ids.nodes.contains(id.0) || tree.used.has_node(id)
    }

    fn keeps_frame(&self, tree: &Tree, id: FrameId) -> bool {
        let is_fixed = id == OVERFLOW || id.0 >= self.end.frames;
        is_fixed || self.ids.frames.contains(id.0) || tree.used.has_frame(id)
    }

    fn keeps_string(&self, tree: &Tree, id: StringId) -> bool {
        self.ids.strings.contains(id.0) || tree.used.has_string(id)
    }

    /// Nodes first, then frames, then strings: what stays has all that it refers to. Others use the tree between
    /// the pieces; what they look up or add is marked, and stays.
    fn forget_others(&mut self, tree: &TreeLock, held: &[NodeId]) -> Forgotten {
        let (nodes_before, symbol_bytes_before) = {
            let tree = read(tree);
            (tree.trie.held_count(), tree.symbol_bytes())
        };
        note_contexts(tree, self.end);
        let before = held.partition_point(|id| id.0 < self.end.nodes);
        for piece in held[..before].chunks(AT_ONCE) {
            heartbeat::beat();
            let mut tree = write(tree);
            let (stay, go): (Vec<NodeId>, Vec<NodeId>) =
                piece.iter().partition(|id| self.keeps_node(&tree, **id));
            tree.trie.set_aside(&stay);
            tree.trie.forget(&go);
        }
        let frames = read(tree).symbols.held_frames();
        let before = frames.partition_point(|id| id.0 < self.end.frames);
        for piece in frames[..before].chunks(AT_ONCE) {
            heartbeat::beat();
            let mut tree = write(tree);
            let (stay, go): (Vec<FrameId>, Vec<FrameId>) =
                piece.iter().partition(|id| self.keeps_frame(&tree, **id));
            tree.symbols.set_aside_frames(&stay);
            tree.symbols.forget_frames(&go);
        }
        {
            let mut tree = write(tree);
            tree.trie.close(NodeId(self.end.nodes));
            tree.symbols.close_frames(FrameId(self.end.frames));
            tree.close_tasks(self.end.nodes);
        }
        self.keep_strings(tree);
        self.forget_strings(tree);
        let tree = read(tree);
        Forgotten {
            nodes_before,
            nodes: tree.trie.held_count(),
            symbol_bytes_before,
            symbol_bytes: tree.symbol_bytes(),
        }
    }

    /// Adds the strings of all frames.
    fn keep_strings(&mut self, tree: &TreeLock) {
        let frames = read(tree).symbols.held_frames();
        for piece in frames.chunks(AT_ONCE) {
            heartbeat::beat();
            let tree = read(tree);
            for id in piece {
                let frame = tree.symbols.frame_ids(*id);
                for text in [frame.function, frame.file, frame.module, frame.build_id] {
                    self.ids.strings.insert(text.0);
                }
            }
        }
    }

    fn forget_strings(&self, tree: &TreeLock) {
        let mut next = 1;
        loop {
            heartbeat::beat();
            let mut tree = write(tree);
            let end = tree.symbols.string_count().min(next + AT_ONCE as u32);
            if end <= next {
                return;
            }
            for id in (next..end).map(StringId) {
                if !self.keeps_string(&tree, id) {
                    tree.symbols.forget_string(id);
                }
            }
            next = end;
        }
    }
}

/// Notes the tasks and phases of the nodes before `end`, while all of them are there.
fn note_contexts(tree: &TreeLock, end: TreeSize) {
    while {
        heartbeat::beat();
        write(tree).note_contexts(end.nodes, AT_ONCE)
    } {}
}

impl Tree {
    /// Notes the contexts of the next nodes before `end`, at most `count`. Returns whether there are more.
    fn note_contexts(&mut self, end: u32, count: usize) -> bool {
        let first = self.contexts.end();
        let last = end.min(first.saturating_add(count as u32));
        for id in (first..last).map(NodeId) {
            let context = match self.trie.node(id) {
                None | Some((NodeId::ROOT, _)) => id,
                Some((parent, frame)) => {
                    let is_phase = self.symbols.frame_ids(frame).kind == FrameKind::Phase;
                    let above = self.contexts.of(parent);
                    let starts =
                        is_phase && above == parent && self.task_of_context(above) == above;
                    if starts { id } else { above }
                }
            };
            self.contexts.push(context);
        }
        last < end
    }

    /// Frees the tasks of the nodes before `end`, which have a context.
    fn close_tasks(&mut self, end: u32) {
        let count = end.saturating_sub(self.tasks_from);
        self.tasks.drain(..count as usize);
        self.tasks.shrink_to_fit();
        self.tasks_from += count;
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{CallTrie, Filter, Frame, State, SymbolTable};

    use super::*;
    use crate::CollectorState;
    use crate::ingest::KnownNames;
    use crate::testing::{TestWorker, account};
    use crate::tree::{Excerpt, PhaseFilter, ProfileForm, SampleScope};
    use base::clock::Clock;
    use base::limits::Limits;
    use naming::Naming;
    use profiler_core::{Profile, Weight};
    use store::{FrameRow, NodeRow, Objects};

    /// Rows of tables with all of a tree.
    struct Stored {
        frames: Vec<FrameRow>,
        nodes: Vec<NodeRow>,
    }

    fn grown(tree: &TreeLock, stacks: &[&str]) {
        let mut worker = TestWorker::new("w", 1);
        stacks
            .iter()
            .for_each(|stack| worker.count(stack, State::Cpu, 1));
        let dictionary = worker.dictionary().unwrap();
        write(tree)
            .apply(&dictionary, &mut Translation::default())
            .unwrap();
    }

    fn all_of(tree: &TreeLock) -> TreeSize {
        read(tree).size()
    }

    fn profile(tree: &TreeLock, nodes: u32) -> Profile {
        let excerpt = Excerpt::of(tree, (1..nodes).collect());
        let filter = Filter::default();
        let scope = SampleScope {
            filter: &filter,
            phases: &PhaseFilter::All,
        };
        let form = ProfileForm {
            has_phases: true,
            by_function: false,
        };
        excerpt.profile(scope, |node| Weight::of(State::Cpu, node.0.into()), form)
    }

    fn forget(tree: &TreeLock) -> Option<Forgotten> {
        forget_idle(tree, UsedIds::default(), all_of(tree))
    }

    #[test]
    fn idle_stacks_go_at_the_third_look_and_come_back_with_their_ids() {
        let tree = TreeLock::new(Tree::new(1_000, 1 << 20));
        grown(
            &tree,
            &[
                "load;old;a",
                "load;old;b",
                "load;old;c",
                "load;both",
                "gone;x;y;z",
            ],
        );
        let Stored { frames, nodes } = {
            let all = super::super::unsealed(
                &tree,
                TreeSize {
                    frames: 0,
                    nodes: 1,
                },
            );
            Stored {
                frames: all.frames,
                nodes: all.nodes,
            }
        };
        let before = all_of(&tree);
        let expected = profile(&tree, before.nodes);
        let tasks: Vec<NodeId> = (0..before.nodes)
            .map(|id| read(&tree).task_of(NodeId(id)))
            .collect();

        assert_eq!([forget(&tree), forget(&tree)], [None, None], "all is new");
        grown(&tree, &["load;both"]);
        let done = forget(&tree).unwrap();
        assert_eq!((done.nodes_before, done.nodes), (10, 3));
        assert!(done.symbol_bytes * 2 < done.symbol_bytes_before, "{done:?}");
        let has_string = |text| read(&tree).symbols.string_id(text).is_some();
        assert_eq!(["both", "old", "z"].map(has_string), [true, false, false]);
        assert_eq!(all_of(&tree), before, "ids stay");
        let again: Vec<NodeId> = (0..before.nodes)
            .map(|id| read(&tree).task_of(NodeId(id)))
            .collect();
        assert_eq!(again, tasks);
        assert_eq!(
            profile(&tree, before.nodes).total(),
            expected.total(),
            "no time is lost"
        );

        // One of them is used again, under an id of its own.
        grown(&tree, &["load;old;a"]);
        assert!(all_of(&tree).nodes > before.nodes);
        let lacks = |id: &NodeId| read(&tree).trie.node(*id).is_none();
        let rows: Vec<NodeRow> = nodes.iter().filter(|row| lacks(&row.id)).copied().collect();
        write(&tree).recall(&rows, &frames);
        assert_eq!(profile(&tree, before.nodes), expected);

        // A start finds its frames twice in the tables.
        let later = super::super::unsealed(&tree, before);
        let frames = frames.iter().chain(&later.frames);
        let nodes = nodes.iter().chain(&later.nodes);
        let mut restored = Tree::new(1_000, 1 << 20);
        restored.restore_all(
            frames.map(|row| row.frame.clone()).collect(),
            nodes.map(|row| (row.parent, row.frame)).collect(),
        );
        let end = all_of(&tree).nodes;
        let restored = profile(&TreeLock::new(restored), end);
        assert_eq!(restored, profile(&tree, end));
    }

    #[test]
    fn a_push_that_waited_while_its_names_were_forgotten_adds_them_again() {
        let state = CollectorState::open(
            Clock::default(),
            Limits::default(),
            Objects::memory(),
            Naming::default(),
        )
        .unwrap();
        let translate = |program: &str, known: Option<KnownNames>| {
            let mut symbols = SymbolTable::new();
            let mut trie = CallTrie::new(100);
            let functions = [0, 1, 2, 3, 4, 5].map(|number| format!("{program}-{number}"));
            let mut path = vec![symbols.intern(&Frame::task("load"))];
            path.extend(
                functions
                    .iter()
                    .map(|name| symbols.intern(&Frame::function(name, "", 1))),
            );
            let leaf = trie.insert_path(path).unwrap();
            let known = known.unwrap_or_default();
            let translated = state.translate(&symbols, &trie, known, &account()).unwrap();
            let known = state.known_names(&symbols, &trie);
            assert!(known.whole(&symbols, &trie).is_some());
            let tree = read(&state.tree);
            let frames = tree.trie.path(translated.node(leaf).unwrap());
            let names = frames.map(|frame| tree.symbols.frame(frame).function.to_owned());
            (known, names.collect::<Vec<_>>().join("<"))
        };
        let (known, _) = translate("old", None);
        let looks = [(); 4].map(|()| forget(&state.tree).map(|done| done.nodes));
        assert_eq!(looks[3].or(looks[2]), Some(1), "{looks:?}");
        translate("new", None);
        let (_, names) = translate("old", Some(known));
        assert_eq!(names, "old-5<old-4<old-3<old-2<old-1<old-0<load");
    }

    #[test]
    fn what_a_session_has_and_what_tables_lack_stays() {
        let tree = TreeLock::new(Tree::new(1_000, 1 << 20));
        let mut worker = TestWorker::new("w", 1);
        worker.count("load;a;b", State::Cpu, 1);
        let mut translation = Translation::default();
        write(&tree)
            .apply(&worker.dictionary().unwrap(), &mut translation)
            .unwrap();
        grown(
            &tree,
            &["load;x;1", "load;x;2", "load;x;3", "load;x;4", "load;x;5"],
        );
        let end = all_of(&tree);
        grown(&tree, &["load;new"]);
        let mut sessions = UsedIds::default();
        sessions.add(&translation);
        let look = || forget_idle(&tree, sessions.clone(), end);
        assert_eq!([look(), look()], [None, None]);
        assert_eq!(look().map(|done| done.nodes), Some(4));
        worker.count("load;a;c", State::Cpu, 1);
        write(&tree)
            .apply(&worker.dictionary().unwrap(), &mut translation)
            .unwrap();
        let tree = read(&tree);
        let paths: Vec<String> = tree
            .trie
            .held_nodes()
            .iter()
            .map(|id| {
                let names = tree
                    .trie
                    .path(*id)
                    .map(|frame| tree.symbols.frame(frame).function.to_owned());
                names.collect::<Vec<_>>().join("<")
            })
            .collect();
        assert_eq!(
            paths,
            ["load", "a<load", "b<a<load", "new<load", "c<a<load"]
        );
    }
}
