//! A symbol file under construction.

use std::io::{self, Write};

use profiler_core::Frame;
use rustc_hash::FxHashMap;

use super::blocks::{Array, write_blocks};
use super::reduce::ReduceError;
use super::segments::Segments;
use super::trailer::{Facts, MAGIC, Trailer};

/// Most ranges of addresses: 64 Mi, ten times what the largest programs have.
pub(super) const RANGES_MAX: usize = 64 << 20;
/// Most frames.
pub(super) const FRAMES_MAX: usize = 64 << 20;
/// Most texts.
pub(super) const TEXTS_MAX: usize = 32 << 20;
/// Most bytes of all texts, but for the segments.
pub(super) const TEXT_BYTES_MAX: usize = 1 << 30;
/// Most functions that are inlined into each other.
pub(super) const DEPTH_MAX: usize = 80;

/// A frame: its caller (0 for a compiled function), function, file and line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FrameRow {
    pub(super) caller: u32,
    pub(super) function: u32,
    pub(super) file: u32,
    pub(super) line: u32,
}

/// Everything that a symbol file holds.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// Start of a range, and its innermost frame; 0 for none.
    ranges: Vec<(u32, u32)>,
    frames: Vec<FrameRow>,
    frame_ids: FxHashMap<FrameRow, u32>,
    text_ids: FxHashMap<Box<str>, u32>,
    text_ends: Vec<u32>,
    texts: Vec<u8>,
    has_segments: bool,
}

impl Builder {
    /// Adds the range that starts at `start`. Ranges may come in any order.
    pub(super) fn add_range(&mut self, start: u32, innermost: u32) -> Result<(), ReduceError> {
        if self.ranges.len() == RANGES_MAX {
            return Err(ReduceError::TooMany {
                what: "ranges",
                max: RANGES_MAX,
            });
        }
        self.ranges.push((start, innermost));
        Ok(())
    }

    /// The number of these frames' innermost one, from 1.
    pub(super) fn intern_chain(&mut self, frames: &[Frame<String>]) -> Result<u32, ReduceError> {
        frames.iter().try_fold(0, |caller, frame| {
            let function = self.intern_text(&frame.function)?;
            let file = self.intern_text(&frame.file)?;
            self.intern(FrameRow {
                caller,
                function,
                file,
                line: frame.line,
            })
        })
    }

    /// The number of a frame, from 1.
    pub(super) fn intern(&mut self, row: FrameRow) -> Result<u32, ReduceError> {
        if let Some(id) = self.frame_ids.get(&row) {
            return Ok(*id);
        }
        if self.frames.len() == FRAMES_MAX {
            return Err(ReduceError::TooMany {
                what: "frames",
                max: FRAMES_MAX,
            });
        }
        self.frames.push(row);
        let id = self.frames.len() as u32;
        self.frame_ids.insert(row, id);
        Ok(id)
    }

    /// The number of a text, from 0.
    pub(super) fn intern_text(&mut self, text: &str) -> Result<u32, ReduceError> {
        if let Some(id) = self.text_ids.get(text) {
            return Ok(*id);
        }
        if self.text_ends.len() == TEXTS_MAX || self.texts.len() + text.len() > TEXT_BYTES_MAX {
            return Err(ReduceError::TooMany {
                what: "bytes of names",
                max: TEXT_BYTES_MAX,
            });
        }
        let id = self.text_ends.len() as u32;
        self.texts.extend_from_slice(text.as_bytes());
        self.text_ends.push(self.texts.len() as u32);
        self.text_ids.insert(text.into(), id);
        Ok(id)
    }

    /// Adds where the file has its code, as the last text, which no frame has. Programs that do not know of it
    /// ignore it.
    pub(super) fn add_segments(&mut self, segments: &Segments) {
        if segments.is_empty() {
            return;
        }
        self.texts.extend_from_slice(segments.to_text().as_bytes());
        self.text_ends.push(self.texts.len() as u32);
        self.has_segments = true;
    }

    /// Whether no address has a name.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Writes the file. `facts` lack the counts.
    pub(super) fn write(mut self, facts: Facts, output: &mut impl Write) -> io::Result<Facts> {
        self.frame_ids = FxHashMap::default();
        self.text_ids = FxHashMap::default();
        self.ranges.sort_unstable();
        // Of two ranges with one start the last counts; neighbors with one frame are one range.
        self.ranges.dedup_by(|next, kept| {
            let same_start = next.0 == kept.0;
            if same_start {
                kept.1 = next.1;
            }
            same_start
        });
        self.ranges.dedup_by_key(|range| range.1);
        let facts = Facts {
            ranges: self.ranges.len() as u32,
            frames: self.frames.len() as u32,
            texts: self.text_ends.len() as u32,
            text_bytes: self.texts.len() as u32,
            has_segments: self.has_segments,
            ..facts
        };
        let mut output = Counted { output, bytes: 0 };
        output.write_all(&MAGIC)?;
        let mut index = Vec::new();
        for array in Array::ALL {
            let content = self.content(array);
            index.extend(write_blocks(&mut output, array, &content)?);
        }
        let trailer = Trailer {
            facts: facts.clone(),
            index_at: output.bytes,
            index_crc: crc32fast::hash(&index),
        };
        output.write_all(&index)?;
        let trailer = trailer
            .to_bytes()
            .ok_or_else(|| io::Error::other("the build id is not hexadecimal"))?;
        output.write_all(&trailer)?;
        Ok(facts)
    }

    fn content(&mut self, array: Array) -> Vec<u8> {
        match array {
            Array::Starts => bytes_of(self.ranges.iter().map(|range| range.0)),
            Array::Innermost => bytes_of(self.ranges.iter().map(|range| range.1)),
            Array::Frames => bytes_of(
                self.frames
                    .iter()
                    .flat_map(|frame| [frame.caller, frame.function, frame.file, frame.line]),
            ),
            Array::TextEnds => bytes_of(self.text_ends.iter().copied()),
            Array::Texts => std::mem::take(&mut self.texts),
        }
    }
}

fn bytes_of(numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    numbers.flat_map(u32::to_le_bytes).collect()
}

struct Counted<'w, W> {
    output: &'w mut W,
    bytes: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
