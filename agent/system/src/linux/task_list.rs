//! The threads of this process: who they are, in the order in which they started.
//!
//! The kernel lists a process's threads from the oldest to the newest, and finds the n-th by walking
//! a linked list, which is quick, while each entry that it reports costs it a lookup. So reading only
//! the end of the list finds new threads at a cost that does not grow with the old ones.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::signal::Signal;
use nix::time::ClockId;

use super::directory;
use super::file::CheckedFile;
use super::page_vec::PageVec;
use super::process::clock_ns;

const TASKS: &str = "/proc/self/task";
/// Entries before the first thread: `.` and `..`.
pub const DOTS: u64 = 2;

/// The ids of all threads of this process.
///
/// # Errors
/// If the system refuses.
pub fn thread_ids() -> io::Result<PageVec<u32>> {
    directory::numbers(TASKS)
}

/// The ids of the threads of this process, without the `skipped` oldest ones if that is possible.
///
/// # Errors
/// If the system refuses.
pub fn thread_ids_from(skipped: u64) -> io::Result<PageVec<u32>> {
    directory::numbers_from(TASKS, DOTS + skipped)
}

/// Most bytes of a thread's name.
const NAME_BYTES: usize = 15;

/// The kernel's name of a thread: at most 15 bytes, which need not be UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ThreadName {
    bytes: [u8; NAME_BYTES],
    length: u8,
}

impl ThreadName {
    /// The first bytes of `name`.
    pub fn of(name: &[u8]) -> ThreadName {
        let length = name.len().min(NAME_BYTES);
        let mut bytes = [0; NAME_BYTES];
        bytes[..length].copy_from_slice(&name[..length]);
        ThreadName {
            bytes,
            length: length as u8,
        }
    }

    /// Whether the thread has no name.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The name, with replacement characters where it is not UTF-8.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes[..usize::from(self.length)])
    }
}

impl From<&str> for ThreadName {
    fn from(name: &str) -> ThreadName {
        let characters_end = name
            .char_indices()
            .map(|(at, character)| at + character.len_utf8());
        let end = characters_end
            .take_while(|end| *end <= NAME_BYTES)
            .last()
            .unwrap_or(0);
        ThreadName::of(&name.as_bytes()[..end])
    }
}

/// The path of a thread's file in `/proc`, without memory of the allocator.
#[derive(Debug)]
pub struct TaskPath {
    text: [u8; 64],
    length: usize,
}

impl TaskPath {
    /// `file` is the name of the file, such as `stat`.
    pub fn new(thread_id: u32, file: &str) -> TaskPath {
        let mut path = TaskPath {
            text: [0; 64],
            length: 0,
        };
        // Names of files are short, so there is room.
        let _ = write!(path, "{TASKS}/{thread_id}/{file}");
        path
    }
}

impl fmt::Write for TaskPath {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = self
            .text
            .get_mut(self.length..self.length + part.len())
            .ok_or(fmt::Error)?;
        room.copy_from_slice(part.as_bytes());
        self.length += part.len();
        Ok(())
    }
}

impl AsRef<Path> for TaskPath {
    fn as_ref(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.text[..self.length]))
    }
}

/// Facts about one thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadStat {
    /// The name.
    pub name: ThreadName,
    /// When it started, on the monotonic clock, rounded down to ten milliseconds.
    pub started_ns: u64,
    /// The first 31 signals that it blocks, as a mask.
    blocked: u64,
    /// The kernel's letter for its state.
    state: u8,
}

impl ThreadStat {
    /// Reads the facts about a thread; `None` if it is gone or the system refuses.
    pub fn read(thread_id: u32) -> Option<ThreadStat> {
        let mut buffer = [0; 512];
        let opened = File::open(TaskPath::new(thread_id, "stat")).ok();
        let file = opened.and_then(CheckedFile::new)?;
        let length = file.unchecked().read_at(&mut buffer, 0).ok()?;
        Self::parse(&buffer[..length], suspended_ns())
    }

    /// Whether it blocks `signal`, one of the first 31.
    pub fn blocks(&self, signal: Signal) -> bool {
        self.blocked & 1 << (signal as i32 - 1) != 0
    }

