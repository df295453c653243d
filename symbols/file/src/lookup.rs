//! Lookups in a symbol file.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use profiler_core::{CodePlace, Frame, FrameKind};
use rustc_hash::FxHashMap;

use super::blocks::{Array, Block, INDEX_ENTRY_BYTES, blocks_of, read_block};
use super::builder::{DEPTH_MAX, FRAMES_MAX, FrameRow, RANGES_MAX, TEXT_BYTES_MAX, TEXTS_MAX};
use super::segments::Segments;
use super::trailer::{Facts, MAGIC, TRAILER_BYTES, Trailer};
use super::{BLOCK_BYTES, NAMING_VERSION, ReadAt, has_checksum};

/// Largest compressed block. Zstd adds less than a hundredth to what it cannot compress.
const COMPRESSED_BYTES_MAX: u32 = (BLOCK_BYTES + BLOCK_BYTES / 64) as u32;
/// Longest text.
const TEXT_MAX: usize = profiler_core::limits::NAME_BYTES_MAX;

/// Why a symbol file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SymbolFileError {
    /// It could not be read.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is not a symbol file; `emberline symbols upload` makes one from an ELF file")]
    NotSymbols,
    /// Its end is missing.
    #[error("it is truncated: its last bytes are missing")]
    Truncated,
    /// It was made by other rules for names.
    #[error(
        "its names are of version {found}, expected {NAMING_VERSION}; make it again with this \
         version of emberline"
    )]
    Version {
        /// The version of its names.
        found: u32,
    },
    /// Its bytes changed.
    #[error("its {part} are damaged: the checksum is wrong")]
    Checksum {
        /// The damaged part.
        part: &'static str,
    },
    /// Its parts do not fit each other.
    #[error("its {part} contradict the rest of the file")]
    Contradiction {
        /// The part that does not fit.
        part: &'static str,
    },
}

/// By place, as [`CodePlace::number`]: its functions, the compiled one first; empty if none is known.
pub type Names = BTreeMap<u64, Vec<Frame<Arc<str>>>>;

/// An open symbol file.
#[derive(Debug)]
pub struct SymbolFile<S> {
    source: S,
    facts: Facts,
    /// By array.
    index: [Vec<Block>; 5],
}

impl<S: ReadAt> SymbolFile<S> {
    /// Opens it: reads its index. Its blocks are checked when they are read.
    ///
    /// # Errors
    /// [`SymbolFileError`].
    pub fn open(source: S) -> Result<SymbolFile<S>, SymbolFileError> {
        let bytes = source.bytes()?;
        let mut magic = [0; MAGIC.len()];
        let mut trailer = [0; TRAILER_BYTES];
        let trailer_at = bytes
            .checked_sub(TRAILER_BYTES as u64)
            .ok_or(SymbolFileError::NotSymbols)?;
        source.read_at(0, &mut magic)?;
        if magic != MAGIC {
            return Err(SymbolFileError::NotSymbols);
        }
        source.read_at(trailer_at, &mut trailer)?;
        let Trailer {
            facts,
            index_at,
            index_crc,
        } = Trailer::parse(&trailer)?;
        let counts = Array::ALL.map(|array| count_of(&facts, array));
        let limits = [
            RANGES_MAX,
            RANGES_MAX,
            FRAMES_MAX,
            TEXTS_MAX,
            TEXT_BYTES_MAX,
        ];
        if counts.iter().zip(limits).any(|(count, max)| *count > max) {
            return Err(contradiction_in_index());
        }
        let blocks: usize = Array::ALL
            .iter()
            .zip(counts)
            .map(|(array, count)| count.div_ceil(array.per_block()))
            .sum();
        let index_bytes = blocks * INDEX_ENTRY_BYTES;
        if index_at.checked_add(index_bytes as u64) != Some(trailer_at) {
            return Err(contradiction_in_index());
        }
        let mut entries = vec![0; index_bytes];
        source.read_at(index_at, &mut entries)?;
        if !has_checksum(&entries, index_crc) {
            return Err(SymbolFileError::Checksum { part: "index" });
        }
        let mut at = MAGIC.len() as u64;
        let mut entries = entries.as_chunks::<INDEX_ENTRY_BYTES>().0.iter();
        let mut index: [Vec<Block>; 5] = Default::default();
        for (array, count) in Array::ALL.into_iter().zip(counts) {
            for entry in entries.by_ref().take(count.div_ceil(array.per_block())) {
                let [bytes, crc, first] = [0, 4, 8].map(|start| number_at(entry, start));
                if bytes > COMPRESSED_BYTES_MAX {
                    return Err(contradiction_in_index());
                }
                index[array as usize].push(Block {
                    at,
                    bytes,
                    crc,
                    first,
                });
                at += u64::from(bytes);
            }
        }
        if at != index_at {
            return Err(contradiction_in_index());
        }
        Ok(SymbolFile {
            source,
            facts,
            index,
        })
    }

