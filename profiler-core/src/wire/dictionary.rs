//! The tables that both ends share: strings, frames, nodes. Each entry crosses the wire once per
//! epoch; after a reconnect the collector reports how much it still holds.

use super::{WireError, check_size, v1};
use crate::limits::{AGENT_NODES_MAX, AGENT_TASK_NAMES_MAX, DEPTH_MAX, NAME_BYTES_MAX};
use crate::{CallTrie, Frame, FrameId, FrameKind, NodeId, StringId, SymbolTable, valid_build_id};

/// How much of an agent's tables the collector holds. The default is an empty collector's: string 0
/// and node 0, which every table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks {
    /// Strings, including the empty one.
    pub strings: u32,
    /// Frames.
    pub frames: u32,
    /// Nodes, including the root.
    pub nodes: u32,
}

impl Default for Marks {
    fn default() -> Self {
        Marks { strings: 1, frames: 0, nodes: 1 }
    }
}

impl Marks {
    /// Returns the marks of these tables.
    #[must_use]
    pub fn of(symbols: &SymbolTable, trie: &CallTrie) -> Marks {
        Marks {
            strings: symbols.string_count(),
            frames: symbols.frame_count(),
            nodes: trie.node_count(),
        }
    }
}

/// Encodes the entries after `held` in one message of at most about `bytes_max` bytes, and advances
/// `held`. Returns `None` if there are none. Strings go first, then frames, then nodes, so that no
/// entry refers to one that the receiver does not hold.
pub fn dictionary_since(
    symbols: &SymbolTable,
    trie: &CallTrie,
    held: &mut Marks,
    bytes_max: usize,
) -> Option<v1::Dictionary> {
    /// Largest encoded size of a frame (six varints and two flags) and of a node (two varints).
    const FRAME_BYTES_MAX: usize = 48;
    const NODE_BYTES_MAX: usize = 10;

    let end = Marks::of(symbols, trie);
    if *held == end {
        return None;
    }
    let mut room = bytes_max;
    let mut message = v1::Dictionary {
        string_base: held.strings,
        frame_base: held.frames,
        node_base: held.nodes,
        ..Default::default()
    };
    while held.strings < end.strings && room > 0 {
        let text = symbols.string(StringId(held.strings));
        message.strings.push(text.to_string());
        room = room.saturating_sub(text.len() + 4);
        held.strings += 1;
    }
    while held.frames < end.frames && room > 0 {
        message.frames.push(encode_frame(symbols.frame_ids(FrameId(held.frames))));
        room = room.saturating_sub(FRAME_BYTES_MAX);
        held.frames += 1;
    }
    while held.nodes < end.nodes && room > 0 {
        let (parent, frame) = trie.node(NodeId(held.nodes)).expect("only the root has no parent");
        message.node_parent_gaps.push(held.nodes - parent.0);
        message.node_frames.push(frame.0);
        room = room.saturating_sub(NODE_BYTES_MAX);
        held.nodes += 1;
    }
    Some(message)
}

fn encode_frame(frame: &Frame<StringId>) -> v1::Frame {
    let kind = match frame.kind {
        FrameKind::Function => v1::FrameKind::Function,
        FrameKind::Task => v1::FrameKind::Task,
        FrameKind::NoTask => v1::FrameKind::NoTask,
        FrameKind::Agent => v1::FrameKind::Agent,
        FrameKind::Unresolved => v1::FrameKind::Unresolved,
        FrameKind::Truncated => v1::FrameKind::Truncated,
        FrameKind::NoStack => v1::FrameKind::NoStack,
        // Groups exist in answers only, never in an agent's tree.
        FrameKind::Overflow | FrameKind::Group => v1::FrameKind::Overflow,
        FrameKind::Phase => v1::FrameKind::Phase,
        FrameKind::Thread => v1::FrameKind::Thread,
    };
    v1::Frame {
        kind: kind.into(),
        function: frame.function.0,
        file: frame.file.0,
        line: frame.line,
        module: frame.module.0,
        build_id: frame.build_id.0,
        offset: frame.offset,
        inlined: frame.inlined,
    }
}

