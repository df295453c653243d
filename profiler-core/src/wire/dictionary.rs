//! The tables that both ends share: strings, frames, nodes. Each entry crosses the wire once per
//! epoch; after a reconnect the collector reports how much it still holds.

mod ids;
mod receiver;
mod threads;

use self::ids::Ids;
pub use self::receiver::ReceiverId;
pub use self::threads::ShownThreads;
use super::{WireError, check_size, v1};
use crate::limits::{
    DEPTH_MAX, DICTIONARY_FRAMES_MAX, DICTIONARY_NODES_MAX, DICTIONARY_STRINGS_MAX, NAME_BYTES_MAX,
    bounded_name,
};
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
        Marks {
            strings: 1,
            frames: 0,
            nodes: 1,
        }
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
        message
            .frames
            .push(encode_frame(symbols.frame_ids(FrameId(held.frames))));
        room = room.saturating_sub(FRAME_BYTES_MAX);
        held.frames += 1;
    }
    while held.nodes < end.nodes && room > 0 {
        let (parent, frame) = trie
            .node(NodeId(held.nodes))
            .expect("only the root has no parent");
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

/// The invalid entries of a dictionary. They are stored in place of what they should be: a text that is too
/// long is cut, a frame without a meaning is `[overflow]`, as is a node without a parent, and what is below
/// [`DEPTH_MAX`] is `[truncated]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidEntries {
    /// Their number.
    pub count: usize,
    /// The error of the first one.
    pub first: WireError,
}

impl InvalidEntries {
    /// Adds one if `checked` is an error.
    fn note(found: &mut Option<InvalidEntries>, checked: Result<(), WireError>) {
        let Err(error) = checked else { return };
        found
            .get_or_insert(InvalidEntries {
                count: 0,
                first: error,
            })
            .count += 1;
    }
}

/// The tables of one end.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    /// Names and frames.
    pub symbols: &'a SymbolTable,
    /// Stacks.
    pub trie: &'a CallTrie,
}

/// The receiver's side: maps one agent's ids to those of the receiver's tables. A collector holds one for each
/// agent, so what agents have in common is in its tables only.
#[derive(Clone, Debug)]
pub struct Translation {
    strings: Ids,
    frames: Ids,
    nodes: Ids,
    invalid_build_ids: u64,
    threads: ShownThreads,
}

const _: () = assert!(DEPTH_MAX < u16::MAX as u32);

impl Default for Translation {
    fn default() -> Self {
        Translation {
            strings: Ids::of(0),
            frames: Ids::default(),
            nodes: Ids::of(NodeId::ROOT.0),
            invalid_build_ids: 0,
            threads: ShownThreads::default(),
        }
    }
}

impl Translation {
    /// A translation for a sender in the receiver's process, whose nodes are the receiver's own: the first `nodes`,
    /// including the root. It has no names.
    #[must_use]
    pub fn of_receiver(nodes: u32) -> Translation {
        Translation {
            nodes: Ids::counted(nodes),
            ..Translation::default()
        }
    }

    /// How much of the agent's tables was applied.
    #[must_use]
    pub fn marks(&self) -> Marks {
        Marks {
            strings: table_length(self.strings.len()),
            frames: table_length(self.frames.len()),
            nodes: table_length(self.nodes.len()),
        }
    }

    /// Frames so far whose build id was invalid and was left out.
    #[must_use]
    pub fn invalid_build_ids(&self) -> u64 {
        self.invalid_build_ids
    }

    /// The threads in the frames so far.
    #[must_use]
    pub fn threads(&self) -> &ShownThreads {
        &self.threads
    }

    /// Applies a dictionary: adds its new entries to `symbols` and `trie`. Past the limit of
    /// `trie`, a node maps to `[overflow]` below its first level. A frame keeps its time and loses a build
    /// id that is not [valid](crate::valid_build_id). Returns the other [invalid entries](InvalidEntries).
    ///
    /// # Errors
    /// As [`Translation::check`]; then nothing was applied.
    pub fn apply(
        &mut self,
        message: &v1::Dictionary,
        symbols: &mut SymbolTable,
        trie: &mut CallTrie,
    ) -> Result<Option<InvalidEntries>, WireError> {
        let invalid = self.check(message, trie)?;
        self.apply_slice(message, symbols, trie, usize::MAX)?;
        Ok(invalid)
    }

