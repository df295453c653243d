//! Makes a symbol file from an ELF file.
//!
//! The frames at an address only change where a unit, a function, an inlined function, a line or a
//! symbol begins or ends. Each unit is parsed once, and queried at each of these boundaries, by the
//! rules that the agent uses.

use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;

use gimli::{AbbreviationsCacheStrategy, DebugInfoOffset, Dwarf, DwoId, Unit, UnitRef};
use rustc_hash::FxHashMap;
use symbols::whole::{
    FunctionsKey, LINE_OF_ADDRESS, Origins, Piece, UNIT_BYTES_MAX, WholeUnit, pieces,
};
use symbols::{DebugInfo, Locations, SymbolIndex, frames_of};

use super::ReadAt;
use super::builder::{Builder, FrameRow};
use super::elf::{Base, DebugSections, Elf, ElfError, SectionReader, SharedFile, Symbols};
use super::split::{
    Package, SplitFiles, sections_of_unit, split_id, split_sections, unit_of, unit_path,
};
use super::trailer::{Detail, Facts};

/// Why no symbol file was made.
#[derive(Debug, thiserror::Error)]
pub enum ReduceError {
    /// The file cannot be read.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The debug information cannot be read at all.
    #[error("its debug information is damaged: {0}")]
    Dwarf(#[from] gimli::Error),
    /// The package of split debug information cannot be read.
    #[error("its package of split debug information cannot be used: {0}")]
    Package(ElfError),
    /// The package of split debug information has no usable index.
    #[error("its package of split debug information is damaged: {0}")]
    PackageIndex(gimli::Error),
    /// The package of split debug information has none of the file's units.
    #[error(
        "its package of split debug information is of another build: it has none of the {units} units"
    )]
    OtherPackage {
        /// Units of the file.
        units: usize,
    },
    /// The file with shared debug information cannot be read.
    #[error("its shared debug information cannot be used: {0}")]
    Shared(ElfError),
    /// The file with shared debug information is not the one that it was linked to.
    #[error("its shared debug information has the id {found}, expected {expected}")]
    OtherShared {
        /// The id of the file.
        found: String,
        /// The id in the link.
        expected: String,
    },
    /// There is nothing in it.
    #[error("it has no symbols: neither debug information nor a table of symbols")]
    NoSymbols,
    /// A limit.
    #[error("it has too many {what}: at most {max}")]
    TooMany {
        /// Kind of the items.
        what: &'static str,
        /// How many are allowed.
        max: usize,
    },
    /// The symbol file cannot be written.
    #[error("cannot write the symbol file: {0}")]
    Write(io::Error),
}

/// Result of making a symbol file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reduced {
    /// Facts about the symbol file.
    pub facts: Facts,
    /// Units whose debug information is damaged; their functions have the names of symbols.
    pub damaged_units: usize,
    /// Units of split debug information.
    pub split_units: usize,
    /// Those of them that were not found; no functions are inlined in theirs.
    pub missing_units: usize,
    /// The file with shared debug information, if it was not given; functions whose names are only there are
    /// not inlined.
    pub missing_shared: Option<SharedFile>,
}

/// The build id of an ELF file, in hexadecimal.
///
/// # Errors
/// [`ElfError`].
pub fn build_id_of(source: &impl ReadAt) -> Result<String, ElfError> {
    Elf::open(source)?.build_id()
}

/// The file with which an ELF file shares debug information; `None` if it shares none.
///
/// # Errors
/// [`ElfError`].
pub fn shared_file_of(source: &impl ReadAt) -> Result<Option<SharedFile>, ElfError> {
    Elf::open(source)?.shared_file()
}

/// Makes a symbol file from an executable, a library, or a file with their debug information.
///
/// # Errors
/// [`ReduceError`].
pub fn reduce<S: ReadAt>(source: &S, output: &mut impl Write) -> Result<Reduced, ReduceError> {
    reduce_split(source, &SplitFiles::none(), output)
}