    /// Whether it blocks one of these signals, a mask of the first 31.
    pub fn blocks_any(&self, signals: u64) -> bool {
        self.blocked & signals != 0
    }

    /// Whether it runs or waits for a processor.
    pub fn is_running(&self) -> bool {
        self.state == b'R'
    }

    /// Whether a signal or a debugger has stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Parses `id (name) state …`; the name may contain anything.
    fn parse(text: &[u8], suspended_ns: u64) -> Option<ThreadStat> {
        const NS_PER_CLOCK_TICK: u64 = 10_000_000;
        let name_begins = text.windows(2).position(|pair| pair == b" (")? + 2;
        let name_ends = text.windows(2).rposition(|pair| pair == b") ")?;
        let name = text.get(name_begins..name_ends)?;
        let mut fields = std::str::from_utf8(&text[name_ends + 2..]).ok()?.split(' ');
        let state = *fields.next()?.as_bytes().first()?;
        let started: u64 = fields.nth(18)?.parse().ok()?;
        let blocked = fields.nth(9)?.parse().ok()?;
        let started_ns = (started * NS_PER_CLOCK_TICK).saturating_sub(suspended_ns);
        Some(ThreadStat {
            name: ThreadName::of(name),
            started_ns,
            blocked,
            state,
        })
    }
}

/// How far the kernel's clock of starts is ahead of the monotonic clock: it counts while the machine
/// is suspended.
fn suspended_ns() -> u64 {
    let monotonic = clock_ns(ClockId::CLOCK_MONOTONIC).unwrap_or(0);
    clock_ns(ClockId::CLOCK_BOOTTIME)
        .unwrap_or(0)
        .saturating_sub(monotonic)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::process::thread_id;

    #[test]
    fn the_newest_threads_are_at_the_end_of_the_list() {
        let (started, start) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let newest = thread::spawn(move || {
            started.send(thread_id()).unwrap();
            ended.recv()
        });
        let newest_id = start.recv().unwrap();
        assert!(thread_ids().unwrap().contains(&thread_id()));
        // Threads of other tests that end meanwhile move ours forward.
        let is_behind_its_place = || {
            let all = thread_ids().unwrap();
            let at = all.iter().position(|id| *id == newest_id).unwrap();
            thread_ids_from(at as u64).unwrap().contains(&newest_id)
        };
        assert!((0..100).any(|_| is_behind_its_place()));
        // Past the end, or all of them where the position cannot be set.
        let past = thread_ids_from(1 << 20).unwrap();
        assert!(past.is_empty() || past.contains(&thread_id()), "{past:?}");
        drop(end);
        newest.join().unwrap().unwrap_err();
    }

    #[test]
    fn facts_follow_the_last_parenthesis() {
        let fields = (4..=32).map(|field| match field {
            22 => "1234".to_owned(),
            32 => (1_u64 << 22).to_string(),
            _ => "7".to_owned(),
        });
        let text = format!("99 (a) (b) R {} 0 0", fields.collect::<Vec<_>>().join(" "));
        let stat = ThreadStat::parse(text.as_bytes(), 340_000_000).unwrap();
        assert_eq!(
            (&*stat.name.text(), stat.started_ns),
            ("a) (b", 12_000_000_000)
        );
        assert!(stat.blocks(Signal::SIGURG) && !stat.blocks(Signal::SIGWINCH));
        assert!(stat.blocks_any(0b11 << 22) && !stat.blocks_any(0b11 << 20));
        assert!(stat.is_running() && !stat.is_stopped());
        assert_eq!(ThreadStat::parse(b"99 (a) R 1 2", 0), None);
    }

    #[test]
    fn a_new_thread_started_now_and_blocks_nothing() {
        let before = crate::clock::monotonic_ns();
        let stat = thread::spawn(|| ThreadStat::read(thread_id()))
            .join()
            .unwrap()
            .unwrap();
        let after = crate::clock::monotonic_ns();
        assert!(
            stat.started_ns + 20_000_000 > before && stat.started_ns < after,
            "{stat:?}"
        );
        assert!(!stat.blocks(Signal::SIGURG));
        assert_eq!(ThreadStat::read(4_194_303), None);
    }
}
