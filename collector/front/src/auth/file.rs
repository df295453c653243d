//! The token file: JSON, written whole and put in place by renaming.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, getgroups};
use profiler_core::{Token, TokenId};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Role, TokenHash, TokenRecord, WorkerPattern};
use base::limits::{TOKEN_FILE_BYTES_MAX, TOKEN_NOTE_BYTES_MAX, TOKENS_MAX, WORKER_PATTERNS_MAX};
use shares::QuotaSettings;

/// The name of the file in a data folder.
const FILE_NAME: &str = "tokens.json";
/// The name of an empty file next to it, once a collector has read it: without it, a lost file would let everyone in.
const MARK_NAME: &str = "tokens.required";

const VERSION: u32 = 1;

/// A file of tokens. Several processes may change it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// Exists once tokens are needed; `None` for a file that is always needed.
    mark: Option<PathBuf>,
}

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// Reading or writing failed.
    #[error("cannot {action} the token file {}", path.display())]
    Io {
        /// The attempted operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Other users could add tokens.
    #[error(
        "other users may write the token file {0} (mode {mode:03o}); run: chmod 600 {0}",
        path.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Other users could replace the file.
    #[error(
        "other users may replace the files in {0}, where the token file is (mode {mode:03o}); run: \
         chmod go-w {0}",
        path.display()
    )]
    OpenFolder {
        /// The folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Another user could change it.
    #[error(
        "{0} belongs to user {owner}, who could add tokens; it must belong to root or to the user of \
         this process; run: chown {user} {0}",
        path.display()
    )]
    Owner {
        /// The file, or its folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// There is no file where there must be one.
    #[error(
        "the token file {0} does not exist; run: emberline token new --role operator --tokens {0}",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// There was a file.
    #[error(
        "the token file {} is gone, and without it everyone could do everything; restore it, make \
         tokens with `emberline token new`, or, to need none from now on, remove {}",
        path.display(),
        mark.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// The file that tells that there were tokens.
        mark: PathBuf,
    },
    /// The file is too large.
    #[error(
        "the token file {} has {bytes} bytes; at most {TOKEN_FILE_BYTES_MAX} are allowed",
        path.display()
    )]
    Large {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The content is not that of a token file.
    #[error("the token file {} is invalid", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem found.
        #[source]
        source: serde_json::Error,
    },
    /// The file is of a later version.
    #[error("the token file {} has version {version}; this program knows version 1", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Too many tokens.
    #[error("there are {TOKENS_MAX} tokens, the most allowed; run: emberline token revoke ID")]
    TooMany,
    /// No such token.
    #[error("no token has the id {id}; run: emberline token list")]
    Unknown {
        /// The id.
        id: TokenId,
    },
    /// Workers for another role than agent.
    #[error("only tokens of agents have workers; the role is {role}")]
    Workers {
        /// The role.
        role: Role,
    },
    /// Too many patterns.
    #[error("the token has {count} patterns of workers; at most {WORKER_PATTERNS_MAX} are allowed")]
    TooManyWorkers {
        /// The number of patterns.
        count: usize,
    },
    /// The note is too long.
    #[error("the note has {bytes} bytes; at most {TOKEN_NOTE_BYTES_MAX} are allowed")]
    LongNote {
        /// Its length.
        bytes: usize,
    },
    /// It would not be valid at any time.
    #[error("the token would expire at {expires}, which is past")]
    Expired {
        /// When it would expire.
        expires: jiff::Timestamp,
    },
    /// The system has no random bytes.
    #[error("the system has no random bytes: {0}")]
    Random(getrandom::Error),
}

/// A token to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewToken {
    /// Role of its holder.
    pub role: Role,
    /// Workers as which an agent may report; none: all.
    pub workers: Vec<WorkerPattern>,
    /// From when on it is rejected; `None`: never.
    pub expires: Option<jiff::Timestamp>,
    /// Its holder and purpose.
    pub note: String,
    /// Its quotas, where they differ from the collector's.
    pub quotas: QuotaSettings,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    tokens: Vec<TokenRecord>,
}

impl NewToken {
    /// A token with this role, for every worker and all time.
    #[must_use]
    pub fn new(role: Role) -> NewToken {
        NewToken {
            role,
            workers: Vec::new(),
            expires: None,
            note: String::new(),
            quotas: QuotaSettings::default(),
        }
    }

