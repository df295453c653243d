//! Files for sorts and sums that exceed memory. They have no names, so the system frees their space however the
//! process ends.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::spill_file::{SpillFile, SpillWriter, TempFileFactory};
use tokio_stream::Stream;

/// Bytes of a file that are read at once.
const READ_BYTES: u64 = 128 << 10;

/// Makes the files of one query.
pub(super) struct SpillFiles {
    folder: PathBuf,
    room: Arc<Room>,
}

impl SpillFiles {
    /// Files on the disk of `folder`, of at most `bytes_max` together.
    pub(super) fn new(folder: PathBuf, bytes_max: u64) -> SpillFiles {
        SpillFiles {
            folder,
            room: Arc::new(Room {
                bytes_max,
                used: AtomicU64::new(0),
            }),
        }
    }
}

impl TempFileFactory for SpillFiles {
    fn create_temp_file(&self, description: &str) -> Result<Arc<dyn SpillFile>> {
        let file = tempfile::tempfile_in(&self.folder).map_err(|error| {
            let folder = self.folder.display();
            let reason = format!("{description} needs a file in {folder}, which failed: {error}");
            DataFusionError::ResourcesExhausted(reason)
        })?;
        let content = Content {
            file,
            bytes: AtomicU64::new(0),
            room: self.room.clone(),
        };
        Ok(Arc::new(Unnamed(Arc::new(content))))
    }
}

/// The space of a query's files.
struct Room {
    bytes_max: u64,
    used: AtomicU64,
}

impl Room {
    fn take(&self, bytes: u64) -> io::Result<()> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used <= self.bytes_max {
            return Ok(());
        }
        self.give_back(bytes);
        let most = self.bytes_max >> 20;
        Err(io::Error::other(format!(
            "the query needs more than the {most} MiB of files that it may take; ask for a shorter range or a \
             coarser tier"
        )))
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The bytes that were written to a file.
struct Content {
    file: File,
    bytes: AtomicU64,
    room: Arc<Room>,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.room.give_back(*self.bytes.get_mut());
    }
}

/// A file without a name.
struct Unnamed(Arc<Content>);

impl SpillFile for Unnamed {
    fn size(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Acquire))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        Ok(Box::pin(Parts {
            content: self.0.clone(),
            at: 0,
        }))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Appending(self.0.clone())))
    }
}

/// Appends to a file.
struct Appending(Arc<Content>);

impl Write for Appending {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let Content { file, bytes, room } = &*self.0;
        let length = part.len() as u64;
        room.take(length)?;
        let written = file.write_all_at(part, bytes.load(Ordering::Acquire));
        match written {
            Ok(()) => bytes.fetch_add(length, Ordering::Release),
            Err(error) => {
                room.give_back(length);
                return Err(error);
            }
        };
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Appending {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Reads a file from its start. It was written a moment ago, so a read does not wait for a disk in general.
struct Parts {
    content: Arc<Content>,
    at: u64,
}

impl Stream for Parts {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes>>> {
        let end = self.content.bytes.load(Ordering::Acquire);
        let length = READ_BYTES.min(end - self.at);
        if length == 0 {
            return Poll::Ready(None);
        }
        let mut part = vec![0; usize::try_from(length).expect("it is small")];
        let read = self.content.file.read_exact_at(&mut part, self.at);
        self.at += length;
        Poll::Ready(Some(match read {
            Ok(()) => Ok(part.into()),
            Err(error) => Err(DataFusionError::IoError(error)),
        }))
    }
}
