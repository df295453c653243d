//! The sections of an ELF file that have names and lines.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use gimli::{EndianSlice, LittleEndian, Relocate, RelocateReader, SectionId};
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use symbols::{ENTRY_BYTES, SECTIONS, SymbolTable};

use super::ReadAt;
use super::segments::{PROGRAM_HEADER_BYTES, Segments};

/// Sections that lead to functions in a file of split debug information.
const SPLIT_SECTIONS: [SectionId; 7] = [
    SectionId::DebugAbbrev,
    SectionId::DebugCuIndex,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Most sections; executables have about 50.
const SECTIONS_MAX: u16 = 4096;
/// Most program headers; executables have about 13.
const PROGRAM_HEADERS_MAX: u16 = 256;
/// Most bytes of all sections that are read, decompressed.
const BYTES_MAX: u64 = 3 << 30;
/// Debug information is compressed to a third or a fifth; a bomb to a thousandth.
const COMPRESSION_RATIO_MAX: u64 = 100;
/// Sections of this size are no bombs, however well they are compressed.
const HARMLESS_BYTES: u64 = 1 << 20;
/// Longest section of notes.
const NOTES_BYTES_MAX: u64 = 64 << 10;
/// The link to a file with shared debug information, by GNU tools.
const ALT_LINK: &str = ".gnu_debugaltlink";
/// The same by the standard, since DWARF 5. The shared file has one too.
const SUP: &str = ".debug_sup";
/// A version, and whether the file is the shared one.
const SUP_HEADER_BYTES: usize = 3;
/// Longest link to a file with shared debug information: a path and a build id.
const LINK_BYTES_MAX: u64 = 8 << 10;
/// Longest name of a section.
const SECTION_NAME_BYTES_MAX: usize = 64;

/// Symbol files have the lower half of addresses. All code of a file has the same upper half.
const UPPER_HALF: u64 = 0xffff_ffff << 32;

const HEADER_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;
const SHT_NULL: u32 = 0;
const SHT_SYMTAB: u32 = 2;
const SHT_NOTE: u32 = 7;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
const SHF_COMPRESSED: u64 = 0x800;
const GNU_BUILD_ID: u32 = 3;
/// Where an entry of a table of symbols has its address.
const SYMBOL_ADDRESS_AT: usize = 8;

/// Why an ELF file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// The system does not read it.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is not an ELF file for 64-bit little-endian processors")]
    NotElf,
    /// Its headers contradict each other.
    #[error("its table of sections is damaged")]
    Sections,
    /// A section ends beyond the file.
    #[error("it is truncated: section {section} ends at byte {end}, the file at byte {bytes}")]
    Truncated {
        /// Name of the section.
        section: String,
        /// Where the section ends.
        end: u64,
        /// Where the file ends.
        bytes: u64,
    },
    /// Nothing says which build it is of.
    #[error("it has no build id; link with -Wl,--build-id (for Rust: -Clink-arg=-Wl,--build-id)")]
    NoBuildId,
    /// A part of the debug information of another file.
    #[error(
        "it is split debug information (.dwo or .dwp), which has neither addresses nor a build id; \
         upload its program, before it is stripped and with NAME.dwp next to NAME"
    )]
    OnlySplit,
    /// Too large.
    #[error("its sections have {bytes} bytes up to {section}; at most {BYTES_MAX} are read")]
    TooLarge {
        /// The section that was too much.
        section: String,
        /// Bytes with that section.
        bytes: u64,
    },
    /// The link to the file with shared debug information.
    #[error("its link to shared debug information ({ALT_LINK} or {SUP}) is damaged")]
    SharedLink,
    /// A bomb.
    #[error(
        "section {section} claims {decompressed} bytes in {compressed}; at most \
         {COMPRESSION_RATIO_MAX} times as many are decompressed"
    )]
    Bomb {
        /// Name of the section.
        section: String,
        /// Its bytes in the file.
        compressed: u64,
        /// The bytes that its header claims.
        decompressed: u64,
    },
    /// Damaged or unknown compression.
    #[error("section {section} cannot be decompressed: {reason}")]
    Compression {
        /// Name of the section.
        section: String,
        /// The problem found.
        reason: &'static str,
    },
}