/// [`reduce`] for a program whose debug information is split into other files.
///
/// # Errors
/// [`ReduceError`]. A unit's file that is missing, damaged or of another build costs the inlined functions
/// of that unit.
pub fn reduce_split<S: ReadAt>(
    source: &S,
    split: &SplitFiles<'_, S>,
    output: &mut impl Write,
) -> Result<Reduced, ReduceError> {
    let mut elf = Elf::open(source)?;
    let build_id = elf.build_id()?;
    let Base(base) = elf.base;
    let symbols = elf.symbols()?;
    let sections = elf.debug_sections()?;
    let package_sections = split
        .package
        .map(split_sections)
        .transpose()
        .map_err(ReduceError::Package)?;
    let package = package_sections.as_ref().map(Package::open).transpose()?;
    let linked = elf.shared_file()?;
    let shared = match (&linked, split.shared) {
        (Some(linked), Some(shared)) => Some(shared_sections(linked, shared)?),
        _ => None,
    };
    let missing_shared = linked.filter(|_| shared.is_none());
    let mut dwarf = dwarf_of(&sections)?;
    if let Some(shared) = &shared {
        let mut shared = dwarf_of(shared)?;
        shared.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        dwarf.set_sup(shared);
    }
    // Units with common parts have the same tables, and are small.
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let index = symbols
        .as_ref()
        .and_then(SymbolIndex::read)
        .unwrap_or_default();
    let mut symbol_starts: Vec<u32> = index.boundaries().collect();
    symbol_starts.sort_unstable();
    symbol_starts.dedup();
    let mut reducer = Reducer {
        builder: Builder::default(),
        symbols: symbols.as_ref(),
        sections: &sections,
        index,
        symbol_starts,
        symbol_names: FxHashMap::default(),
        split,
        package,
        damaged_units: 0,
        split_units: 0,
        missing_units: 0,
    };
    reducer.add_all(&dwarf)?;
    let Reducer {
        mut builder,
        damaged_units,
        split_units,
        missing_units,
        ..
    } = reducer;
    if split.package.is_some() && split_units > 0 && missing_units == split_units {
        return Err(ReduceError::OtherPackage { units: split_units });
    }
    let detail = match &symbols {
        _ if sections.has_lines() && (missing_units > 0 || missing_shared.is_some()) => {
            Detail::CompiledLines
        }
        _ if sections.has_lines() => Detail::Lines,
        Some(symbols) if !symbols.is_dynamic => Detail::Symbols,
        Some(_) => Detail::DynamicSymbols,
        None => return Err(ReduceError::NoSymbols),
    };
    if builder.is_empty() {
        return Err(ReduceError::NoSymbols);
    }
    builder.add_segments(&elf.segments()?);
    let source_bytes = source.bytes().map_err(ElfError::Io)?;
    let facts = Facts {
        build_id,
        detail,
        source_bytes,
        base,
        ..Facts::default()
    };
    let facts = builder.write(facts, output).map_err(ReduceError::Write)?;
    Ok(Reduced {
        facts,
        damaged_units,
        split_units,
        missing_units,
        missing_shared,
    })
}

struct Reducer<'f, S> {
    builder: Builder,
    symbols: Option<&'f Symbols>,
    sections: &'f DebugSections,
    index: SymbolIndex,
    /// Sorted addresses at which another symbol may begin to count.
    symbol_starts: Vec<u32>,
    /// By start and length of a symbol.
    symbol_names: FxHashMap<(u32, u32), Option<Rc<str>>>,
    split: &'f SplitFiles<'f, S>,
    package: Option<Package<'f>>,
    damaged_units: usize,
    split_units: usize,
    missing_units: usize,
}

/// Key of frames: all that they depend on, apart from the line of the innermost one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FramesKey {
    functions: FunctionsKey,
    symbol: Option<(u32, u32)>,
}

/// Frames of many addresses.
#[derive(Clone, Copy, Debug)]
enum KnownFrames {
    /// The same at every address; 0 for none.
    Fixed(u32),
    /// The innermost frame has the line of the address.
    ByLine(FrameRow),
}