    /// Memory of the tables, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ids = [&self.strings, &self.frames, &self.nodes];
        let tables: usize = ids.into_iter().map(Ids::bytes).sum();
        tables + self.threads.bytes()
    }

    /// Applies at most `entries_max` of the new entries of a dictionary, so that a receiver can let
    /// others use its tables in between. Returns whether there are more. The message must have
    /// passed [`Translation::check`] since anything else was applied.
    ///
    /// # Errors
    /// [`WireError`] if the message does not follow on what was applied.
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
        let nodes = node_count(message) - fresh.nodes;
        for text in message.strings[fresh.strings..].iter().take(take(strings)) {
            self.strings
                .push(symbols.intern_string(&bounded_name(text)).0);
        }
        for frame in message.frames[fresh.frames..].iter().take(take(frames)) {
            self.threads.note(frame);
            let Ok(mut frame) = decode_frame(&self.strings, frame) else {
                self.frames.push(symbols.intern(&Frame::overflow()).0);
                continue;
            };
            let build_id = symbols.string(frame.build_id);
            if !build_id.is_empty() && valid_build_id(build_id).is_empty() {
                self.invalid_build_ids += 1;
                frame.build_id = StringId(0);
            }
            self.frames.push(symbols.intern_ids(frame).0);
        }
        for (gap, frame) in nodes_of(message).skip(fresh.nodes).take(take(nodes)) {
            let frame = self
                .frames
                .get(frame as usize)
                .map(FrameId)
                .unwrap_or_else(|| symbols.intern(&Frame::overflow()));
            self.add_node(
                self.parent_of(self.nodes.len(), gap).ok(),
                frame,
                symbols,
                trie,
            );
        }
        self.lacks(message)
    }

    /// Whether a message has entries that are not applied.
    ///
    /// # Errors
    /// [`WireError`] if the message does not follow on what was applied.
    pub fn lacks(&self, message: &v1::Dictionary) -> Result<bool, WireError> {
        let end = self.fresh(message)?;
        Ok(end.strings < message.strings.len()
            || end.frames < message.frames.len()
            || end.nodes < node_count(message))
    }

    /// Applies the new entries of a dictionary that the receiver's tables have already: those before the
    /// first that they lack, and at most `entries_max`. Returns their number. As for
    /// [`Translation::apply_slice`], the message must have been checked.
    ///
    /// # Errors
    /// [`WireError`] if the message does not follow on what was applied.
    pub fn apply_known(
        &mut self,
        message: &v1::Dictionary,
        symbols: &SymbolTable,
        trie: &CallTrie,
        entries_max: usize,
    ) -> Result<usize, WireError> {
        let fresh = self.fresh(message)?;
        let before = self.entry_count();
        let room = |ids: &Translation| entries_max - (ids.entry_count() - before);
        for text in message.strings[fresh.strings..].iter().take(entries_max) {
            let Some(string) = symbols.string_id(&bounded_name(text)) else {
                return Ok(self.entry_count() - before);
            };
            self.strings.push(string.0);
        }
        let frames = message.frames[fresh.frames..].iter().take(room(self));
        for frame in frames {
            let Some(known) = known_frame(&self.strings, symbols, frame) else {
                return Ok(self.entry_count() - before);
            };
            self.threads.note(frame);
            self.frames.push(known.0);
        }
        let nodes = nodes_of(message).skip(fresh.nodes).take(room(self));
        for (gap, frame) in nodes {
            let Some(node) = self.known_node(trie, gap, frame) else {
                break;
            };
            self.nodes.push(node.0);
        }
        Ok(self.entry_count() - before)
    }

    /// Like [`Translation::apply_known`] for a dictionary of all entries of `sender`, which need not be made. Its
    /// names and stacks must be within the limits of a dictionary.
    pub fn apply_known_tables(
        &mut self,
        sender: Tables<'_>,
        receiver: Tables<'_>,
        entries_max: usize,
    ) -> usize {
        let end = Marks::of(sender.symbols, sender.trie);
        let held = self.marks();
        let before = self.entry_count();
        let room = |ids: &Translation| entries_max - (ids.entry_count() - before);
        for string in (held.strings..end.strings).take(entries_max) {
            let text = sender.symbols.string(StringId(string));
            let Some(string) = receiver.symbols.string_id(text) else {
                return self.entry_count() - before;
            };
            self.strings.push(string.0);
        }
        for frame in (held.frames..end.frames).take(room(self)) {
            let frame = sender.symbols.frame_ids(FrameId(frame));
            let Some(frame) = receiver.symbols.find_ids(&self.received(frame)) else {
                return self.entry_count() - before;
            };
            self.frames.push(frame.0);
        }
        for node in (held.nodes..end.nodes).take(room(self)) {
            let known = sender.trie.node(NodeId(node)).and_then(|(parent, frame)| {
                self.known_node(receiver.trie, node - parent.0, frame.0)
            });
            let Some(known) = known else { break };
            self.nodes.push(known.0);
        }
        self.entry_count() - before
    }

    /// A frame in terms of the receiver's strings, which must have been applied.
    fn received(&self, frame: &Frame<StringId>) -> Frame<StringId> {
        let string = |id: StringId| StringId(self.strings.get(id.0 as usize).unwrap_or_default());
        Frame {
            kind: frame.kind,
            function: string(frame.function),
            file: string(frame.file),
            line: frame.line,
            module: string(frame.module),
            build_id: string(frame.build_id),
            offset: frame.offset,
            inlined: frame.inlined,
        }
    }

    fn entry_count(&self) -> usize {
        self.strings.len() + self.frames.len() + self.nodes.len()
    }

    /// The receiver's node for the agent's next one, unless it is new or invalid.
    fn known_node(&self, trie: &CallTrie, gap: u32, frame: u32) -> Option<NodeId> {
        let parent = self.parent_of(self.nodes.len(), gap).ok()?;
        let frame = FrameId(self.frames.get(frame as usize)?);
        let parent = self.node_at(parent);
        trie.find(parent, frame)
            .filter(|_| u32::from(trie.depth(parent)) < DEPTH_MAX)
    }

    /// The receiver's node for one that was applied.
    fn node_at(&self, index: usize) -> NodeId {
        self.nodes.get(index).map_or(NodeId::ROOT, NodeId)
    }

    /// Adds the agent's next node below another one of its nodes. Without a parent it is `[overflow]`.
    fn add_node(
        &mut self,
        parent: Option<usize>,
        frame: FrameId,
        symbols: &mut SymbolTable,
        trie: &mut CallTrie,
    ) {
        let Some(parent) = parent else {
            let overflow = symbols.intern(&Frame::overflow());
            let node = trie.insert_past_limit(NodeId::ROOT, overflow);
            return self.nodes.push(node.0);
        };
        let parent = self.node_at(parent);
        let is_too_deep = u32::from(trie.depth(parent)) >= DEPTH_MAX;
        let place = trie
            .node(parent)
            .filter(|(above, _)| is_too_deep && *above != NodeId::ROOT);
        let node = match place {
            // A sibling of the deepest node that is allowed.
            Some((above, _)) => {
                let truncated = symbols.intern(&Frame::truncated());
                trie.insert_or_overflow(above, truncated, symbols)
            }
            None => trie.insert_or_overflow(parent, frame, symbols),
        };
        self.nodes.push(node.0);
    }

    /// Where the new entries of a message start.
    fn fresh(&self, message: &v1::Dictionary) -> Result<Fresh, WireError> {
        let held = self.marks();
        Ok(Fresh {
            strings: skip(
                "strings",
                message.string_base,
                message.strings.len(),
                held.strings,
            )?,
            frames: skip(
                "frames",
                message.frame_base,
                message.frames.len(),
                held.frames,
            )?,
            nodes: skip("nodes", message.node_base, node_count(message), held.nodes)?,
        })
    }

    /// Checks a whole message, before any of it is used. Returns its [invalid entries](InvalidEntries), which
    /// cost no other one. `trie` is the receiver's.
    ///
    /// # Errors
    /// [`WireError`] if the message does not follow on what was applied, or makes a table too large.
    pub fn check(
        &self,
        message: &v1::Dictionary,
        trie: &CallTrie,
    ) -> Result<Option<InvalidEntries>, WireError> {
        let fresh = self.fresh(message)?;
        let new_strings = &message.strings[fresh.strings..];
        let new_frames = &message.frames[fresh.frames..];
        let strings = self.strings.len() + new_strings.len();
        let frames = self.frames.len() + new_frames.len();
        let nodes = self.nodes.len() + node_count(message) - fresh.nodes;
        check_size("the table of strings", strings, DICTIONARY_STRINGS_MAX)?;
        check_size("the table of frames", frames, DICTIONARY_FRAMES_MAX)?;
        check_size("the table of nodes", nodes, DICTIONARY_NODES_MAX)?;
        let mut invalid = None;
        for text in new_strings {
            let checked = check_size("a name, in bytes,", text.len(), NAME_BYTES_MAX);
            InvalidEntries::note(&mut invalid, checked);
        }
        for frame in new_frames {
            InvalidEntries::note(&mut invalid, check_frame(frame, strings));
        }
        let mut depths: Vec<u16> = Vec::with_capacity(nodes - self.nodes.len());
        for (gap, frame) in nodes_of(message).skip(fresh.nodes) {
            let checked = self.check_node(trie, &mut depths, gap);
            InvalidEntries::note(&mut invalid, checked.and(in_table("frame", frame, frames)));
        }
        Ok(invalid)
    }

    /// Checks the node after those of `depths`, which are of the message's other nodes, and adds its depth.
    fn check_node(
        &self,
        trie: &CallTrie,
        depths: &mut Vec<u16>,
        gap: u32,
    ) -> Result<(), WireError> {
        let parent = self.parent_of(self.nodes.len() + depths.len(), gap);
        let above =
            parent
                .as_ref()
                .map_or(0, |parent| match parent.checked_sub(self.nodes.len()) {
                    None => trie.depth(self.node_at(*parent)),
                    Some(new) => depths[new],
                });
        let checked = check_size(
            "the depth of a stack",
            above as usize + 1,
            DEPTH_MAX as usize,
        );
        depths.push(if checked.is_ok() { above + 1 } else { above });
        parent.and(checked)
    }

    /// The parent of the node `id`, which has that distance.
    fn parent_of(&self, id: usize, gap: u32) -> Result<usize, WireError> {
        let parent = id.checked_sub(gap as usize).filter(|parent| *parent < id);
        parent.ok_or(WireError::Invalid {
            what: "a node's distance to its parent",
            value: gap.into(),
            allowed: "at least 1 and at most the node's id",
        })
    }

    /// The receiver's node for the agent's.
    #[must_use]
    pub fn node(&self, agent: NodeId) -> Option<NodeId> {
        self.nodes.get(agent.index()).map(NodeId)
    }

    /// Whether the agent has this string of the receiver.
    #[must_use]
    pub fn has_string(&self, id: StringId) -> bool {
        self.strings.contains(id.0)
    }

    /// The receiver's string for the agent's.
    #[must_use]
    pub fn string(&self, agent: u32) -> Option<StringId> {
        self.strings.get(agent as usize).map(StringId)
    }
}