#[derive(Clone, Debug)]
struct Section {
    name: String,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    bytes: u64,
    link: u32,
}

/// Reads a section, and subtracts the base from each address in it.
pub(super) type SectionReader<'s> = RelocateReader<EndianSlice<'s, LittleEndian>, Base>;

/// The address that counts as 0: the upper half of all addresses. It is 0 but for code like the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Base(pub(super) u64);

impl Base {
    fn of(sections: &[Section]) -> Base {
        let code = SHF_ALLOC | SHF_EXECINSTR;
        let of_code = sections
            .iter()
            .filter(|section| section.flags & code == code);
        let lowest = of_code.map(|section| section.address).min();
        Base(lowest.unwrap_or(0) & UPPER_HALF)
    }

    /// Subtracts the base from an address of code. Returns other values as they are: distances and the zeros
    /// that end a list are smaller than the base, and the greatest number announces an address.
    fn apply(self, value: u64) -> u64 {
        if value == u64::MAX {
            value
        } else {
            value.checked_sub(self.0).unwrap_or(value)
        }
    }
}

impl Relocate for Base {
    fn relocate_address(&self, _offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.apply(value))
    }

    fn relocate_offset(&self, _offset: usize, value: usize) -> gimli::Result<usize> {
        Ok(value)
    }
}

/// An open ELF file.
#[derive(Debug)]
pub(super) struct Elf<'f, S> {
    source: &'f S,
    sections: Vec<Section>,
    /// Of its addresses.
    pub(super) base: Base,
    /// Bytes of the sections that were read.
    read_bytes: u64,
}

/// The file into which `dwz` has moved what the debug information of several files has in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedFile {
    /// Its path as the link has it: absolute, or from the folder of the file.
    pub path: PathBuf,
    /// Its build id or its checksum, in hexadecimal.
    pub id: String,
}

impl SharedFile {
    /// Whether a file is the linked one.
    ///
    /// # Errors
    /// [`ElfError`].
    pub fn is(&self, source: &impl ReadAt) -> Result<bool, ElfError> {
        Ok(Elf::open(source)?.id_as_shared()? == self.id)
    }

    /// A path that ends in a zero, and an id.
    fn parse(link: &[u8]) -> Option<SharedFile> {
        let (path, id) = link.split_at(link.iter().position(|byte| *byte == 0)?);
        let id = hexadecimal(id.get(1..).filter(|id| !id.is_empty())?);
        Some(SharedFile {
            path: PathBuf::from(OsStr::from_bytes(path)),
            id,
        })
    }

    /// Likewise, with the length of the id before it.
    fn parse_sup(link: &[u8]) -> Option<SharedFile> {
        let SharedFile { path, id } = SharedFile::parse(link)?;
        let (length, id) = id.split_at_checked(2)?;
        let bytes = usize::from_str_radix(length, 16).ok()?;
        (bytes * 2 == id.len()).then(|| SharedFile {
            path,
            id: id.to_owned(),
        })
    }
}

/// A table of symbols in memory.
#[derive(Debug)]
pub(super) struct Symbols {
    entries: Vec<u8>,
    names: Vec<u8>,
    /// By index of a section: where it ends, if it has code.
    code_ends: Vec<Option<u64>>,
    /// Whether it is only what the dynamic linker needs.
    pub(super) is_dynamic: bool,
}

/// The debug sections, in memory.
#[derive(Debug, Default)]
pub(super) struct DebugSections {
    sections: Vec<(SectionId, Vec<u8>)>,
    base: Base,
}

impl DebugSections {
    pub(super) fn get(&self, id: SectionId) -> SectionReader<'_> {
        let found = self.sections.iter().find(|(known, _)| *known == id);
        let bytes = found.map_or(&[][..], |(_, bytes)| bytes);
        RelocateReader::new(EndianSlice::new(bytes, LittleEndian), self.base)
    }

    /// Whether there are functions with lines.
    pub(super) fn has_lines(&self) -> bool {
        self.sections
            .iter()
            .any(|(id, bytes)| *id == SectionId::DebugInfo && !bytes.is_empty())
    }
}

