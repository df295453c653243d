//! The log's files on the simulated disk.

use std::io;
use std::mem;

use super::disk::{Outcome, SimulatedDisk, State, finish};
use super::faults::{DiskCondition, DiskFault, Operation, Synced};
use base::sync::lock;
use store::wal::LogDisk;

/// Free bytes of a disk with room.
const FREE_BYTES: u64 = 1 << 40;

/// Name of the mark in listings.
const MARK_NAME: &str = "acknowledged";

/// A change of a log file.
#[derive(Clone)]
enum Change {
    Append { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

/// Part of an unsynced change that a crash leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retained {
    Whole,
    Part,
    Nothing,
}

#[derive(Clone, Default)]
pub(super) struct LogFile {
    /// Content that the process reads.
    content: Vec<u8>,
    /// Certainly on the disk.
    durable: Vec<u8>,
    /// Changes on top of it.
    changes: Vec<(Change, Synced)>,
    /// Its name is synced.
    is_named: bool,
}

impl LogFile {
    /// Returns whether it is hollow.
    fn sync(&mut self) -> bool {
        let mut states = self.changes.iter_mut().map(|(_, synced)| synced);
        states
            .by_ref()
            .for_each(|synced| *synced = synced.after_sync());
        self.settle();
        self.changes
            .iter()
            .any(|(_, synced)| *synced == Synced::Failed)
    }

    fn fail_sync(&mut self) {
        let states = self.changes.iter_mut().map(|(_, synced)| synced);
        states.for_each(|synced| *synced = synced.after_failure());
    }

    /// Marks what is written again as not synced.
    fn rewrite(&mut self, from: usize) {
        for (change, synced) in &mut self.changes {
            if let Change::Append { at, bytes } = change
                && *at + bytes.len() > from
            {
                *synced = Synced::No;
            }
        }
    }

    /// Applies changes that are certain.
    fn settle(&mut self) {
        // A synced truncation also removes what a failed sync may have written behind it.
        let cut = self.changes.iter().rposition(|(change, synced)| {
            let length = self.durable.len();
            let is_cut = matches!(change, Change::Truncate(to) if *to <= length);
            is_cut && *synced == Synced::Yes
        });
        if let Some(cut) = cut
            && let (Change::Truncate(length), _) = self.changes[cut]
        {
            self.durable.truncate(length);
            self.changes.drain(..=cut);
        }
        let is_certain = |(_, synced): &(Change, Synced)| *synced == Synced::Yes;
        let certain = self
            .changes
            .iter()
            .take_while(|change| is_certain(change))
            .count();
        for (change, _) in self.changes.drain(..certain) {
            match change {
                Change::Truncate(length) => self.durable.truncate(length),
                Change::Append { at, bytes } => {
                    self.durable.resize(at, 0);
                    self.durable.extend(bytes);
                }
            }
        }
    }
}

impl State {
    /// Applies a crash of the machine to the log.
    pub(super) fn crash_log_files(&mut self) {
        if self.mark != self.durable_mark && self.coin() {
            self.mark.clone_from(&self.durable_mark);
            self.count(DiskFault::LostMark);
        }
        self.durable_mark.clone_from(&self.mark);
        for (name, file) in mem::take(&mut self.removed_log) {
            if !self.log.contains_key(&name) && file.is_named && self.below(4) > 0 {
                self.count(DiskFault::RevivedLogFile);
                self.log.insert(name, file);
            }
        }
        for (name, file) in mem::take(&mut self.log) {
            if !file.is_named && self.coin() {
                self.count(DiskFault::LostLogFile);
                continue;
            }
            let content = self.crash_log_file(&file);
            let durable = content.clone();
            self.log.insert(
                name,
                LogFile {
                    content,
                    durable,
                    changes: vec![],
                    is_named: true,
                },
            );
        }
    }

