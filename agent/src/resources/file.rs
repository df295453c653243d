//! A system file that is read repeatedly.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit};

use system::file::CheckedFile;

/// Most bytes that are read of a file: enough for the lines of 500 processors.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// A read that returns less than this has reached the end: the kernel fills a page with lines before it
/// needs another read.
const WHOLE_BELOW: usize = 2_048;

/// Readings for which a file is skipped after it could not be read: ten seconds at two per second.
const ABSENT_READS: u32 = 20;

/// Limit on descriptors below which no file is kept open.
const DESCRIPTORS_TO_KEEP_OPEN: u64 = 256;

#[derive(Debug)]
pub(super) struct SystemFile {
    path: String,
    open_file: Option<CheckedFile>,
    /// Readings for which it is still skipped.
    absent: u32,
    text: Vec<u8>,
}

impl SystemFile {
    pub(super) fn new(path: impl Into<String>) -> SystemFile {
        SystemFile {
            path: path.into(),
            open_file: None,
            absent: 0,
            text: Vec::new(),
        }
    }

    /// Returns its text; `None` if it cannot be read.
    pub(super) fn read(&mut self) -> Option<&str> {
        if self.absent > 0 {
            self.absent -= 1;
            return None;
        }
        if !self.read_text() {
            self.open_file = None;
            self.absent = ABSENT_READS;
            return None;
        }
        std::str::from_utf8(&self.text).ok()
    }

    /// Returns its number; `None` if it contains anything else.
    pub(super) fn read_number(&mut self) -> Option<u64> {
        self.read()?.trim_end().parse().ok()
    }

    fn read_text(&mut self) -> bool {
        let open_file = self.open_file.as_ref().and_then(CheckedFile::if_same);
        if open_file.is_some_and(|file| read_whole(file, &mut self.text)) {
            return true;
        }
        let opened = File::open(&self.path).ok().and_then(CheckedFile::new);
        let is_read = opened
            .as_ref()
            .is_some_and(|file| read_whole(file.unchecked(), &mut self.text));
        self.open_file = opened.filter(|_| is_read && may_keep_open());
        is_read
    }
}

fn may_keep_open() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let limit = getrlimit(Resource::RLIMIT_NOFILE);
        limit.is_ok_and(|(soft, _)| soft >= DESCRIPTORS_TO_KEEP_OPEN)
    })
}

/// Reads the whole file, up to the limit.
fn read_whole(file: &File, text: &mut Vec<u8>) -> bool {
    let mut length = 0;
    loop {
        // The buffer doubles, and is kept between readings.
        if text.len() - length < WHOLE_BELOW {
            text.resize((text.len() * 2).clamp(2 * WHOLE_BELOW, TEXT_BYTES_MAX), 0);
        }
        let Ok(read) = file.read_at(&mut text[length..], length as u64) else {
            return false;
        };
        length += read;
        if read < WHOLE_BELOW || length == TEXT_BYTES_MAX {
            text.truncate(length);
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_read_anew_each_time_whatever_its_length() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut system = SystemFile::new(file.path().to_str().unwrap());
        let mut expected = String::new();
        assert_eq!(system.read(), Some(""));
        for length in [1, 2_047, 2_048, 9_000, 40_000, 70_000] {
            let more = "x".repeat(length - expected.len());
            file.write_all(more.as_bytes()).unwrap();
            expected += &more;
            let whole = &expected[..expected.len().min(TEXT_BYTES_MAX)];
            assert_eq!(system.read(), Some(whole), "{length}");
        }
        file.as_file().set_len(2).unwrap();
        assert_eq!(system.read(), Some("xx"));
    }

    #[test]
    fn a_file_that_is_not_there_is_left_alone_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late");
        let mut system = SystemFile::new(path.to_str().unwrap());
        assert_eq!(system.read(), None);
        std::fs::write(&path, "7\n").unwrap();
        for _ in 0..ABSENT_READS {
            assert_eq!(system.read(), None);
        }
        assert_eq!(system.read_number(), Some(7));
    }
}
