//! The frames of a profile's locations.

use flamegraph::messages::pprof::{self as proto, NO_STACK};
use profiler_core::{CodePlace, Frame, FrameId, FrameKind, StringId, valid_build_id};

use super::super::builder::{Builder, frame_of_label, may_be_label};
use super::super::error::ImportError;
use super::Tables;
use super::numbered::Numbered;

/// The frames of each location, outermost first.
pub(super) struct Stacks<'t> {
    pub(super) tables: &'t Tables<'t>,
    locations: Numbered<Interned>,
    /// Of the locations whose names were copied.
    frames: Vec<FrameId>,
    /// By index of a text: its number among the names.
    names: Vec<Option<StringId>>,
}

/// A location.
#[derive(Clone, Copy)]
struct Interned {
    /// Its index in the table, plus 1.
    number: u32,
    /// Its frames, once its names are copied.
    frames: Option<[u32; 2]>,
}

/// A frame as the message has it.
pub(super) enum NamedFrame<'t> {
    /// With indexes of texts, and a valid build id.
    Numbered(Frame<i64>),
    /// One that stands for something else than its name says, or may.
    Other(Frame<&'t str>),
}

/// The module of a location.
pub(super) struct Module<'t> {
    mapping: Option<&'t proto::Mapping>,
    name: &'t str,
    build_id: &'t str,
}

impl<'t> Stacks<'t> {
    /// Without any location.
    pub(super) fn new(tables: &'t Tables<'t>) -> Stacks<'t> {
        Stacks {
            tables,
            locations: Numbered::default(),
            frames: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Adds the location with that number in the table, whose names are copied when they are needed.
    pub(super) fn note(&mut self, id: u64, number: usize) {
        let location = Interned {
            number: u32::try_from(number).expect("tables are limited"),
            frames: None,
        };
        self.locations.insert(id, location);
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.locations.get(id).is_some()
    }

    /// Adds all locations, and copies their names.
    pub(super) fn intern_all(&mut self, builder: &mut Builder<'_>) -> Result<(), ImportError> {
        let mut location = proto::Location::default();
        self.frames.reserve(self.tables.locations.len());
        for (number, bytes) in (1..).zip(&self.tables.locations) {
            builder.decode(&mut location, "location", number, bytes)?;
            let frames = self.intern(&location, builder)?;
            self.note(location.id, number);
            self.note_interned(location.id, frames);
        }
        Ok(())
    }

    /// The frames of a location, whose names are copied.
    pub(super) fn interned(
        &mut self,
        id: u64,
        builder: &mut Builder<'_>,
    ) -> Result<&[FrameId], ImportError> {
        let Some(&Interned { number, frames }) = self.locations.get(id) else {
            return Ok(&[]);
        };
        let [start, end] = match frames {
            Some(frames) => frames,
            None => {
                let number = number as usize;
                let bytes = self.tables.locations[number - 1];
                let location = builder.decoded("location", number, bytes)?;
                let frames = self.intern(&location, builder)?;
                self.note_interned(id, frames);
                frames
            }
        };
        Ok(&self.frames[start as usize..end as usize])
    }

    fn note_interned(&mut self, id: u64, frames: [u32; 2]) {
        if let Some(location) = self.locations.get_mut(id) {
            location.frames = Some(frames);
        }
    }

    /// Copies the names of a location. Returns where its frames are.
    fn intern(
        &mut self,
        location: &proto::Location,
        builder: &mut Builder<'_>,
    ) -> Result<[u32; 2], ImportError> {
        let module = self.module(builder, location)?;
        let start = self.frames.len() as u32;
        for at in frame_indexes(location) {
            let Some(frame) = self.frame(builder, location, &module, at)? else {
                continue;
            };
            let id = match frame {
                NamedFrame::Numbered(frame) => {
                    let named = Frame {
                        kind: frame.kind,
                        function: self.name(builder, frame.function)?,
                        file: self.name(builder, frame.file)?,
                        line: frame.line,
                        module: self.name(builder, frame.module)?,
                        build_id: self.name(builder, frame.build_id)?,
                        offset: frame.offset,
                        inlined: frame.inlined,
                    };
                    builder.named_frame(named)?
                }
                NamedFrame::Other(frame) => builder.frame(&frame)?,
            };
            self.frames.push(id);
        }
        Ok([start, self.frames.len() as u32])
    }

    /// One of the [frames](frame_indexes) of a location. `None` for our own mark of time without a stack.
    pub(super) fn frame(
        &self,
        builder: &mut Builder<'_>,
        location: &proto::Location,
        module: &Module<'t>,
        at: usize,
    ) -> Result<Option<NamedFrame<'t>>, ImportError> {
        let Module {
            mapping,
            name: module,
            build_id,
        } = *module;
        let Some(line) = location.line.get(at) else {
            return Ok(Some(NamedFrame::Other(Frame {
                kind: FrameKind::Unresolved,
                module,
                build_id,
                offset: place(builder, location.address, mapping).number(),
                ..Frame::function("", "", 0)
            })));
        };
        let function = self.tables.functions.get(line.function_id).ok_or_else(|| {
            let [location, function] = [location.id, line.function_id];
            builder.invalid(format!(
                "location {location} names function {function}, which does not exist"
            ))
        })?;
        let name = self.tables.text(builder, function.name)?;
        // Our own exports have time at a task itself there.
        if name == NO_STACK && !builder.options.has_own_names {
            return Ok(None);
        }
        let file = self.tables.text(builder, function.filename)?;
        let frame = Frame {
            module,
            build_id,
            inlined: at + 1 < location.line.len(),
            ..Frame::function(name, file, u32::try_from(line.line).unwrap_or(0))
        };
        if may_be_label(name) || valid_build_id(build_id) != build_id {
            return Ok(Some(NamedFrame::Other(frame_of_label(
                frame,
                builder.options,
            ))));
        }
        Ok(Some(NamedFrame::Numbered(Frame {
            kind: frame.kind,
            function: function.name,
            file: function.filename,
            line: frame.line,
            module: mapping.map_or(0, |mapping| mapping.filename),
            build_id: mapping.map_or(0, |mapping| mapping.build_id),
            offset: frame.offset,
            inlined: frame.inlined,
        })))
    }