    /// Facts about the file.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether it names every address as `other` does, and neither has more. Compares the checksums of all blocks, so
    /// both must be compressed alike.
    pub fn has_names_of<T>(&self, other: &SymbolFile<T>) -> bool {
        let source_bytes = other.facts.source_bytes;
        let facts = Facts {
            source_bytes,
            ..self.facts.clone()
        };
        facts == other.facts && self.index == other.index
    }

    /// Reads all of it: every number is in range, so that no lookup fails.
    ///
    /// # Errors
    /// [`SymbolFileError`].
    pub fn verify(&self) -> Result<(), SymbolFileError> {
        let Facts {
            frames,
            texts,
            text_bytes,
            ..
        } = self.facts;
        let mut last = None;
        self.each_block(Array::Starts, |block, _| {
            for start in numbers(block) {
                if last.is_some_and(|last| start <= last) {
                    return contradiction("starts");
                }
                last = Some(start);
            }
            Ok(())
        })?;
        self.each_block(Array::Innermost, |block, _| {
            let is_known = numbers(block).all(|frame| frame <= frames);
            if is_known {
                Ok(())
            } else {
                contradiction("innermost frames")
            }
        })?;
        let mut depths: Vec<u8> = vec![0];
        self.each_block(Array::Frames, |block, _| {
            for row in rows(block) {
                let depth = depths
                    .get(row.caller as usize)
                    .map_or(usize::MAX, |depth| usize::from(*depth) + 1);
                if depth > DEPTH_MAX || row.function >= texts || row.file >= texts {
                    return contradiction("frames");
                }
                depths.push(depth as u8);
            }
            Ok(())
        })?;
        let mut ends: Vec<u32> = vec![0];
        self.each_block(Array::TextEnds, |block, _| {
            for end in numbers(block) {
                let start = ends.last().copied().unwrap_or(0);
                if end < start || end > text_bytes || (end - start) as usize > TEXT_MAX {
                    return contradiction("ends of texts");
                }
                ends.push(end);
            }
            Ok(())
        })?;
        if ends.last() != Some(&text_bytes) {
            return contradiction("ends of texts");
        }
        self.verify_texts(&ends)?;
        self.segments().map(drop)
    }

    fn verify_texts(&self, ends: &[u32]) -> Result<(), SymbolFileError> {
        // The end of the last block may be the beginning of a text.
        let mut open: Vec<u8> = Vec::new();
        let mut next = 1;
        self.each_block(Array::Texts, |block, start| {
            let mut at = start;
            open.extend_from_slice(block);
            at += block.len();
            let mut used = 0;
            while let Some(end) = ends.get(next).filter(|end| **end as usize <= at) {
                let bytes = (*end - ends[next - 1]) as usize;
                let text = open.get(used..used + bytes);
                if text.is_none_or(|text| str::from_utf8(text).is_err()) {
                    return Err(SymbolFileError::Contradiction { part: "texts" });
                }
                used += bytes;
                next += 1;
            }
            open.drain(..used);
            Ok(())
        })
    }

    fn each_block(
        &self,
        array: Array,
        mut visit: impl FnMut(&[u8], usize) -> Result<(), SymbolFileError>,
    ) -> Result<(), SymbolFileError> {
        let elements = blocks_of(array, count_of(&self.facts, array));
        for (block, elements) in self.index[array as usize].iter().zip(elements) {
            visit(
                &read_block(&self.source, array, block, elements.len())?,
                elements.start,
            )?;
        }
        Ok(())
    }

