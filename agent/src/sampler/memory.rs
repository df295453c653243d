//! The two ways to read the stack of a thread.

use crate::sys::process::read_memory;

/// Most of a blocked thread's stack that is read; what lies deeper is `[truncated]`.
const REMOTE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the first reading; most blocked threads are not deeper. Each further one is four times as
/// long as the one before, as a reading costs a microsecond more than its bytes.
const FIRST_BYTES: usize = 4096;

/// Reads words from a copy that the thread's handler made; its first word stood at `at`.
pub(super) fn copied(at: u64, words: &[u64]) -> impl FnMut(u64) -> Result<u64, ()> + '_ {
    move |address| {
        let offset = address.checked_sub(at).filter(|offset| offset % 8 == 0).ok_or(())?;
        let index = usize::try_from(offset / 8).map_err(|_| ())?;
        words.get(index).copied().ok_or(())
    }
}

/// Reads the stack of a blocked thread without disturbing it, and about as deep as it is asked.
/// Never trusts that an address is mapped.
#[derive(Debug, Default)]
pub(super) struct RemoteStack {
    at: u64,
    bytes: Vec<u8>,
    /// Nothing can be read above what is held.
    ended: bool,
}

impl RemoteStack {
    /// Starts over at the stack pointer `sp`.
    pub(super) fn reset(&mut self, sp: u64) {
        self.at = sp & !7;
        self.bytes.clear();
        self.ended = false;
    }

    /// The word at `address`, which must not lie below the stack pointer.
    pub(super) fn read(&mut self, address: u64) -> Result<u64, ()> {
        let offset = address.checked_sub(self.at).filter(|offset| offset % 8 == 0).ok_or(())?;
        if offset >= REMOTE_BYTES_MAX {
            return Err(());
        }
        let index = usize::try_from(offset).map_err(|_| ())?;
        while self.bytes.len() < index + 8 && !self.ended {
            self.read_on();
        }
        let word = self.bytes.get(index..).and_then(|bytes| bytes.first_chunk()).ok_or(())?;
        Ok(u64::from_ne_bytes(*word))
    }

    /// Appends what follows. The kernel copies whole pages up to the first that is not mapped.
    fn read_on(&mut self) {
        let from = self.at + self.bytes.len() as u64;
        let held = self.bytes.len();
        let length = FIRST_BYTES.max(held * 3);
        self.bytes.resize(held + length, 0);
        let read = read_memory(from, &mut self.bytes[held..]);
        self.bytes.truncate(held + read);
        self.ended = read < length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_stack_is_read_as_deep_as_asked_and_ends_at_unmapped_memory() {
        let words: Vec<u64> = (0..2_000).collect();
        let at = words.as_ptr() as u64;
        let mut remote = RemoteStack::default();
        remote.reset(at);
        assert_eq!(remote.read(at + 8 * 1_700), Ok(1_700));
        assert_eq!(remote.read(at), Ok(0));
        assert_eq!(remote.read(at - 8), Err(()));
        assert_eq!(remote.read(at + 3), Err(()), "not a word's address");
        assert_eq!(remote.read(at + REMOTE_BYTES_MAX), Err(()));
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