    pub(super) fn module(
        &self,
        builder: &Builder<'_>,
        location: &proto::Location,
    ) -> Result<Module<'t>, ImportError> {
        let proto::Location { id, mapping_id, .. } = location;
        let mapping = self.tables.mappings.get(*mapping_id);
        if mapping.is_none() && *mapping_id != 0 {
            return Err(builder.invalid(format!(
                "location {id} names mapping {mapping_id}, which does not exist"
            )));
        }
        let text = |index| self.tables.text(builder, index);
        Ok(Module {
            mapping,
            name: text(mapping.map_or(0, |mapping| mapping.filename))?,
            build_id: text(mapping.map_or(0, |mapping| mapping.build_id))?,
        })
    }

    /// The number of a text of the file among the names. Each text is looked up once.
    fn name(&mut self, builder: &mut Builder<'_>, index: i64) -> Result<StringId, ImportError> {
        let text = self.tables.text(builder, index)?;
        // Most profiles need none of their names.
        if self.names.is_empty() {
            self.names.resize(self.tables.texts.len(), None);
        }
        let known = usize::try_from(index)
            .ok()
            .and_then(|index| self.names.get_mut(index));
        Ok(match known {
            Some(known) => *known.get_or_insert_with(|| builder.name(text)),
            // Only the empty text is in an empty table.
            None => builder.name(text),
        })
    }
}

/// The frames of a location, outermost first: its lines, or one without a line.
pub(super) fn frame_indexes(location: &proto::Location) -> impl Iterator<Item = usize> + use<> {
    (0..location.line.len().max(1)).rev()
}

/// Where an address is in its module. Address 0, which has no name, if the mapping does not contain it.
fn place(builder: &mut Builder<'_>, address: u64, mapping: Option<&proto::Mapping>) -> CodePlace {
    const KERNEL_MIN: u64 = 1 << 63;
    let Some(&proto::Mapping {
        memory_start,
        memory_limit,
        file_offset,
        ..
    }) = mapping
    else {
        return CodePlace::Address(address);
    };
    // A mapping of all addresses says that they are those of the file already; `go tool pprof` reads it so, too.
    let is_whole = memory_start == 0 && file_offset == 0 && matches!(memory_limit, 0 | u64::MAX);
    let is_within = address >= memory_start && (address < memory_limit || memory_limit == 0);
    let offset = address.wrapping_sub(memory_start).wrapping_add(file_offset);
    if is_whole {
        CodePlace::Address(address)
    } else if is_within && offset >= KERNEL_MIN {
        // Mappings of the kernel have its address in place of an offset.
        CodePlace::Address(offset)
    } else if is_within {
        CodePlace::FileOffset(offset)
    } else {
        builder.note("addresses outside of their mapping stay without names");
        CodePlace::Address(0)
    }
}
