//! Names of functions that agents send without one, from symbol files. Names are applied when a query
//! is answered, so a file names the past too.
//!
//! `docs/design/symbols.md` has the reasons.

#![allow(
    missing_docs,
    reason = "a face for our own crates: names that speak for themselves need no sentence"
)]

mod fetches;
mod files;
mod finder;
mod made_code;
mod upload;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use profiler_core::{Frame, Timestamp};
use symbol_files::Detail;

pub use self::fetches::{AgentPiece, Fetch, FetchProgress, FetchState};
use self::fetches::{Fetches, PieceError};
use self::files::SymbolFiles;
pub use self::files::{FileError, ListedFile, RoomError};
use self::finder::{Finder, Found};
pub use self::made_code::{MadeCode, is_made_code};
pub use self::upload::{Piece, Received, UploadError};
use base::limits::{
    LOOKUP_ADDRESSES, NAMED_ADDRESSES_MAX, NAMING_ALL_MAX, NAMING_WAIT_MAX, SYMBOL_FETCHES_MAX,
};
use base::sync::{Mutex, lock, rank};

/// The functions at an address: the compiled one, then those inlined into it.
pub type Functions = Arc<[Frame<Arc<str>>]>;

/// Addresses to name, by build id.
pub type Addresses = BTreeMap<Arc<str>, BTreeSet<u64>>;

/// Where a collector looks for files with debug information: in the folder, then at the servers in
/// their order, then at an agent that runs the program.
#[derive(Clone, Debug)]
pub struct SymbolSource {
    /// A folder in GNU layout: `.build-id/xx/yyyy.debug`.
    pub folder: Option<PathBuf>,
    /// URLs of debuginfod servers, to which `/buildid/BUILDID/debuginfo` is added.
    pub debuginfod: Vec<String>,
    /// Whether symbols that no other source has are requested from agents. An operator may request them anyway.
    pub agents: bool,
    /// The program that fetches and reads such a file, in a process of its own: `PROGRAM symbols reduce
    /// FILE-OR-URL --output FILE`. It ends with [`NOT_FOUND_CODE`] if a server does not have the file.
    pub program: PathBuf,
}

/// Exit code of a reader whose server does not have the file.
pub const NOT_FOUND_CODE: u8 = 3;

/// Names functions from symbol files.
#[derive(Debug, Default)]
pub struct Naming {
    /// `None`: the collector has no folder.
    files: Option<SymbolFiles>,
    finder: Option<Finder>,
    made_code: Option<Arc<MadeCode>>,
    fetches: Fetches,
    /// Rises whenever an address may have another name than before.
    revision: AtomicU64,
    known: Mutex<KnownNames, rank::KnownNames>,
}

/// Names that were looked up.
#[derive(Debug, Default)]
struct KnownNames {
    revision: u64,
    by_build: BTreeMap<Arc<str>, BTreeMap<u64, Functions>>,
    count: usize,
    /// Builds with addresses that no query had the time to look up.
    unfinished: BTreeSet<Arc<str>>,
}

/// Why symbols cannot be fetched from agents.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("this collector keeps no symbols, because it keeps nothing: start it with --data DIR")]
    NoFolder,
    #[error("this collector was started without a program that reads files of symbols")]
    NoReader,
    #[error("build_id={0:?} is no build id: 8 to 128 digits of lowercase hexadecimal are expected")]
    BuildId(String),
    #[error("the collector has functions and lines of build id {0} already")]
    Known(String),
    #[error(
        "no connected worker has functions of build id {0} in its stacks; `emberline workers` lists \
         the workers"
    )]
    NoAgent(String),
    #[error("{SYMBOL_FETCHES_MAX} other builds wait for their symbols; try again later")]
    TooMany,
}

/// Why a module has no names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// They are being looked up or read: the next query has more.
    Pending,
    /// No source has them.
    NoFile,
    /// The file has no function at these addresses.
    NoFunction,
    /// The file does not say which addresses the offsets in the module's file have.
    NoSegments,
    /// The file that has them cannot be used.
    Unusable(String),
    /// Nothing identifies the module.
    NoBuildId,
}

impl Naming {
    /// Keeps symbol files in `folder`, which is created with the first of them.
    pub fn open(folder: PathBuf, source: Option<SymbolSource>) -> Naming {
        Naming {
            files: Some(SymbolFiles::new(folder)),
            finder: source.map(Finder::new),
            ..Naming::default()
        }
    }

    /// Also names code that runtimes made.
    #[must_use]
    pub fn with_made_code(self, made_code: Option<Arc<MadeCode>>) -> Naming {
        Naming { made_code, ..self }
    }

    /// A number that changes whenever an address may have another name.
    pub fn revision(&self) -> u64 {
        let made_code = self.made_code.as_ref();
        let is_set = made_code.is_some_and(|made_code| made_code.is_set());
        self.revision.load(Ordering::Acquire) + u64::from(is_set)
    }

