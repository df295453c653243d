//! Debug information of one file: which functions are inlined at an address, and which lines it is
//! compiled from. One unit is parsed at a time; what stays are tables of where functions and line
//! sequences start, in 12 bytes each, and of rows in long sequences, in 24.

use gimli::{
    AttributeValue, DebugInfoOffset, DebugTypesOffset, Dwarf, Reader, Result, Unit, UnitOffset,
    UnitRef, UnitSectionOffset,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::functions::{Attributes, Location, RANGES_MAX, functions_at};
use crate::lines::{Line, LineTable};

/// Most ranges of all units: 48 MB, a hundred times what programs have.
const UNIT_RANGES_MAX: usize = 4 << 20;
/// Most units of a file.
pub const UNITS_MAX: usize = 1 << 18;
/// Larger units are not parsed.
pub const UNIT_BYTES_MAX: usize = 64 << 20;
/// Most entries of the tables of all units; beyond, they start over.
const INDEXED_MAX: usize = 1 << 17;
/// Ranges before an address that are tried, because ranges may overlap.
pub(crate) const TRIED_MAX: usize = 8;

/// The sections of a file, as `gimli` reads them.
pub type Sections<R> = Dwarf<R>;

/// Addresses of code, and what they lead to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CodeRange {
    pub(crate) start: u32,
    pub(crate) bytes: u32,
    /// An offset in a section.
    pub(crate) target: u32,
}

impl CodeRange {
    /// The range from `start` to `end`; `None` if it is empty or beyond what is indexed. Linkers
    /// move the ranges of removed code to address 0 or 1, where the file's header is.
    pub(crate) fn new(start: u64, end: u64, target: u64) -> Option<CodeRange> {
        let bytes = end
            .checked_sub(start)
            .filter(|bytes| *bytes > 0 && start > 1)?;
        Some(CodeRange {
            start: u32::try_from(start).ok()?,
            bytes: u32::try_from(bytes).ok()?,
            target: u32::try_from(target).ok()?,
        })
    }
}

/// The smallest of the ranges that contain `address`, of those that start shortly before it.
pub(crate) fn range_of(ranges: &[CodeRange], address: u64) -> Option<CodeRange> {
    let address = u32::try_from(address).ok()?;
    let after = ranges.partition_point(|range| range.start <= address);
    let near = ranges[..after].iter().rev().take(TRIED_MAX);
    near.filter(|range| address - range.start < range.bytes)
        .min_by_key(|range| range.bytes)
        .copied()
}

/// Where the debug information about code is.
#[derive(Debug)]
pub struct DebugInfo {
    /// By address: the unit's offset.
    pub(crate) units: Vec<CodeRange>,
    /// By the unit's offset.
    indexed: FxHashMap<u32, UnitTables>,
    /// Entries of all `indexed`.
    indexed_entries: usize,
}

/// Where the functions and line sequences of one unit are.
#[derive(Debug)]
pub(crate) struct UnitTables {
    /// Offsets of entries in the unit.
    pub(crate) functions: Vec<CodeRange>,
    pub(crate) lines: LineTable,
}

/// The functions at an address: the compiled one, then those inlined into it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Locations {
    pub(crate) functions: Vec<Location>,
    /// Whether the compiler was Rust's.
    pub(crate) rust: bool,
}

/// The last unit that was parsed, for the next address in it.
#[derive(Debug)]
pub struct LastUnit<R: Reader<Offset = usize>>(Option<(u32, Unit<R>)>);

impl<R: Reader<Offset = usize>> Default for LastUnit<R> {
    fn default() -> Self {
        LastUnit(None)
    }
}

/// Where a unit begins in its section.
pub(crate) fn unit_offset<R: Reader<Offset = usize>>(header: &gimli::UnitHeader<R>) -> usize {
    match header.offset() {
        UnitSectionOffset::DebugInfoOffset(DebugInfoOffset(offset)) => offset,
        UnitSectionOffset::DebugTypesOffset(DebugTypesOffset(offset)) => offset,
    }
}

impl DebugInfo {
    /// Knows nothing.
    #[must_use]
    pub fn empty() -> DebugInfo {
        DebugInfo {
            units: Vec::new(),
            indexed: FxHashMap::default(),
            indexed_entries: 0,
        }
    }

    /// Finds the addresses of all units.
    #[must_use]
    pub fn read<R: Reader<Offset = usize>>(sections: &Sections<R>) -> DebugInfo {
        let mut units = Vec::new();
        let known = add_indexed_ranges(sections, &mut units);
        let mut headers = sections.units();
        for _ in 0..UNITS_MAX {
            // Beyond a damaged header nothing can be found.
            let Ok(Some(header)) = headers.next() else {
                break;
            };
            let offset = unit_offset(&header);
            if known.contains(&offset) || units.len() >= UNIT_RANGES_MAX {
                continue;
            }
            // A damaged unit is only missing itself.
            let _ = add_unit_ranges(sections, header, offset as u64, &mut units);
        }
        units.sort_unstable();
        units.shrink_to_fit();
        DebugInfo {
            units,
            ..DebugInfo::empty()
        }
    }

