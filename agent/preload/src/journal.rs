//! Lines for `emberline record`, in a file that all processes append to.
//!
//! `+ PID COMMAND` a program began, `= PID COMMAND` it is sampled, `% PID COMMAND` a forked child is,
//! `! PID REASON NAME` a program cannot be.

use std::io::{Cursor, Write as _};

use nix::NixPath;
use nix::fcntl::{OFlag, open};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{geteuid, write};

use crate::image::Obstacle;
use crate::sys::variables;

/// Names the file. Without it nothing is written.
const VARIABLE: &[u8] = b"EMBERLINE_PRELOAD_JOURNAL";

/// Size of the file from which nothing more is written.
const FILE_BYTES_MAX: i64 = 64 << 20;

/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 256;

/// A step of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Began,
    Sampled,
    SampledChild,
    Refused(Obstacle),
}

/// Appends a line about `name`, a command or a path. Allocates nothing, because it may run in a forked child.
pub(crate) fn add(entry: Entry, name: &str) {
    let Some(path) = variables::copied(VARIABLE) else {
        return;
    };
    let process = crate::sys::process::id();
    let mut bytes = [0; LINE_BYTES_MAX];
    let (text, _) = bytes.split_at_mut(LINE_BYTES_MAX - 1);
    let mut line = Cursor::new(text);
    // What does not fit is cut.
    let _ = match entry {
        Entry::Began => write!(line, "+ {process} {name}"),
        Entry::Sampled => write!(line, "= {process} {name}"),
        Entry::SampledChild => write!(line, "% {process} {name}"),
        Entry::Refused(obstacle) => write!(line, "! {process} {} {name}", obstacle.word()),
    };
    let length = usize::try_from(line.position()).unwrap_or(0);
    for byte in &mut bytes[..length] {
        if *byte == b'\n' {
            *byte = b'?';
        }
    }
    bytes[length] = b'\n';
    append(path, &bytes[..=length]);
}

/// Appends to a file of this user. Whatever else has its name is left alone, and not waited for.
fn append<P: NixPath + ?Sized>(path: &P, line: &[u8]) {
    let flags = OFlag::O_WRONLY
        | OFlag::O_APPEND
        | OFlag::O_CLOEXEC
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY;
    // Without the file, nobody wants the line.
    let Ok(file) = open(path, flags, Mode::empty()) else {
        return;
    };
    if fstat(&file).is_ok_and(|status| is_journal(&status) && may_grow(&status)) {
        let _ = write(file, line);
    }
}

/// Whether it can be the file that `emberline record` has created for this user.
fn is_journal(status: &FileStat) -> bool {
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    kind == SFlag::S_IFREG && status.st_uid == geteuid().as_raw() && status.st_nlink == 1
}

/// Whether the process may write a whole line at the end. A write past its limit would be a signal that ends it.
fn may_grow(status: &FileStat) -> bool {
    let end = status.st_size.unsigned_abs() + LINE_BYTES_MAX as u64;
    let is_limited = getrlimit(Resource::RLIMIT_FSIZE).is_ok_and(|(soft, _)| soft < end);
    status.st_size < FILE_BYTES_MAX && !is_limited
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_a_file_of_this_user_gets_lines() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = |name: &str| fs::read_to_string(at(name)).unwrap();
        fs::write(at("journal"), "first\n").unwrap();
        append(&at("journal"), b"second\n");
        append(&at("missing"), b"x\n");
        assert_eq!(text("journal"), "first\nsecond\n");
        assert!(!at("missing").exists());
        symlink(at("journal"), at("link")).unwrap();
        // Nobody reads: an open that waits would never return.
        mkfifo(&at("pipe"), Mode::S_IRWXU).unwrap();
        append(&at("link"), b"x\n");
        append(&at("pipe"), b"x\n");
        append(&folder.path().to_owned(), b"x\n");
        assert_eq!(text("journal"), "first\nsecond\n");
        fs::hard_link(at("journal"), at("hard")).unwrap();
        append(&at("hard"), b"x\n");
        assert_eq!(text("hard"), "first\nsecond\n");
        fs::write(at("others"), "").unwrap();
        if geteuid().is_root() && chown(at("others"), Some(1), None).is_ok() {
            append(&at("others"), b"x\n");
            assert_eq!(text("others"), "");
        }
    }
}
