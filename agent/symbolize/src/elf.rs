//! The parts of an ELF file that lead to its symbols: sections, build id, links to other files.

mod extract;
mod function_start;

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use symbols::{ENTRY_BYTES, SymbolTable};

use super::compressed::{self, Compression};
use super::file::{CachedFile, ChunkCache, FileIdentity};
use super::module::build_id_in;
use super::section::{Section, SectionReader};

/// Most sections of a file; executables have about 50.
const SECTIONS_MAX: u16 = 4096;
/// Longest section of notes or links that is read.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// Debug files of packages, by build id.
const DEBUG_FILES: &str = "/usr/lib/debug";

const HEADER_BYTES: usize = 64;
pub(super) const SECTION_HEADER_BYTES: usize = 64;
const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHF_EXECINSTR: u64 = 4;
const SHF_COMPRESSED: u64 = 0x800;

/// An open ELF file for 64-bit little-endian machines.
#[derive(Debug)]
pub(super) struct Elf {
    path: PathBuf,
    file: Rc<CachedFile>,
    pub(super) identity: FileIdentity,
    sections: Vec<SectionHeader>,
}

/// One section, within the bounds of its file.
#[derive(Clone, Debug)]
pub(super) struct SectionHeader {
    name: String,
    kind: u32,
    flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    link: u32,
}

impl SectionHeader {
    fn is_code(&self) -> bool {
        self.flags & SHF_EXECINSTR != 0
    }
}

/// A table of symbols and its strings.
#[derive(Clone, Debug)]
pub(super) struct SymbolSections {
    pub(super) symbols: SectionHeader,
    pub(super) names: SectionHeader,
}

/// Opens a regular file. A link to a debug file may name a pipe, whose opening would block.
fn open_regular(path: &Path) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file())
        .then_some(file)
}

impl Elf {
    pub(super) fn open(path: &Path, cache: &ChunkCache) -> Option<Elf> {
        let (file, identity) = CachedFile::new(open_regular(path)?, cache)?;
        Elf::read(path, file, identity)
    }

    /// A copy of a file that only exists in memory.
    pub(super) fn in_memory(path: &Path, content: Vec<u8>, cache: &ChunkCache) -> Option<Elf> {
        let (file, identity) = CachedFile::in_memory(content, cache);
        Elf::read(path, file, identity)
    }