    /// The content of a log file after a crash: each unsynced change by itself is there, in part, or not.
    fn crash_log_file(&mut self, file: &LogFile) -> Vec<u8> {
        let mut content = file.durable.clone();
        for (change, synced) in &file.changes {
            let kept = match synced {
                Synced::Yes => Retained::Whole,
                Synced::No | Synced::Failed => {
                    [Retained::Whole, Retained::Part, Retained::Nothing][self.below(3)]
                }
            };
            match (change, kept) {
                (Change::Truncate(_), Retained::Nothing) => self.count(DiskFault::UndoneTruncation),
                (Change::Truncate(length), _) => {
                    content.truncate(*length);
                }
                (Change::Append { .. }, Retained::Nothing) => self.count(DiskFault::LostLogBytes),
                (Change::Append { at, bytes }, _) => {
                    let mut length = bytes.len();
                    if kept == Retained::Part {
                        length = self.below(length + 1);
                        self.count(DiskFault::TornLogWrite);
                    }
                    content.resize(content.len().max(at + bytes.len()), 0);
                    content[*at..at + length].copy_from_slice(&bytes[..length]);
                }
            }
        }
        content
    }

    fn log_file(&mut self, name: &str) -> io::Result<&mut LogFile> {
        self.log
            .get_mut(name)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl LogDisk for SimulatedDisk {
    fn create(&mut self, name: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.begin(Operation::Write)?;
        if state.is_done(outcome) {
            if state.log.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.log.insert(name.to_owned(), LogFile::default());
        }
        finish(outcome)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.begin(Operation::Write)?;
        let written = state.written(outcome, bytes.len());
        let file = state.log_file(name)?;
        let at = file.content.len();
        let bytes = bytes[..written].to_vec();
        file.content.extend(&bytes);
        file.changes
            .push((Change::Append { at, bytes }, Synced::No));
        finish(outcome)
    }

    fn rewrite(&mut self, name: &str, at: usize, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.begin(Operation::Write)?;
        let is_done = state.is_done(outcome);
        let file = state.log_file(name)?;
        assert_eq!(
            file.content.get(at..at + bytes.len()),
            Some(bytes),
            "it changes nothing"
        );
        if is_done {
            file.rewrite(at);
        }
        finish(outcome)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.begin(Operation::Sync)?;
        let is_written = state.is_done(outcome);
        let file = state.log_file(name)?;
        if is_written {
            let is_hollow = file.sync();
            state.count_if(is_hollow, DiskFault::HollowSync);
        } else if outcome == Outcome::Error {
            file.fail_sync();
        }
        finish(outcome)
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.begin(Operation::Other)?;
        if state.is_done(outcome) {
            let length = usize::try_from(length).expect("a length in memory");
            let file = state.log_file(name)?;
            file.content.truncate(length);
            file.changes.push((Change::Truncate(length), Synced::No));
        }
        finish(outcome)
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut state = lock(&self.state);
        state.read()?;
        let content = &state.log_file(name)?.content;
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Ok(content[..content.len().min(bytes_max)].to_vec())
    }

    fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        let mut state = lock(&self.state);
        state.read()?;
        let files = state
            .log
            .iter()
            .map(|(name, file)| (name.clone(), file.content.len() as u64));
        let mark = state
            .mark
            .iter()
            .map(|mark| (MARK_NAME.to_owned(), mark.len() as u64));
        Ok(files.chain(mark).collect())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.begin(Operation::Other)?;
        if state.is_done(outcome) {
            let file = state.log.remove(name).ok_or(io::ErrorKind::NotFound)?;
            state.removed_log.insert(name.to_owned(), file);
        }
        finish(outcome)
    }

    fn sync_dir(&mut self) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.begin(Operation::Sync)?;
        if state.is_done(outcome) {
            state.removed_log.clear();
            state.log.values_mut().for_each(|file| file.is_named = true);
        }
        finish(outcome)
    }

    fn quarantine(&mut self, name: &str) -> io::Result<String> {
        Ok(format!("quarantine/{name}"))
    }

    fn write_mark(&mut self, bytes: &[u8], is_synced: bool) -> io::Result<()> {
        let mut state = lock(&self.state);
        let outcome = state.begin(Operation::Write)?;
        if state.is_done(outcome) {
            // It is smaller than a sector, so it is written whole or not at all.
            state.mark = Some(bytes.to_vec());
            if is_synced && state.is_done(outcome) {
                state.durable_mark = Some(bytes.to_vec());
            }
        }
        finish(outcome)
    }

    fn read_mark(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut state = lock(&self.state);
        state.read()?;
        Ok(state.mark.clone())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let condition = lock(&self.state).condition;
        let is_full = condition == DiskCondition::Full { is_known: true };
        Ok(if is_full { 0 } else { FREE_BYTES })
    }
}