fn decode_kind(kind: i32) -> Result<FrameKind, WireError> {
    let known = v1::FrameKind::try_from(kind).map_err(|_| WireError::Invalid {
        what: "a frame's kind",
        value: kind.into(),
        allowed: "a FrameKind of this protocol version",
    })?;
    Ok(match known {
        v1::FrameKind::Function => FrameKind::Function,
        v1::FrameKind::Task => FrameKind::Task,
        v1::FrameKind::NoTask => FrameKind::NoTask,
        v1::FrameKind::Agent => FrameKind::Agent,
        v1::FrameKind::Unresolved => FrameKind::Unresolved,
        v1::FrameKind::Truncated => FrameKind::Truncated,
        v1::FrameKind::NoStack => FrameKind::NoStack,
        v1::FrameKind::Overflow => FrameKind::Overflow,
        v1::FrameKind::Phase => FrameKind::Phase,
        v1::FrameKind::Thread => FrameKind::Thread,
    })
}

/// The receiver's side: maps one agent's ids to those of the receiver's tables.
#[derive(Clone, Debug)]
pub struct Translation {
    strings: Vec<StringId>,
    frames: Vec<FrameId>,
    nodes: Vec<NodeId>,
    /// At most [`DEPTH_MAX`]. A collector holds one per node of each agent.
    depths: Vec<u16>,
    invalid_build_ids: u64,
}

const _: () = assert!(DEPTH_MAX < u16::MAX as u32);

impl Default for Translation {
    fn default() -> Self {
        Translation {
            strings: vec![StringId(0)],
            frames: Vec::new(),
            nodes: vec![NodeId::ROOT],
            depths: vec![0],
            invalid_build_ids: 0,
        }
    }
}

impl Translation {
    /// How much of the agent's tables was applied.
    #[must_use]
    pub fn marks(&self) -> Marks {
        let count = |length: usize| u32::try_from(length).expect("the limits keep tables small");
        Marks {
            strings: count(self.strings.len()),
            frames: count(self.frames.len()),
            nodes: count(self.nodes.len()),
        }
    }

    /// Frames so far whose build id was invalid and was left out.
    #[must_use]
    pub fn invalid_build_ids(&self) -> u64 {
        self.invalid_build_ids
    }

    /// Applies a dictionary: adds its new entries to `symbols` and `trie`. Past the limit of
    /// `trie`, a node maps to `[overflow]` below its first level. A frame keeps its time and loses a build
    /// id that is not [valid](crate::valid_build_id).
    ///
    /// # Errors
    /// [`WireError`] if any entry is invalid; then nothing was applied.
    pub fn apply(
        &mut self,
        message: &v1::Dictionary,
        symbols: &mut SymbolTable,
        trie: &mut CallTrie,
    ) -> Result<(), WireError> {
        self.check(message)?;
        self.apply_slice(message, symbols, trie, usize::MAX).map(|_| ())
    }

    /// Applies at most `entries_max` of the new entries of a dictionary, so that a receiver can let
    /// others use its tables in between. Returns whether there are more. The message must have
    /// passed [`Translation::check`] since anything else was applied.
    ///
    /// # Errors
    /// [`WireError`] if the message does not follow on what was applied.
    ///
    /// # Panics
    /// If the message was not checked.
    pub fn apply_slice(
        &mut self,
        message: &v1::Dictionary,
        symbols: &mut SymbolTable,
        trie: &mut CallTrie,
        entries_max: usize,
    ) -> Result<bool, WireError> {
        let fresh = self.fresh(message)?;
        let mut room = entries_max;
        let mut take = |new: usize| {
            let count = new.min(room);
            room -= count;
            count
        };
        let strings = message.strings.len() - fresh.strings;
        let frames = message.frames.len() - fresh.frames;
        let nodes = message.node_frames.len() - fresh.nodes;
        reserve_exactly(&mut self.strings, strings);
        reserve_exactly(&mut self.frames, frames);
        reserve_exactly(&mut self.nodes, nodes);
        reserve_exactly(&mut self.depths, nodes);
        for text in message.strings[fresh.strings..].iter().take(take(strings)) {
            self.strings.push(symbols.intern_string(text));
        }
        for frame in message.frames[fresh.frames..].iter().take(take(frames)) {
            let string = |index: u32| self.strings[index as usize];
            let given_build = string(frame.build_id);
            let is_valid = symbols.string(given_build).is_empty()
                || !valid_build_id(symbols.string(given_build)).is_empty();
            self.invalid_build_ids += u64::from(!is_valid);
            let frame = Frame {
                kind: decode_kind(frame.kind)?,
                function: string(frame.function),
                file: string(frame.file),
                line: frame.line,
                module: string(frame.module),
                build_id: if is_valid { given_build } else { StringId(0) },
                offset: frame.offset,
                inlined: frame.inlined,
            };
            self.frames.push(symbols.intern_ids(frame));
        }
        let pairs = message.node_parent_gaps.iter().zip(&message.node_frames);
        for (gap, frame) in pairs.skip(fresh.nodes).take(take(nodes)) {
            let parent = self.nodes.len() - *gap as usize;
            let frame = self.frames[*frame as usize];
            let node = trie.insert_or_overflow(self.nodes[parent], frame, symbols);
            self.nodes.push(node);
            self.depths.push(self.depths[parent] + 1);
        }
        let end = self.fresh(message)?;
        Ok(end.strings < message.strings.len()
            || end.frames < message.frames.len()
            || end.nodes < message.node_frames.len())
    }

