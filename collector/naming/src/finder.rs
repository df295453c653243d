//! Files with debug information that the collector finds itself. Each is read by a process of its own,
//! which has limits on memory and time: a file that kills its reader costs only its names.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use profiler_core::limits::bounded;
use symbol_files::SymbolFile;

use super::files::{FileError, RoomError, SymbolFiles, check_build};
use super::{Missing, NOT_FOUND_CODE, SymbolSource, is_build_id, path_of};
use base::limits::{FINDINGS_MAX, REDUCE_MAX, SYMBOL_FILE_BYTES_MAX, WANTED_BUILDS_MAX};
use base::sync::{Mutex, lock, rank};

/// How long a build that no source has is not looked for again.
const RETRY_AFTER: Duration = Duration::from_secs(600);
/// How often a reader is asked whether it is done.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Longest message of a reader, in bytes.
const MESSAGE_BYTES_MAX: u64 = 2_000;

/// Variables that a reader keeps: where the authorities of HTTPS servers are.
const AUTHORITIES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The outcome of the search for a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It has a symbol file now.
    Made,
    /// No source has it.
    Nowhere,
    /// Its file cannot be used.
    Failed,
}

/// Looks for the files of builds that queries want.
#[derive(Debug)]
pub(super) struct Finder {
    source: SymbolSource,
    /// Held while a reader runs: one at a time.
    reading: Mutex<(), rank::SymbolReading>,
    state: Mutex<State, rank::SymbolFinder>,
}

#[derive(Debug, Default)]
struct State {
    wanted: VecDeque<String>,
    reading: Option<String>,
    /// By build: why there are no names, and since when.
    failed: BTreeMap<String, Failed>,
}

#[derive(Clone, Debug)]
struct Failed {
    /// `None`: there is no file.
    reason: Option<String>,
    at: Instant,
}