impl<'f, S: ReadAt> Elf<'f, S> {
    pub(super) fn open(source: &'f S) -> Result<Elf<'f, S>, ElfError> {
        let bytes = source.bytes()?;
        let mut header = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES as u64 {
            return Err(ElfError::NotElf);
        }
        source.read_at(0, &mut header)?;
        // The magic number, 64 bits, little-endian.
        if header[..6] != *b"\x7fELF\x02\x01" {
            return Err(ElfError::NotElf);
        }
        let table = long(&header, 40);
        let count = short(&header, 60);
        if usize::from(short(&header, 58)) != SECTION_HEADER_BYTES || count > SECTIONS_MAX {
            return Err(ElfError::Sections);
        }
        let end = table.saturating_add(u64::from(count) * SECTION_HEADER_BYTES as u64);
        if end > bytes {
            let section = "[table of sections]".to_owned();
            return Err(ElfError::Truncated {
                section,
                end,
                bytes,
            });
        }
        let mut entries = vec![0; usize::from(count) * SECTION_HEADER_BYTES];
        source.read_at(table, &mut entries)?;
        let entries = entries.as_chunks::<SECTION_HEADER_BYTES>().0;
        let mut sections: Vec<Section> =
            entries.iter().map(|entry| Section::parse(entry)).collect();
        let names = sections
            .get(usize::from(short(&header, 62)))
            .cloned()
            .ok_or(ElfError::Sections)?;
        for (section, entry) in sections.iter_mut().zip(entries) {
            section.name = name_at(source, &names, word(entry, 0));
            let end = section.offset.saturating_add(section.bytes);
            if !matches!(section.kind, SHT_NULL | SHT_NOBITS) && end > bytes {
                let section = section.name.clone();
                return Err(ElfError::Truncated {
                    section,
                    end,
                    bytes,
                });
            }
        }
        let base = Base::of(&sections);
        Ok(Elf {
            source,
            sections,
            base,
            read_bytes: 0,
        })
    }

    /// The build id in hexadecimal.
    pub(super) fn build_id(&self) -> Result<String, ElfError> {
        for section in self
            .sections
            .iter()
            .filter(|section| section.kind == SHT_NOTE)
        {
            if section.bytes <= NOTES_BYTES_MAX
                && let Some(id) = build_id_in(&self.content(section)?)
            {
                return Ok(id);
            }
        }
        if self
            .sections
            .iter()
            .any(|section| section.name == ".debug_info.dwo")
        {
            return Err(ElfError::OnlySplit);
        }
        Err(ElfError::NoBuildId)
    }

    /// Where the file has its code. Empty if it has no usable program headers, like what agents of earlier
    /// versions send.
    pub(super) fn segments(&self) -> Result<Segments, ElfError> {
        let mut header = [0; HEADER_BYTES];
        self.source.read_at(0, &mut header)?;
        let count = short(&header, 56).min(PROGRAM_HEADERS_MAX);
        let table_at = long(&header, 32);
        let mut table = vec![0; usize::from(count) * PROGRAM_HEADER_BYTES];
        let table_end = table_at.saturating_add(table.len() as u64);
        let has_size = usize::from(short(&header, 54)) == PROGRAM_HEADER_BYTES;
        if !has_size || table_end > self.source.bytes()? {
            return Ok(Segments::default());
        }
        self.source.read_at(table_at, &mut table)?;
        Ok(Segments::of_headers(&table))
    }

    /// The file that this one shares debug information with; `None` if all of it is here.
    pub(super) fn shared_file(&self) -> Result<Option<SharedFile>, ElfError> {
        if let Some(link) = self.link(ALT_LINK)? {
            return SharedFile::parse(&link)
                .ok_or(ElfError::SharedLink)
                .map(Some);
        }
        let Some(sup) = self.link(SUP)? else {
            return Ok(None);
        };
        match sup.split_at_checked(SUP_HEADER_BYTES) {
            Some(([.., 0], link)) => SharedFile::parse_sup(link)
                .ok_or(ElfError::SharedLink)
                .map(Some),
            Some(_) => Ok(None),
            None => Err(ElfError::SharedLink),
        }
    }

    /// Id by which files that share its debug information refer to it: its build id, or the
    /// checksum that it has instead.
    pub(super) fn id_as_shared(&self) -> Result<String, ElfError> {
        match self.link(SUP)? {
            Some(sup) => {
                let link = sup.get(SUP_HEADER_BYTES..).and_then(SharedFile::parse_sup);
                Ok(link.ok_or(ElfError::SharedLink)?.id)
            }
            None => self.build_id(),
        }
    }

    /// A short section.
    fn link(&self, name: &str) -> Result<Option<Vec<u8>>, ElfError> {
        match self
            .sections
            .iter()
            .find(|section: &&Section| section.name == name && section.kind != SHT_NOBITS)
        {
            Some(section) if section.bytes > LINK_BYTES_MAX => Err(ElfError::SharedLink),
            Some(section) => self.content(section).map(Some),
            None => Ok(None),
        }
    }

    /// The full table of symbols, else the one of the dynamic linker; `None` if there is neither.
    pub(super) fn symbols(&mut self) -> Result<Option<Symbols>, ElfError> {
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            let Some(symbols) = self
                .sections
                .iter()
                .find(|section: &&Section| section.kind == kind && section.bytes > 0)
                .cloned()
            else {
                continue;
            };
            let names = self
                .sections
                .get(symbols.link as usize)
                .cloned()
                .ok_or(ElfError::Sections)?;
            self.count_bytes(&symbols.name, symbols.bytes)?;
            self.count_bytes(&names.name, names.bytes)?;
            let mut entries = self.content(&symbols)?;
            for entry in entries.as_chunks_mut::<ENTRY_BYTES>().0 {
                let address = self.base.apply(long(entry, SYMBOL_ADDRESS_AT));
                entry[SYMBOL_ADDRESS_AT..][..8].copy_from_slice(&address.to_le_bytes());
            }
            return Ok(Some(Symbols {
                entries,
                names: self.content(&names)?,
                code_ends: self
                    .sections
                    .iter()
                    .map(|section| section.code_end(self.base))
                    .collect(),
                is_dynamic: kind == SHT_DYNSYM,
            }));
        }
        Ok(None)
    }

