//! Lines of the library about the processes of one command: one for each program that begins, is sampled or
//! cannot be. Any process of the user may write there, so it is read with limits.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use flamegraph::text::printable;

use super::check::Obstacle;

/// Most bytes that are read in all: a million lines.
const BYTES_MAX: u64 = 64 << 20;
/// Most programs that are named.
const SAID_MAX: usize = 20;
/// Most processes that are remembered; further ones count as short.
const PENDING_MAX: usize = 100_000;

/// The file, and what was read of it.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

/// Counts of the lines so far.
#[derive(Debug, Default)]
pub(crate) struct JournalCounts {
    /// Programs that began with the library.
    began: u64,
    /// Those that were sampled.
    sampled: u64,
    /// Those that cannot be.
    refused: u64,
    /// Forked children that were sampled.
    children: u64,
    /// Processes whose programs began and are neither sampled nor refused.
    pending: BTreeSet<u32>,
    /// The process that is profiled from outside.
    outside: Option<u32>,
    /// Reasons and programs that were said.
    said: BTreeSet<String>,
    /// The beginning of a line whose end is not written yet.
    rest: Vec<u8>,
    read: u64,
}

impl Journal {
    /// A new file in a folder of this user alone.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn create(folder: &Path) -> io::Result<Journal> {
        let path = folder.join("journal");
        let file = File::options()
            .read(true)
            .append(true)
            .create_new(true)
            .open(&path)?;
        Ok(Journal { path, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the lines since the last call, and returns what is to be said.
    pub(crate) fn read(&self, counts: &mut JournalCounts) -> Vec<String> {
        let mut file = &self.file;
        let mut bytes = Vec::new();
        let left = BYTES_MAX - counts.read.min(BYTES_MAX);
        let read = file
            .seek(SeekFrom::Start(counts.read))
            .and_then(|_| file.take(left).read_to_end(&mut bytes));
        // What cannot be read is not counted.
        counts.read += read.unwrap_or(0) as u64;
        counts.add(&bytes)
    }
}

impl JournalCounts {
    /// Counts of a command, of which one process may be profiled from outside.
    pub(crate) fn new(outside: Option<u32>) -> JournalCounts {
        JournalCounts {
            outside,
            ..JournalCounts::default()
        }
    }

    /// Programs that ended before they were sampled.
    pub(crate) fn short(&self) -> u64 {
        self.began.saturating_sub(self.sampled + self.refused)
    }

    /// Names the programs that were profiled, and counts those that were too short; `None` if there are neither.
    pub(crate) fn line(&self) -> Option<String> {
        let JournalCounts {
            began,
            sampled,
            children,
            ..
        } = *self;
        let short = self.short();
        (began > 1 || short + children > 0).then(|| {
            format!(
                "profiled {sampled} of {began} programs ({short} ended within 50 ms, or changed user or root) and {children} forked children"
            )
        })
    }

    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut text = std::mem::take(&mut self.rest);
        text.extend_from_slice(bytes);
        let whole = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        self.rest = text.split_off(whole);
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines()
            .filter_map(|line| self.add_line(line))
            .collect()
    }

    /// Returns what is to be said.
    fn add_line(&mut self, line: &str) -> Option<String> {
        let mut words = line.splitn(3, ' ');
        let kind = words.next()?;
        let process = words.next()?.parse().ok()?;
        let rest = words.next()?;
        match kind {
            "+" => {
                self.began += 1;
                if self.pending.len() < PENDING_MAX {
                    self.pending.insert(process);
                }
            }
            "=" => self.sampled += u64::from(self.pending.remove(&process)),
            "%" => self.children += 1,
            "!" => {
                self.refused += u64::from(self.pending.remove(&process));
                let is_outside = self.outside == Some(process);
                if !is_outside && self.said.len() < SAID_MAX && self.said.insert(rest.to_owned()) {
                    let (word, name) = rest.split_once(' ')?;
                    let obstacle = Obstacle::of_journal(word)?;
                    let shown = printable(name);
                    return Some(format!("{shown} is not profiled: {obstacle}"));
                }
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_in_pieces_count_once_and_each_program_is_named_once() {
        let text = "+ 1 sh\n+ 2 sort\n= 1 sh\n= 1 sh\n% 2 sort\n! 3 sanitizer /bin/x y\n! 4 sanitizer /bin/x y\n\
                    ! 5 go \u{1b}]0;x\u{7}\n! 5 no-such-word z\nhello\n+\n\u{fffd}\n! 6 go app\n+ 7 cut-off";
        for piece in [1, 7, text.len()] {
            let mut counts = JournalCounts::default();
            let pieces = text.as_bytes().chunks(piece);
            let said: Vec<String> = pieces.flat_map(|piece| counts.add(piece)).collect();
            assert_eq!((counts.began, counts.sampled, counts.short()), (2, 1, 1));
            assert_eq!(said.len(), 3, "{said:?}");
            assert!(
                said[0].starts_with("/bin/x y is not profiled: "),
                "{said:?}"
            );
            let escaped = "\\u{1b}]0;x\\u{7} is not profiled: ";
            assert!(said[1].starts_with(escaped), "{said:?}");
            assert!(said[2].starts_with("app is not profiled: "), "{said:?}");
        }
    }

    #[test]
    fn a_flood_of_refusals_is_cut() {
        let mut counts = JournalCounts::default();
        let lines: String = (0..100)
            .map(|number| format!("! 1 go app{number}\n"))
            .collect();
        assert_eq!(counts.add(lines.as_bytes()).len(), SAID_MAX);
    }
}
