//! Finds text to work on: real files that exist on nearly every machine.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::bail;

/// Most files. More would only be more of the same, and a cold disk takes seconds for each
/// thousand.
const FILES_MAX: usize = 1_500;
const CORPUS_BYTES_MAX: u64 = 24 << 20;
/// Largest file; larger ones are rarely written by people.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// Directory entries visited, so that a slow or endless tree ends the search.
const ENTRIES_MAX: usize = 50_000;
/// Text of one task: about 10 ms of tokenizing, long enough to be sampled.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;

const TEXT_EXTENSIONS: [&str; 12] = [
    "rs", "h", "hpp", "c", "py", "md", "txt", "toml", "html", "rst", "ts", "js",
];

/// Files that are processed together.
pub(super) type Chunk = Vec<PathBuf>;

/// The chunks of member `member` of `members`. All members find the same chunks, so that together
/// they process each of them once.
///
/// # Errors
/// If there is no text in any of the directories, or too little to give each member a chunk.
pub(super) fn share_of(member: usize, members: usize) -> anyhow::Result<Vec<Chunk>> {
    let folders = candidates();
    let chunks = in_chunks(find_text(&folders));
    let share: Vec<Chunk> = chunks.into_iter().skip(member).step_by(members).collect();
    if share.is_empty() {
        bail!(
            "too little text for {members} workers in the folders {folders:?}; looked for files \
               named *.{{{}}}",
            TEXT_EXTENSIONS.join(",")
        );
    }
    Ok(share)
}

/// Directories that are likely to hold text.
fn candidates() -> Vec<PathBuf> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    let mut libraries = list(Path::new("/usr/lib")).unwrap_or_default();
    libraries.retain(|path| path.to_string_lossy().starts_with("/usr/lib/python3"));
    libraries.sort_unstable();
    let mut folders: Vec<PathBuf> = cargo_home
        .into_iter()
        .map(|home| home.join("registry/src"))
        .collect();
    folders.push("/usr/include".into());
    folders.append(&mut libraries);
    folders.push("/usr/share/doc".into());
    folders.extend(env::current_dir());
    folders
}

/// Text files with their sizes, in the same order in every process. The limits above apply to all
/// directories together.
fn find_text(folders: &[PathBuf]) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let mut bytes = 0;
    let mut entries = 0;
    let mut queue: VecDeque<PathBuf> = folders.iter().cloned().collect();
    while let Some(folder) = queue.pop_front() {
        // A missing or unreadable directory holds no text for us.
        let Ok(mut listed) = list(&folder) else {
            continue;
        };
        listed.sort_unstable();
        for path in listed {
            entries += 1;
            if entries > ENTRIES_MAX || files.len() == FILES_MAX || bytes > CORPUS_BYTES_MAX {
                return files;
            }
            // Links are not followed: they could lead in circles or out of the directory.
            let Ok(metadata) = path.symlink_metadata() else {
                continue;
            };
            if metadata.is_dir() {
                queue.push_back(path);
            } else if metadata.is_file() && is_text(&path) && metadata.len() <= FILE_BYTES_MAX {
                bytes += metadata.len();
                files.push((path, metadata.len()));
            }
        }
    }
    files
}

fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect()
}

fn is_text(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| TEXT_EXTENSIONS.contains(&extension))
}

/// Groups neighboring files until a chunk is full.
fn in_chunks(files: Vec<(PathBuf, u64)>) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut room = 0;
    for (path, bytes) in files {
        match chunks.last_mut() {
            Some(chunk) if bytes <= room => chunk.push(path),
            _ => {
                chunks.push(vec![path]);
                room = CHUNK_BYTES;
            }
        }
        room = room.saturating_sub(bytes);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds text in nested directories and nothing else: no other kind of file, no link, nothing
    /// too large.
    #[test]
    fn only_text_of_moderate_size_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/deep.rs"), "fn deep() {}").unwrap();
        fs::write(root.join("top.md"), "# Top").unwrap();
        fs::write(root.join("picture.png"), "not text").unwrap();
        fs::write(
            root.join("large.txt"),
            vec![b'x'; FILE_BYTES_MAX as usize + 1],
        )
        .unwrap();
        std::os::unix::fs::symlink(root, root.join("circle")).unwrap();
        let found = find_text(&[root.to_owned(), root.join("missing")]);
        assert_eq!(
            found,
            [(root.join("top.md"), 5), (root.join("a/b/deep.rs"), 12)]
        );
    }

    /// Every file is in one chunk, and no chunk of several files exceeds the size.
    #[test]
    fn chunks_hold_every_file_once_and_not_too_much() {
        let sizes = [10, CHUNK_BYTES, CHUNK_BYTES - 10, 10, 1, CHUNK_BYTES * 2, 3];
        let files = sizes
            .iter()
            .enumerate()
            .map(|(n, bytes)| (PathBuf::from(n.to_string()), *bytes));
        let chunks: Vec<Vec<String>> = in_chunks(files.collect())
            .iter()
            .map(|chunk: &Chunk| {
                chunk
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect()
            })
            .collect();
        assert_eq!(
            chunks,
            [
                vec!["0"],
                vec!["1"],
                vec!["2", "3"],
                vec!["4"],
                vec!["5"],
                vec!["6"]
            ]
        );
    }
}