    fn read(path: &Path, file: CachedFile, identity: FileIdentity) -> Option<Elf> {
        let mut header = [0; HEADER_BYTES];
        file.read(0, &mut header).ok()?;
        // The magic number, 64 bits, little-endian.
        if header[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let table = word(&header, 40)?;
        let size = usize::from(short(&header, 58)?);
        let count = short(&header, 60)?.min(SECTIONS_MAX);
        let names = usize::from(short(&header, 62)?);
        if size != SECTION_HEADER_BYTES {
            return None;
        }
        let mut sections = Vec::new();
        let mut name_offsets = Vec::new();
        for number in 0..u64::from(count) {
            let mut entry = [0; SECTION_HEADER_BYTES];
            let at = table.checked_add(number * SECTION_HEADER_BYTES as u64)?;
            file.read(at, &mut entry).ok()?;
            name_offsets.push(half(&entry, 0)?);
            sections.push(SectionHeader {
                name: String::new(),
                kind: half(&entry, 4)?,
                flags: word(&entry, 8)?,
                address: word(&entry, 16)?,
                offset: word(&entry, 24)?,
                bytes: word(&entry, 32)?,
                link: half(&entry, 40)?,
            });
        }
        let names = sections.get(names).cloned()?;
        for (section, name) in sections.iter_mut().zip(name_offsets) {
            let in_file = section.offset.checked_add(section.bytes);
            if in_file.is_none_or(|end| end > file.bytes()) {
                // Reads beyond the end fail anyway; a section cannot claim memory by its size.
                section.bytes = 0;
            }
            let name_at = names.offset.checked_add(name.into());
            section.name = name_at
                .and_then(|at| text_at(&file, at))
                .unwrap_or_default();
        }
        Some(Elf {
            path: path.to_owned(),
            file: Rc::new(file),
            identity,
            sections,
        })
    }

    pub(super) fn section(&self, name: &str) -> Option<&SectionHeader> {
        let mut sections = self.sections.iter();
        sections
            .find(|section| section.name == name && section.kind != SHT_NOBITS && section.bytes > 0)
    }

    /// Offset in this part of the file minus address, for the code there.
    pub(super) fn base_of_code(&self, part: Range<u64>) -> Option<u64> {
        let overlaps = |section: &&SectionHeader| {
            let end = section.offset.saturating_add(section.bytes);
            section.is_code() && section.offset < part.end && part.start < end
        };
        let section = self.sections.iter().find(overlaps)?;
        Some(section.offset.wrapping_sub(section.address))
    }

    /// The full table of symbols, else the one of the dynamic linker.
    pub(super) fn symbols(&self) -> Option<SymbolSections> {
        let symbols = &self.sections[self.symbols_index()?];
        let names = self.sections.get(symbols.link as usize)?;
        Some(SymbolSections {
            symbols: symbols.clone(),
            names: names.clone(),
        })
    }

    fn symbols_index(&self) -> Option<usize> {
        [SHT_SYMTAB, SHT_DYNSYM].into_iter().find_map(|kind| {
            self.sections
                .iter()
                .position(|section| section.kind == kind && section.bytes > 0)
        })
    }

    /// That table as names are searched in it.
    pub(super) fn symbol_table<'a>(&'a self, sections: &'a SymbolSections) -> SymbolsOf<'a> {
        SymbolsOf {
            elf: self,
            sections,
        }
    }

    /// Whether it has a full table of symbols.
    pub(super) fn has_full_symbols(&self) -> bool {
        self.sections
            .iter()
            .any(|section| section.kind == SHT_SYMTAB && section.bytes > 0)
    }

    /// The build id in hexadecimal.
    pub(super) fn build_id(&self) -> Option<String> {
        let notes = self
            .sections
            .iter()
            .filter(|section| section.kind == SHT_NOTE);
        notes
            .into_iter()
            .find_map(|section| build_id_in(&self.small(section)?))
    }

    /// Whether its debug information is compressed.
    pub(super) fn has_compressed_info(&self) -> bool {
        let info = self.section(".debug_info");
        info.is_some_and(|section| section.flags & SHF_COMPRESSED != 0)
            || self.section(".zdebug_info").is_some()
    }

    /// The bytes of a short section.
    fn small(&self, section: &SectionHeader) -> Option<Vec<u8>> {
        let length = Some(section.bytes).filter(|bytes| *bytes <= SMALL_BYTES_MAX)?;
        let mut bytes = vec![0; length as usize];
        self.file.read(section.offset, &mut bytes).ok()?;
        Some(bytes)
    }

    /// An uncompressed section as input of the reader of debug information.
    fn reader(&self, section: &SectionHeader) -> SectionReader {
        let source = Section::File {
            file: self.file.clone(),
            start: section.offset,
        };
        SectionReader::new(source, section.bytes)
    }

    /// A debug section as input of the reader of debug information; empty if it is missing or not
    /// readable.
    pub(super) fn debug_section(
        &self,
        name: &'static str,
        decompressed: &mut compressed::Sections,
    ) -> SectionReader {
        if let Some(section) = self.section(name) {
            if section.flags & SHF_COMPRESSED == 0 {
                return self.reader(section);
            }
            return decompressed.section(&self.file, name, section, Compression::Standard);
        }
        // The form before the standard: another name, and a header of its own.
        let old_name = name.replacen(".debug_", ".zdebug_", 1);
        match self.section(&old_name) {
            Some(section) => decompressed.section(&self.file, name, section, Compression::Gnu),
            None => SectionReader::missing(),
        }
    }

    /// The file with this file's debug information, as debuggers look for it.
    pub(super) fn separate_debug_file(&self, cache: &ChunkCache) -> Option<Elf> {
        let build_id = self.build_id();
        let by_id = build_id.as_deref().and_then(debug_file_of);
        let linked = self
            .section(".gnu_debuglink")
            .and_then(|section| self.small(section));
        let name = linked.as_deref().and_then(leading_text);
        let candidates = by_id.into_iter().chain(name.into_iter().flat_map(|name| {
            let folder = self.path.parent().unwrap_or(Path::new("/"));
            let below = folder.strip_prefix("/").unwrap_or(folder);
            [
                folder.join(&name),
                folder.join(".debug").join(&name),
                Path::new(DEBUG_FILES).join(below).join(&name),
            ]
        }));
        candidates
            .filter(|candidate| *candidate != self.path)
            .find_map(|candidate| {
                let found = Elf::open(&candidate, cache)?;
                // A file of another build names wrong functions.
                let same_build = build_id.is_none() || found.build_id() == build_id;
                same_build.then_some(found)
            })
    }

    /// The file that shares parts of this file's debug information with other files.
    pub(super) fn supplementary_file(&self, cache: &ChunkCache) -> Option<Elf> {
        let linked = self.small(self.section(".gnu_debugaltlink")?)?;
        let name = leading_text(&linked)?;
        let id: String = linked
            .get(name.len() + 1..)?
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let candidates = [Some(folder.join(name)), debug_file_of(&id)];
        candidates.into_iter().flatten().find_map(|candidate| {
            let found = Elf::open(&candidate, cache)?;
            (found.build_id().as_deref() == Some(&id)).then_some(found)
        })
    }
}

/// A file's table of symbols.
pub(super) struct SymbolsOf<'a> {
    elf: &'a Elf,
    sections: &'a SymbolSections,
}

