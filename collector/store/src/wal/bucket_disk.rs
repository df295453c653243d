//! The log in a bucket: each group of records is an object, created whole or not at all.
//!
//! Files are created in the order of their numbers without a gap. A file whose creation has an unknown end is
//! created again, with the same content, before the next one. So every file that this process acknowledges
//! comes before the tombstone, the one that a later life of the collector creates to keep it out. Tombstones
//! are never removed: an earlier life, however long it was paused, still has that file to create.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use prost::Message as _;

use super::disk::LogDisk;
use super::frame::{self, FRAME_BYTES, HEADER_BYTES, Header};
use super::record::OwnerMark;
use super::{file_name, file_number};
use crate::error::StoreError;
use crate::objects::Objects;
use base::limits::{BUCKET_AHEAD_BYTES_MAX, BUCKET_AHEAD_MAX, OWNER_CLAIMS_MAX};

const FOLDER: &str = "wal";

/// The longest tombstone: a header, and a record with one number. Every other record is longer.
const TOMBSTONE_BYTES_MAX: u64 = (HEADER_BYTES + FRAME_BYTES + 11) as u64;

/// The log files of a store in a bucket.
#[derive(Debug)]
pub struct BucketDisk {
    objects: Objects,
    /// The file that is being filled.
    open: Option<(String, Vec<u8>)>,
    /// A file of which nobody knows whether it was created.
    unresolved: Option<(String, Bytes)>,
    /// Names and sizes at the last listing, for reading ahead.
    listed: Vec<(String, u64)>,
    ahead: BTreeMap<String, Bytes>,
}

impl BucketDisk {
    pub fn new(objects: Objects) -> BucketDisk {
        BucketDisk {
            objects,
            open: None,
            unresolved: None,
            listed: Vec::new(),
            ahead: BTreeMap::new(),
        }
    }

