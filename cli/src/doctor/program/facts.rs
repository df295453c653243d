//! Facts about a program's file.

use std::fs::File;
use std::path::{Path, PathBuf};

use gimli::{EndianSlice, LittleEndian};
use object::elf::{PT_DYNAMIC, PT_INTERP};
use object::read::elf::ProgramHeader as _;
use object::{
    Architecture, CompressionFormat, Object as _, ObjectSection as _, ReadCache, SymbolKind,
};

/// Units of code in which inlined functions are looked for; one is enough to find.
const UNITS_LOOKED_AT_MAX: usize = 1_000;

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Linking {
    Dynamic,
    StaticPie,
    Static,
}

/// The separate file with names and lines of a stripped program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum DebugFile {
    /// The program does not name one.
    None,
    /// Not found, by this name.
    Missing(String),
    /// Found, and read instead of the program.
    Read(PathBuf),
}

/// Facts about a program's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    pub(super) machine: String,
    pub(super) linking: Linking,
    /// It was compiled by rustc, at least in part.
    pub(super) is_rust: bool,
    /// Names of functions in the symbol table.
    pub(super) functions: usize,
    /// The same in the table for dynamic linking, which `strip` leaves.
    pub(super) exported: usize,
    pub(super) debug_file: DebugFile,
    /// Its debug sections are compressed and were not looked into.
    pub(super) compressed: bool,
    /// Units of code with line tables, without those of Rust's own library; `None` without any tables.
    pub(super) units: Option<usize>,
    /// Those of Rust's own library: they come with the compiler, however the program was built.
    pub(super) library_units: usize,
    pub(super) inlined: bool,
    /// Whether inlined functions are recorded with the modules that they are in.
    pub(super) modules: bool,
    pub(super) unwind_table: bool,
    pub(super) unwind_index: bool,
    pub(super) build_id: Option<String>,
}

/// Why a file's facts could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("it is no 64-bit ELF program ({0})")]
    Object(#[from] object::Error),
}

type Elf<'data> = object::read::elf::ElfFile64<'data, object::LittleEndian, &'data Cache>;
type Cache = ReadCache<File>;

impl Facts {
    /// Reads `file`, which is called `name`.
    ///
    /// # Errors
    /// [`ReadError`] if it cannot be read or is no 64-bit ELF file.
    pub(super) fn read(file: &Path, name: &Path) -> Result<Facts, ReadError> {
        let cache = Cache::new(File::open(file)?);
        let elf = Elf::parse(&cache)?;
        let build_id = elf.build_id()?.map(hex);
        let has = |section| {
            elf.section_by_name(section)
                .is_some_and(|found| found.size() > 0)
        };
        let mut facts = Facts {
            machine: match elf.architecture() {
                Architecture::X86_64 => "x86-64".to_owned(),
                other => format!("{other:?}").to_lowercase(),
            },
            linking: linking(&elf),
            is_rust: is_rust(&elf),
            functions: functions(elf.symbols()),
            exported: functions(elf.dynamic_symbols()),
            debug_file: DebugFile::None,
            compressed: false,
            units: None,
            library_units: 0,
            inlined: false,
            modules: false,
            unwind_table: has(".eh_frame"),
            unwind_index: has(".eh_frame_hdr"),
            build_id,
        };
        facts.add_debug_sections(&elf);
        if facts.functions == 0 {
            facts.look_beside(&elf, name);
        }
        Ok(facts)
    }

    /// Lines and inlined functions.
    fn add_debug_sections(&mut self, elf: &Elf<'_>) {
        let lines = elf.section_by_name(".debug_line");
        if lines.is_none_or(|lines| lines.size() == 0) {
            return;
        }
        if [".debug_line", ".debug_info", ".debug_abbrev"]
            .iter()
            .any(|name| is_packed(elf, name))
        {
            self.compressed = true;
            return;
        }
        // The readable part of damaged tables counts.
        let _ = self.add_units(elf);
    }

