//! Stacks and threads of a chunk, each of which is decoded once.

use std::collections::HashMap;
use std::ops::Range;

use jfr::{Chunk, Constant, Key, Record};
use profiler_core::{Frame, FrameId, NodeId};

use crate::builder::Builder;
use crate::error::ImportError;
use crate::limits::{FRAMES_MAX, STACK_FRAMES_MAX};

/// A frame as constants of its chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FrameKey {
    method: u64,
    line: u32,
    kind: u64,
}

/// Constants of a chunk that were decoded.
pub(super) struct Stacks<'c, 'a> {
    chunk: &'c Chunk<'a>,
    threads: HashMap<u64, FrameId>,
    known: HashMap<FrameKey, FrameId>,
    /// The frames of all stacks, outermost first.
    frames: Vec<FrameId>,
    stacks: HashMap<u64, Range<usize>>,
    nodes: HashMap<(NodeId, u64), NodeId>,
}

impl<'c, 'a> Stacks<'c, 'a> {
    pub(super) fn new(chunk: &'c Chunk<'a>) -> Stacks<'c, 'a> {
        Stacks {
            chunk,
            threads: HashMap::new(),
            known: HashMap::new(),
            frames: Vec::new(),
            stacks: HashMap::new(),
            nodes: HashMap::new(),
        }
    }

    /// The node of a thread in the time by thread.
    pub(super) fn thread(
        &mut self,
        builder: &mut Builder<'_>,
        top: NodeId,
        thread: Option<Constant>,
    ) -> Result<NodeId, ImportError> {
        let key = thread.map_or(0, |thread| thread.key);
        let frame = match self.threads.get(&key) {
            Some(frame) => *frame,
            None => {
                let frame = self.thread_frame(builder, thread)?;
                self.threads.insert(key, frame);
                frame
            }
        };
        Ok(builder.child(top, frame))
    }

    fn thread_frame(
        &self,
        builder: &mut Builder<'_>,
        thread: Option<Constant>,
    ) -> Result<FrameId, ImportError> {
        let found = thread
            .map(|thread| self.chunk.resolve(thread))
            .transpose()?;
        let Some(record) = found.flatten() else {
            return builder.frame(&Frame::thread("", 0));
        };
        let java_name = self.chunk.text(&record, Key::JavaName)?;
        let name = match java_name.filter(|name| !name.is_empty()) {
            Some(name) => name,
            None => self.chunk.text(&record, Key::OsName)?.unwrap_or_default(),
        };
        let id = record.number(Key::OsThreadId).unwrap_or(0);
        builder.frame(&Frame::thread(&name, u32::try_from(id).unwrap_or(0)))
    }

    /// The node of a stack. `inserted` counts the frames of all stacks of the recording.
    pub(super) fn node(
        &mut self,
        builder: &mut Builder<'_>,
        top: NodeId,
        stack: Option<Constant>,
        inserted: &mut usize,
    ) -> Result<NodeId, ImportError> {
        let Some(stack) = stack else {
            return Ok(top);
        };
        if let Some(node) = self.nodes.get(&(top, stack.key)) {
            return Ok(*node);
        }
        let frames = self.stack(builder, stack)?;
        *inserted += frames.len();
        let node = if *inserted > STACK_FRAMES_MAX {
            let overflow = builder.frame(&Frame::overflow())?;
            builder.child(top, overflow)
        } else {
            builder.stack(top, &self.frames[frames])?
        };
        self.nodes.insert((top, stack.key), node);
        Ok(node)
    }

    /// The frames of a stack, in [`Stacks::frames`].
    fn stack(
        &mut self,
        builder: &mut Builder<'_>,
        stack: Constant,
    ) -> Result<Range<usize>, ImportError> {
        if let Some(frames) = self.stacks.get(&stack.key) {
            return Ok(frames.clone());
        }
        let start = self.frames.len();
        match self.chunk.resolve(stack)? {
            Some(record) => self.decode(builder, &record)?,
            None if stack.key != 0 => {
                builder.note("stacks that the recording lacks are empty here");
            }
            None => {}
        }
        self.frames[start..].reverse();
        let frames = start..self.frames.len();
        self.stacks.insert(stack.key, frames.clone());
        Ok(frames)
    }

    /// Appends the frames of a stack, innermost first.
    fn decode(
        &mut self,
        builder: &mut Builder<'_>,
        record: &Record<'a>,
    ) -> Result<(), ImportError> {
        let chunk = self.chunk;
        let frames = chunk.list(record, Key::Frames);
        // One more makes the builder cut it.
        let is_cut = frames.len() > FRAMES_MAX;
        for frame in frames.take(FRAMES_MAX + 1) {
            let frame = self.frame(builder, &frame?)?;
            self.frames.push(frame);
        }
        if record.number(Key::Truncated) == Some(1) && !is_cut {
            let truncated = builder.frame(&Frame::truncated())?;
            self.frames.push(truncated);
        }
        Ok(())
    }

    fn frame(
        &mut self,
        builder: &mut Builder<'_>,
        record: &Record<'a>,
    ) -> Result<FrameId, ImportError> {
        let constant_key = |key| record.constant(key).map_or(0, |constant| constant.key);
        let line = record.number(Key::LineNumber).unwrap_or(0);
        let key = FrameKey {
            method: constant_key(Key::Method),
            // -1 for none.
            line: i32::try_from(line).map_or(0, i32::cast_unsigned),
            kind: constant_key(Key::Type),
        };
        if let Some(frame) = self.known.get(&key) {
            return Ok(*frame);
        }
        let frame = self.new_frame(builder, record, key.line)?;
        self.known.insert(key, frame);
        Ok(frame)
    }