    /// Creates the unresolved file, unless it exists with the same content.
    fn resolve(&mut self) -> io::Result<()> {
        let Some((name, content)) = &self.unresolved else {
            return Ok(());
        };
        match self.objects.put_new(&path(name), content.clone()) {
            Ok(()) => {
                self.unresolved = None;
                Ok(())
            }
            Err(StoreError::AlreadyExists { .. }) => {
                self.objects.fence(format!(
                    "its log goes on in {name}, which this process did not write"
                ));
                self.objects.check_fence().map_err(failed)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Reads a file, and with it those that are probably read next.
    fn read_ahead(&mut self, name: &str) -> io::Result<()> {
        self.ahead.clear();
        let from = self
            .listed
            .partition_point(|(listed, _)| listed.as_str() < name);
        let mut bytes = 0;
        let next = self.listed[from..]
            .iter()
            .take(BUCKET_AHEAD_MAX)
            .take_while(|(_, size)| {
                bytes += size;
                bytes == *size || bytes <= BUCKET_AHEAD_BYTES_MAX
            });
        let names: Vec<String> = next.map(|(name, _)| name.clone()).collect();
        let paths: Vec<String> = names.iter().map(|name| path(name)).collect();
        for (name, content) in names.into_iter().zip(self.objects.get_all(&paths)) {
            if let Some(content) = content.map_err(failed)? {
                self.ahead.insert(name, content);
            }
        }
        Ok(())
    }
}

fn path(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

fn failed(error: StoreError) -> io::Error {
    io::Error::other(error)
}

impl LogDisk for BucketDisk {
    fn is_write_once(&self) -> bool {
        true
    }

    fn is_tombstone(&self, bytes: u64) -> bool {
        bytes <= TOMBSTONE_BYTES_MAX
    }

    /// Creates the first file that no earlier life has created, so that none of them can create it.
    fn take_over(&mut self, from: u64) -> io::Result<()> {
        for _ in 0..OWNER_CLAIMS_MAX {
            let listed = self.list()?;
            let numbered = listed
                .iter()
                .filter_map(|(name, size)| Some((file_number(name)?, *size)));
            let previous = numbered.max();
            let number = previous.map_or(1, |(last, _)| last + 1).max(from);
            let mut content = Header { number, previous }.encode();
            let mark = OwnerMark {
                epoch: self.objects.epoch(),
            }
            .encode_to_vec();
            let offset = content.len() as u64;
            frame::append(&mut content, offset, OwnerMark::KIND, &mark);
            assert!(
                self.is_tombstone(content.len() as u64),
                "{} bytes",
                content.len()
            );
            match self
                .objects
                .put_new(&path(&file_name(number)), content.into())
            {
                Ok(()) => return Ok(()),
                // The earlier life was faster. Its file is read too.
                Err(StoreError::AlreadyExists { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(io::Error::other(
            "another collector goes on writing this log",
        ))
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        self.resolve()?;
        self.objects.check_fence().map_err(failed)?;
        self.open = Some((name.to_owned(), Vec::new()));
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match &mut self.open {
            Some((open, content)) if open == name => {
                content.extend(bytes);
                Ok(())
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Does nothing: data in a bucket is durable.
    fn rewrite(&mut self, _: &str, _: usize, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Creates the file with all that was appended.
    fn sync(&mut self, name: &str) -> io::Result<()> {
        let Some((name, content)) = self.open.take_if(|(open, _)| open == name) else {
            return Ok(());
        };
        self.unresolved = Some((name, content.into()));
        self.resolve()
    }

    /// Files are never changed: the next one's header says how much of this one counts.
    fn truncate(&mut self, _: &str, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        if !self.ahead.contains_key(name) {
            self.read_ahead(name)?;
        }
        let content = self.ahead.get(name).ok_or(io::ErrorKind::NotFound)?;
        let length = usize::try_from(bytes_max)
            .unwrap_or(usize::MAX)
            .min(content.len());
        Ok(content[..length].to_vec())
    }

    fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        let listed = self.objects.list(FOLDER).map_err(failed)?.into_iter();
        self.listed = listed
            .map(|file| (last_name(&file.path), file.bytes))
            .collect();
        Ok(self.listed.clone())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.remove_all(&[name.to_owned()])
    }

    fn remove_all(&mut self, names: &[String]) -> io::Result<()> {
        let paths: Vec<String> = names.iter().map(|name| path(name)).collect();
        self.objects.delete_all(&paths).map_err(failed)
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn quarantine(&mut self, name: &str) -> io::Result<String> {
        self.objects.quarantine(&path(name)).map_err(failed)
    }

    /// A bucket is never full.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    /// Objects are whole, so a missing end of a file needs no mark to be recognized.
    fn write_mark(&mut self, _: &[u8], _: bool) -> io::Result<()> {
        Ok(())
    }

    fn read_mark(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

fn last_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::Wal;

    fn write(disk: &mut BucketDisk, number: u64) -> io::Result<()> {
        let name = file_name(number);
        disk.create(&name)?;
        disk.append(&name, &[7; 200])?;
        disk.sync(&name)
    }

    /// Number of damages in the log from this file on.
    fn damages(objects: &Objects, from: u64) -> u64 {
        super::super::check(&mut BucketDisk::new(objects.clone()), from)
            .unwrap()
            .damages
    }

    #[test]
    fn a_file_that_the_tables_need_and_that_has_no_record_yet_is_not_missing() {
        let objects = Objects::bucket_in_memory();
        objects.own(1);
        let mut disk = BucketDisk::new(objects.clone());
        disk.take_over(0).unwrap();
        let opened = Wal::open(Box::new(disk), 0, &mut |_| Ok(()));
        let (mut wal, _) = opened.unwrap();
        wal.append(OwnerMark::KIND, &OwnerMark { epoch: 1 }.encode_to_vec())
            .unwrap();
        let next = wal.rotate().unwrap();
        assert_eq!((next, damages(&objects, next)), (3, 0));
        // A file after it shows that it existed.
        wal.append(OwnerMark::KIND, &OwnerMark { epoch: 1 }.encode_to_vec())
            .unwrap();
        wal.rotate().unwrap();
        assert_eq!(damages(&objects, next), 0);
        wal.append(OwnerMark::KIND, &OwnerMark { epoch: 1 }.encode_to_vec())
            .unwrap();
        wal.rotate().unwrap();
        BucketDisk::new(objects.clone())
            .remove(&file_name(next))
            .unwrap();
        assert_eq!(damages(&objects, next), 1);
    }

    #[test]
    fn a_tombstone_keeps_an_earlier_life_out_after_its_log_was_removed() {
        let objects = Objects::bucket_in_memory();
        objects.own(1);
        let mut paused = BucketDisk::new(objects.clone());
        paused.take_over(0).unwrap();
        write(&mut paused, 2).unwrap();
        // The same bucket, by another process.
        let successor = objects.of_another_process();
        successor.own(2);
        let mut disk = BucketDisk::new(successor.clone());
        disk.take_over(0).unwrap();
        write(&mut disk, 4).unwrap();
        super::super::writer::remove_before(&mut disk, 5).unwrap();
        let kept: Vec<String> = disk
            .list()
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(kept, [file_name(1), file_name(3)]);
        write(&mut paused, 3).unwrap_err();
        assert!(matches!(
            objects.check_fence(),
            Err(StoreError::Fenced { .. })
        ));
        successor.check_fence().unwrap();
        write(&mut disk, 5).unwrap();
    }
}
