//! Adapters between a file and the Parquet decoder.

use std::sync::Arc;

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::super::objects::Object;

/// Bytes that are read if the decoder does not tell how many it needs.
const READ_BYTES: u64 = 64 << 10;

/// An open file, read on demand.
pub(super) struct FileBytes(pub(super) Arc<Object>);

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.0.bytes()
    }
}

impl ChunkReader for FileBytes {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        let length = self.len().saturating_sub(start).min(READ_BYTES);
        let part = self
            .0
            .read(start, length)
            .map_err(|error| ParquetError::External(error.into()));
        Ok(part?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let length = length as u64;
        self.0
            .read(start, length)
            .map_err(|error| ParquetError::External(error.into()))
    }
}

/// A column's part of a row group, read at once.
pub(super) struct ChunkBytes {
    start: u64,
    bytes: Bytes,
}

impl ChunkBytes {
    pub(super) fn read(object: &Object, start: u64, length: u64) -> Result<ChunkBytes> {
        let bytes = object.read(start, length);
        Ok(ChunkBytes {
            start,
            bytes: bytes.map_err(|error| ParquetError::External(error.into()))?,
        })
    }

    fn from(&self, start: u64) -> Result<Bytes> {
        let at = start
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok());
        match at.filter(|at| *at <= self.bytes.len()) {
            Some(at) => Ok(self.bytes.slice(at..)),
            None => Err(ParquetError::EOF(format!(
                "{start} is outside of its column"
            ))),
        }
    }
}

impl Length for ChunkBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for ChunkBytes {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.from(start)?;
        if length <= bytes.len() {
            return Ok(bytes.slice(..length));
        }
        Err(ParquetError::EOF(format!(
            "{length} bytes at {start} exceed the column"
        )))
    }
}