    /// Reads and decompresses what leads to functions, files and lines.
    pub(super) fn debug_sections(&mut self) -> Result<DebugSections, ElfError> {
        self.sections_named(SECTIONS.map(|id| (id, id.name())))
    }

    /// Likewise of a file with split debug information.
    pub(super) fn split_sections(&mut self) -> Result<DebugSections, ElfError> {
        self.sections_named(SPLIT_SECTIONS.map(|id| (id, id.dwo_name().unwrap_or_default())))
    }

    fn sections_named(
        &mut self,
        wanted: impl IntoIterator<Item = (SectionId, &'static str)>,
    ) -> Result<DebugSections, ElfError> {
        let mut read = Vec::new();
        for (id, name) in wanted {
            let old_name = name.replacen(".debug_", ".zdebug_", 1);
            let Some(section) = self
                .sections
                .iter()
                .find(|section: &&Section| {
                    let is_named = section.name == name || section.name == old_name;
                    is_named && section.kind != SHT_NOBITS && section.bytes > 0
                })
                .cloned()
            else {
                continue;
            };
            let content = if section.flags & SHF_COMPRESSED != 0 {
                self.decompressed(&section, false)?
            } else if section.name == old_name {
                self.decompressed(&section, true)?
            } else {
                self.count_bytes(&section.name, section.bytes)?;
                self.content(&section)?
            };
            read.push((id, content));
        }
        Ok(DebugSections {
            sections: read,
            base: self.base,
        })
    }

    fn count_bytes(&mut self, section: &str, bytes: u64) -> Result<(), ElfError> {
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        if self.read_bytes > BYTES_MAX {
            return Err(ElfError::TooLarge {
                section: section.to_owned(),
                bytes: self.read_bytes,
            });
        }
        Ok(())
    }

    fn content(&self, section: &Section) -> Result<Vec<u8>, ElfError> {
        let mut content = vec![0; section.bytes as usize];
        self.source.read_at(section.offset, &mut content)?;
        Ok(content)
    }

    /// `is_gnu`: by GNU tools before there was a standard.
    fn decompressed(&mut self, section: &Section, is_gnu: bool) -> Result<Vec<u8>, ElfError> {
        let failed = |reason| ElfError::Compression {
            section: section.name.clone(),
            reason,
        };
        let header_bytes = if is_gnu { 12 } else { 24 };
        let compressed = section.bytes;
        if compressed < header_bytes {
            return Err(failed("its header is missing"));
        }
        let mut header = vec![0; header_bytes as usize];
        self.source.read_at(section.offset, &mut header)?;
        let decompressed = match (is_gnu, header.starts_with(b"ZLIB")) {
            (true, true) => u64::from_be_bytes(*header[4..].first_chunk().unwrap_or(&[0; 8])),
            (true, false) => return Err(failed("its header is damaged")),
            (false, _) => long(&header, 8),
        };
        if decompressed > HARMLESS_BYTES.max(compressed.saturating_mul(COMPRESSION_RATIO_MAX)) {
            let section = section.name.clone();
            return Err(ElfError::Bomb {
                section,
                compressed,
                decompressed,
            });
        }
        self.count_bytes(&section.name, decompressed)?;
        let content = self.content(section)?;
        let input = &content[header_bytes as usize..];
        let limit = decompressed as usize;
        const ZLIB: u32 = 1;
        const ZSTD: u32 = 2;
        let unchecked = match if is_gnu { ZLIB } else { word(&header, 0) } {
            ZLIB => decompress_to_vec_zlib_with_limit(input, limit).ok(),
            ZSTD => zstd::bulk::decompress(input, limit).ok(),
            _ => return Err(failed("only zlib and zstd are supported")),
        };
        let output = unchecked.filter(|output| output.len() == limit);
        output.ok_or_else(|| failed("its data is damaged, or not as long as its header says"))
    }
}

impl Section {
    fn parse(entry: &[u8]) -> Section {
        Section {
            name: String::new(),
            kind: word(entry, 4),
            flags: long(entry, 8),
            address: long(entry, 16),
            offset: long(entry, 24),
            bytes: long(entry, 32),
            link: word(entry, 40),
        }
    }
}

impl Section {
    /// Where it ends, if it has code.
    fn code_end(&self, base: Base) -> Option<u64> {
        let is_code = self.flags & SHF_EXECINSTR != 0;
        is_code.then(|| base.apply(self.address).saturating_add(self.bytes))
    }
}

impl SymbolTable for Symbols {
    fn count(&self) -> u64 {
        (self.entries.len() / ENTRY_BYTES) as u64
    }

