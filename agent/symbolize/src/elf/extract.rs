//! The part of an ELF file that names functions, as a smaller ELF file.
//!
//! The smaller file has the same program headers and sections, of which only those with symbols and lines have
//! content. It depends on nothing but the larger file. So every process that has the file makes the same bytes
//! of it, and another one can continue where one left off.

use symbols::SECTIONS;

use super::{
    CachedFile, Elf, HEADER_BYTES, SECTION_HEADER_BYTES, SHT_NOBITS, SHT_NOTE, SMALL_BYTES_MAX,
    SectionHeader, short, word,
};
use crate::file::Unreadable;

const SHT_NULL: u32 = 0;

/// Offsets of fields in the header of the file.
const PROGRAM_HEADERS_AT: usize = 32;
const SECTIONS_AT: usize = 40;
const PROGRAM_HEADER_SIZE: usize = 54;
const PROGRAM_HEADERS_COUNT: usize = 56;
const NAMES_INDEX: usize = 62;
/// Offsets of fields in the header of a section.
const KIND: usize = 4;
const OFFSET: usize = 24;

/// The layout of the smaller file.
#[derive(Debug)]
pub(crate) struct Extract<'e> {
    file: &'e CachedFile,
    /// The header of the file and those of its sections.
    headers: Vec<u8>,
    /// The parts that follow the headers.
    parts: Vec<Part>,
    bytes: u64,
}

/// A part of the larger file.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Where it is in the smaller file.
    at: u64,
    /// Where it is in the larger file.
    offset: u64,
    bytes: u64,
}

impl Elf {
    /// The smaller file; `None` if this one cannot be read or names nothing.
    pub(crate) fn extract(&self) -> Option<Extract<'_>> {
        let mut header = [0; HEADER_BYTES];
        self.file.read(0, &mut header).ok()?;
        let table = word(&header, SECTIONS_AT)?;
        let names = usize::from(short(&header, NAMES_INDEX)?);
        let symbols = self.symbols_index();
        let strings = symbols.map(|symbols| self.sections[symbols].link as usize);
        let is_needed = |index: usize, section: &SectionHeader| {
            index == names
                || Some(index) == symbols
                || Some(index) == strings
                || section.is_note()
                || section.has_lines()
        };
        let has_lines = self.sections.iter().any(SectionHeader::has_lines);
        if symbols.is_none() && !has_lines {
            return None;
        }
        let sections_end = HEADER_BYTES + self.sections.len() * SECTION_HEADER_BYTES;
        let program_headers_at = word(&header, PROGRAM_HEADERS_AT)?;
        let program_headers_bytes = u64::from(short(&header, PROGRAM_HEADER_SIZE)?)
            * u64::from(short(&header, PROGRAM_HEADERS_COUNT)?);
        let mut headers = Vec::with_capacity(sections_end);
        header[SECTIONS_AT..][..8].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
        header[PROGRAM_HEADERS_AT..][..8].copy_from_slice(&(sections_end as u64).to_le_bytes());
        headers.extend_from_slice(&header);
        let mut at = sections_end as u64 + program_headers_bytes;
        // They say which addresses the code in the file has.
        let mut parts = vec![Part {
            at: sections_end as u64,
            offset: program_headers_at,
            bytes: program_headers_bytes,
        }];
        for (index, section) in self.sections.iter().enumerate() {
            let mut entry = [0; SECTION_HEADER_BYTES];
            let entry_at = table.checked_add((index * SECTION_HEADER_BYTES) as u64)?;
            self.file.read(entry_at, &mut entry).ok()?;
            let has_content = section.bytes > 0 && section.kind != SHT_NOBITS;
            if has_content && is_needed(index, section) {
                entry[OFFSET..][..8].copy_from_slice(&at.to_le_bytes());
                parts.push(Part {
                    at,
                    offset: section.offset,
                    bytes: section.bytes,
                });
                at += section.bytes;
            } else if section.kind != SHT_NULL {
                entry[KIND..][..4].copy_from_slice(&SHT_NOBITS.to_le_bytes());
                entry[OFFSET..][..8].fill(0);
            }
            headers.extend_from_slice(&entry);
        }
        Some(Extract {
            file: &self.file,
            headers,
            parts,
            bytes: at,
        })
    }
}

impl SectionHeader {
    fn is_note(&self) -> bool {
        self.kind == SHT_NOTE && self.bytes <= SMALL_BYTES_MAX
    }

    /// Whether it leads to functions and lines, compressed or not.
    fn has_lines(&self) -> bool {
        let Some(name) = self
            .name
            .strip_prefix(".debug_")
            .or_else(|| self.name.strip_prefix(".zdebug_"))
        else {
            return false;
        };
        self.kind != SHT_NOBITS
            && self.bytes > 0
            && SECTIONS
                .iter()
                .any(|id| id.name().strip_prefix(".debug_") == Some(name))
    }
}

impl Extract<'_> {
    /// Bytes of the smaller file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes from `offset` on, at most `bytes_max`; none at the end. They are not kept in the cache.
    pub(crate) fn read(&self, offset: u64, bytes_max: usize) -> Result<Vec<u8>, Unreadable> {
        let rest = self.bytes.saturating_sub(offset);
        let bytes = usize::try_from(rest).unwrap_or(usize::MAX).min(bytes_max);
        let mut content = Vec::new();
        content.try_reserve_exact(bytes).map_err(|_| Unreadable)?;
        if let Some(headers) = usize::try_from(offset)
            .ok()
            .and_then(|at| self.headers.get(at..))
        {
            content.extend_from_slice(&headers[..headers.len().min(bytes)]);
        }
        let first = self
            .parts
            .partition_point(|part| part.at + part.bytes <= offset);
        for part in &self.parts[first..] {
            if content.len() == bytes {
                break;
            }
            let skipped = offset.saturating_sub(part.at);
            let rest = usize::try_from(part.bytes - skipped).unwrap_or(usize::MAX);
            let start = content.len();
            content.resize(start + rest.min(bytes - start), 0);
            self.file
                .read_uncached(part.offset + skipped, &mut content[start..])?;
        }
        Ok(content)
    }
}
