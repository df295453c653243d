//! Sections of a file as input of `gimli`.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Error, LittleEndian, Reader, ReaderOffsetId, Result};

use super::file::CachedFile;
use system::pages::Pages;

/// Where the bytes of a section are.
#[derive(Clone, Debug)]
pub(super) enum Section {
    /// In a file.
    File { file: Rc<CachedFile>, start: u64 },
    /// In memory, because the file has it compressed.
    Memory(Arc<Pages>),
    /// The file does not have it.
    Missing,
}

impl Section {
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        match self {
            Section::File { file, start } => file.read(start + at, buffer).map_err(|_| Error::Io),
            Section::Memory(bytes) => {
                let start = usize::try_from(at).map_err(|_| Error::Io)?;
                let source = bytes
                    .get(start..)
                    .and_then(|bytes| bytes.get(..buffer.len()));
                buffer.copy_from_slice(source.ok_or(Error::Io)?);
                Ok(())
            }
            Section::Missing => Err(Error::Io),
        }
    }

    fn byte(&self, at: u64) -> Result<u8> {
        match self {
            Section::File { file, start } => file.byte(start + at).map_err(|_| Error::Io),
            Section::Memory(bytes) => {
                let at = usize::try_from(at).map_err(|_| Error::Io)?;
                bytes.get(at).copied().ok_or(Error::Io)
            }
            Section::Missing => Err(Error::Io),
        }
    }

    fn find(&self, byte: u8, from: u64, to: u64) -> Result<Option<u64>> {
        match self {
            Section::File { file, start } => {
                let found = file
                    .find(byte, start + from, start + to)
                    .map_err(|_| Error::Io)?;
                Ok(found.map(|at| at - start))
            }
            Section::Memory(bytes) => {
                let part = bytes.get(from as usize..to as usize).ok_or(Error::Io)?;
                Ok(part
                    .iter()
                    .position(|next| *next == byte)
                    .map(|at| from + at as u64))
            }
            Section::Missing => Ok(None),
        }
    }
}

/// Bytes that are read ahead.
const WINDOW_BYTES: u64 = 32;

/// A range of a section.
#[derive(Clone, Debug)]
pub(super) struct SectionReader {
    section: Rc<Section>,
    at: u64,
    end: u64,
    /// The bytes from `window_at` to `window_end`: most reads are of the next byte, and the cache of a file takes longer.
    window: [u8; WINDOW_BYTES as usize],
    window_at: u64,
    window_end: u64,
}

impl SectionReader {
    pub(super) fn new(section: Section, bytes: u64) -> SectionReader {
        SectionReader {
            section: Rc::new(section),
            at: 0,
            end: bytes,
            window: [0; WINDOW_BYTES as usize],
            window_at: 0,
            window_end: 0,
        }
    }

    pub(super) fn missing() -> SectionReader {
        SectionReader::new(Section::Missing, 0)
    }

    fn checked(&self, length: u64) -> Result<()> {
        if length > self.end - self.at {
            return Err(Error::UnexpectedEof(self.offset_id()));
        }
        Ok(())
    }

    /// Reads the next byte, and those after it as far as they are in the range. The end of a file that was truncated is
    /// read byte by byte.
    fn read_ahead(&mut self) -> Result<u8> {
        let length = WINDOW_BYTES.min(self.end - self.at);
        self.window_at = self.at;
        self.window_end = self.at;
        let window = &mut self.window[..length as usize];
        if self.section.read(self.at, window).is_err() {
            return self.section.byte(self.at);
        }
        self.window_end += length;
        Ok(self.window[0])
    }
}

/// Longest slice that is copied; names and paths are shorter.
const SLICE_BYTES_MAX: u64 = 64 << 10;

impl Reader for SectionReader {
    type Endian = LittleEndian;
    type Offset = usize;

    fn endian(&self) -> LittleEndian {
        LittleEndian
    }

    fn len(&self) -> usize {
        (self.end - self.at) as usize
    }

    fn empty(&mut self) {
        self.end = self.at;
    }

    fn truncate(&mut self, length: usize) -> Result<()> {
        self.checked(length as u64)?;
        self.end = self.at + length as u64;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.at.saturating_sub(base.at) as usize
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.at)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        let within = (self.at..=self.end).contains(&id.0);
        within.then(|| (id.0 - self.at) as usize)
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let found = self.section.find(byte, self.at, self.end)?;
        found
            .map(|at| (at - self.at) as usize)
            .ok_or(Error::UnexpectedEof(self.offset_id()))
    }

    fn skip(&mut self, length: usize) -> Result<()> {
        self.checked(length as u64)?;
        self.at += length as u64;
        Ok(())
    }

    fn split(&mut self, length: usize) -> Result<Self> {
        let mut part = self.clone();
        part.truncate(length)?;
        self.at = part.end;
        Ok(part)
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        if self.end - self.at > SLICE_BYTES_MAX {
            return Err(Error::Io);
        }
        let mut bytes = vec![0; self.len()];
        self.section.read(self.at, &mut bytes)?;
        Ok(bytes.into())
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        let text = String::from_utf8(self.to_slice()?.into_owned());
        Ok(text.map_err(|_| Error::BadUtf8)?.into())
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        let bytes = self.to_slice()?.into_owned();
        let text = String::from_utf8(bytes);
        Ok(text
            .unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned())
            .into())
    }

    fn read_slice(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.checked(buffer.len() as u64)?;
        self.section.read(self.at, buffer)?;
        self.at += buffer.len() as u64;
        Ok(())
    }

    fn read_u8(&mut self) -> Result<u8> {
        self.checked(1)?;
        let byte = if (self.window_at..self.window_end).contains(&self.at) {
            self.window[(self.at - self.window_at) as usize]
        } else {
            self.read_ahead()?
        };
        self.at += 1;
        Ok(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::ChunkCache;
    use super::*;

    #[test]
    fn bytes_are_read_ahead_within_the_range_and_up_to_the_end_of_the_file() {
        let cache = ChunkCache::new(None).expect("memory");
        let content: Vec<u8> = (0..100).collect();
        let (file, _) = CachedFile::in_memory(content, &cache);
        let section = Section::File {
            file: Rc::new(file),
            start: 10,
        };
        // Its last 10 bytes are beyond the end of the file.
        let mut reader = SectionReader::new(section, 100);
        for expected in 10..50 {
            assert_eq!(reader.read_u8(), Ok(expected));
        }
        let mut part = reader.split(3).expect("a part");
        assert_eq!(reader.read_u8(), Ok(53));
        assert_eq!([(); 3].map(|()| part.read_u8()), [Ok(50), Ok(51), Ok(52)]);
        assert!(part.read_u8().is_err(), "beyond its range");
        let mut back = reader.clone();
        reader.skip(41).expect("in the section");
        for expected in 95..100 {
            assert_eq!(reader.read_u8(), Ok(expected));
        }
        assert_eq!(reader.read_u8(), Err(Error::Io));
        assert_eq!(back.read_u8(), Ok(54));
    }
}
