//! Stacks of a message that its receiver has already: their names are not copied.

use flamegraph::messages::pprof as proto;
use profiler_core::limits::bounded_name;
use profiler_core::{Frame, FrameId, NodeId, StringId};

use super::super::builder::{Builder, LastStack, task_frame};
use super::super::error::ImportError;
use super::super::known::{KnownTables, Opened};
use super::super::labels::SampleLabels;
use super::super::limits::FRAMES_MAX;
use super::SampleStack;
use super::frames::{NamedFrame, Stacks, frame_indexes};
use super::numbered::Numbered;

/// The known frames of each location, and the nodes that were found last.
pub(super) struct KnownStacks<'t> {
    opened: Opened<'t>,
    /// By location: its frames, outermost first, in a list of all; `None` if one of them is unknown.
    locations: Numbered<Option<FrameRange>>,
    frames: Vec<FrameId>,
    last_top: Option<KnownTop<'t>>,
    last_stack: LastStack,
    /// Of a sample.
    stack: Vec<FrameId>,
}

#[derive(Clone, Copy)]
struct FrameRange {
    start: u32,
    end: u32,
}

/// The nodes of a task or phase, and of a thread below it.
#[derive(Clone, Copy)]
struct KnownTop<'t> {
    task: Option<&'t str>,
    phase: Option<&'t str>,
    thread: Option<&'t str>,
    nodes: Option<[NodeId; 2]>,
}

/// Whether a text was looked up, and its number.
#[derive(Clone, Copy)]
enum Name {
    New,
    Unknown,
    Known(StringId),
}

impl<'t> KnownStacks<'t> {
    /// Looks up the frames of all locations.
    pub(super) fn read(
        stacks: &mut Stacks<'t>,
        builder: &mut Builder<'_>,
        tables: &'t dyn KnownTables,
    ) -> Result<KnownStacks<'t>, ImportError> {
        let mut known = KnownStacks {
            opened: Opened::new(tables),
            locations: Numbered::default(),
            frames: Vec::new(),
            last_top: None,
            last_stack: LastStack::default(),
            stack: Vec::new(),
        };
        let mut names = vec![Name::New; stacks.tables.texts.len()];
        let mut location = proto::Location::default();
        known.frames.reserve(stacks.tables.locations.len());
        for (number, bytes) in (1..).zip(&stacks.tables.locations) {
            builder.decode(&mut location, "location", number, bytes)?;
            let module = stacks.module(builder, &location)?;
            let start = known.frames.len() as u32;
            let mut is_known = true;
            for at in frame_indexes(&location) {
                // Checked, even if another frame of the location is unknown.
                let frame = stacks.frame(builder, &location, &module, at)?;
                let Some(frame) = frame.filter(|_| is_known) else {
                    continue;
                };
                let found = known.opened.frame(stacks, &mut names, &frame);
                known.frames.extend(found);
                is_known = found.is_some();
            }
            let end = known.frames.len() as u32;
            let range = is_known.then_some(FrameRange { start, end });
            known.locations.insert(location.id, range);
            stacks.note(location.id, number);
        }
        Ok(known)
    }

    /// The nodes of a sample's stack and thread, if all of both is known.
    pub(super) fn find(
        &mut self,
        builder: &Builder<'_>,
        sample: &proto::Sample,
        labels: &SampleLabels<'t>,
    ) -> Option<SampleStack> {
        let [top, thread] = self.top(builder, labels)?;
        self.stack.clear();
        for id in sample.location_id.iter().rev() {
            let FrameRange { start, end } = (*self.locations.get(*id)?)?;
            let frames = &self.frames[start as usize..end as usize];
            self.stack.extend_from_slice(frames);
        }
        if self.stack.len() > FRAMES_MAX {
            return None;
        }
        let common = self.last_stack.keep(top, &self.stack);
        let mut node = self.last_stack.node().unwrap_or(top);
        for frame in &self.stack[common..] {
            node = self.opened.one().child(node, *frame)?;
            self.last_stack.push(*frame, node);
        }
        Some(SampleStack {
            node,
            thread,
            is_known: true,
        })
    }

    fn top(&mut self, builder: &Builder<'_>, labels: &SampleLabels<'t>) -> Option<[NodeId; 2]> {
        let SampleLabels {
            task,
            phase,
            thread,
            ..
        } = *labels;
        let is_last =
            |last: &&KnownTop<'t>| (last.task, last.phase, last.thread) == (task, phase, thread);
        if let Some(last) = self.last_top.as_ref().filter(is_last) {
            // Counted, so that tables are not open for any number of samples.
            self.opened.one();
            return last.nodes;
        }
        let nodes = self.look_up_top(builder, labels);
        self.last_top = Some(KnownTop {
            task,
            phase,
            thread,
            nodes,
        });
        nodes
    }

    fn look_up_top(
        &mut self,
        builder: &Builder<'_>,
        labels: &SampleLabels<'t>,
    ) -> Option<[NodeId; 2]> {
        let task = self
            .opened
            .label_frame(&task_frame(builder.options, labels.task))?;
        let mut top = self.opened.one().child(NodeId::ROOT, task)?;
        if let Some(phase) = labels.phase.filter(|phase| !phase.is_empty()) {
            let phase = self.opened.label_frame(&Frame::phase(phase))?;
            top = self.opened.one().child(top, phase)?;
        }
        let thread = Frame::thread(labels.thread.unwrap_or_default(), 0);
        let thread = self.opened.label_frame(&thread)?;
        Some([top, self.opened.one().child(top, thread)?])
    }
}

impl Opened<'_> {
    /// The number of a frame of a location. Each text is looked up once.
    fn frame(
        &mut self,
        stacks: &Stacks<'_>,
        names: &mut [Name],
        frame: &NamedFrame<'_>,
    ) -> Option<FrameId> {
        let frame = match frame {
            NamedFrame::Numbered(frame) => frame,
            NamedFrame::Other(frame) => return self.label_frame(frame),
        };
        let mut name = |index: i64| {
            let index = usize::try_from(index).ok().filter(|index| *index > 0);
            let Some(index) = index else {
                return Some(StringId::default());
            };
            let name = names.get_mut(index)?;
            if matches!(name, Name::New) {
                let text = bounded_name(&stacks.tables.texts[index]);
                *name = self.one().name(&text).map_or(Name::Unknown, Name::Known);
            }
            match *name {
                Name::Known(id) => Some(id),
                Name::New | Name::Unknown => None,
            }
        };
        let named = Frame {
            kind: frame.kind,
            function: name(frame.function)?,
            file: name(frame.file)?,
            line: frame.line,
            module: name(frame.module)?,
            build_id: name(frame.build_id)?,
            offset: frame.offset,
            inlined: frame.inlined,
        };
        self.one().frame(&named)
    }

    /// The number of a frame with texts of its own. One with an invalid build id is unknown.
    fn label_frame(&mut self, frame: &Frame<&str>) -> Option<FrameId> {
        if profiler_core::valid_build_id(frame.build_id) != frame.build_id {
            return None;
        }
        let mut is_known = true;
        let named = frame.map(|text| {
            let name = match text {
                "" => Some(StringId::default()),
                text => self.one().name(&bounded_name(text)),
            };
            is_known &= name.is_some();
            name.unwrap_or_default()
        });
        if is_known {
            self.one().frame(&named)
        } else {
            None
        }
    }
}