impl Finder {
    pub(super) fn new(source: SymbolSource) -> Finder {
        Finder {
            source,
            reading: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Whether symbols that no other source has are requested from agents.
    pub(super) fn asks_agents(&self) -> bool {
        self.source.agents
    }

    /// Whether there is anything to look for by itself.
    fn has_sources(&self) -> bool {
        let SymbolSource {
            folder,
            debuginfod,
            agents,
            ..
        } = &self.source;
        folder.is_some() || !debuginfod.is_empty() || *agents
    }

    /// Notes that a query wants the names of a build.
    pub(super) fn want(&self, build: &str) {
        if !self.has_sources() {
            return;
        }
        let mut state = lock(&self.state);
        let is_known = state.reading.as_deref() == Some(build)
            || state.wanted.iter().any(|wanted| wanted == build)
            || state
                .failed
                .get(build)
                .is_some_and(|failed| failed.at.elapsed() < RETRY_AFTER);
        if !is_known && is_build_id(build) && state.wanted.len() < WANTED_BUILDS_MAX {
            state.wanted.push_back(build.to_owned());
        }
    }

    /// The next build to look for.
    pub(super) fn next(&self) -> Option<String> {
        let mut state = lock(&self.state);
        state.reading = state.wanted.pop_front();
        state.reading.clone()
    }

    pub(super) fn why_missing(&self, build: &str) -> Missing {
        let state = lock(&self.state);
        match state.failed.get(build) {
            Some(Failed {
                reason: Some(reason),
                ..
            }) => Missing::Unusable(reason.clone()),
            Some(Failed { reason: None, .. }) => Missing::NoFile,
            None if is_build_id(build) && self.has_sources() => Missing::Pending,
            None => Missing::NoFile,
        }
    }

    /// Looks for the file of a build and makes its symbol file.
    pub(super) fn find(&self, files: &SymbolFiles, build: &str) -> Found {
        let found = self.reduce(files, build);
        let mut state = lock(&self.state);
        state.reading = None;
        state.failed.remove(build);
        let reason = match found {
            Ok(true) => return Found::Made,
            Ok(false) => None,
            Err(reason) => Some(reason),
        };
        if let Some(reason) = &reason {
            tracing::warn!(
                build,
                reason,
                "a file with debug information cannot be used"
            );
        }
        if state.failed.len() >= FINDINGS_MAX {
            state.failed.clear();
        }
        let found = if reason.is_none() {
            Found::Nowhere
        } else {
            Found::Failed
        };
        state.failed.insert(
            build.to_owned(),
            Failed {
                reason,
                at: Instant::now(),
            },
        );
        found
    }

    /// Whether there is a file. The error is for people.
    fn reduce(&self, files: &SymbolFiles, build: &str) -> Result<bool, String> {
        let in_folder = self.source.folder.iter().filter_map(|folder| {
            let path = path_of(&folder.join(".build-id"), build, "debug");
            path.is_file().then(|| path.into_os_string())
        });
        let at_servers = self.source.debuginfod.iter().map(|server| {
            format!("{}/buildid/{build}/debuginfo", server.trim_end_matches('/')).into()
        });
        let mut failure = None;
        for from in in_folder.chain(at_servers) {
            match self.read(files, build, &from) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // The next one may have it.
                Err(reason) => failure = failure.or(Some(reason)),
            }
        }
        failure.map_or(Ok(false), Err)
    }

    /// Makes the symbol file of a build from a file or a URL, in another process. Returns whether there
    /// is such a file. The error is for people.
    pub(super) fn read(
        &self,
        files: &SymbolFiles,
        build: &str,
        from: &OsStr,
    ) -> Result<bool, String> {
        let _reading = lock(&self.reading);
        let in_words = |error: FileError| error.to_string();
        let output = files.partial(&format!("found-{build}")).map_err(in_words)?;
        let child = Command::new(&self.source.program)
            .args(["symbols", "reduce", "--limited"])
            .arg(from)
            .arg("--output")
            .arg(&output)
            .env_clear()
            .envs(
                AUTHORITIES
                    .iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("no process to read it in: {error}"))?;
        let made = wait(child).map_err(|reason| format!("{}: {reason}", shown(from)));
        let put = made.and_then(|is_found| {
            if !is_found {
                return Ok(false);
            }
            let file = File::open(&output).map_err(|error| error.to_string())?;
            let file = SymbolFile::open(file).map_err(|error| error.to_string())?;
            check_build(&file, build).map_err(in_words)?;
            file.verify().map_err(|error| error.to_string())?;
            let bytes = fs::metadata(&output).map_or(0, |metadata| metadata.len());
            if bytes > SYMBOL_FILE_BYTES_MAX {
                return Err(RoomError::TooLarge { bytes }.to_string());
            }
            files
                .check_room(bytes, bytes)
                .map_err(|error| error.to_string())?;
            let _changing = lock(&files.changing);
            if let Ok(Some(known)) = files.file(build)
                && known.facts().rank() >= file.facts().rank()
            {
                return Err(format!(
                    "it has symbols already: {}",
                    known.facts().detail.name()
                ));
            }
            files.put(&output, build).map_err(in_words)?;
            Ok(true)
        });
        if !matches!(put, Ok(true)) {
            let _ = fs::remove_file(&output);
        }
        put
    }
}

/// A file, or a URL without its user and password, which readers and the log must not see.
fn shown(from: &OsStr) -> String {
    let text = from.to_string_lossy();
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.into_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Waits for a reader, at most [`REDUCE_MAX`]. Returns whether it found its file.
fn wait(mut child: Child) -> Result<bool, String> {
    let deadline = Instant::now() + REDUCE_MAX;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_EVERY),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("its reader took longer than {REDUCE_MAX:?}"));
            }
            Err(error) => return Err(format!("its reader is gone: {error}")),
        }
    };
    match status.code() {
        Some(0) => return Ok(true),
        Some(code) if code == i32::from(NOT_FOUND_CODE) => return Ok(false),
        _ => {}
    }
    let mut message = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(MESSAGE_BYTES_MAX).read_to_end(&mut message);
    }
    let message = String::from_utf8_lossy(&message);
    let message = bounded(message.trim(), MESSAGE_BYTES_MAX as usize);
    Err(if message.is_empty() {
        format!("its reader ended by {status}")
    } else {
        message.into()
    })
}