    /// Whether it knows no code.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The functions at `address`, outermost first; empty if there is no information about it.
    ///
    /// # Errors
    /// If the information about it is damaged.
    pub fn locate<R: Reader<Offset = usize>>(
        &mut self,
        sections: &Sections<R>,
        last: &mut LastUnit<R>,
        address: u64,
    ) -> Result<Locations> {
        let Some(range) = range_of(&self.units, address) else {
            return Ok(Locations::default());
        };
        if last
            .0
            .as_ref()
            .is_none_or(|(offset, _)| *offset != range.target)
        {
            let header = sections
                .debug_info
                .header_from_offset(DebugInfoOffset(range.target as usize))?;
            if header.unit_length() > UNIT_BYTES_MAX {
                return Ok(Locations::default());
            }
            last.0 = Some((range.target, sections.unit(header)?));
        }
        let Some((offset, unit)) = &last.0 else {
            return Ok(Locations::default());
        };
        let unit = UnitRef::new(sections, unit);
        if !self.indexed.contains_key(offset) {
            let tables = UnitTables::read(unit)?;
            let entries = tables.functions.len() + tables.lines.len();
            if self.indexed_entries + entries > INDEXED_MAX {
                self.indexed.clear();
                self.indexed_entries = 0;
            }
            self.indexed_entries += entries;
            self.indexed.insert(*offset, tables);
        }
        let tables = &self.indexed[offset];
        let function = range_of(&tables.functions, address);
        let mut functions = match function {
            Some(function) => functions_at(unit, UnitOffset(function.target as usize), address)?,
            None => vec![Location::default()],
        };
        let line = tables.lines.line_of(unit, address).ok().flatten();
        if let (Some(innermost), Some(line)) = (functions.last_mut(), line) {
            let Line { file, line } = line;
            innermost.file = file;
            innermost.line = line;
        }
        functions.iter_mut().for_each(Location::move_home);
        Ok(Locations {
            functions,
            rust: is_rust(unit),
        })
    }
}

/// Adds the ranges that a compiler lists for the linker, and returns the units that have some.
fn add_indexed_ranges<R: Reader<Offset = usize>>(
    sections: &Sections<R>,
    units: &mut Vec<CodeRange>,
) -> FxHashSet<usize> {
    let mut known = FxHashSet::default();
    let mut headers = sections.debug_aranges.headers();
    while let Ok(Some(header)) = headers.next() {
        let DebugInfoOffset(offset) = header.debug_info_offset();
        let mut entries = header.entries();
        for _ in 0..UNIT_RANGES_MAX {
            match entries.next() {
                Ok(Some(entry)) => {
                    let end = entry.address().saturating_add(entry.length());
                    units.extend(CodeRange::new(entry.address(), end, offset as u64));
                    known.insert(offset);
                }
                Ok(None) => break,
                // An entry that overflows is damaged alone.
                Err(_) => {}
            }
        }
        if units.len() >= UNIT_RANGES_MAX {
            break;
        }
    }
    known
}

fn add_unit_ranges<R: Reader<Offset = usize>>(
    sections: &Sections<R>,
    header: gimli::UnitHeader<R>,
    offset: u64,
    units: &mut Vec<CodeRange>,
) -> Result<()> {
    if !matches!(
        header.type_(),
        gimli::UnitType::Compilation | gimli::UnitType::Skeleton(_)
    ) {
        return Ok(());
    }
    let unit = sections.unit(header)?;
    let mut ranges = sections.unit_ranges(&unit)?;
    for _ in 0..RANGES_MAX * 10 {
        let Some(range) = ranges.next()? else { break };
        units.extend(CodeRange::new(range.begin, range.end, offset));
    }
    Ok(())
}

impl UnitTables {
    pub(crate) fn read<R: Reader<Offset = usize>>(unit: UnitRef<'_, R>) -> Result<UnitTables> {
        let mut functions = Vec::new();
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            if abbreviation.tag() != gimli::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let attributes = Attributes::read(&mut entries, abbreviation)?;
            attributes.ranges(unit, |start, end| {
                functions.extend(CodeRange::new(start, end, offset.0 as u64));
            })?;
        }
        functions.sort_unstable();
        functions.shrink_to_fit();
        // Without lines there are still names.
        let lines = LineTable::read(unit).unwrap_or_default();
        Ok(UnitTables { functions, lines })
    }
}

/// Whether Rust's compiler wrote the unit.
pub(crate) fn is_rust<R: Reader<Offset = usize>>(unit: UnitRef<'_, R>) -> bool {
    let language = || -> Result<bool> {
        let mut entries = unit.entries_raw(None)?;
        let Some(abbreviation) = entries.read_abbreviation()? else {
            return Ok(false);
        };
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            if attribute.name() == gimli::DW_AT_language {
                return Ok(matches!(
                    attribute.value(),
                    AttributeValue::Language(gimli::DW_LANG_Rust)
                ));
            }
        }
        Ok(false)
    };
    language().unwrap_or(false)
}
