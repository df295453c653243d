//! Symbols that agents send: which builds are to be fetched, and the incomplete files.
//!
//! An agent sends the sections of its file that name functions, as an ELF file. It is read like a file
//! that the collector finds itself: by another process, with limits.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use super::files::{FileError, RoomError, SymbolFiles};
use base::limits::{AGENT_SYMBOLS_BYTES_MAX, FINDINGS_MAX, SYMBOL_FETCHES_MAX};
use base::sync::{Mutex, lock, rank};

/// The builds whose symbols are requested from agents.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    state: Mutex<State, rank::SymbolFetches>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<String>,
    running: Option<(String, FetchProgress)>,
    /// By build: why the last fetch failed.
    failed: BTreeMap<String, String>,
}

/// How far a fetch is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FetchProgress {
    /// The worker that sends.
    pub worker: String,
    pub received: u64,
    /// Bytes of all pieces; 0 if that is not known yet.
    pub bytes: u64,
}

/// The outcome of a fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FetchState {
    Waiting,
    Running(FetchProgress),
    Failed(String),
}

/// A fetch that is not complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    pub build_id: String,
    pub state: FetchState,
}

/// A piece of an agent's symbols.
#[derive(Clone, Copy, Debug)]
pub struct AgentPiece<'p> {
    pub build_id: &'p str,
    pub worker: &'p str,
    pub offset: u64,
    /// Bytes of all pieces.
    pub bytes: u64,
    pub content: &'p [u8],
}

/// Why a piece is rejected.
#[derive(Debug, thiserror::Error)]
pub enum PieceError {
    #[error("its symbols have {bytes} bytes; at most {AGENT_SYMBOLS_BYTES_MAX} are fetched")]
    TooLarge { bytes: u64 },
    #[error("its symbols have {now} bytes, not {before} as at first: another file, so start again")]
    OtherFile { before: u64, now: u64 },
    #[error("it sent {length} bytes from byte {offset} of {bytes}")]
    Range {
        offset: u64,
        length: usize,
        bytes: u64,
    },
    #[error(transparent)]
    NoRoom(#[from] RoomError),
    #[error(transparent)]
    File(#[from] FileError),
}

impl Fetches {
    /// Adds a build. Returns whether there was room.
    pub(super) fn add(&self, build: &str) -> bool {
        let mut state = lock(&self.state);
        if state.is_open(build) {
            return true;
        }
        if state.queue.len() >= SYMBOL_FETCHES_MAX {
            return false;
        }
        state.failed.remove(build);
        state.queue.push_back(build.to_owned());
        true
    }

    /// The next build to fetch.
    pub(super) fn next(&self) -> Option<String> {
        let mut state = lock(&self.state);
        let build = state.queue.pop_front()?;
        state.running = Some((build.clone(), FetchProgress::default()));
        Some(build)
    }

    /// Whether that build is to be fetched, or is being fetched.
    pub(super) fn is_open(&self, build: &str) -> bool {
        lock(&self.state).is_open(build)
    }

    /// The fetch of the running build ended.
    pub(super) fn end(&self, build: &str, result: Result<(), String>) {
        let mut state = lock(&self.state);
        state.running = None;
        if let Err(reason) = result {
            if state.failed.len() >= FINDINGS_MAX {
                state.failed.clear();
            }
            state.failed.insert(build.to_owned(), reason);
        }
    }

    /// All fetches that are not complete.
    pub(super) fn list(&self) -> Vec<Fetch> {
        let state = lock(&self.state);
        let running = state.running.iter().map(|(build, progress)| Fetch {
            build_id: build.clone(),
            state: FetchState::Running(progress.clone()),
        });
        let waiting = state.queue.iter().map(|build| Fetch {
            build_id: build.clone(),
            state: FetchState::Waiting,
        });
        let failed = state.failed.iter().map(|(build, reason)| Fetch {
            build_id: build.clone(),
            state: FetchState::Failed(reason.clone()),
        });
        running.chain(waiting).chain(failed).collect()
    }

    /// The incomplete file of a build. Another agent, or a collector that starts again, continues it.
    pub(super) fn path(files: &SymbolFiles, build: &str) -> Result<PathBuf, FileError> {
        files.partial(&format!("agent-{build}"))
    }

    /// Where the next piece of a build begins.
    pub(super) fn received(files: &SymbolFiles, build: &str) -> Result<u64, FileError> {
        let path = Fetches::path(files, build)?;
        Ok(fs::metadata(path).map_or(0, |metadata| metadata.len()))
    }

    /// Adds a piece. Returns whether the file is complete.
    pub(super) fn append(
        &self,
        files: &SymbolFiles,
        piece: &AgentPiece<'_>,
    ) -> Result<bool, PieceError> {
        let &AgentPiece {
            build_id,
            worker,
            offset,
            bytes,
            content,
        } = piece;
        let before = lock(&self.state).known_bytes(build_id);
        if bytes > AGENT_SYMBOLS_BYTES_MAX {
            return Err(PieceError::TooLarge { bytes });
        }
        let length = content.len();
        let received = offset.saturating_add(length as u64);
        let path = Fetches::path(files, build_id)?;
        let is_other = before != 0 && before != bytes;
        if is_other || (offset > 0 && offset >= bytes) {
            // Its beginning is of another file.
            let _ = fs::remove_file(&path);
            lock(&self.state).set_progress(build_id, FetchProgress::default());
            return Err(PieceError::OtherFile { before, now: bytes });
        }
        if length == 0 || received > bytes {
            return Err(PieceError::Range {
                offset,
                length,
                bytes,
            });
        }
        files.check_room(bytes, offset)?;
        let append = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)?
                .write_all(content)
        };
        append().map_err(|source| FileError::Io {
            path: path.clone(),
            source,
        })?;
        let progress = FetchProgress {
            worker: worker.to_owned(),
            received,
            bytes,
        };
        lock(&self.state).set_progress(build_id, progress);
        Ok(received == bytes)
    }
}

impl State {
    fn is_open(&self, build: &str) -> bool {
        self.running
            .as_ref()
            .is_some_and(|(running, _)| running == build)
            || self.queue.iter().any(|waiting| waiting == build)
    }

    /// Bytes of all pieces of the running fetch; 0 if that is not known.
    fn known_bytes(&self, build: &str) -> u64 {
        let running = self
            .running
            .as_ref()
            .filter(|(running, _)| running == build);
        running.map_or(0, |(_, progress)| progress.bytes)
    }

    fn set_progress(&mut self, build: &str, progress: FetchProgress) {
        if let Some((running, known)) = &mut self.running
            && running == build
        {
            *known = progress;
        }
    }
}
