//! The process whose code is named: this one, or another one that is profiled from outside.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use symbols::perf_map::file_name;
use system::file::read_text;
use system::process::Memory;

/// Where the files and the memory of a process are.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Reads its memory.
    pub memory: Memory,
    /// Its folder in `/proc`.
    folder: String,
    /// Comes before the paths of its files, if its root is another one.
    root: Option<String>,
    /// Its user, and its id in its own namespace; `None` for this process.
    identity: Option<Identity>,
}

#[derive(Clone, Copy, Debug)]
struct Identity {
    user: u32,
    inner_id: u32,
}

impl Default for Subject {
    /// This process.
    fn default() -> Subject {
        Subject {
            memory: Memory::Own,
            folder: "/proc/self".to_owned(),
            root: None,
            identity: None,
        }
    }
}

impl Subject {
    /// Another process. Its root is used for its files if it is not this process's.
    #[must_use]
    pub fn other(process: u32) -> Subject {
        use std::os::unix::fs::MetadataExt as _;
        let folder = format!("/proc/{process}");
        let same = |what: &str| {
            let of = |folder: &str| fs::metadata(format!("{folder}/{what}")).ok();
            match [of(&folder), of("/proc/self")] {
                [Some(theirs), Some(ours)] => {
                    [theirs.dev(), theirs.ino()] == [ours.dev(), ours.ino()]
                }
                _ => true,
            }
        };
        let has_own_root = !same("ns/mnt") || !same("root");
        let identity = Identity {
            user: fs::metadata(&folder).map_or(u32::MAX, |facts| facts.uid()),
            inner_id: system::process::innermost_id(&folder).unwrap_or(process),
        };
        Subject {
            memory: Memory::Of(process),
            root: has_own_root.then(|| format!("{folder}/root")),
            folder,
            identity: Some(identity),
        }
    }

    /// The path of a file that the process sees at `path`.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        match &self.root {
            Some(root) => PathBuf::from(format!("{root}{path}")),
            None => PathBuf::from(path),
        }
    }

    /// The file of its program.
    #[must_use]
    pub fn executable(&self) -> PathBuf {
        Path::new(&self.folder).join("exe")
    }

    /// The path of its program, as the process sees it.
    #[must_use]
    pub fn program(&self) -> Option<PathBuf> {
        fs::read_link(self.executable()).ok()
    }

    /// The text of a file in its folder in `/proc`.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        read_text(&format!("{}/{name}", self.folder)).ok()
    }

    /// Its id in its own namespace.
    pub(super) fn inner_id(&self) -> u32 {
        match self.identity {
            Some(identity) => identity.inner_id,
            None => std::process::id(),
        }
    }

    /// The file in which it lists code that it makes.
    pub(super) fn perf_map(&self) -> PathBuf {
        self.path(&format!("/tmp/{}", file_name(self.inner_id())))
    }

    /// The user that must own that file.
    pub(super) fn user(&self) -> u32 {
        match self.identity {
            Some(identity) => identity.user,
            None => geteuid().as_raw(),
        }
    }
}
