//! Lines for `emberline record`, in a file that all processes append to.
//!
//! `+ PID COMMAND` a program began, `= PID COMMAND` it is sampled, `% PID COMMAND` a forked child is,
//! `! PID REASON NAME` a program cannot be.

use std::io::{Cursor, Write as _};

use nix::fcntl::{OFlag, open};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::write;

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
    let mut line = Cursor::new([0; LINE_BYTES_MAX]);
    // What does not fit is cut.
    let _ = match entry {
        Entry::Began => write!(line, "+ {process} {name}"),
        Entry::Sampled => write!(line, "= {process} {name}"),
        Entry::SampledChild => write!(line, "% {process} {name}"),
        Entry::Refused(obstacle) => write!(line, "! {process} {} {name}", obstacle.word()),
    };
    let length = usize::try_from(line.position()).unwrap_or(0);
    let mut bytes = line.into_inner();
    let length = length.min(LINE_BYTES_MAX - 1);
    for byte in &mut bytes[..length] {
        if *byte == b'\n' {
            *byte = b'?';
        }
    }
    bytes[length] = b'\n';
    let flags = OFlag::O_WRONLY
        | OFlag::O_APPEND
        | OFlag::O_CLOEXEC
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK;
    // Without the file, nobody wants the line.
    let Ok(file) = open(path, flags, Mode::empty()) else {
        return;
    };
    // A write past the limit of the process would be a signal that ends it.
    let may_grow = fstat(&file)
        .is_ok_and(|status| status.st_size < FILE_BYTES_MAX && !is_limited(status.st_size));
    if may_grow {
        let _ = write(file, &bytes[..=length]);
    }
}

/// Whether the process may not write a whole line at the end of a file of this size.
fn is_limited(bytes: i64) -> bool {
    let end = bytes.unsigned_abs() + LINE_BYTES_MAX as u64;
    getrlimit(Resource::RLIMIT_FSIZE).is_ok_and(|(soft, _)| soft < end)
}