fn table_length(length: usize) -> u32 {
    u32::try_from(length).expect("the limits keep tables small")
}

/// Where the new entries of each table start in a message.
struct Fresh {
    strings: usize,
    frames: usize,
    nodes: usize,
}

/// Number of the message's entries that the receiver already holds.
fn skip(table: &'static str, base: u32, length: usize, held: u32) -> Result<usize, WireError> {
    let overlap = held
        .checked_sub(base)
        .ok_or(WireError::Gap { table, base, held })?;
    Ok((overlap as usize).min(length))
}

/// Number of nodes of a message. Its two lists should be of equal length.
fn node_count(message: &v1::Dictionary) -> usize {
    message
        .node_parent_gaps
        .len()
        .max(message.node_frames.len())
}

/// Distance to the parent, and frame, of each node of a message. Numbers that are missing are out of range.
fn nodes_of(message: &v1::Dictionary) -> impl Iterator<Item = (u32, u32)> {
    (0..node_count(message)).map(move |index| {
        (
            number_at(&message.node_parent_gaps, index),
            number_at(&message.node_frames, index),
        )
    })
}

fn number_at(list: &[u32], index: usize) -> u32 {
    list.get(index).copied().unwrap_or(u32::MAX)
}

/// A frame in terms of the receiver's strings.
fn decode_frame(strings: &Ids, frame: &v1::Frame) -> Result<Frame<StringId>, WireError> {
    check_frame(frame, strings.len())?;
    let string = |index: u32| StringId(strings.get(index as usize).unwrap_or_default());
    Ok(Frame {
        kind: decode_kind(frame.kind)?,
        function: string(frame.function),
        file: string(frame.file),
        line: frame.line,
        module: string(frame.module),
        build_id: string(frame.build_id),
        offset: frame.offset,
        inlined: frame.inlined,
    })
}

/// The receiver's frame for the agent's, unless it is new or invalid.
fn known_frame(strings: &Ids, symbols: &SymbolTable, frame: &v1::Frame) -> Option<FrameId> {
    let frame = decode_frame(strings, frame).ok()?;
    let build_id = symbols.string(frame.build_id);
    if !build_id.is_empty() && valid_build_id(build_id).is_empty() {
        return None;
    }
    symbols.find_ids(&frame)
}

fn check_frame(frame: &v1::Frame, strings: usize) -> Result<(), WireError> {
    decode_kind(frame.kind)?;
    let texts = [frame.function, frame.file, frame.module, frame.build_id];
    texts
        .into_iter()
        .try_for_each(|index| in_table("string", index, strings))
}

fn in_table(what: &'static str, index: u32, count: usize) -> Result<(), WireError> {
    if (index as usize) < count {
        return Ok(());
    }
    Err(WireError::OutOfRange {
        what,
        index: index.into(),
        count: count as u64,
    })
}

#[cfg(test)]
mod tests;
