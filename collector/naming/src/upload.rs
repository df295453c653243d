//! Uploads of symbol files, in pieces. An upload that broke off continues where it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use symbol_files::SymbolFile;

use super::files::{FileError, RoomError, SymbolFiles, check_build};
use super::is_build_id;
use base::limits::{SYMBOL_FILE_BYTES_MAX, SYMBOL_UPLOADS_MAX};
use base::sync::lock;

/// An upload that got no piece for so long is forgotten.
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A piece of a symbol file.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'p> {
    pub build_id: &'p str,
    /// SHA-256 of the whole file, in lowercase hexadecimal.
    pub sha256: &'p str,
    /// Bytes of the whole file.
    pub bytes: u64,
    /// Where the piece begins.
    pub offset: u64,
    /// May be empty, to ask how much was received.
    pub content: &'p [u8],
    /// Whether it may take the place of another file of the same build and detail.
    pub replace: bool,
}

/// How much of a file was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    pub bytes: u64,
    /// Whether it is complete and counts.
    pub is_stored: bool,
    /// Whether the same file, or a better one of the same build, was there before.
    pub was_known: bool,
}

/// Why an upload was rejected.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("this collector keeps no symbols, because it keeps nothing: start it with --data DIR")]
    NoFolder,
    #[error("build_id={0:?} is no build id: 8 to 128 digits of lowercase hexadecimal are expected")]
    BuildId(String),
    #[error("sha256={0:?} is no SHA-256: 64 digits of lowercase hexadecimal are expected")]
    Sha256(String),
    #[error(transparent)]
    NoRoom(#[from] RoomError),
    #[error("{SYMBOL_UPLOADS_MAX} other uploads are not complete; try again later")]
    TooManyUploads,
    #[error("the piece ends at byte {end}, the file at byte {bytes}")]
    PastEnd { end: u64, bytes: u64 },
    #[error("the received bytes have SHA-256 {found}, not {expected}; upload the file again")]
    Damaged { found: String, expected: String },
    #[error("the symbol file is rejected: {0}")]
    File(#[from] FileError),
    #[error(
        "build id {build_id} has other symbols already ({known}, from a file of {known_source} bytes; \
         the new ones: {new}, from a file of {new_source} bytes); one of the two is of another \
         build. To keep the new ones, add --replace"
    )]
    Conflict {
        build_id: String,
        known: &'static str,
        known_source: u64,
        new: &'static str,
        new_source: u64,
    },
}

fn failed(path: &Path) -> impl Fn(io::Error) -> UploadError {
    let path = path.to_owned();
    move |source| {
        FileError::Io {
            path: path.clone(),
            source,
        }
        .into()
    }
}

/// Adds a piece, and stores the file when it is complete.
pub(super) fn receive(files: &SymbolFiles, piece: &Piece<'_>) -> Result<Received, UploadError> {
    check(piece)?;
    let _changing = lock(&files.changing);
    // Uploads begin at 0; their other pieces need not read a whole file.
    if piece.offset == 0 && sha256_of_stored(files, piece)?.as_deref() == Some(piece.sha256) {
        return Ok(Received {
            bytes: piece.bytes,
            is_stored: true,
            was_known: true,
        });
    }
    let path = files.partial(piece.sha256)?;
    let received = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    if received == 0 {
        admit(files, &path)?;
    }
    // Another piece may say another length than the first.
    files.check_room(piece.bytes, received)?;
    if piece.offset != received || (piece.content.is_empty() && received < piece.bytes) {
        return Ok(Received {
            bytes: received,
            is_stored: false,
            was_known: false,
        });
    }
    let append = || -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        file.write_all(piece.content)
    };
    append().map_err(failed(&path))?;
    let bytes = received + piece.content.len() as u64;
    if bytes < piece.bytes {
        return Ok(Received {
            bytes,
            is_stored: false,
            was_known: false,
        });
    }
    let stored = store(files, piece, &path);
    if !matches!(stored, Ok(Stored::New)) {
        let _ = fs::remove_file(&path);
    }
    Ok(Received {
        bytes,
        is_stored: true,
        was_known: stored? == Stored::Known,
    })
}