    /// The functions at these places, each as [`CodePlace::number`]. Reads each block that it needs once.
    ///
    /// # Errors
    /// [`SymbolFileError`], if a part that it needs is damaged.
    pub fn lookup(&self, places: impl IntoIterator<Item = u64>) -> Result<Names, SymbolFileError> {
        let mut addresses = BTreeMap::new();
        let mut segments = None;
        for place in places {
            let address = match CodePlace::of(place) {
                CodePlace::Address(address) => Some(address),
                CodePlace::FileOffset(offset) => {
                    if segments.is_none() {
                        segments = Some(self.segments()?);
                    }
                    segments
                        .as_ref()
                        .and_then(|segments| segments.address_of(offset))
                }
            };
            addresses.insert(place, address);
        }
        let innermost = self.innermost(&addresses.values().flatten().copied().collect())?;
        let rows = self.frames_above(innermost.values().copied().collect())?;
        let needed = rows
            .values()
            .flat_map(|row| [row.function, row.file])
            .collect();
        let texts = self.texts(needed)?;
        let text = |id: u32| texts.get(&id).cloned().unwrap_or_default();
        let chain = |innermost: u32| {
            let mut frames = Vec::new();
            let mut next = innermost;
            while let Some(row) = rows.get(&next) {
                frames.push(Frame {
                    kind: FrameKind::Function,
                    function: text(row.function),
                    file: text(row.file),
                    line: row.line,
                    module: Arc::default(),
                    build_id: Arc::default(),
                    offset: 0,
                    inlined: row.caller != 0,
                });
                next = row.caller;
            }
            frames.reverse();
            frames
        };
        let innermost_at = |address: Option<u64>| innermost.get(&address?).copied();
        let names = addresses
            .into_iter()
            .map(|(place, address)| (place, chain(innermost_at(address).unwrap_or(0))));
        Ok(names.collect())
    }

    /// Where the module's file has its code; empty if it does not say that.
    fn segments(&self) -> Result<Segments, SymbolFileError> {
        let last = self
            .facts
            .texts
            .checked_sub(1)
            .filter(|_| self.facts.has_segments);
        let Some(last) = last else {
            return Ok(Segments::default());
        };
        let texts = self.texts(BTreeSet::from([last]))?;
        let segments = texts.get(&last).and_then(|text| Segments::parse(text));
        segments.ok_or(SymbolFileError::Contradiction { part: "segments" })
    }

    /// By address: the innermost frame; 0 for none.
    fn innermost(&self, addresses: &BTreeSet<u64>) -> Result<BTreeMap<u64, u32>, SymbolFileError> {
        let starts = &self.index[Array::Starts as usize];
        let mut open = None;
        let mut found = BTreeMap::new();
        for &address in addresses {
            let distance = address.checked_sub(self.facts.base);
            let small = distance.and_then(|distance| u32::try_from(distance).ok());
            let number = small.map_or(0, |address| {
                starts.partition_point(|block| block.first <= address)
            });
            let (Some(small), Some(number)) = (small, number.checked_sub(1)) else {
                found.insert(address, 0);
                continue;
            };
            if open.as_ref().is_none_or(|(known, _, _)| *known != number) {
                let read = |array| self.block(array, number);
                open = Some((number, read(Array::Starts)?, read(Array::Innermost)?));
            }
            let Some((_, starts, frames)) = &open else {
                continue;
            };
            let starts = starts.as_chunks::<4>().0;
            let after = starts.partition_point(|start| u32::from_le_bytes(*start) <= small);
            let frame = after
                .checked_sub(1)
                .and_then(|at| frames.as_chunks::<4>().0.get(at));
            found.insert(address, frame.map_or(0, |frame| u32::from_le_bytes(*frame)));
        }
        Ok(found)
    }

    /// These frames and those that they are inlined into.
    fn frames_above(
        &self,
        mut needed: BTreeSet<u32>,
    ) -> Result<FxHashMap<u32, FrameRow>, SymbolFileError> {
        let mut rows = FxHashMap::default();
        let mut open: Option<(usize, Vec<u8>)> = None;
        // Callers have smaller numbers, so each block is read once.
        while let Some(id) = needed.pop_last() {
            let Some(at) = id.checked_sub(1).filter(|at| *at < self.facts.frames) else {
                continue;
            };
            let number = at as usize / Array::Frames.per_block();
            if open.as_ref().is_none_or(|(known, _)| *known != number) {
                open = Some((number, self.block(Array::Frames, number)?));
            }
            let within = at as usize % Array::Frames.per_block();
            let row = open
                .as_ref()
                .and_then(|(_, block)| rows_at(block, within))
                .filter(|row| row.caller < id)
                .ok_or(SymbolFileError::Contradiction { part: "frames" })?;
            rows.insert(id, row);
            needed.insert(row.caller);
        }
        Ok(rows)
    }