    /// The key of a frame without a name among [`Addresses`]: its build id; without one it may be code that a runtime
    /// made, whose module says by which process.
    pub fn key_of<'f>(&self, build_id: &'f Arc<str>, module: &'f Arc<str>) -> Option<&'f Arc<str>> {
        if build_id.is_empty() {
            self.made_code.is_some().then_some(module)
        } else {
            Some(build_id)
        }
    }

    /// The known names of these addresses. Looks up those that are not known yet, for at most
    /// [`NAMING_WAIT_MAX`].
    pub fn names(&self, wanted: &Addresses) -> BTreeMap<Arc<str>, BTreeMap<u64, Functions>> {
        self.names_until(wanted, Instant::now() + NAMING_WAIT_MAX)
    }

    /// The names of these addresses, as many as [`NAMING_ALL_MAX`] allows.
    pub fn all_names(&self, wanted: &Addresses) -> BTreeMap<Arc<str>, BTreeMap<u64, Functions>> {
        self.names_until(wanted, Instant::now() + NAMING_ALL_MAX)
    }

    fn names_until(
        &self,
        wanted: &Addresses,
        deadline: Instant,
    ) -> BTreeMap<Arc<str>, BTreeMap<u64, Functions>> {
        let revision = self.revision();
        let mut found = BTreeMap::new();
        for (build, addresses) in wanted {
            let made_code = self.made_code.as_ref();
            if let Some(names) = made_code.and_then(|made_code| made_code.names(build, addresses)) {
                found.insert(build.clone(), names);
                continue;
            }
            let Some(files) = &self.files else {
                continue;
            };
            let mut names = lock(&self.known).of(revision, build, addresses);
            let unknown: Vec<u64> = addresses
                .iter()
                .copied()
                .filter(|address| !names.contains_key(address))
                .collect();
            let mut is_finished = true;
            for part in unknown.chunks(LOOKUP_ADDRESSES) {
                if Instant::now() >= deadline {
                    is_finished = false;
                    break;
                }
                match files.lookup(build, part) {
                    Ok(Some(part)) => {
                        let part = part.into_iter().map(|(at, frames)| (at, frames.into()));
                        names.extend(part);
                    }
                    Ok(None) => {
                        self.want(build);
                        break;
                    }
                    Err(error) => {
                        tracing::debug!(build = &**build, %error, "a symbol file cannot be used");
                        break;
                    }
                }
            }
            lock(&self.known).keep(revision, build, &names, is_finished);
            found.insert(build.clone(), names);
        }
        found
    }

    fn want(&self, build: &str) {
        if let Some(finder) = &self.finder {
            finder.want(build);
        }
    }

    /// Whether there are addresses that no query had the time to look up.
    pub fn is_unfinished(&self) -> bool {
        !lock(&self.known).unfinished.is_empty()
    }

    /// Why addresses of that build have no names.
    pub fn why_missing(&self, build: &str) -> Missing {
        if build.is_empty() {
            return Missing::NoBuildId;
        }
        let Some(files) = &self.files else {
            return Missing::NoFile;
        };
        if self.fetches.is_open(build) {
            return Missing::Pending;
        }
        if lock(&self.known).unfinished.contains(build) {
            return Missing::Pending;
        }
        match (files.check(build), &self.finder) {
            (Ok(true), _) => Missing::NoFunction,
            (Ok(false), Some(finder)) => finder.why_missing(build),
            (Ok(false), None) => Missing::NoFile,
            (Err(error), _) => Missing::Unusable(error.to_string()),
        }
    }

    /// Why offsets in the file of that build have no names.
    pub fn why_missing_offsets(&self, build: &str) -> Missing {
        let has_segments = |files: &SymbolFiles| matches!(files.file(build), Ok(Some(file)) if file.facts().has_segments);
        match self.why_missing(build) {
            Missing::NoFunction if !self.files.as_ref().is_some_and(has_segments) => {
                Missing::NoSegments
            }
            other => other,
        }
    }

    /// Adds a piece of a symbol file.
    pub fn receive(&self, piece: &Piece<'_>) -> Result<Received, UploadError> {
        let files = self.files.as_ref().ok_or(UploadError::NoFolder)?;
        let received = upload::receive(files, piece)?;
        if received.is_stored && !received.was_known {
            self.revise();
        }
        Ok(received)
    }

    /// All symbol files, by build id.
    pub fn list(&self) -> Vec<ListedFile> {
        self.files
            .as_ref()
            .map(SymbolFiles::list)
            .unwrap_or_default()
    }

    /// Reads all of each symbol file. Returns what is wrong, by build id.
    pub fn verify(&self) -> Vec<(String, FileError)> {
        let Some(files) = &self.files else {
            return Vec::new();
        };
        files
            .list()
            .into_iter()
            .filter_map(|file: ListedFile| {
                let result = files.verify(&file.build_id);
                result.err().map(|error| (file.build_id, error))
            })
            .collect()
    }

    /// Removes the symbol files that nothing used since then. Returns them.
    pub fn remove_unused(&self, since: Timestamp) -> Result<Vec<ListedFile>, FileError> {
        let Some(files) = &self.files else {
            return Ok(Vec::new());
        };
        let removed = files.remove_unused(since)?;
        if !removed.is_empty() {
            self.revise();
        }
        Ok(removed)
    }

