//! A simulated disk for tests: records every operation, injects faults, and builds the files that a crash
//! after any operation may leave.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::disk::{LogDisk, MARK_NAME};
use super::frame::HEADER_BYTES;
use base::sync::{Mutex, lock, rank};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Create(String),
    Append(String, Vec<u8>),
    /// The same bytes once more, at this place.
    Rewrite(String, usize, Vec<u8>),
    Sync(String),
    Truncate(String, u64),
    Remove(String),
    SyncDir,
    /// The content, and whether it is synced.
    Mark(Vec<u8>, bool),
}

/// An injected fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An append writes half and fails: the disk is full.
    Full,
    /// A sync fails, and its data may or may not be on the disk.
    Sync,
    /// A file cannot be created.
    Create,
    /// A file cannot be truncated.
    Truncate,
    /// More of a file than its header cannot be read.
    Read,
}

#[derive(Debug, Default)]
pub struct Sim {
    pub operations: Vec<Operation>,
    pub files: Files,
    /// Each fault affects the first operation of its kind.
    pub faults: Vec<Fault>,
    pub free_bytes: u64,
    pub quarantined: Vec<String>,
}

pub type Files = BTreeMap<String, Vec<u8>>;

/// A simulated disk. Clones share the disk.
#[derive(Clone, Debug)]
pub struct SimDisk(pub Arc<Mutex<Sim, rank::SimulatedDisk>>);

impl SimDisk {
    pub fn of(files: Files) -> SimDisk {
        let sim = Sim {
            files,
            free_bytes: u64::MAX,
            ..Sim::default()
        };
        SimDisk(Arc::new(Mutex::new(sim)))
    }
}

impl Sim {
    fn fault(&mut self, fault: Fault) -> bool {
        let place = self.faults.iter().position(|next| *next == fault);
        place.map(|place| self.faults.remove(place)).is_some()
    }