    fn add_units(&mut self, elf: &Elf<'_>) -> gimli::Result<()> {
        let dwarf = gimli::Dwarf::load(|id| {
            let section = elf.section_by_name(id.name());
            let data = section
                .and_then(|section| section.data().ok())
                .unwrap_or_default();
            Ok::<_, gimli::Error>(EndianSlice::new(data, LittleEndian))
        })?;
        let mut headers = dwarf.units();
        let mut looked_at = 0;
        while let Some(header) = headers.next()? {
            let unit = dwarf.unit(header)?;
            if unit.line_program.is_none() {
                continue;
            }
            let of_library = unit
                .comp_dir
                .is_some_and(|folder| folder.starts_with(b"/rustc/"));
            if of_library {
                self.library_units += 1;
                continue;
            }
            *self.units.get_or_insert(0) += 1;
            if !self.modules && looked_at < UNITS_LOOKED_AT_MAX {
                looked_at += 1;
                self.look_for_inlined(&unit)?;
            }
        }
        Ok(())
    }

    /// Reads a unit up to its first inlined function. Modules enclose the functions in them, so they
    /// come first. Crates may differ: one that records modules shows that others can.
    fn look_for_inlined(
        &mut self,
        unit: &gimli::Unit<EndianSlice<'_, LittleEndian>>,
    ) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        let mut inlined = false;
        while !entries.is_empty() && !inlined {
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            match abbreviation.tag() {
                gimli::DW_TAG_inlined_subroutine => inlined = true,
                gimli::DW_TAG_namespace => self.modules = true,
                _ => {}
            }
            entries.skip_attributes(abbreviation.attributes())?;
        }
        self.inlined |= inlined;
        Ok(())
    }

    /// Reads the debug file that the program names in place of what it lacks.
    fn look_beside(&mut self, elf: &Elf<'_>, name: &Path) {
        let Ok(Some((link, _))) = elf.gnu_debuglink() else {
            return;
        };
        let link = String::from_utf8_lossy(link).into_owned();
        let path = name.canonicalize().unwrap_or_else(|_| name.to_owned());
        let found = places(&path, &link, self.build_id.as_deref())
            .into_iter()
            .find_map(|place| self.add_debug_file(&place).ok().map(|()| place));
        self.debug_file = found.map_or(DebugFile::Missing(link), DebugFile::Read);
    }

    fn add_debug_file(&mut self, path: &Path) -> Result<(), ReadError> {
        let cache = Cache::new(File::open(path)?);
        let elf = Elf::parse(&cache)?;
        self.functions = functions(elf.symbols());
        self.add_debug_sections(&elf);
        Ok(())
    }
}

/// Where debug files are looked for, as the agent and debuggers do.
fn places(program: &Path, link: &str, build_id: Option<&str>) -> Vec<PathBuf> {
    let folder = program.parent().unwrap_or(Path::new("/"));
    let debug = Path::new("/usr/lib/debug");
    let mut places = vec![folder.join(link), folder.join(".debug").join(link)];
    places.push(
        debug
            .join(folder.strip_prefix("/").unwrap_or(folder))
            .join(link),
    );
    if let Some((first, rest)) = build_id.and_then(|id| id.split_at_checked(2)) {
        places.push(debug.join(format!(".build-id/{first}/{rest}.debug")));
    }
    places
}

fn functions<'data>(symbols: impl Iterator<Item = impl object::ObjectSymbol<'data>>) -> usize {
    symbols
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .count()
}

/// Whether a section is compressed, which compilers do one by one.
fn is_packed(elf: &Elf<'_>, name: &str) -> bool {
    let range = elf
        .section_by_name(name)
        .map(|section| section.compressed_file_range());
    range.is_some_and(|range| range.is_ok_and(|range| range.format != CompressionFormat::None))
}

fn linking(elf: &Elf<'_>) -> Linking {
    let has = |kind| {
        let mut headers = elf.elf_program_headers().iter();
        headers.any(|header| header.p_type(object::LittleEndian) == kind)
    };
    match (has(PT_INTERP), has(PT_DYNAMIC)) {
        (true, _) => Linking::Dynamic,
        (false, true) => Linking::StaticPie,
        (false, false) => Linking::Static,
    }
}

/// Compilers sign in a section that `strip` leaves.
fn is_rust(elf: &Elf<'_>) -> bool {
    let comment = elf
        .section_by_name(".comment")
        .and_then(|section| section.data().ok());
    comment.is_some_and(|text| text.windows(5).any(|word| word == b"rustc"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