    /// Where the new entries of a message start.
    fn fresh(&self, message: &v1::Dictionary) -> Result<Fresh, WireError> {
        let held = self.marks();
        Ok(Fresh {
            strings: skip("strings", message.string_base, message.strings.len(), held.strings)?,
            frames: skip("frames", message.frame_base, message.frames.len(), held.frames)?,
            nodes: skip("nodes", message.node_base, message.node_frames.len(), held.nodes)?,
        })
    }

    /// Checks a whole message, before any of it is used.
    ///
    /// # Errors
    /// [`WireError`] if any entry is invalid.
    pub fn check(&self, message: &v1::Dictionary) -> Result<(), WireError> {
        let fresh = self.fresh(message)?;
        let left = message.node_parent_gaps.len();
        let right = message.node_frames.len();
        if left != right {
            return Err(WireError::Uneven {
                what: "node_parent_gaps and node_frames",
                left,
                right,
            });
        }
        let new_strings = &message.strings[fresh.strings..];
        let new_frames = &message.frames[fresh.frames..];
        for text in new_strings {
            check_size("a name, in bytes,", text.len(), NAME_BYTES_MAX)?;
        }
        let strings = self.strings.len() + new_strings.len();
        let frames = self.frames.len() + new_frames.len();
        check_size("the table of strings", strings, STRINGS_MAX)?;
        check_size("the table of frames", frames, FRAMES_MAX)?;
        for frame in new_frames {
            decode_kind(frame.kind)?;
            for index in [frame.function, frame.file, frame.module, frame.build_id] {
                in_table("string", index, strings)?;
            }
        }
        self.check_nodes(message, fresh.nodes, frames)
    }

    fn check_nodes(
        &self,
        message: &v1::Dictionary,
        skip: usize,
        frames: usize,
    ) -> Result<(), WireError> {
        let mut depths: Vec<u16> = Vec::new();
        let nodes = message.node_parent_gaps.iter().zip(&message.node_frames);
        for (gap, frame) in nodes.skip(skip) {
            let id = self.nodes.len() + depths.len();
            in_table("frame", *frame, frames)?;
            let parent = id.checked_sub(*gap as usize).filter(|parent| *parent < id).ok_or(
                WireError::Invalid {
                    what: "a node's distance to its parent",
                    value: (*gap).into(),
                    allowed: "at least 1 and at most the node's id",
                },
            )?;
            let depth = match parent.checked_sub(self.depths.len()) {
                None => self.depths[parent],
                Some(new) => depths[new],
            } + 1;
            check_size("the depth of a stack", depth as usize, DEPTH_MAX as usize)?;
            depths.push(depth);
        }
        check_size("the table of nodes", self.nodes.len() + depths.len(), NODES_MAX)
    }

    /// The receiver's node for the agent's.
    #[must_use]
    pub fn node(&self, agent: NodeId) -> Option<NodeId> {
        self.nodes.get(agent.index()).copied()
    }

    /// Whether the agent has this string of the receiver.
    #[must_use]
    pub fn has_string(&self, id: StringId) -> bool {
        self.strings.contains(&id)
    }

    /// The receiver's string for the agent's.
    #[must_use]
    pub fn string(&self, agent: u32) -> Option<StringId> {
        self.strings.get(agent as usize).copied()
    }
}

