//! Recordings of Java's Flight Recorder (JFR), version 2, as the JDK since Java 9 and async-profiler write them.
//!
//! Whatever the bytes are, reading them ends, takes at most [`limits::MEMORY_PER_BYTE_MAX`] bytes of memory and
//! [`limits::WORK_PER_BYTE_MAX`] steps for each of them, and fails with a [`JfrError`]. `docs/design/ingest.md` says why
//! this is a reader of our own.
//!
//! ```
//! use emberline_jfr::{Key, Recording};
//!
//! fn waited_ns(file: &[u8]) -> Result<u64, emberline_jfr::JfrError> {
//!     let mut waited_ns = 0;
//!     for chunk in Recording::new(file).chunks() {
//!         let chunk = chunk?;
//!         for event in chunk.events() {
//!             let length = event?.record()?.number(Key::Duration);
//!             waited_ns += chunk.length_ns(length.unwrap_or(0));
//!         }
//!     }
//!     Ok(waited_ns)
//! }
//! assert_eq!(waited_ns(b"")?, 0);
//! # Ok::<(), emberline_jfr::JfrError>(())
//! ```

mod chunk;
mod cursor;
mod error;
pub mod limits;
mod metadata;
mod record;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use chunk::{Chunk, Event, Events};
pub use cursor::Integers;
pub use error::JfrError;
pub use record::{Constant, Key, Record};

use cursor::Work;

/// Whether bytes begin like a recording.
#[must_use]
pub fn is_recording(bytes: &[u8]) -> bool {
    bytes.starts_with(chunk::MAGIC)
}

/// The bytes of a recording, and the work that reading them has taken.
#[derive(Debug)]
pub struct Recording<'a> {
    bytes: &'a [u8],
    work: Work,
}

impl<'a> Recording<'a> {
    /// A recording of one or more chunks.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Recording<'a> {
        Recording {
            bytes,
            work: Work::for_bytes(bytes.len()),
        }
    }

    /// The chunks, in their order. Each is read when it is asked for.
    #[must_use]
    pub fn chunks(&'a self) -> Chunks<'a> {
        Chunks {
            recording: self,
            at: 0,
        }
    }

    /// Steps of work that were taken.
    pub fn work(&self) -> u64 {
        self.work.done()
    }
}

/// The chunks of a recording. Ends after an error.
#[derive(Debug)]
pub struct Chunks<'a> {
    recording: &'a Recording<'a>,
    at: usize,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, JfrError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Recording { bytes, work } = self.recording;
        let rest = bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        match Chunk::read(rest, self.at, work) {
            Ok((chunk, length)) => {
                self.at += length;
                Some(Ok(chunk))
            }
            Err(error) => {
                self.at = usize::MAX;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests;