    /// Creates the token, whose id is different from those of `others`. Only the return value has the
    /// secret.
    ///
    /// # Errors
    /// [`TokenFileError`] if the token is not allowed.
    pub fn create(
        self,
        others: &[TokenRecord],
        now: jiff::Timestamp,
    ) -> Result<(Token, TokenRecord), TokenFileError> {
        let NewToken {
            role,
            mut workers,
            expires,
            note,
            quotas,
        } = self;
        if role != Role::Agent && !workers.is_empty() {
            return Err(TokenFileError::Workers { role });
        }
        if workers.len() > WORKER_PATTERNS_MAX {
            return Err(TokenFileError::TooManyWorkers {
                count: workers.len(),
            });
        }
        if note.len() > TOKEN_NOTE_BYTES_MAX {
            return Err(TokenFileError::LongNote { bytes: note.len() });
        }
        if let Some(expires) = expires.filter(|expires| *expires <= now) {
            return Err(TokenFileError::Expired { expires });
        }
        if others.len() >= TOKENS_MAX {
            return Err(TokenFileError::TooMany);
        }
        if role == Role::Agent && workers.is_empty() {
            workers.push(WorkerPattern::parse("*").expect("it is a pattern"));
        }
        let token = random_token(others)?;
        let record = TokenRecord {
            id: token.id(),
            role,
            workers,
            sha256: TokenHash::of(&token),
            created: now,
            expires,
            note,
            quotas,
        };
        Ok((token, record))
    }
}

