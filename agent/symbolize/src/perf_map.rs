//! The file in which a runtime [lists](symbols::perf_map) the code that it makes.
//!
//! Anybody may write to that folder, so the file counts only if it is the user's of the process, not a link, and modified since the process began.
//! It is read again for each batch of addresses.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::Subject;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use profiler_core::Frame;
use system::file::CheckedFile;

/// Passes the function of each address that the file of the process names to `each`, with the address's index.
pub(super) fn name(subject: &Subject, addresses: &[u64], each: impl FnMut(usize, Frame<String>)) {
    let source = Source {
        path: &subject.perf_map(),
        user: subject.user(),
        started_s: started_s(subject).unwrap_or(0),
    };
    name_from(source, addresses, each);
}

/// Where the file is, and what it must fulfill.
#[derive(Clone, Copy)]
struct Source<'a> {
    path: &'a Path,
    user: u32,
    started_s: i64,
}

fn name_from(source: Source<'_>, addresses: &[u64], each: impl FnMut(usize, Frame<String>)) {
    let Some(file) = open(source) else {
        return;
    };
    symbols::perf_map::name(file.unchecked(), addresses, each);
}

/// Opens the file, without waiting for anything, if it can be that of the process.
fn open(source: Source<'_>) -> Option<CheckedFile> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(source.path)
        .ok()?;
    let facts = file.metadata().ok()?;
    symbols::perf_map::may_be_of(&facts, source.user, source.started_s)
        .then(|| CheckedFile::new(file))
        .flatten()
}

/// When the process began, in seconds since 1970, rounded down.
fn started_s(subject: &Subject) -> Option<i64> {
    const STARTED_FIELD_AFTER_NAME: usize = 19;
    let stat = subject.text("stat")?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let ticks: i64 = after_name
        .split(' ')
        .nth(STARTED_FIELD_AFTER_NAME)?
        .parse()
        .ok()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let now = clock_gettime(ClockId::CLOCK_REALTIME).ok()?;
    let up = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
    Some(now.tv_sec() - up.tv_sec() + ticks / per_second - 1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use std::process::Command;

    use nix::unistd::geteuid;

    use super::*;

    fn named(path: &Path, started_s: i64, addresses: &[u64]) -> Vec<String> {
        let mut names = vec!["-".to_owned(); addresses.len()];
        let source = Source {
            path,
            user: geteuid().as_raw(),
            started_s,
        };
        name_from(source, addresses, |index, frame| {
            names[index] = format!("{} {}:{}", frame.function, frame.file, frame.line);
        });
        names
    }

    #[test]
    fn addresses_get_the_names_of_the_last_lines_that_cover_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("perf-1.map");
        let text = "1000 10 old\nno line\n1000 20 JS:*hot /srv/a.js:12:7\n0x2000 8 py::work:/srv/a.py\n\
            ffffffffffffffff 20 wraps\n3000 1 \n4000 4 void f(int, char)\n1020 4 JS:~ node:internal/x:1:2\n5000 9 half";
        fs::write(&file, text).unwrap();
        let addresses = [
            0x1000, 0x101f, 0x1020, 0x2007, 0x2008, 0x3000, 0x4001, 0x5001,
        ];
        let expected = [
            "hot /srv/a.js:12",
            "hot /srv/a.js:12",
            "(anonymous) node:internal/x:1",
            "work /srv/a.py:0",
            "-",
            "-",
            "void f(int, char) :0",
            "-",
        ];
        assert_eq!(named(&file, 0, &addresses), expected);
    }

    #[test]
    fn only_a_file_of_this_process_and_user_counts() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("map"), "1000 10 f\n").unwrap();
        let modified_s = fs::metadata(at("map")).unwrap().mtime();
        assert_eq!(named(&at("map"), modified_s, &[0x1000]), ["f :0"]);
        assert_eq!(
            named(&at("map"), modified_s + 1, &[0x1000]),
            ["-"],
            "of an earlier process"
        );
        symlink(at("map"), at("link")).unwrap();
        // Nobody writes: an open or a read that waits would never return.
        let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        for other in ["link", "pipe", "missing", "."] {
            assert_eq!(named(&at(other), 0, &[0x1000]), ["-"], "{other}");
        }
        fs::hard_link(at("map"), at("hard")).unwrap();
        assert_eq!(named(&at("hard"), 0, &[0x1000]), ["-"]);
    }

    #[test]
    fn a_process_began_before_now_and_after_the_machine() {
        let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap().tv_sec();
        let started = started_s(&Subject::default()).unwrap();
        assert!(
            started <= now && started > now - 86_400,
            "{started} of {now}"
        );
    }
}