    fn entry(&self, number: u64) -> Option<[u8; ENTRY_BYTES]> {
        self.entries
            .as_chunks()
            .0
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    fn code_end(&self, section: u16) -> Option<u64> {
        self.code_ends.get(usize::from(section)).copied().flatten()
    }

    fn name(&self, offset: u32, bytes_max: u64) -> Option<String> {
        let names = self.names.get(offset as usize..)?;
        let rest = &names[..names.len().min(bytes_max as usize)];
        let end = rest
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(rest.len());
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    }
}

fn name_at(source: &impl ReadAt, names: &Section, offset: u32) -> String {
    let at = names.offset.saturating_add(offset.into());
    let end = names.offset.saturating_add(names.bytes);
    let mut name = vec![0; SECTION_NAME_BYTES_MAX.min(end.saturating_sub(at) as usize)];
    if source.read_at(at, &mut name).is_err() {
        return String::new();
    }
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

fn build_id_in(mut notes: &[u8]) -> Option<String> {
    while notes.len() >= 12 {
        let [name_bytes, bytes, kind] = [0, 4, 8].map(|at| word(notes, at));
        let name = notes.get(12..)?.get(..name_bytes as usize)?;
        let value_at = 12 + (name_bytes as usize).next_multiple_of(4);
        let value = notes.get(value_at..)?.get(..bytes as usize)?;
        if kind == GNU_BUILD_ID && name == b"GNU\0" {
            return Some(hexadecimal(value));
        }
        notes = notes.get(value_at + (bytes as usize).next_multiple_of(4)..)?;
    }
    None
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn short(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
