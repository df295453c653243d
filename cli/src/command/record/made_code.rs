//! Names of code that the runtimes of ended programs made: Java writes them at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use nix::unistd::geteuid;
use symbol_files::perf_map::{file_name, may_be_of};

/// Where runtimes write their files.
const FOLDER: &str = "/tmp";

/// Most files that are open.
const FILES_MAX: usize = 256;

/// The files `/tmp/perf-PID.map` of these processes of this user, written since a time after 1970.
pub(super) fn files(processes: &BTreeSet<u32>, since: Duration) -> BTreeMap<u32, File> {
    let opened = processes.iter().filter_map(|process| {
        let path = Path::new(FOLDER).join(file_name(*process));
        Some((*process, open(&path, since)?))
    });
    opened.take(FILES_MAX).collect()
}

/// The file counts only if it is this user's and no link.
fn open(path: &Path, since: Duration) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path).ok()?;
    let facts = file.metadata().ok()?;
    let since_s = i64::try_from(since.as_secs()).ok()?;
    may_be_of(&facts, geteuid().as_raw(), since_s).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn only_a_new_file_of_this_user_counts() {
        let folder = tempfile::tempdir().unwrap();
        let map = folder.path().join("map");
        fs::write(&map, "1000 10 f\n").unwrap();
        let written = Duration::from_secs(fs::metadata(&map).unwrap().mtime() as u64);
        assert!(open(&map, written).is_some());
        assert!(open(&map, written + Duration::from_secs(1)).is_none());
        let link = folder.path().join("link");
        symlink(&map, &link).unwrap();
        assert!(open(&link, written).is_none());
        assert!(open(folder.path(), Duration::ZERO).is_none());
        fs::hard_link(&map, folder.path().join("hard")).unwrap();
        assert!(open(&map, written).is_none());
    }
}
