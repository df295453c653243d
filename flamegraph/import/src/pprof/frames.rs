//! The frames of a profile's locations.

use std::ops::Range;

use flamegraph::messages::pprof::{self as proto, NO_STACK};
use profiler_core::{CodePlace, Frame, FrameId, FrameKind, StringId, valid_build_id};

use super::super::builder::{Builder, frame_of_label, may_be_label};
use super::super::error::ImportError;
use super::Tables;
use super::numbered::Numbered;

/// The frames of each location, outermost first.
pub(super) struct Stacks {
    frames: Vec<FrameId>,
    locations: Numbered<Range<usize>>,
}

impl Stacks {
    pub(super) fn read(
        tables: &Tables<'_>,
        builder: &mut Builder<'_>,
    ) -> Result<Stacks, ImportError> {
        let mut reader = Reader {
            tables,
            names: vec![None; tables.texts.len()],
            frames: Vec::with_capacity(tables.locations.len()),
        };
        let mut locations = Numbered::default();
        let mut location = proto::Location::default();
        for (number, bytes) in (1..).zip(&tables.locations) {
            builder.decode(&mut location, "location", number, bytes)?;
            let start = reader.frames.len();
            reader.location(builder, &location)?;
            locations.insert(location.id, start..reader.frames.len());
        }
        Ok(Stacks {
            frames: reader.frames,
            locations,
        })
    }

    pub(super) fn frames(&self, location: u64) -> Option<&[FrameId]> {
        let range = self.locations.get(location)?;
        Some(&self.frames[range.clone()])
    }
}

struct Reader<'t> {
    tables: &'t Tables<'t>,
    /// By index of a text: its number among the names.
    names: Vec<Option<StringId>>,
    frames: Vec<FrameId>,
}

/// The module of a location.
struct Module<'t> {
    mapping: Option<&'t proto::Mapping>,
    name: &'t str,
    build_id: &'t str,
}

impl<'t> Reader<'t> {
    fn location(
        &mut self,
        builder: &mut Builder<'_>,
        location: &proto::Location,
    ) -> Result<(), ImportError> {
        let module = self.module(builder, location)?;
        for (at, line) in location.line.iter().enumerate().rev() {
            let function = self.tables.functions.get(line.function_id).ok_or_else(|| {
                let [location, function] = [location.id, line.function_id];
                builder.invalid(format!(
                    "location {location} names function {function}, which does not exist"
                ))
            })?;
            let name = self.tables.text(builder, function.name)?;
            // Our own exports have time at a task itself there.
            if name == NO_STACK {
                continue;
            }
            let file = self.tables.text(builder, function.filename)?;
            let line_number = u32::try_from(line.line).unwrap_or(0);
            let frame = Frame {
                module: module.name,
                build_id: module.build_id,
                inlined: at + 1 < location.line.len(),
                ..Frame::function(name, file, line_number)
            };
            let is_plain =
                !may_be_label(name) && valid_build_id(module.build_id) == module.build_id;
            let id = if is_plain {
                let mapping = module.mapping;
                let frame = Frame {
                    kind: frame.kind,
                    function: self.name(builder, function.name)?,
                    file: self.name(builder, function.filename)?,
                    line: frame.line,
                    module: self.name(builder, mapping.map_or(0, |mapping| mapping.filename))?,
                    build_id: self.name(builder, mapping.map_or(0, |mapping| mapping.build_id))?,
                    offset: frame.offset,
                    inlined: frame.inlined,
                };
                builder.named_frame(frame)?
            } else {
                builder.frame(&frame_of_label(frame))?
            };
            self.frames.push(id);
        }
        if location.line.is_empty() {
            let offset = place(builder, location.address, module.mapping).number();
            let frame = Frame {
                kind: FrameKind::Unresolved,
                module: module.name,
                build_id: module.build_id,
                offset,
                ..Frame::function("", "", 0)
            };
            self.frames.push(builder.frame(&frame)?);
        }
        Ok(())
    }

    fn module(
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
