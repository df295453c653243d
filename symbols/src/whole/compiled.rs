//! Compiled functions with everything that is inlined into them, read once for all their addresses.

use gimli::{Error, Reader, Result, UnitOffset, UnitRef};

use crate::functions::{Attributes, INLINED_MAX, Location, RANGES_MAX, line_number, skip_below};
use crate::lines::file_name;
use crate::origins::{Origins, Reached};

/// Most functions inlined into one compiled function, at all its addresses together.
const INLINED_IN_FUNCTION_MAX: usize = 1 << 18;

/// A compiled function.
#[derive(Debug)]
pub(super) struct CompiledFunction {
    location: Location,
    /// In the order of the debug information, so callers come first.
    inlined: Vec<Inlined>,
    /// Numbers of those inlined into the function itself.
    children: Vec<usize>,
}

#[derive(Debug)]
struct Inlined {
    ranges: Vec<(u64, u64)>,
    location: Location,
    call_file: String,
    call_line: u32,
    children: Vec<usize>,
}

/// A function that contains the ones that follow.
struct Open {
    depth: isize,
    /// `None`: the compiled function.
    number: Option<usize>,
}

impl CompiledFunction {
    pub(super) fn read<R: Reader<Offset = usize>>(
        unit: UnitRef<'_, R>,
        offset: UnitOffset,
        origins: &mut Origins<R>,
    ) -> Result<CompiledFunction> {
        let mut entries = unit.entries_raw(Some(offset))?;
        let depth = entries.next_depth();
        let Some(abbreviation) = entries.read_abbreviation()? else {
            return Err(Error::NoEntryAtGivenOffset);
        };
        let attributes = Attributes::read(&mut entries, abbreviation)?;
        let location = attributes.names(unit, origins, Reached::DIRECTLY)?;
        let mut function = CompiledFunction {
            location,
            inlined: Vec::new(),
            children: Vec::new(),
        };
        let mut open = vec![Open {
            depth,
            number: None,
        }];
        while !entries.is_empty() && entries.next_depth() > depth {
            let inner_depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            // Blocks count too: what follows them at their depth is not in an earlier function.
            open.retain(|outer| outer.depth < inner_depth);
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    entries.skip_attributes(abbreviation.attributes())?;
                    skip_below(&mut entries, inner_depth)?;
                }
                gimli::DW_TAG_inlined_subroutine => {
                    let attributes = Attributes::read(&mut entries, abbreviation)?;
                    let inlined = Inlined::read(unit, &attributes, origins)?;
                    if open.len() >= INLINED_MAX
                        || function.inlined.len() == INLINED_IN_FUNCTION_MAX
                    {
                        skip_below(&mut entries, inner_depth)?;
                        continue;
                    }
                    let number = function.inlined.len();
                    let outer = open.last().and_then(|outer| outer.number);
                    match outer {
                        Some(outer) => function.inlined[outer].children.push(number),
                        None => function.children.push(number),
                    }
                    function.inlined.push(inlined);
                    open.push(Open {
                        depth: inner_depth,
                        number: Some(number),
                    });
                }
                _ => entries.skip_attributes(abbreviation.attributes())?,
            }
        }
        Ok(function)
    }

    /// Addresses at which other functions begin to be inlined.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = u64> {
        self.inlined
            .iter()
            .flat_map(|inlined| &inlined.ranges)
            .flat_map(|range| [range.0, range.1])
    }

    /// The innermost function at an address; `None` if it is the compiled one.
    pub(super) fn innermost_at(&self, address: u64) -> Option<usize> {
        let mut children = &self.children;
        let mut innermost = None;
        while let Some(number) = children
            .iter()
            .copied()
            .find(|number| self.inlined[*number].contains(address))
        {
            innermost = Some(number);
            children = &self.inlined[number].children;
        }
        innermost
    }

    /// The functions at an address, outermost first, without the innermost one's file and line.
    pub(super) fn locations_at(&self, address: u64) -> Vec<Location> {
        let mut locations = vec![self.location.clone()];
        let mut children = &self.children;
        while let Some(number) = children
            .iter()
            .copied()
            .find(|number| self.inlined[*number].contains(address))
        {
            let inlined = &self.inlined[number];
            if let Some(caller) = locations.last_mut() {
                caller.line = inlined.call_line;
                caller.file.clone_from(&inlined.call_file);
            }
            locations.push(inlined.location.clone());
            children = &inlined.children;
        }
        locations
    }
}

impl Inlined {
    fn read<R: Reader<Offset = usize>>(
        unit: UnitRef<'_, R>,
        attributes: &Attributes<R>,
        origins: &mut Origins<R>,
    ) -> Result<Inlined> {
        let mut ranges = Vec::new();
        attributes.ranges(unit, |start, end| {
            if start < end && ranges.len() < RANGES_MAX {
                ranges.push((start, end));
            }
        })?;
        let call_file = attributes
            .call_file
            .map(|file| file_name(unit, file))
            .transpose()?;
        Ok(Inlined {
            ranges,
            location: attributes.names(unit, origins, Reached::DIRECTLY)?,
            call_file: call_file.unwrap_or_default(),
            call_line: line_number(attributes.call_line),
            children: Vec::new(),
        })
    }

    fn contains(&self, address: u64) -> bool {
        self.ranges
            .iter()
            .any(|range| (range.0..range.1).contains(&address))
    }
}