    /// Reads one file that a query wants, in a process of its own. Returns whether there was one.
    pub fn find_next(&self) -> bool {
        let (Some(files), Some(finder)) = (&self.files, &self.finder) else {
            return false;
        };
        let Some(build) = finder.next() else {
            return false;
        };
        match finder.find(files, &build) {
            Found::Made => self.revise(),
            // Without room, it is found missing again later.
            Found::Nowhere | Found::Failed if finder.asks_agents() => {
                self.fetches.add(&build);
            }
            Found::Nowhere | Found::Failed => {}
        }
        true
    }

    /// Checks that the symbols of a build can be fetched from agents.
    pub fn check_fetch(&self, build: &str) -> Result<(), FetchError> {
        let files = self.files.as_ref().ok_or(FetchError::NoFolder)?;
        if self.finder.is_none() {
            return Err(FetchError::NoReader);
        }
        if !is_build_id(build) {
            let build = profiler_core::limits::bounded(build, 140);
            return Err(FetchError::BuildId(build.into_owned()));
        }
        match files.file(build) {
            Ok(Some(file)) if file.facts().detail == Detail::Lines => {
                Err(FetchError::Known(build.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Queues a fetch of the symbols of a build.
    pub fn add_fetch(&self, build: &str) -> Result<(), FetchError> {
        if self.fetches.add(build) {
            Ok(())
        } else {
            Err(FetchError::TooMany)
        }
    }

    /// The next build whose symbols are to be requested from agents.
    pub fn next_fetch(&self) -> Option<String> {
        self.fetches.next()
    }

    /// All fetches that are not complete.
    pub fn fetches(&self) -> Vec<Fetch> {
        self.fetches.list()
    }

    /// Where the next piece of a build begins.
    pub fn fetched_bytes(&self, build: &str) -> Result<u64, FileError> {
        self.files
            .as_ref()
            .map_or(Ok(0), |files| Fetches::received(files, build))
    }

    /// Adds a piece that an agent sent. Returns whether it was the last one.
    pub fn add_fetched(&self, piece: &AgentPiece<'_>) -> Result<bool, PieceError> {
        self.files
            .as_ref()
            .map_or(Ok(false), |files| self.fetches.append(files, piece))
    }

    /// Makes the symbol file of a build from the pieces of agents, in a process of its own. The error is
    /// for people.
    pub fn store_fetched(&self, build: &str) -> Result<(), String> {
        let (Some(files), Some(finder)) = (&self.files, &self.finder) else {
            return Ok(());
        };
        let path = Fetches::path(files, build).map_err(|error| error.to_string())?;
        let read = finder.read(files, build, path.as_os_str());
        let _ = std::fs::remove_file(&path);
        read?;
        self.revise();
        Ok(())
    }

    /// The fetch of a build ended.
    pub fn end_fetch(&self, build: &str, result: Result<(), String>) {
        self.fetches.end(build, result);
    }

    /// Addresses whose names are kept.
    #[cfg(any(test, feature = "testing"))]
    pub fn names_kept(&self) -> usize {
        lock(&self.known).count
    }

    fn revise(&self) {
        self.revision.fetch_add(1, Ordering::AcqRel);
    }
}

impl KnownNames {
    fn at(&mut self, revision: u64) -> &mut KnownNames {
        if self.revision != revision || self.count > NAMED_ADDRESSES_MAX {
            *self = KnownNames {
                revision,
                ..KnownNames::default()
            };
        }
        self
    }

    fn of(
        &mut self,
        revision: u64,
        build: &str,
        addresses: &BTreeSet<u64>,
    ) -> BTreeMap<u64, Functions> {
        let Some(known) = self.at(revision).by_build.get(build) else {
            return BTreeMap::new();
        };
        addresses
            .iter()
            .filter_map(|address: &u64| Some((*address, known.get(address)?.clone())))
            .collect()
    }

    fn keep(
        &mut self,
        revision: u64,
        build: &Arc<str>,
        names: &BTreeMap<u64, Functions>,
        is_finished: bool,
    ) {
        let this = self.at(revision);
        let known = this.by_build.entry(build.clone()).or_default();
        let before = known.len();
        known.extend(
            names
                .iter()
                .map(|(address, functions)| (*address, functions.clone())),
        );
        this.count += known.len() - before;
        if is_finished {
            this.unfinished.remove(build);
        } else {
            this.unfinished.insert(build.clone());
        }
    }
}

/// Whether it is a build id that can be requested: 4 to 64 bytes in lowercase hexadecimal.
fn is_build_id(text: &str) -> bool {
    (8..=128).contains(&text.len())
        && text.len().is_multiple_of(2)
        && text
            .bytes()
            .all(|byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The path of a build below a folder, in GNU layout.
fn path_of(folder: &Path, build: &str, extension: &str) -> PathBuf {
    let (first, rest) = build.split_at(2);
    folder.join(first).join(format!("{rest}.{extension}"))
}

#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