/// Room for one `[overflow]` node per task, in addition to an agent's own nodes.
const NODES_MAX: usize = AGENT_NODES_MAX + AGENT_TASK_NAMES_MAX + 8;
/// A node adds at most one frame, and a frame at most four strings, mostly shared.
const FRAMES_MAX: usize = NODES_MAX;
const STRINGS_MAX: usize = 2 * NODES_MAX;

/// Reserves room for `more` entries with little slack, because thousands of agents have tables.
fn reserve_exactly<T>(table: &mut Vec<T>, more: usize) {
    if table.capacity() - table.len() < more {
        table.reserve_exact(more.max(table.len() / 8));
    }
}

/// Where the new entries of each table start in a message.
struct Fresh {
    strings: usize,
    frames: usize,
    nodes: usize,
}

/// Number of the message's entries that the receiver already holds.
fn skip(table: &'static str, base: u32, length: usize, held: u32) -> Result<usize, WireError> {
    let overlap = held.checked_sub(base).ok_or(WireError::Gap { table, base, held })?;
    Ok((overlap as usize).min(length))
}

fn in_table(what: &'static str, index: u32, count: usize) -> Result<(), WireError> {
    if (index as usize) < count {
        return Ok(());
    }
    Err(WireError::OutOfRange { what, index: index.into(), count: count as u64 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Strings, frames and nodes over few names; each node picks a parent among the earlier ones.
    fn tables() -> impl Strategy<Value = (SymbolTable, CallTrie)> {
        prop::collection::vec((any::<prop::sample::Index>(), 0..20u32), 0..80).prop_map(|rows| {
            let mut symbols = SymbolTable::new();
            let mut trie = CallTrie::new(1_000);
            for (parent, name) in rows {
                let parent =
                    NodeId(u32::try_from(parent.index(trie.node_count() as usize)).unwrap());
                let name = format!("f{name}");
                let frame = symbols.intern(&Frame::function(&name, "x.rs", name.len() as u32));
                trie.insert(parent, frame).unwrap();
            }
            (symbols, trie)
        })
    }

    /// Sends every entry after `held` in messages of `bytes_max`.
    fn send(
        from: &(SymbolTable, CallTrie),
        held: &mut Marks,
        bytes_max: usize,
        to: &mut (Translation, SymbolTable, CallTrie),
    ) {
        while let Some(message) = dictionary_since(&from.0, &from.1, held, bytes_max) {
            to.0.apply(&message, &mut to.1, &mut to.2).unwrap();
        }
    }

    fn receiver(nodes_max: usize) -> (Translation, SymbolTable, CallTrie) {
        (Translation::default(), SymbolTable::new(), CallTrie::new(nodes_max))
    }

    fn labels(symbols: &SymbolTable, trie: &CallTrie, node: NodeId) -> Vec<String> {
        trie.path(node).map(|frame| symbols.frame(frame).label()).collect()
    }

    proptest! {
        #[test]
        fn every_node_keeps_its_stack_however_the_tables_are_cut(
            from in tables(), bytes_max in 1..200usize, again in any::<bool>()
        ) {
            let mut to = receiver(1_000);
            send(&from, &mut Marks::default(), bytes_max, &mut to);
            if again {
                // A dictionary sent twice changes nothing.
                send(&from, &mut Marks::default(), 10_000, &mut to);
            }
            prop_assert_eq!(to.0.marks(), Marks::of(&from.0, &from.1));
            for id in 1..from.1.node_count() {
                let here = to.0.node(NodeId(id)).unwrap();
                prop_assert_eq!(
                    labels(&from.0, &from.1, NodeId(id)),
                    labels(&to.1, &to.2, here)
                );
            }
        }

        #[test]
        fn slices_of_a_dictionary_add_up_to_the_whole(from in tables(), entries_max in 1..40usize) {
            let Some(message) = dictionary_since(&from.0, &from.1, &mut Marks::default(), 10_000)
            else {
                return Ok(());
            };
            let mut whole = receiver(1_000);
            whole.0.apply(&message, &mut whole.1, &mut whole.2).unwrap();
            let mut to = receiver(1_000);
            to.0.check(&message).unwrap();
            let entries = message.strings.len() + message.frames.len() + message.node_frames.len();
            let mut slices = 1;
            while to.0.apply_slice(&message, &mut to.1, &mut to.2, entries_max).unwrap() {
                slices += 1;
            }
            prop_assert_eq!(slices, entries.div_ceil(entries_max));
            prop_assert_eq!(to.0.marks(), whole.0.marks());
            prop_assert_eq!(&to.0.nodes, &whole.0.nodes);
            prop_assert_eq!(Marks::of(&to.1, &to.2), Marks::of(&whole.1, &whole.2));
        }

        #[test]
        fn a_full_receiver_counts_the_rest_as_overflow(from in tables(), nodes_max in 0..10usize) {
            let mut to = receiver(nodes_max);
            send(&from, &mut Marks::default(), 10_000, &mut to);
            for id in 1..from.1.node_count() {
                let there = labels(&from.0, &from.1, NodeId(id));
                let here = labels(&to.1, &to.2, to.0.node(NodeId(id)).unwrap());
                prop_assert_eq!(there.last(), here.last(), "the first level is always kept");
                prop_assert!(here == there || here.first().unwrap() == "[overflow]");
            }
        }
    }

    #[test]
    fn a_frame_with_an_invalid_build_id_keeps_its_place_without_it() {
        let mut symbols = SymbolTable::new();
        let mut trie = CallTrie::new(10);
        let task = symbols.intern(&Frame::task("t"));
        for (build_id, offset) in [("b\n", 1), ("aa;curl x|sh #", 2), ("59fd0a2c", 3), ("", 4)] {
            let kind = FrameKind::Unresolved;
            let frame = Frame { kind, build_id, offset, ..Frame::function("", "", 0) };
            let frame = symbols.intern(&frame);
            trie.insert_path([task, frame]).unwrap();
        }
        let mut to = receiver(10);
        send(&(symbols, trie), &mut Marks::default(), 10_000, &mut to);
        let build_ids: Vec<_> = (2..=5)
            .map(|node| {
                let (_, frame) = to.2.node(to.0.node(NodeId(node)).unwrap()).unwrap();
                (to.1.frame(frame).build_id, to.1.frame(frame).offset)
            })
            .collect();
        assert_eq!(build_ids, [("", 1), ("", 2), ("59fd0a2c", 3), ("", 4)]);
        assert_eq!(to.0.invalid_build_ids(), 2);
    }

    fn check_rejected(change: impl FnOnce(&mut v1::Dictionary), expected: &str) {
        let mut symbols = SymbolTable::new();
        let frame = symbols.intern(&Frame::task("t"));
        let mut trie = CallTrie::new(10);
        trie.insert_path([frame, frame]).unwrap();
        let mut message = dictionary_since(&symbols, &trie, &mut Marks::default(), 10_000).unwrap();
        change(&mut message);
        let mut to = receiver(10);
        let error = to.0.apply(&message, &mut to.1, &mut to.2).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(to.0.marks(), Marks::default(), "no part of a rejected message is applied");
        assert_eq!((to.1.string_count(), to.2.node_count()), (1, 1));
    }

    #[test]
    fn invalid_dictionaries_are_rejected_whole() {
        check_rejected(
            |m| m.node_base = 2,
            "the dictionary's nodes start at 2, but the receiver holds only 1",
        );
        check_rejected(|m| m.frames[0].file = 9, "string 9 is outside its table of 2");
        check_rejected(|m| m.node_frames[1] = 7, "frame 7 is outside its table of 1");
        check_rejected(
            |m| m.node_parent_gaps[0] = 0,
            "a node's distance to its parent is 0; it must be at least 1 and at most the node's id",
        );
        check_rejected(
            |m| m.node_parent_gaps[1] = 3,
            "a node's distance to its parent is 3; it must be at least 1 and at most the node's id",
        );
        check_rejected(
            |m| m.strings[0] = "x".repeat(5000),
            "a name, in bytes, is 5000; at most 4096 is allowed",
        );
        check_rejected(
            |m| m.node_frames.push(0),
            "node_parent_gaps and node_frames: 2 and 3 entries; the lengths must match",
        );
        check_rejected(
            |m| m.frames[0].kind = 99,
            "a frame's kind is 99; it must be a FrameKind of this protocol version",
        );
        check_rejected(
            |m| {
                m.node_parent_gaps = vec![1; 1_001];
                m.node_frames = vec![0; 1_001];
            },
            "the depth of a stack is 1001; at most 1000 is allowed",
        );
    }
}