impl SymbolTable for SymbolsOf<'_> {
    fn count(&self) -> u64 {
        self.sections.symbols.bytes / ENTRY_BYTES as u64
    }

    fn entry(&self, number: u64) -> Option<[u8; ENTRY_BYTES]> {
        let mut entry = [0; ENTRY_BYTES];
        let at = self.sections.symbols.offset + number * ENTRY_BYTES as u64;
        self.elf.file.read(at, &mut entry).ok()?;
        Some(entry)
    }

    fn code_end(&self, section: u16) -> Option<u64> {
        let section = self.elf.sections.get(usize::from(section))?;
        section
            .is_code()
            .then(|| section.address.saturating_add(section.bytes))
    }

    fn name(&self, offset: u32, bytes_max: u64) -> Option<String> {
        text_within(
            &self.elf.file,
            self.sections.names.offset + u64::from(offset),
            bytes_max,
        )
    }
}

/// The package's debug file of a build.
fn debug_file_of(build_id: &str) -> Option<PathBuf> {
    let rest = build_id.get(2..).filter(|rest| !rest.is_empty())?;
    let folder = Path::new(DEBUG_FILES)
        .join(".build-id")
        .join(&build_id[..2]);
    Some(folder.join(format!("{rest}.debug")))
}

/// The text before the first zero.
fn leading_text(bytes: &[u8]) -> Option<String> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .filter(|end| *end > 0)?;
    String::from_utf8(bytes[..end].to_vec()).ok()
}

/// Longest name of a section.
const SECTION_NAME_BYTES_MAX: u64 = 64;

fn text_at(file: &CachedFile, at: u64) -> Option<String> {
    text_within(file, at, SECTION_NAME_BYTES_MAX)
}

/// The text at `at`, which ends in a zero at most `bytes_max` later.
fn text_within(file: &CachedFile, at: u64, bytes_max: u64) -> Option<String> {
    let limit = at.checked_add(bytes_max)?.min(file.bytes());
    let end = file.find(0, at, limit).ok()?.unwrap_or(limit);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(at)?).ok()?];
    file.read(at, &mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