    fn new_frame(
        &self,
        builder: &mut Builder<'_>,
        record: &Record<'a>,
        line: u32,
    ) -> Result<FrameId, ImportError> {
        let chunk = self.chunk;
        let kind = chunk.text(record, Key::Type)?.unwrap_or_default();
        let method_id = record.constant(Key::Method);
        let found = method_id.map(|id| chunk.resolve(id)).transpose()?;
        let Some(method) = found.flatten() else {
            return builder.frame(&Frame::function("[unknown]", "", line));
        };
        let class_id = method.constant(Key::Type);
        let found_class = class_id.map(|id| chunk.resolve(id)).transpose()?;
        let class = match found_class.flatten() {
            Some(class) => chunk.text(&class, Key::Name)?.unwrap_or_default(),
            None => "".into(),
        };
        let name = chunk.text(&method, Key::Name)?.unwrap_or_default();
        let descriptor = chunk.text(&method, Key::Descriptor)?;
        // async-profiler has functions of libraries as methods without parameters and result.
        let is_native =
            descriptor.as_deref() == Some("()L;") && matches!(&*kind, "Native" | "C++" | "Kernel");
        let function = if is_native {
            name.into_owned()
        } else {
            java_name(&class, &name)
        };
        let module = match &*kind {
            "Kernel" => "[kernel]",
            _ if is_native => &*class,
            _ => "",
        };
        let function = if function.is_empty() {
            "[unknown]"
        } else {
            &*function
        };
        builder.frame(&Frame {
            module,
            inlined: kind == "Inlined",
            ..Frame::function(function, "", line)
        })
    }
}

/// `package.Class.method`. Classes that are made at run time, as for lambdas, lose their address and number, which
/// differ from run to run.
fn java_name(class: &str, method: &str) -> String {
    let mut class = class;
    while let Some((rest, number)) = class.rsplit_once(['/', '+', '.'])
        && is_number(number)
    {
        class = rest;
    }
    let class = class.replace('/', ".");
    match (class.is_empty(), method.is_empty()) {
        (false, false) => format!("{class}.{method}"),
        (true, _) => method.to_owned(),
        (false, true) => class,
    }
}

/// Whether a part of a class's name is an address, or a hash, which no part in a program begins like.
fn is_number(part: &str) -> bool {
    let digits = part.strip_prefix("0x").unwrap_or(part);
    part.starts_with(|first: char| first.is_ascii_digit())
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use jfr::testing::TestChunk;
    use jfr::{Integers, Recording};

    use super::*;
    use crate::model::{ImportFormat, ImportOptions};

    /// Many tasks with the same long stacks would take a multiple of the recording's bytes to insert.
    #[test]
    fn stacks_past_the_limit_on_frames_count_as_overflow() {
        let mut chunk = TestChunk::new(Integers::Compressed);
        let stack = chunk.stack(&["A.work", "A.main"]);
        chunk.event("jdk.ExecutionSample", &[("stackTrace", stack)]);
        let bytes = chunk.bytes();
        let recording = Recording::new(&bytes);
        let chunk = recording.chunks().next().unwrap().unwrap();
        let event = chunk.events().next().unwrap().unwrap();
        let stack = event.record().unwrap().constant(Key::StackTrace);
        let options = ImportOptions::default();
        let mut builder = Builder::new(ImportFormat::Jfr, &options);
        let mut stacks = Stacks::new(&chunk);
        let mut inserted = STACK_FRAMES_MAX - 3;
        let mut nodes = Vec::new();
        for task in ["a", "b", "a", "b"] {
            let top = builder.top(Some(task), None).unwrap();
            nodes.push(
                stacks
                    .node(&mut builder, top, stack, &mut inserted)
                    .unwrap(),
            );
        }
        assert_eq!(inserted, STACK_FRAMES_MAX + 1);
        assert_eq!(nodes[..2], nodes[2..]);
        let overflow = builder.frame(&Frame::overflow()).unwrap();
        let [task, other] = ["a", "b"].map(|task| builder.top(Some(task), None).unwrap());
        assert_ne!(nodes[0], builder.child(task, overflow));
        assert_eq!(nodes[1], builder.child(other, overflow));
    }

    #[test]
    fn classes_have_dots_and_no_address() {
        for (class, expected) in [
            ("java/lang/Thread", "java.lang.Thread.run"),
            ("Main", "Main.run"),
            ("", "run"),
            ("a/B$$Lambda$14+0x0000000800c03000", "a.B$$Lambda$14.run"),
            ("a/B$$Lambda$14/0x0000000800c03000", "a.B$$Lambda$14.run"),
            ("B$$Lambda$88+0x00007fe908007a08/179042", "B$$Lambda$88.run"),
            ("a/B$1", "a.B$1.run"),
            ("a/fade", "a.fade.run"),
            ("a/B.0x", "a.B.0x.run"),
        ] {
            assert_eq!(java_name(class, "run"), expected);
        }
        assert_eq!(java_name("a/B", ""), "a.B");
    }
}
