//! Pages of a column, decompressed by one decoder for each thread.
//!
//! Parquet's own reader makes an encoder and a decoder for each column that it opens. Both ask the processor for its
//! abilities, which leaves a virtual machine: a third of the time of queries that read many small files.

use std::cell::RefCell;
use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::serialized_reader::SerializedPageReader;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::get_frame_content_size;

use super::bytes::ChunkBytes;

thread_local! {
    static DECODER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The pages of a column in a row group.
pub(super) struct Pages {
    /// Of `zstd`, still compressed.
    pages: SerializedPageReader<ChunkBytes>,
    is_zstd: bool,
    /// No page has more bytes than its column.
    bytes_max: usize,
}

impl Pages {
    /// Reads `bytes`, which are those of the column `chunk` in a row group of `rows` rows. Without `locations`, pages cannot
    /// be skipped unread.
    pub(super) fn new(
        bytes: ChunkBytes,
        chunk: &ColumnChunkMetaData,
        rows: usize,
        locations: Option<Vec<PageLocation>>,
    ) -> Result<Pages> {
        let is_zstd = matches!(chunk.compression(), Compression::ZSTD(_));
        let plain = is_zstd.then(|| undecoded(chunk)).transpose()?;
        let chunk = plain.as_ref().unwrap_or(chunk);
        Ok(Pages {
            bytes_max: usize::try_from(chunk.uncompressed_size())?,
            pages: SerializedPageReader::new(Arc::new(bytes), chunk, rows, locations)?,
            is_zstd,
        })
    }

    /// Decompresses a page.
    fn expanded(&self, mut page: Page) -> Result<Page> {
        match &mut page {
            Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => {
                *buf = decompressed(buf, 0, self.bytes_max)?;
            }
            // Its levels are not compressed.
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed: true,
                ..
            } => {
                let levels = def_levels_byte_len.saturating_add(*rep_levels_byte_len);
                *buf = decompressed(buf, levels as usize, self.bytes_max)?;
            }
            Page::DataPageV2 { .. } => {}
        }
        Ok(page)
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        match page {
            Some(page) if self.is_zstd => self.expanded(page).map(Some),
            page => Ok(page),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

/// A column whose pages Parquet's reader returns as they are.
fn undecoded(chunk: &ColumnChunkMetaData) -> Result<ColumnChunkMetaData> {
    let builder = chunk.clone().into_builder();
    builder.set_compression(Compression::UNCOMPRESSED).build()
}

/// The first `plain` bytes as they are, and the others decompressed, to at most `bytes_max` bytes.
fn decompressed(bytes: &Bytes, plain: usize, bytes_max: usize) -> Result<Bytes> {
    let (plain, compressed) = bytes
        .split_at_checked(plain)
        .ok_or_else(|| ParquetError::EOF("a page ends in its levels".into()))?;
    if compressed.is_empty() {
        return Ok(bytes.clone());
    }
    // Frames that were written as a stream do not have their length.
    let length = match get_frame_content_size(compressed) {
        Ok(Some(bytes)) => usize::try_from(bytes).unwrap_or(usize::MAX),
        Ok(None) | Err(_) => bytes_max,
    };
    if length > bytes_max {
        return Err(ParquetError::General(
            "a page has more bytes than its column".into(),
        ));
    }
    let mut all = Vec::with_capacity(plain.len() + length);
    all.extend_from_slice(plain);
    let mut end = Cursor::new(&mut all);
    end.set_position(plain.len() as u64);
    DECODER.with_borrow_mut(|decoder| {
        let decoder = match decoder {
            Some(decoder) => decoder,
            None => decoder.insert(Decompressor::new()?),
        };
        decoder.decompress_to_buffer(compressed, &mut end)
    })?;
    Ok(all.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A frame as `zstd` writes it if it knows the length, and as a stream.
    fn frames(content: &[u8]) -> [Vec<u8>; 2] {
        let mut stream = zstd::Encoder::new(Vec::new(), 1).unwrap();
        stream.write_all(content).unwrap();
        [
            zstd::bulk::compress(content, 1).unwrap(),
            stream.finish().unwrap(),
        ]
    }

    #[test]
    fn pages_with_and_without_their_length_are_read_up_to_the_limit() {
        let content = [7; 5_000];
        let [known, unknown] = frames(&content);
        assert_eq!(get_frame_content_size(&known).unwrap(), Some(5_000));
        assert_eq!(get_frame_content_size(&unknown).unwrap(), None);
        for frame in [known, unknown] {
            let page = Bytes::from([&b"levels"[..], &frame].concat());
            let read = decompressed(&page, 6, 5_000).unwrap();
            assert_eq!(read, [&b"levels"[..], &content].concat());
            assert!(decompressed(&page, 6, 4_000).is_err());
            assert!(decompressed(&page.slice(..page.len() - 1), 6, 5_000).is_err());
            assert!(decompressed(&page, page.len() + 1, 5_000).is_err());
            assert!(decompressed(&page, 0, 5_000).is_err(), "no frame");
        }
        let empty = Bytes::from_static(b"levels");
        assert_eq!(decompressed(&empty, 6, 0).unwrap(), empty);
    }
}