impl<'f, S: ReadAt> Reducer<'f, S> {
    fn add_all(&mut self, dwarf: &Dwarf<SectionReader<'f>>) -> Result<(), ReduceError> {
        let info = DebugInfo::read(dwarf);
        let mut origins = Origins::of_all(dwarf);
        let mut pieces = pieces(&info);
        // Each unit is parsed once.
        pieces.sort_by_key(|piece| (piece.unit, piece.start));
        for of_unit in pieces.chunk_by(|a, b| a.unit == b.unit) {
            let Some(offset) = of_unit[0].unit else {
                self.add_symbols(of_unit)?;
                continue;
            };
            match unit_at(dwarf, offset) {
                Ok(Some(unit)) => {
                    let unit = UnitRef::new(dwarf, &unit);
                    self.add_whole_unit(unit, offset, of_unit, &mut origins)?;
                }
                Ok(None) => self.add_symbols(of_unit)?,
                Err(_) => self.add_damaged(of_unit)?,
            }
        }
        Ok(())
    }

    /// Adds a unit, wherever its functions are.
    fn add_whole_unit(
        &mut self,
        unit: UnitRef<'_, SectionReader<'f>>,
        offset: u32,
        pieces: &[Piece],
        origins: &mut Origins<SectionReader<'f>>,
    ) -> Result<(), ReduceError> {
        if let Some(id) = split_id(unit) {
            self.split_units += 1;
            let is_found = self.add_from_package(unit, id, pieces)?
                || self.add_from_file(unit_path(unit), offset, id, pieces)?;
            if is_found {
                return Ok(());
            }
            self.missing_units += 1;
        }
        match WholeUnit::read(unit, origins) {
            Ok(open) => self.add_unit(&open, pieces),
            Err(_) => self.add_damaged(pieces),
        }
    }

    /// Returns whether the package has the unit of this skeleton.
    fn add_from_package(
        &mut self,
        skeleton: UnitRef<'_, SectionReader<'f>>,
        id: DwoId,
        pieces: &[Piece],
    ) -> Result<bool, ReduceError> {
        let package = self.package.as_ref();
        let found = package.map(|package| package.sections_of_unit(id, skeleton));
        match found {
            Some(Ok(Some(dwarf))) => self.add_split(skeleton, dwarf, id, pieces),
            _ => Ok(false),
        }
    }

    /// Returns whether the file at `path` has the unit of the skeleton at `offset`.
    fn add_from_file(
        &mut self,
        path: Option<PathBuf>,
        offset: u32,
        id: DwoId,
        pieces: &[Piece],
    ) -> Result<bool, ReduceError> {
        let source = path.and_then(|path| (self.split.open_unit)(&path));
        let sections = source.and_then(|source| split_sections(&source).ok());
        let Some(sections) = &sections else {
            return Ok(false);
        };
        // The skeleton once more, because `gimli` gives it the lifetime of the unit's sections.
        let Ok(program) = dwarf_of(self.sections) else {
            return Ok(false);
        };
        let Ok(Some(skeleton)) = unit_at(&program, offset) else {
            return Ok(false);
        };
        let skeleton = UnitRef::new(&program, &skeleton);
        match sections_of_unit(sections, skeleton) {
            Ok(dwarf) => self.add_split(skeleton, dwarf, id, pieces),
            Err(_) => Ok(false),
        }
    }

