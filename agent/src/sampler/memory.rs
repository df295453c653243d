//! Reading the stack of a thread: from the copy of its signal handler, or from outside.

use system::pages::Pages;
use system::process::Memory;

/// Most bytes of a blocked thread's stack that are read; deeper frames are `[truncated]`.
const REMOTE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the first read, enough for most blocked threads. Each further read quadruples the
/// total, because a read costs a microsecond in addition to its bytes.
const FIRST_BYTES: usize = 4096;

/// Reads words from the copy that a thread's handler made, whose first word was at the address
/// `at`.
pub(super) fn copied(at: u64, words: &[u64]) -> impl FnMut(u64) -> Result<u64, ()> + '_ {
    move |address| {
        let offset = address
            .checked_sub(at)
            .filter(|offset| offset % 8 == 0)
            .ok_or(())?;
        let index = usize::try_from(offset / 8).map_err(|_| ())?;
        words.get(index).copied().ok_or(())
    }
}

/// The stack of a blocked thread, read without disturbing it and only about as deep as needed.
/// Never relies on an address being mapped.
#[derive(Debug)]
pub(super) struct RemoteStack {
    memory: Memory,
    at: u64,
    /// The first `length` bytes of it are read.
    bytes: Pages,
    length: usize,
    /// No further memory can be read.
    ended: bool,
}

impl Default for RemoteStack {
    fn default() -> RemoteStack {
        let bytes = Pages::new(REMOTE_BYTES_MAX)
            .or_else(|| Pages::new(0))
            .expect("no mapping is needed for no bytes");
        RemoteStack {
            memory: Memory::Own,
            at: 0,
            bytes,
            length: 0,
            ended: true,
        }
    }
}

impl RemoteStack {
    /// Reads stacks of another process.
    #[cfg(feature = "outside")]
    pub(super) fn of_other(memory: Memory) -> RemoteStack {
        RemoteStack {
            memory,
            ..RemoteStack::default()
        }
    }

    /// Starts over at the stack pointer `sp`.
    pub(super) fn reset(&mut self, sp: u64) {
        self.at = sp & !7;
        self.length = 0;
        self.ended = false;
    }

    /// The word at `address`, which must not lie below the stack pointer.
    pub(super) fn read(&mut self, address: u64) -> Result<u64, ()> {
        let offset = address
            .checked_sub(self.at)
            .filter(|offset| offset % 8 == 0)
            .ok_or(())?;
        let index = usize::try_from(offset).map_err(|_| ())?;
        if index >= self.bytes.len() {
            return Err(());
        }
        while self.length < index + 8 && !self.ended {
            self.read_on();
        }
        let read = &self.bytes[..self.length];
        let word = read
            .get(index..)
            .and_then(|bytes| bytes.first_chunk())
            .ok_or(())?;
        Ok(u64::from_ne_bytes(*word))
    }

    /// Reads further memory. The kernel copies whole pages, up to the first unmapped one.
    fn read_on(&mut self) {
        let before = self.length;
        let end = (before + FIRST_BYTES.max(before * 3)).min(self.bytes.len());
        let read = self
            .memory
            .read(self.at + before as u64, &mut self.bytes[before..end]);
        self.length += read;
        self.ended = self.length < end || end == self.bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_stack_is_read_on_demand_and_ends_at_unmapped_memory() {
        let words: Vec<u64> = (0..2_000).collect();
        let at = words.as_ptr() as u64;
        let mut remote = RemoteStack::default();
        remote.reset(at);
        assert_eq!(remote.read(at + 8 * 1_700), Ok(1_700));
        assert_eq!(remote.read(at), Ok(0));
        assert_eq!(remote.read(at - 8), Err(()));
        assert_eq!(remote.read(at + 3), Err(()), "not aligned to a word");
        assert_eq!(remote.read(at + REMOTE_BYTES_MAX as u64), Err(()));
        remote.reset(64);
        assert_eq!(remote.read(64), Err(()));
    }

    #[test]
    fn a_copy_is_read_within_its_bounds() {
        let mut read = copied(0x1000, &[7, 8]);
        assert_eq!(read(0x1000), Ok(7));
        assert_eq!(read(0x1008), Ok(8));
        assert_eq!(read(0x1010), Err(()));
        assert_eq!(read(0x0ff8), Err(()));
        assert_eq!(read(0x1004), Err(()));
    }
}
