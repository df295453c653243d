//! Compressed debug sections. They cannot be read in parts, so they are decompressed into memory of
//! their own until the file's symbols are released.

use std::sync::Arc;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_PARSE_ZLIB_HEADER,
    TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::elf::{SectionHeader, half, word};
use super::file::CachedFile;
use super::section::{Section, SectionReader};
use system::pages::Pages;

/// Most decompressed bytes of one file. Beyond, its functions have names but no lines.
const BYTES_MAX: u64 = 128 << 20;
/// Compressed bytes that are read at once.
const INPUT_BYTES: usize = 32 << 10;
const ZLIB: u32 = 1;

/// How a section is compressed; the algorithm is zlib's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    /// By the ELF standard.
    Standard,
    /// By GNU tools before there was a standard.
    Gnu,
}

/// The decompressed sections of one file.
#[derive(Debug, Default)]
pub(super) struct Sections {
    known: Vec<(&'static str, Arc<Pages>)>,
}

impl Sections {
    /// The section's content; empty if it is too large, damaged or of an unknown algorithm.
    pub(super) fn section(
        &mut self,
        file: &CachedFile,
        name: &'static str,
        section: &SectionHeader,
        compression: Compression,
    ) -> SectionReader {
        let known = self.known.iter().find(|(known, _)| *known == name);
        let bytes = match known {
            Some((_, bytes)) => bytes.clone(),
            None => {
                let held: u64 = self.known.iter().map(|(_, bytes)| bytes.len() as u64).sum();
                let bytes = decompressed(file, section, compression, BYTES_MAX - held);
                let Some(bytes) = bytes.or_else(|| Pages::new(0)) else {
                    return SectionReader::missing();
                };
                let bytes = Arc::new(bytes);
                self.known.push((name, bytes.clone()));
                bytes
            }
        };
        let length = bytes.len() as u64;
        SectionReader::new(Section::Memory(bytes), length)
    }
}

fn decompressed(
    file: &CachedFile,
    section: &SectionHeader,
    compression: Compression,
    bytes_max: u64,
) -> Option<Pages> {
    let mut header = [0; 24];
    let (header_bytes, size) = match compression {
        Compression::Standard => {
            file.read(section.offset, &mut header).ok()?;
            (
                24,
                Some(word(&header, 8)?).filter(|_| half(&header, 0) == Some(ZLIB))?,
            )
        }
        Compression::Gnu => {
            file.read(section.offset, &mut header[..12]).ok()?;
            let size = u64::from_be_bytes(*header.get(4..)?.first_chunk()?);
            (12, Some(size).filter(|_| header.starts_with(b"ZLIB"))?)
        }
    };
    let size = Some(size).filter(|size| *size <= bytes_max)?;
    let mut output = Pages::new(usize::try_from(size).ok()?)?;
    let mut input = vec![0; INPUT_BYTES];
    let mut decompressor = Box::<DecompressorOxide>::default();
    let mut at = section.offset + header_bytes;
    let end = section.offset + section.bytes;
    let mut written = 0;
    while at < end {
        let length = INPUT_BYTES.min(usize::try_from(end - at).ok()?);
        file.read_uncached(at, &mut input[..length]).ok()?;
        let more = if at + (length as u64) < end {
            TINFL_FLAG_HAS_MORE_INPUT
        } else {
            0
        };
        let flags = TINFL_FLAG_PARSE_ZLIB_HEADER | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | more;
        let (status, read, wrote) = decompress(
            &mut decompressor,
            &input[..length],
            &mut output,
            written,
            flags,
        );
        written += wrote;
        at += read as u64;
        match status {
            TINFLStatus::Done => return (written == output.len()).then_some(output),
            TINFLStatus::NeedsMoreInput if read > 0 => {}
            _ => return None,
        }
    }
    None
}
