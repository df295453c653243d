//! The newest id of any thread, which tells whether threads may have started since it was last read: also if as many
//! others have ended, and at a cost that does not depend on the number of threads.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::file::CheckedFile;

/// Files whose last word is the newest id in this namespace of process ids, the best one first: containers may have a
/// copy of the second one that is some seconds old.
const FILES: [&str; 2] = ["/proc/sys/kernel/ns_last_pid", "/proc/loadavg"];
/// Most ids that are worth looking at one by one.
const IDS_MAX: u32 = 256;

/// The newest ids at the last two readings. The kernel counts an id before its thread can be found, so each id is looked
/// at twice.
#[derive(Debug, Default)]
pub struct NewestId {
    file: Option<CheckedFile>,
    last: Option<u32>,
    before: Option<u32>,
}

/// Ids that threads of any process have got lately.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NewIds {
    /// Some or none of these.
    Among(Range<u32>),
    /// Many.
    Many,
    /// The system does not tell.
    #[default]
    Unknown,
}

impl NewestId {
    /// Reads it. Returns the ids since the reading before the last one.
    pub fn read(&mut self) -> NewIds {
        let read = self.file.as_ref().and_then(last_number);
        let newest = read.or_else(|| self.open());
        self.update(newest)
    }

    fn update(&mut self, newest: Option<u32>) -> NewIds {
        let since = std::mem::replace(&mut self.before, self.last);
        self.last = newest;
        let Some(newest) = newest else {
            return NewIds::Unknown;
        };
        match since {
            Some(since) if newest >= since && newest - since <= IDS_MAX => {
                NewIds::Among(since + 1..newest + 1)
            }
            // The first reading, or ids have begun again at the lowest one.
            _ => NewIds::Many,
        }
    }

    fn open(&mut self) -> Option<u32> {
        self.file = None;
        for path in FILES {
            let opened = File::open(path).ok().and_then(CheckedFile::new);
            let newest = opened.as_ref().and_then(last_number);
            if newest.is_some() {
                self.file = opened;
                return newest;
            }
        }
        None
    }
}

/// The number at the end of a small file, unless it is 0.
fn last_number(file: &CheckedFile) -> Option<u32> {
    let mut buffer = [0; 128];
    let length = file.if_same()?.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..length]).ok()?;
    let number = text.split_ascii_whitespace().last()?.parse().ok()?;
    (number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::thread_id;

    #[test]
    fn a_new_thread_has_one_of_the_new_ids() {
        let mut newest = NewestId::default();
        newest.read();
        newest.read();
        let id = std::thread::spawn(thread_id).join().unwrap();
        match newest.read() {
            NewIds::Among(ids) => assert!(ids.contains(&id), "{id} of {ids:?}"),
            NewIds::Many => {}
            NewIds::Unknown => panic!("it is not known"),
        }
    }

    #[test]
    fn ids_are_returned_twice() {
        let mut newest = NewestId::default();
        for (id, expected) in [
            (Some(7), NewIds::Many),
            (Some(7), NewIds::Many),
            (Some(9), NewIds::Among(8..10)),
            (Some(9), NewIds::Among(8..10)),
            (Some(9), NewIds::Among(10..10)),
            (Some(1_000), NewIds::Many),
            (Some(1_001), NewIds::Many),
            (Some(300), NewIds::Many),
            (None, NewIds::Unknown),
        ] {
            assert_eq!(newest.update(id), expected, "{id:?}");
        }
    }
}