    fn file(&mut self, name: &str) -> io::Result<&mut Vec<u8>> {
        self.files
            .get_mut(name)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl LogDisk for SimDisk {
    fn create(&mut self, name: &str) -> io::Result<()> {
        let mut sim = lock(&self.0);
        if sim.fault(Fault::Create) {
            return Err(io::Error::other("it cannot be made"));
        }
        if sim.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        sim.files.insert(name.to_owned(), Vec::new());
        sim.operations.push(Operation::Create(name.to_owned()));
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut sim = lock(&self.0);
        let fails = sim.fault(Fault::Full);
        let written = if fails {
            &bytes[..bytes.len() / 2]
        } else {
            bytes
        };
        sim.file(name)?.extend(written);
        sim.operations
            .push(Operation::Append(name.to_owned(), written.to_owned()));
        if fails {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn rewrite(&mut self, name: &str, at: usize, bytes: &[u8]) -> io::Result<()> {
        let mut sim = lock(&self.0);
        assert_eq!(sim.file(name)?.get(at..at + bytes.len()), Some(bytes));
        sim.operations
            .push(Operation::Rewrite(name.to_owned(), at, bytes.to_owned()));
        Ok(())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut sim = lock(&self.0);
        if sim.fault(Fault::Sync) {
            return Err(io::Error::other("the disk does not answer"));
        }
        sim.file(name)?;
        sim.operations.push(Operation::Sync(name.to_owned()));
        Ok(())
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        let mut sim = lock(&self.0);
        if sim.fault(Fault::Truncate) {
            return Err(io::Error::other("it cannot be cut"));
        }
        sim.file(name)?.truncate(usize::try_from(length).unwrap());
        sim.operations
            .push(Operation::Truncate(name.to_owned(), length));
        Ok(())
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut sim = lock(&self.0);
        if bytes_max > HEADER_BYTES as u64 && sim.fault(Fault::Read) {
            return Err(io::Error::other("the disk does not answer"));
        }
        let mut bytes = sim.file(name)?.clone();
        bytes.truncate(usize::try_from(bytes_max).unwrap());
        Ok(bytes)
    }

    fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        let sim = lock(&self.0);
        Ok(sim
            .files
            .iter()
            .map(|(name, bytes)| (name.clone(), bytes.len() as u64))
            .collect())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut sim = lock(&self.0);
        sim.file(name)?;
        sim.files.remove(name);
        sim.operations.push(Operation::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        lock(&self.0).operations.push(Operation::SyncDir);
        Ok(())
    }

    fn quarantine(&mut self, name: &str) -> io::Result<String> {
        lock(&self.0).quarantined.push(name.to_owned());
        Ok(format!("quarantine/{name}"))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(lock(&self.0).free_bytes)
    }

    fn write_mark(&mut self, bytes: &[u8], is_synced: bool) -> io::Result<()> {
        let mut sim = lock(&self.0);
        sim.files.insert(MARK_NAME.to_owned(), bytes.to_vec());
        sim.operations
            .push(Operation::Mark(bytes.to_vec(), is_synced));
        Ok(())
    }

    fn read_mark(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(lock(&self.0).files.get(MARK_NAME).cloned())
    }
}

/// The effect of a crash on unsynced data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// Only the process ends: the system still writes everything.
    Process,
    /// Unsynced data is lost.
    Forgets,
    /// Each operation by itself is done, half done, or not done at all.
    Tears,
}

/// The synced and unsynced state of a file.
#[derive(Default)]
struct Image {
    /// Whether the name is synced.
    is_named: bool,
    is_removed: bool,
    durable: Vec<u8>,
    /// Unsynced writes by offset; `None` for a truncation.
    pending: Vec<(usize, Option<Vec<u8>>)>,
    length: usize,
}

impl Image {
    fn content(&self, crash: Crash, random: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
        let mut content = self.durable.clone();
        for (at, bytes) in &self.pending {
            let choice = match crash {
                Crash::Process => 0,
                Crash::Forgets => 1,
                Crash::Tears => random(3),
            };
            match (choice, bytes) {
                (1, _) => {}
                (_, None) => content.truncate(*at),
                (choice, Some(bytes)) => {
                    let kept = if choice == 0 {
                        bytes.len()
                    } else {
                        random(bytes.len() + 1)
                    };
                    content.resize(content.len().max(at + bytes.len()), 0);
                    content[*at..at + kept].copy_from_slice(&bytes[..kept]);
                }
            }
        }
        content
    }
}

/// The files that a crash may leave after these operations on `before`.
pub fn crash_image(
    before: &Files,
    operations: &[Operation],
    crash: Crash,
    random: &mut dyn FnMut(usize) -> usize,
) -> Files {
    let mut images: BTreeMap<String, Image> = before
        .iter()
        .map(|(name, bytes)| (name.clone(), durable_image(bytes)))
        .collect();
    for operation in operations {
        match operation {
            Operation::Create(name) => {
                images.insert(name.clone(), Image::default());
            }
            Operation::Append(name, bytes) => {
                let image = images.get_mut(name).unwrap();
                image.pending.push((image.length, Some(bytes.clone())));
                image.length += bytes.len();
            }
            Operation::Rewrite(name, at, bytes) => {
                images
                    .get_mut(name)
                    .unwrap()
                    .pending
                    .push((*at, Some(bytes.clone())));
            }
            Operation::Truncate(name, length) => {
                let image = images.get_mut(name).unwrap();
                image.length = usize::try_from(*length).unwrap();
                image.pending.push((image.length, None));
            }
            Operation::Sync(name) => {
                let image = images.get_mut(name).unwrap();
                image.durable = image.content(Crash::Process, random);
                image.pending.clear();
            }
            Operation::Remove(name) => images.get_mut(name).unwrap().is_removed = true,
            Operation::Mark(bytes, is_synced) => {
                // A mark fits a sector: the disk has the last synced one, or any later one.
                let is_written = match crash {
                    _ if *is_synced => true,
                    Crash::Process => true,
                    Crash::Forgets => false,
                    Crash::Tears => random(2) == 0,
                };
                if is_written {
                    let mark = Image {
                        is_named: true,
                        durable: bytes.clone(),
                        ..Image::default()
                    };
                    images.insert(MARK_NAME.to_owned(), mark);
                }
            }
            Operation::SyncDir => {
                images.retain(|_, image| !image.is_removed);
                images.values_mut().for_each(|image| image.is_named = true);
            }
        }
    }
    let mut decide = |sure: bool, done: bool| match crash {
        _ if sure => true,
        Crash::Process => done,
        Crash::Forgets => !done,
        Crash::Tears => random(2) == 0,
    };
    images.retain(|_, image| {
        let is_there = decide(image.is_named, true);
        let is_gone = image.is_removed && decide(false, true);
        is_there && !is_gone
    });
    images
        .iter()
        .map(|(name, image)| (name.clone(), image.content(crash, random)))
        .collect()
}

fn durable_image(bytes: &[u8]) -> Image {
    Image {
        is_named: true,
        durable: bytes.to_vec(),
        length: bytes.len(),
        ..Image::default()
    }
}
