//! Entries of functions in a unit of debug information: their names, ranges, and what is inlined.

use gimli::{Abbreviation, AttributeValue, EntriesRaw, Error, Reader, Result, UnitOffset, UnitRef};

use crate::lines::{Line, file_name};
use crate::origins::{Origins, Reached};
use crate::text;

/// Most inlined functions at one address; beyond, the innermost are omitted.
pub(crate) const INLINED_MAX: usize = 64;
/// Most ranges of one entry.
pub(crate) const RANGES_MAX: usize = 10_000;

pub(crate) type Entries<'u, R> = EntriesRaw<'u, 'u, R>;
type Attribute<R> = AttributeValue<R>;

/// One function at an address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Location {
    /// Its name for the linker; empty if the debug information has none.
    pub(crate) linkage_name: String,
    /// Its name in the source, without a path.
    pub(crate) name: String,
    /// Where the address is.
    pub(crate) file: String,
    pub(crate) line: u32,
    /// Where the function is declared; `None` if not known.
    pub(crate) declared: Option<Line>,
}

impl Location {
    /// Puts code of macros from other files where the function is: a function has one file.
    pub(crate) fn move_home(&mut self) {
        if let Some(declared) = self.declared.take_if(|declared| declared.file != self.file) {
            self.file = declared.file;
            self.line = declared.line;
        }
    }
}

fn file_index<R: Reader<Offset = usize>>(value: &Attribute<R>) -> Option<u64> {
    match value {
        AttributeValue::FileIndex(index) => Some(*index),
        other => other.udata_value(),
    }
}

/// A line number as frames have it; 0 if there is none.
pub(crate) fn line_number(line: Option<u64>) -> u32 {
    line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0)
}

/// The attributes of a function that matter here.
#[derive(Debug)]
pub(crate) struct Attributes<R: Reader<Offset = usize>> {
    low: Option<Attribute<R>>,
    high: Option<Attribute<R>>,
    ranges: Option<Attribute<R>>,
    name: Option<Attribute<R>>,
    linkage_name: Option<Attribute<R>>,
    origin: Option<Attribute<R>>,
    pub(crate) call_file: Option<u64>,
    pub(crate) call_line: Option<u64>,
    declared_file: Option<u64>,
    declared_line: Option<u64>,
}

impl<R: Reader<Offset = usize>> Default for Attributes<R> {
    fn default() -> Self {
        Attributes {
            low: None,
            high: None,
            ranges: None,
            name: None,
            linkage_name: None,
            origin: None,
            call_file: None,
            call_line: None,
            declared_file: None,
            declared_line: None,
        }
    }
}