    fn add_split<'s>(
        &mut self,
        skeleton: UnitRef<'_, SectionReader<'s>>,
        mut dwarf: Dwarf<SectionReader<'s>>,
        id: DwoId,
        pieces: &[Piece],
    ) -> Result<bool, ReduceError> {
        let Ok(Some(unit)) = unit_of(&mut dwarf, skeleton, id) else {
            return Ok(false);
        };
        // Its entries refer to each other.
        let mut origins = Origins::of_few();
        let unit = UnitRef::new(&dwarf, &unit);
        let Ok(open) = WholeUnit::read(unit, &mut origins) else {
            return Ok(false);
        };
        self.add_unit(&open, pieces)?;
        Ok(true)
    }

    fn add_damaged(&mut self, pieces: &[Piece]) -> Result<(), ReduceError> {
        self.damaged_units += 1;
        self.add_symbols(pieces)
    }

    /// Names addresses without debug information.
    fn add_symbols(&mut self, pieces: &[Piece]) -> Result<(), ReduceError> {
        for piece in pieces {
            for start in self.boundaries_in(piece, &[]) {
                let symbol = self.symbol_at(start);
                let frames = frames_of(&Locations::default(), symbol.as_deref());
                let innermost = self.builder.intern_chain(&frames)?;
                self.builder.add_range(start, innermost)?;
            }
        }
        Ok(())
    }

    fn add_unit(
        &mut self,
        open: &WholeUnit<'_, SectionReader<'_>>,
        pieces: &[Piece],
    ) -> Result<(), ReduceError> {
        let boundaries = open.boundaries();
        let mut known: FxHashMap<FramesKey, KnownFrames> = FxHashMap::default();
        for piece in pieces {
            for start in self.boundaries_in(piece, &boundaries) {
                let info = open.info_at(start);
                let symbol = self
                    .index
                    .find(start)
                    .map(|symbol| (symbol.start, symbol.bytes));
                let key = FramesKey {
                    functions: info.key,
                    symbol,
                };
                let frames = match known.get(&key) {
                    Some(frames) => *frames,
                    None => {
                        let locations = open.locations_at(start, info.key);
                        let frames = self.frames_at(&locations, start)?;
                        known.insert(key, frames);
                        frames
                    }
                };
                let innermost = match frames {
                    KnownFrames::Fixed(innermost) => innermost,
                    KnownFrames::ByLine(row) => self.builder.intern(FrameRow {
                        line: info.line,
                        ..row
                    })?,
                };
                self.builder.add_range(start, innermost)?;
            }
        }
        Ok(())
    }

    fn frames_at(
        &mut self,
        locations: &Locations,
        address: u32,
    ) -> Result<KnownFrames, ReduceError> {
        let symbol = self.symbol_at(address);
        let frames = frames_of(locations, symbol.as_deref());
        let Some((innermost, callers)) = frames
            .split_last()
            .filter(|(innermost, _)| innermost.line == LINE_OF_ADDRESS)
        else {
            return Ok(KnownFrames::Fixed(self.builder.intern_chain(&frames)?));
        };
        let caller = self.builder.intern_chain(callers)?;
        let function = self.builder.intern_text(&innermost.function)?;
        let file = self.builder.intern_text(&innermost.file)?;
        Ok(KnownFrames::ByLine(FrameRow {
            caller,
            function,
            file,
            line: 0,
        }))
    }

    fn symbol_at(&mut self, address: u32) -> Option<Rc<str>> {
        let symbols = self.symbols?;
        let found = self.index.find(address)?;
        let key = (found.start, found.bytes);
        let index = &self.index;
        self.symbol_names
            .entry(key)
            .or_insert_with(|| index.name_of(address.into(), symbols).map(Rc::from))
            .clone()
    }

    /// Where something begins in a piece: its start, symbols, and what else is given, sorted.
    fn boundaries_in(&self, piece: &Piece, others: &[u32]) -> Vec<u32> {
        let within = |sorted: &[u32]| -> Vec<u32> {
            let from = sorted.partition_point(|address| *address < piece.start);
            let to = sorted.partition_point(|address| *address < piece.end);
            sorted[from..to.max(from)].to_vec()
        };
        let mut boundaries = vec![piece.start];
        boundaries.extend(within(&self.symbol_starts));
        boundaries.extend(within(others));
        boundaries.sort_unstable();
        boundaries.dedup();
        boundaries
    }
}

/// Debug sections of the shared file, which must be the linked one.
fn shared_sections<S: ReadAt>(
    linked: &SharedFile,
    source: &S,
) -> Result<DebugSections, ReduceError> {
    let mut elf = Elf::open(source).map_err(ReduceError::Shared)?;
    let found = elf.id_as_shared().map_err(ReduceError::Shared)?;
    if found != linked.id {
        return Err(ReduceError::OtherShared {
            found,
            expected: linked.id.clone(),
        });
    }
    elf.debug_sections().map_err(ReduceError::Shared)
}

pub(super) fn dwarf_of(sections: &DebugSections) -> gimli::Result<Dwarf<SectionReader<'_>>> {
    Dwarf::load(|id| Ok(sections.get(id)))
}

fn unit_at<'s>(
    dwarf: &Dwarf<SectionReader<'s>>,
    offset: u32,
) -> gimli::Result<Option<Unit<SectionReader<'s>>>> {
    let header = dwarf
        .debug_info
        .header_from_offset(DebugInfoOffset(offset as usize))?;
    if header.unit_length() > UNIT_BYTES_MAX {
        return Ok(None);
    }
    dwarf.unit(header).map(Some)
}

#[cfg(test)]
mod tests;
