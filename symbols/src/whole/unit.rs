//! One unit, while its addresses are named.

use gimli::{Reader, Result, UnitOffset, UnitRef};
use rustc_hash::FxHashMap;

use super::compiled::CompiledFunction;
use crate::debug_info::{CodeRange, Locations, UnitTables, is_rust, range_of};
use crate::functions::Location;
use crate::lines::{LineStart, LineTable, file_name};
use crate::origins::Origins;

/// The line of a frame whose line is that of each address.
pub const LINE_OF_ADDRESS: u32 = u32::MAX;

/// The key and the line of an address.
#[derive(Clone, Copy, Debug)]
pub struct AddressInfo {
    /// Equal where the functions are equal.
    pub key: FunctionsKey,
    /// The line; 0 if there is none.
    pub line: u32,
}

/// Key of the functions at an address: all that they depend on, apart from the line of the innermost one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FunctionsKey {
    /// The compiled function's entry.
    function: Option<u32>,
    innermost: Option<usize>,
    /// The file of the line, by index.
    file: Option<u64>,
}

/// A unit with all its functions and lines.
pub struct WholeUnit<'u, R: Reader<Offset = usize>> {
    unit: UnitRef<'u, R>,
    tables: UnitTables,
    functions: FxHashMap<u32, Option<CompiledFunction>>,
    lines: FxHashMap<u32, Vec<LineStart>>,
    rust: bool,
}

impl<'u, R: Reader<Offset = usize>> WholeUnit<'u, R> {
    /// Reads the unit. A damaged function costs its own names.
    ///
    /// # Errors
    /// If its entries are damaged.
    pub fn read(unit: UnitRef<'u, R>, origins: &mut Origins<R>) -> Result<WholeUnit<'u, R>> {
        let tables = UnitTables::read(unit)?;
        let mut functions = FxHashMap::default();
        for function in &tables.functions {
            let offset = UnitOffset(function.target as usize);
            functions
                .entry(function.target)
                .or_insert_with(|| CompiledFunction::read(unit, offset, origins).ok());
        }
        let mut lines = FxHashMap::default();
        for sequence in tables.lines.sequences() {
            lines
                .entry(sequence.target)
                .or_insert_with(|| LineTable::starts_of(unit, *sequence).unwrap_or_default());
        }
        Ok(WholeUnit {
            unit,
            tables,
            functions,
            lines,
            rust: is_rust(unit),
        })
    }

    /// Every address at which something may begin, sorted.
    #[must_use]
    pub fn boundaries(&self) -> Vec<u32> {
        let mut boundaries = edges(&self.tables.functions);
        boundaries.extend(edges(self.tables.lines.sequences()));
        let compiled = self
            .functions
            .values()
            .flatten()
            .flat_map(CompiledFunction::boundaries);
        let lines = self.lines.values().flatten().map(|line| line.address);
        boundaries.extend(
            compiled
                .chain(lines)
                .filter_map(|address| u32::try_from(address).ok()),
        );
        boundaries.sort_unstable();
        boundaries.dedup();
        boundaries
    }

    /// Returns the key and the line of an address.
    #[must_use]
    pub fn info_at(&self, address: u32) -> AddressInfo {
        let line = self.line_at(address);
        let function = range_of(&self.tables.functions, address.into());
        let compiled = function.and_then(|function| self.functions.get(&function.target));
        let key = FunctionsKey {
            function: function.map(|function| function.target),
            innermost: compiled
                .and_then(|compiled| compiled.as_ref()?.innermost_at(address.into())),
            file: line.map(|line| line.file),
        };
        AddressInfo {
            key,
            line: line.map_or(0, |line| line.line),
        }
    }

    fn line_at(&self, address: u32) -> Option<LineStart> {
        let sequence = range_of(self.tables.lines.sequences(), address.into())?;
        let starts = self.lines.get(&sequence.target)?;
        let after = starts.partition_point(|start| start.address <= u64::from(address));
        starts.get(after.checked_sub(1)?).copied()
    }

    /// The functions at an address, with [`LINE_OF_ADDRESS`] as the line of the innermost one if it
    /// has one.
    #[must_use]
    pub fn locations_at(&self, address: u32, key: FunctionsKey) -> Locations {
        let mut functions = match key.function.map(|function| self.functions.get(&function)) {
            Some(Some(Some(compiled))) => compiled.locations_at(address.into()),
            // Damaged.
            Some(_) => return Locations::default(),
            None => vec![Location::default()],
        };
        let file = key.file.and_then(|file| file_name(self.unit, file).ok());
        if let (Some(innermost), Some(file)) = (functions.last_mut(), file) {
            innermost.file = file;
            innermost.line = LINE_OF_ADDRESS;
        }
        functions.iter_mut().for_each(Location::move_home);
        Locations {
            functions,
            rust: self.rust,
        }
    }
}

fn edges(ranges: &[CodeRange]) -> Vec<u32> {
    let both = ranges
        .iter()
        .flat_map(|r| [r.start, r.start.saturating_add(r.bytes)]);
    both.collect()
}
