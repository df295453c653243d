//! Symbol files: tables from addresses to functions, files and lines, made once per build.
//!
//! A file is five arrays, in blocks of [`BLOCK_BYTES`] that are compressed each by itself, an index of
//! the blocks, and a trailer. `docs/STORE.md` describes the bytes. A lookup reads only the blocks that
//! it needs.

mod blocks;
mod builder;
mod elf;
mod lookup;
mod reduce;
mod segments;
mod split;
mod trailer;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

pub use symbols::perf_map;

pub use elf::{ElfError, SharedFile};
pub use lookup::{Names, SymbolFile, SymbolFileError};
pub use reduce::{ReduceError, Reduced, build_id_of, reduce, reduce_split, shared_file_of};
pub use split::SplitFiles;
pub use trailer::{Detail, Facts};

/// Bytes of a block before it is compressed.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Version of the rules for names. A table of other rules would name the same function differently.
pub const NAMING_VERSION: u32 = 1;

/// Where bytes are read from.
pub trait ReadAt {
    /// Number of bytes.
    ///
    /// # Errors
    /// The system's.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// The system's, and `UnexpectedEof` if there are not that many bytes.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = self.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// Whether bytes have this checksum. Under a fuzzer all have: it could not find the checksum of what it changed, and
/// nothing behind the check would be tested.
fn has_checksum(bytes: &[u8], expected: u32) -> bool {
    cfg!(emberline_fuzzing) || crc32fast::hash(bytes) == expected
}

#[cfg(test)]
mod tests;