/// A token whose id is no other's.
fn random_token(others: &[TokenRecord]) -> Result<Token, TokenFileError> {
    loop {
        let mut id = [0; 4];
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(&mut id).map_err(TokenFileError::Random)?;
        getrandom::fill(&mut *secret).map_err(TokenFileError::Random)?;
        let id = TokenId(u32::from_be_bytes(id));
        if others.iter().all(|other| other.id != id) {
            return Ok(Token::new(id, &secret));
        }
    }
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Whether this process is in a group, whose members are then trusted like its user.
fn is_own_group(group: u32) -> bool {
    let groups = getgroups().unwrap_or_default();
    let all = groups.into_iter().chain([Gid::effective()]);
    all.into_iter().any(|own| own.as_raw() == group)
}

fn find(records: &[TokenRecord], id: TokenId) -> Result<&TokenRecord, TokenFileError> {
    records
        .iter()
        .find(|record| record.id == id)
        .ok_or(TokenFileError::Unknown { id })
}

impl TokenFile {
    /// The file at this path, which a collector needs.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> TokenFile {
        TokenFile {
            path: path.into(),
            mark: None,
        }
    }

    /// The file of a data folder. A collector needs none, unless it has had one before.
    #[must_use]
    pub fn in_folder(data: &Path) -> TokenFile {
        TokenFile {
            path: data.join(FILE_NAME),
            mark: Some(data.join(MARK_NAME)),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all tokens when a collector starts; `None` if it needs none.
    pub(super) fn read_needed(&self) -> Result<Option<Vec<TokenRecord>>, TokenFileError> {
        let path = self.path.clone();
        match (self.read()?, &self.mark) {
            (None, None) => Err(TokenFileError::Missing { path }),
            (None, Some(mark)) if mark.exists() => {
                let mark = mark.clone();
                Err(TokenFileError::Gone { path, mark })
            }
            (records, _) => Ok(records),
        }
    }

    /// Notes that from now on there must be a file.
    pub(super) fn note_needed(&self) {
        let Some(mark) = self.mark.as_ref().filter(|mark| !mark.exists()) else {
            return;
        };
        let mut options = OpenOptions::new();
        options.write(true).create(true).mode(0o600);
        if let Err(error) = options.open(mark) {
            let path = mark.display();
            tracing::warn!(%error, "cannot write {path}: a start without the token file will need no tokens");
        }
    }

    /// All tokens, the oldest first; `None` if there is no file.
    ///
    /// # Errors
    /// [`TokenFileError`] if it cannot be read, others may write it, or its content is invalid.
    pub fn read(&self) -> Result<Option<Vec<TokenRecord>>, TokenFileError> {
        let error = |source| self.io("read", source);
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(error)?,
        };
        let metadata = file.metadata().map_err(error)?;
        let mode = metadata.mode() & 0o777;
        if mode & 0o022 != 0 {
            return Err(TokenFileError::Writable {
                path: self.path.clone(),
                mode,
            });
        }
        self.check_folders(metadata.uid())?;
        if mode & 0o044 != 0 {
            let path = self.path.display();
            tracing::warn!("other users may read the token file {path}; run: chmod 600 {path}");
        }
        let mut bytes = Vec::new();
        let mut file = file.take(TOKEN_FILE_BYTES_MAX + 1);
        file.read_to_end(&mut bytes).map_err(error)?;
        if bytes.len() as u64 > TOKEN_FILE_BYTES_MAX {
            return Err(TokenFileError::Large {
                path: self.path.clone(),
                bytes: metadata.len(),
            });
        }
        self.parse(&bytes).map(Some)
    }

    /// Checks that nobody else can change or replace the file: where its name is and, if that is a link, where it leads
    /// to. In a folder like `/tmp`, only the file's owner can.
    fn check_folders(&self, owner: u32) -> Result<(), TokenFileError> {
        let failed = |source| self.io("read", source);
        let leads_to = self.path.canonicalize().map_err(failed)?;
        let user = Uid::effective().as_raw();
        // Root may create tokens for a collector that runs as the folder's owner.
        let is_right =
            |found: u32, folder: u32| [0, user].contains(&found) || user == 0 && found == folder;
        for path in [self.folder(), folder_of(&leads_to)] {
            let metadata = path.metadata().map_err(failed)?;
            let mode = metadata.mode() & 0o1777;
            let is_sticky = mode & 0o1000 != 0;
            let is_open = mode & 0o002 != 0 || mode & 0o020 != 0 && !is_own_group(metadata.gid());
            if is_open && !is_sticky {
                return Err(TokenFileError::OpenFolder {
                    path: path.to_owned(),
                    mode,
                });
            }
            if !is_right(owner, metadata.uid()) {
                return Err(TokenFileError::Owner {
                    path: leads_to.clone(),
                    owner,
                    user,
                });
            }
            if !is_sticky && !is_right(metadata.uid(), metadata.uid()) {
                return Err(TokenFileError::Owner {
                    path: path.to_owned(),
                    owner: metadata.uid(),
                    user,
                });
            }
        }
        Ok(())
    }

    fn parse(&self, bytes: &[u8]) -> Result<Vec<TokenRecord>, TokenFileError> {
        let content: Content =
            serde_json::from_slice(bytes).map_err(|source| TokenFileError::Content {
                path: self.path.clone(),
                source,
            })?;
        if content.version != VERSION {
            let version = content.version;
            return Err(TokenFileError::Version {
                path: self.path.clone(),
                version,
            });
        }
        if content.tokens.len() > TOKENS_MAX {
            return Err(TokenFileError::TooMany);
        }
        Ok(content.tokens)
    }

    /// Creates a token, and the file if there is none. Only the return value has the secret.
    ///
    /// # Errors
    /// [`TokenFileError`] if the token is not allowed, or the file cannot be read or written.
    pub fn create(
        &self,
        new: NewToken,
        now: jiff::Timestamp,
    ) -> Result<(Token, TokenRecord), TokenFileError> {
        self.change(|records| {
            let (token, record) = new.create(records, now)?;
            records.push(record.clone());
            Ok((token, record))
        })
    }

    /// Removes a token. Requests with it are rejected as soon as the collector reads the file again.
    ///
    /// # Errors
    /// [`TokenFileError`] if it does not exist, or the file cannot be read or written.
    pub fn revoke(&self, id: TokenId) -> Result<TokenRecord, TokenFileError> {
        self.change(|records| {
            let record = find(records, id)?.clone();
            records.retain(|record| record.id != id);
            Ok(record)
        })
    }

    /// Changes the tokens while no other process does.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<TokenRecord>) -> Result<T, TokenFileError>,
    ) -> Result<T, TokenFileError> {
        let folder = self.folder();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| self.io("create the folder of", source))?;
        let folder = File::open(folder).map_err(|source| self.io("lock", source))?;
        folder.lock().map_err(|source| self.io("lock", source))?;
        let mut records = self.read()?.unwrap_or_default();
        let result = change(&mut records)?;
        self.write(&folder, records)
            .map_err(|source| self.io("write", source))?;
        Ok(result)
    }

    /// Replaces the file by one of its folder's owner: root may create tokens for a collector that runs
    /// as another user.
    fn write(&self, folder: &File, tokens: Vec<TokenRecord>) -> io::Result<()> {
        let content = Content {
            version: VERSION,
            tokens,
        };
        let mut text = serde_json::to_vec_pretty(&content)?;
        text.push(b'\n');
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        // Left behind by a process that ended while it wrote.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        let owner = folder.metadata()?;
        if file.metadata()?.uid() != owner.uid() {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        folder.sync_all()
    }

    fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    fn io(&self, action: &'static str, source: io::Error) -> TokenFileError {
        TokenFileError::Io {
            action,
            path: self.path.clone(),
            source,
        }
    }
}