fn check(piece: &Piece<'_>) -> Result<(), UploadError> {
    if !is_build_id(piece.build_id) {
        return Err(UploadError::BuildId(short(piece.build_id)));
    }
    if piece.sha256.len() != 64 || !is_build_id(piece.sha256) {
        return Err(UploadError::Sha256(short(piece.sha256)));
    }
    if piece.bytes > SYMBOL_FILE_BYTES_MAX {
        return Err(RoomError::TooLarge { bytes: piece.bytes }.into());
    }
    let end = piece.offset.saturating_add(piece.content.len() as u64);
    if end > piece.bytes {
        return Err(UploadError::PastEnd {
            end,
            bytes: piece.bytes,
        });
    }
    Ok(())
}

fn short(text: &str) -> String {
    profiler_core::limits::bounded(text, 140).into_owned()
}

/// The checksum of the file that the build has, if it has the same size.
fn sha256_of_stored(files: &SymbolFiles, piece: &Piece<'_>) -> Result<Option<String>, UploadError> {
    let Some(path) = files.stored_path(piece.build_id) else {
        return Ok(None);
    };
    let is_same_size = fs::metadata(&path).is_ok_and(|found| found.len() == piece.bytes);
    if !is_same_size {
        return Ok(None);
    }
    sha256(&path).map(Some)
}

/// Checks that another upload may begin; removes those that nobody continues.
fn admit(files: &SymbolFiles, path: &Path) -> Result<(), UploadError> {
    let mut open = 0;
    for other in files.partials().into_iter().filter(|other| other != path) {
        if is_old(&other) {
            let _ = fs::remove_file(&other);
        } else {
            open += 1;
        }
    }
    if open >= SYMBOL_UPLOADS_MAX {
        return Err(UploadError::TooManyUploads);
    }
    Ok(())
}

fn is_old(path: &PathBuf) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = modified
        .ok()
        .and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.is_some_and(|age| age > PARTIAL_AGE_MAX)
}

/// The outcome of a complete upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    New,
    /// The build's file has as much, and stays.
    Known,
}

fn store(files: &SymbolFiles, piece: &Piece<'_>, path: &Path) -> Result<Stored, UploadError> {
    let found = sha256(path)?;
    if found != piece.sha256 {
        return Err(UploadError::Damaged {
            found,
            expected: piece.sha256.to_owned(),
        });
    }
    let file = File::open(path).map_err(failed(path))?;
    let file = SymbolFile::open(file).map_err(FileError::File)?;
    check_build(&file, piece.build_id)?;
    file.verify().map_err(FileError::File)?;
    let facts = file.facts();
    // A file that cannot be opened is no reason to reject another one.
    if !piece.replace
        && let Ok(Some(known)) = files.file(piece.build_id)
        && known.facts().rank() >= facts.rank()
    {
        // A stripped program after its debug file, or the two in any order.
        if known.facts().rank() > facts.rank() || known.has_names_of(&file) {
            return Ok(Stored::Known);
        }
        return Err(UploadError::Conflict {
            build_id: piece.build_id.to_owned(),
            known: known.facts().detail.name(),
            known_source: known.facts().source_bytes,
            new: facts.detail.name(),
            new_source: facts.source_bytes,
        });
    }
    files.put(path, piece.build_id)?;
    Ok(Stored::New)
}

fn sha256(path: &Path) -> Result<String, UploadError> {
    let mut hash = Sha256::new();
    let mut file = File::open(path).map_err(failed(path))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let bytes = file.read(&mut buffer).map_err(failed(path))?;
        if bytes == 0 {
            break;
        }
        hash.update(&buffer[..bytes]);
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
