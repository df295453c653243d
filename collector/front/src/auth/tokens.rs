//! The tokens of a running collector, which follow their file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use profiler_core::{Timestamp, TokenId};
use tokio::sync::watch;

use super::{TokenFile, TokenFileError, TokenRecord, TokenSet};
use base::limits::AUDIT_NAMES_MAX;
use base::sync::{Mutex, lock, rank};

/// Where a collector has its tokens from.
#[derive(Clone, Default, Debug)]
pub enum TokenSource {
    /// Everyone who reaches the collector may do everything.
    #[default]
    None,
    /// This file: a named one must exist, one of a data folder counts as soon as it does.
    File(TokenFile),
    /// These tokens, which never change.
    Fixed(Vec<TokenRecord>),
}

/// The current tokens. They are `None` as long as nobody needs one, and never again after that: a file
/// that disappears or cannot be read leaves the tokens as they were.
#[derive(Debug)]
pub struct Tokens {
    file: Option<TokenFile>,
    current: watch::Sender<Option<Arc<TokenSet>>>,
    /// The file as it was when it was read last.
    last_read: Mutex<FileVersion, rank::TokenFile>,
}

/// Changes with each change of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum FileVersion {
    #[default]
    Absent,
    Unreadable,
    Present {
        device: u64,
        inode: u64,
        bytes: u64,
        modified_ns: i128,
        changed_ns: i128,
    },
}

impl FileVersion {
    fn of(file: &TokenFile) -> FileVersion {
        match fs::metadata(file.path()) {
            Ok(metadata) => FileVersion::Present {
                device: metadata.dev(),
                inode: metadata.ino(),
                bytes: metadata.len(),
                modified_ns: unix_ns(metadata.mtime(), metadata.mtime_nsec()),
                changed_ns: unix_ns(metadata.ctime(), metadata.ctime_nsec()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileVersion::Absent,
            Err(_) => FileVersion::Unreadable,
        }
    }
}

fn unix_ns(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

impl Tokens {
    /// The tokens of a source.
    ///
    /// # Errors
    /// [`TokenFileError`] if there is a file that cannot be used.
    pub fn open(source: TokenSource) -> Result<Tokens, TokenFileError> {
        match source {
            TokenSource::None => Ok(tokens_of(None, None)),
            TokenSource::Fixed(records) => {
                Ok(tokens_of(None, Some(Arc::new(TokenSet::new(records)))))
            }
            TokenSource::File(file) => {
                // Looked at first, so that a change while it is read is not missed.
                let version = FileVersion::of(&file);
                let records = file.read_needed()?;
                let set = records.map(|records| Arc::new(TokenSet::new(records)));
                if set.is_some() {
                    file.note_needed();
                }
                let tokens = tokens_of(Some(file), set);
                *lock(&tokens.last_read) = version;
                Ok(tokens)
            }
        }
    }

    /// Whether requests need a token.
    pub fn are_required(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// The number of tokens.
    pub fn count(&self) -> usize {
        self.current.borrow().as_ref().map_or(0, |set| set.count())
    }

    /// The current tokens; `None` if none is needed.
    pub fn current(&self) -> Option<Arc<TokenSet>> {
        self.current.borrow().clone()
    }

    /// Reads the file again if it has changed. Blocks.
    pub fn refresh(&self) {
        let Some(file) = &self.file else { return };
        let mut last = lock(&self.last_read);
        let version = FileVersion::of(file);
        if version == *last {
            return;
        }
        *last = version;
        match file.read() {
            Ok(Some(records)) => {
                file.note_needed();
                let tokens = records.len();
                let new = Arc::new(TokenSet::new(records));
                let old = self
                    .current
                    .send_replace(Some(new.clone()))
                    .unwrap_or_default();
                let added = listed(new.ids_without(&old));
                let revoked = listed(old.ids_without(&new));
                tracing::info!(target: "audit", tokens, added, revoked, "tokens reloaded");
            }
            Ok(None) => {
                if self.are_required() {
                    let path = file.path().display();
                    tracing::error!(
                        target: "audit",
                        "the token file {path} is gone; its tokens stay valid until a restart"
                    );
                }
            }
            Err(error) => {
                let cause = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                tracing::error!(target: "audit", %error, cause, "tokens could not be reloaded");
                // Nobody can say whom the file would let in.
                self.current.send_if_modified(|current| match current {
                    Some(_) => false,
                    None => {
                        *current = Some(Arc::default());
                        true
                    }
                });
            }
        }
    }

    /// Resolves when this token is revoked or expired, or, without one, when tokens are needed.
    pub async fn revoked(&self, token: Option<&TokenRecord>, now: impl Fn() -> Timestamp) {
        let mut changes = self.current.subscribe();
        loop {
            let set = changes.borrow_and_update().clone();
            let is_valid = match (&set, token) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(set), Some(token)) => set.still_valid(token.id, now()).is_ok(),
            };
            if !is_valid {
                return;
            }
            let expiry = token.and_then(|token| token.expires).map(|expires| {
                let left_ns = expires.as_nanosecond() - i128::from(now().unix_ns());
                // Looked at again at least each hour, because clocks are set.
                let left_ns = u64::try_from(left_ns)
                    .unwrap_or(0)
                    .clamp(1_000_000, 3_600_000_000_000);
                std::time::Duration::from_nanos(left_ns)
            });
            tokio::select! {
                changed = changes.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
                () = sleep(expiry) => {}
            }
        }
    }
}

/// Tokens whose file, if any, was not read yet.
fn tokens_of(file: Option<TokenFile>, set: Option<Arc<TokenSet>>) -> Tokens {
    Tokens {
        file,
        current: watch::Sender::new(set),
        last_read: Mutex::default(),
    }
}

/// The first of these ids, and how many more there are; `None` if there are none.
fn listed(ids: impl Iterator<Item = TokenId>) -> Option<String> {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    let more = ids.len().saturating_sub(AUDIT_NAMES_MAX);
    let mut text = ids[..ids.len() - more].join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    (!ids.is_empty()).then_some(text)
}

async fn sleep(duration: Option<std::time::Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
