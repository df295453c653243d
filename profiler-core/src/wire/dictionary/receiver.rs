//! The entries of the receiver's tables that belong to an agent.

use super::{Marks, Translation};
use crate::{FrameId, NodeId, StringId};

/// An id in the receiver's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiverId {
    /// Of a string.
    String(StringId),
    /// Of a frame.
    Frame(FrameId),
    /// Of a node.
    Node(NodeId),
}

impl Translation {
    /// Calls `visit` with each entry of the receiver's tables that was looked up or added after `marks`.
    pub fn each_since(&self, marks: Marks, mut visit: impl FnMut(ReceiverId)) {
        let Marks {
            strings,
            frames,
            nodes,
        } = marks;
        let mut string = |id| visit(ReceiverId::String(StringId(id)));
        self.strings.each_from(strings as usize, &mut string);
        let mut frame = |id| visit(ReceiverId::Frame(FrameId(id)));
        self.frames.each_from(frames as usize, &mut frame);
        let mut node = |id| visit(ReceiverId::Node(NodeId(id)));
        self.nodes.each_from(nodes as usize, &mut node);
    }
}