    fn texts(&self, ids: BTreeSet<u32>) -> Result<FxHashMap<u32, Arc<str>>, SymbolFileError> {
        let mut ends = BlockReader::new(self, Array::TextEnds);
        let mut bounds = Vec::with_capacity(ids.len());
        for id in ids {
            let start = match id.checked_sub(1) {
                Some(before) => ends.number(before as usize)?,
                None => 0,
            };
            bounds.push((id, start as usize..ends.number(id as usize)? as usize));
        }
        let mut bytes = BlockReader::new(self, Array::Texts);
        let mut texts = FxHashMap::default();
        for (id, range) in bounds {
            if range.len() > TEXT_MAX {
                return Err(SymbolFileError::Contradiction {
                    part: "ends of texts",
                });
            }
            let text = String::from_utf8(bytes.range(range)?)
                .map_err(|_| SymbolFileError::Contradiction { part: "texts" })?;
            texts.insert(id, text.into());
        }
        Ok(texts)
    }

    fn block(&self, array: Array, number: usize) -> Result<Vec<u8>, SymbolFileError> {
        let elements = blocks_of(array, count_of(&self.facts, array)).nth(number);
        match (self.index[array as usize].get(number), elements) {
            (Some(block), Some(elements)) => read_block(&self.source, array, block, elements.len()),
            _ => Err(SymbolFileError::Contradiction { part: array.name() }),
        }
    }
}

fn contradiction_in_index() -> SymbolFileError {
    SymbolFileError::Contradiction { part: "index" }
}

fn contradiction<T>(part: &'static str) -> Result<T, SymbolFileError> {
    Err(SymbolFileError::Contradiction { part })
}

/// The last block of an array that was read.
struct BlockReader<'f, S> {
    file: &'f SymbolFile<S>,
    array: Array,
    open: Option<(usize, Vec<u8>)>,
}

impl<'f, S: ReadAt> BlockReader<'f, S> {
    fn new(file: &'f SymbolFile<S>, array: Array) -> Self {
        BlockReader {
            file,
            array,
            open: None,
        }
    }

    fn block(&mut self, number: usize) -> Result<&[u8], SymbolFileError> {
        if self.open.as_ref().is_none_or(|(known, _)| *known != number) {
            self.open = Some((number, self.file.block(self.array, number)?));
        }
        Ok(self.open.as_ref().map_or(&[], |(_, block)| block))
    }

    fn number(&mut self, at: usize) -> Result<u32, SymbolFileError> {
        let part = self.array.name();
        let within = at % self.array.per_block();
        let block = self.block(at / self.array.per_block())?;
        let number = block.as_chunks::<4>().0.get(within);
        number
            .map(|bytes| u32::from_le_bytes(*bytes))
            .ok_or(SymbolFileError::Contradiction { part })
    }

    fn range(&mut self, range: std::ops::Range<usize>) -> Result<Vec<u8>, SymbolFileError> {
        let mut bytes = Vec::with_capacity(range.len());
        let mut at = range.start;
        while at < range.end {
            let within = at % BLOCK_BYTES;
            let block = self.block(at / BLOCK_BYTES)?;
            let rest = block
                .get(within..)
                .filter(|rest| !rest.is_empty())
                .ok_or(SymbolFileError::Contradiction { part: "texts" })?;
            let part = &rest[..rest.len().min(range.end - at)];
            bytes.extend_from_slice(part);
            at += part.len();
        }
        Ok(bytes)
    }
}

fn count_of(facts: &Facts, array: Array) -> usize {
    let count = match array {
        Array::Starts | Array::Innermost => facts.ranges,
        Array::Frames => facts.frames,
        Array::TextEnds => facts.texts,
        Array::Texts => facts.text_bytes,
    };
    count as usize
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn numbers(block: &[u8]) -> impl Iterator<Item = u32> {
    block
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| u32::from_le_bytes(*bytes))
}

fn rows(block: &[u8]) -> impl Iterator<Item = FrameRow> {
    (0..block.len() / 16).filter_map(|at| rows_at(block, at))
}

fn rows_at(block: &[u8], at: usize) -> Option<FrameRow> {
    let row = block.get(at * 16..at * 16 + 16)?;
    let [caller, function, file, line] = [0, 4, 8, 12].map(|start| number_at(row, start));
    Some(FrameRow {
        caller,
        function,
        file,
        line,
    })
}
