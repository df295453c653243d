//! Arrays of a symbol file in compressed blocks.

use std::io::{self, Write};
use std::ops::Range;

use super::lookup::SymbolFileError;
use super::{BLOCK_BYTES, ReadAt, has_checksum};

/// The arrays, in their order in the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Array {
    /// Starts of ranges of addresses.
    Starts,
    /// By range: its innermost frame, or 0.
    Innermost,
    /// Frames.
    Frames,
    /// By text: where it ends.
    TextEnds,
    Texts,
}

impl Array {
    pub(super) const ALL: [Array; 5] = [
        Array::Starts,
        Array::Innermost,
        Array::Frames,
        Array::TextEnds,
        Array::Texts,
    ];

    /// Bytes of an element.
    const fn element_bytes(self) -> usize {
        match self {
            Array::Starts | Array::Innermost | Array::TextEnds => 4,
            Array::Frames => 16,
            Array::Texts => 1,
        }
    }

    /// Elements of a block; the last block may have fewer.
    pub(super) const fn per_block(self) -> usize {
        BLOCK_BYTES / self.element_bytes()
    }

    /// Numbers that rise mostly are stored as differences, which compress better.
    const fn has_differences(self) -> bool {
        matches!(self, Array::Starts | Array::Innermost | Array::TextEnds)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Array::Starts => "starts",
            Array::Innermost => "innermost frames",
            Array::Frames => "frames",
            Array::TextEnds => "ends of texts",
            Array::Texts => "texts",
        }
    }
}

/// Where a block is, and what it must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) at: u64,
    pub(super) bytes: u32,
    pub(super) crc: u32,
    /// The first number of the block.
    pub(super) first: u32,
}

/// Bytes of an entry of the index.
pub(super) const INDEX_ENTRY_BYTES: usize = 12;

/// Writes the blocks of `content`, an array's elements. Returns their entries for the index.
pub(super) fn write_blocks(
    output: &mut impl Write,
    array: Array,
    content: &[u8],
) -> io::Result<Vec<u8>> {
    let mut index = Vec::new();
    for part in content.chunks(BLOCK_BYTES) {
        let mut part = part.to_vec();
        let first = first_number(&part);
        if array.has_differences() {
            to_differences(&mut part);
        }
        let compressed = zstd::bulk::compress(&part, zstd::DEFAULT_COMPRESSION_LEVEL)?;
        output.write_all(&compressed)?;
        let bytes = u32::try_from(compressed.len()).map_err(io::Error::other)?;
        for number in [bytes, crc32fast::hash(&compressed), first] {
            index.extend(number.to_le_bytes());
        }
    }
    Ok(index)
}

/// Reads one block with `elements` elements.
pub(super) fn read_block(
    source: &impl ReadAt,
    array: Array,
    block: &Block,
    elements: usize,
) -> Result<Vec<u8>, SymbolFileError> {
    let mut compressed = vec![0; block.bytes as usize];
    source.read_at(block.at, &mut compressed)?;
    let part = array.name();
    if !has_checksum(&compressed, block.crc) {
        return Err(SymbolFileError::Checksum { part });
    }
    let bytes = elements * array.element_bytes();
    let mut content = zstd::bulk::decompress(&compressed, bytes)
        .map_err(|_| SymbolFileError::Contradiction { part })?;
    if content.len() != bytes {
        return Err(SymbolFileError::Contradiction { part });
    }
    if array.has_differences() {
        from_differences(&mut content);
    }
    if array.element_bytes() == 4 && first_number(&content) != block.first {
        return Err(SymbolFileError::Contradiction { part });
    }
    Ok(content)
}

/// The elements of each block of an array of `count` elements.
pub(super) fn blocks_of(array: Array, count: usize) -> impl Iterator<Item = Range<usize>> {
    let step = array.per_block();
    (0..count)
        .step_by(step)
        .map(move |start| start..count.min(start + step))
}

fn first_number(content: &[u8]) -> u32 {
    content
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn to_differences(content: &mut [u8]) {
    let mut last = 0u32;
    for element in content.as_chunks_mut::<4>().0 {
        let number = u32::from_le_bytes(*element);
        *element = number.wrapping_sub(last).to_le_bytes();
        last = number;
    }
}

fn from_differences(content: &mut [u8]) {
    let mut last = 0u32;
    for element in content.as_chunks_mut::<4>().0 {
        last = last.wrapping_add(u32::from_le_bytes(*element));
        *element = last.to_le_bytes();
    }
}