impl<R: Reader<Offset = usize>> Attributes<R> {
    pub(crate) fn read(
        entries: &mut Entries<'_, R>,
        abbreviation: &Abbreviation,
    ) -> Result<Attributes<R>> {
        let mut attributes = Attributes::default();
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_low_pc => attributes.low = Some(value),
                gimli::DW_AT_high_pc => attributes.high = Some(value),
                gimli::DW_AT_ranges => attributes.ranges = Some(value),
                gimli::DW_AT_name => attributes.name = Some(value),
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    attributes.linkage_name = Some(value);
                }
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    attributes.origin = Some(value);
                }
                gimli::DW_AT_call_file => attributes.call_file = file_index(&value),
                gimli::DW_AT_call_line => attributes.call_line = value.udata_value(),
                gimli::DW_AT_decl_file => attributes.declared_file = file_index(&value),
                gimli::DW_AT_decl_line => attributes.declared_line = value.udata_value(),
                _ => {}
            }
        }
        Ok(attributes)
    }

    /// Passes each range of addresses to `each`.
    pub(crate) fn ranges(
        &self,
        unit: UnitRef<'_, R>,
        mut each: impl FnMut(u64, u64),
    ) -> Result<()> {
        if let Some(ranges) = &self.ranges {
            let Some(mut ranges) = unit.attr_ranges(ranges.clone())? else {
                return Ok(());
            };
            for _ in 0..RANGES_MAX {
                let Some(range) = ranges.next()? else { break };
                each(range.begin, range.end);
            }
            return Ok(());
        }
        let (Some(low), Some(high)) = (&self.low, &self.high) else {
            return Ok(());
        };
        let Some(start) = unit.attr_address(low.clone())? else {
            return Ok(());
        };
        let end = match high {
            // A length, unless it has the form of an address.
            AttributeValue::Udata(bytes) => start.saturating_add(*bytes),
            other => unit.attr_address(other.clone())?.unwrap_or(start),
        };
        each(start, end);
        Ok(())
    }

    pub(crate) fn contain(&self, unit: UnitRef<'_, R>, address: u64) -> Result<bool> {
        let mut contained = false;
        self.ranges(unit, |start, end| {
            contained |= (start..end).contains(&address)
        })?;
        Ok(contained)
    }

    /// The names of the function, from its origin if it has none of its own.
    pub(crate) fn names(
        &self,
        unit: UnitRef<'_, R>,
        origins: &mut Origins<R>,
        reached: Reached,
    ) -> Result<Location> {
        let optional = |value: &Option<Attribute<R>>| -> Result<String> {
            match value {
                // The shared file was not found. Files and lines of the function are here.
                Some(AttributeValue::DebugStrRefSup(_)) if unit.dwarf.sup().is_none() => {
                    Ok(String::new())
                }
                Some(value) => text(&unit.attr_string(value.clone())?),
                None => Ok(String::new()),
            }
        };
        let mut names = Location {
            linkage_name: optional(&self.linkage_name)?,
            name: optional(&self.name)?,
            ..Location::default()
        };
        if let Some(file) = self.declared_file {
            let file = file_name(unit, file)?;
            names.declared = Some(Line {
                file,
                line: line_number(self.declared_line),
            });
        }
        let is_complete = !names.linkage_name.is_empty() && names.declared.is_some();
        if let Some(origin) = self.origin.as_ref().filter(|_| !is_complete) {
            let from_origin = origins.names(unit, origin, reached)?;
            names.declared = names.declared.or(from_origin.declared);
            if names.linkage_name.is_empty() {
                names.linkage_name = from_origin.linkage_name;
            }
            if names.name.is_empty() {
                names.name = from_origin.name;
            }
        }
        Ok(names)
    }
}

/// The functions at `address` within the compiled function at `offset`: itself, then those inlined.
pub(crate) fn functions_at<R: Reader<Offset = usize>>(
    unit: UnitRef<'_, R>,
    offset: UnitOffset,
    address: u64,
) -> Result<Vec<Location>> {
    let mut entries = unit.entries_raw(Some(offset))?;
    let mut depth = entries.next_depth();
    let Some(abbreviation) = entries.read_abbreviation()? else {
        return Err(Error::NoEntryAtGivenOffset);
    };
    let compiled = Attributes::read(&mut entries, abbreviation)?;
    let mut origins = Origins::of_few();
    let mut functions = vec![compiled.names(unit, &mut origins, Reached::DIRECTLY)?];
    while !entries.is_empty() && entries.next_depth() > depth && functions.len() < INLINED_MAX {
        let inner_depth = entries.next_depth();
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        match abbreviation.tag() {
            gimli::DW_TAG_subprogram => {
                entries.skip_attributes(abbreviation.attributes())?;
                skip_below(&mut entries, inner_depth)?;
            }
            gimli::DW_TAG_inlined_subroutine => {
                let inlined = Attributes::read(&mut entries, abbreviation)?;
                if !inlined.contain(unit, address)? {
                    skip_below(&mut entries, inner_depth)?;
                    continue;
                }
                if let Some(caller) = functions.last_mut() {
                    caller.line = line_number(inlined.call_line);
                    let file = inlined.call_file.map(|file| file_name(unit, file));
                    caller.file = file.transpose()?.unwrap_or_default();
                }
                functions.push(inlined.names(unit, &mut origins, Reached::DIRECTLY)?);
                // Entries after it cannot contain the address as well.
                depth = inner_depth;
            }
            _ => entries.skip_attributes(abbreviation.attributes())?,
        }
    }
    Ok(functions)
}

/// Skips the entries below the one just read, which is at `depth`.
pub(crate) fn skip_below<R: Reader<Offset = usize>>(
    entries: &mut Entries<'_, R>,
    depth: isize,
) -> Result<()> {
    while !entries.is_empty() && entries.next_depth() > depth {
        if let Some(abbreviation) = entries.read_abbreviation()? {
            entries.skip_attributes(abbreviation.attributes())?;
        }
    }
    Ok(())
}
