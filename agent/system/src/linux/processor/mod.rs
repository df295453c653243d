//! Differences between processors: registers of an interrupted thread, the time stamp, and code
//! that a signal handler needs without the C library. One file per processor, with the same names.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::{
    FP, LR, PC, REGISTERS, SP, code_address, copy_words, read_memory, register, thread_pointer,
    time_stamp,
};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    FP, PC, REGISTERS, SP, code_address, copy_words, read_memory, register, thread_pointer,
    time_stamp,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_copied_whole_and_none_beyond() {
        for words in [0, 1, 2, 3, 7, 8] {
            let from: Vec<u64> = (1..=10).collect();
            let mut to = [0; 10];
            // SAFETY: both have ten words.
            unsafe { copy_words(from.as_ptr(), to.as_mut_ptr(), words) };
            assert_eq!(to[..words], from[..words]);
            assert!(to[words..].iter().all(|word| *word == 0), "{words}: {to:?}");
        }
    }

    #[test]
    fn unmapped_memory_is_not_read_and_errno_stays() {
        let from = [7u64, 8];
        let mut to = [0; 2];
        let pid = nix::unistd::getpid().as_raw();
        nix::errno::Errno::EDOM.set();
        // SAFETY: `to` has 16 bytes.
        let read = unsafe { read_memory(pid, from.as_ptr() as u64, to.as_mut_ptr(), 16) };
        assert_eq!(read, 16);
        assert_eq!(to, from);
        // SAFETY: as above.
        assert_eq!(unsafe { read_memory(pid, 8, to.as_mut_ptr(), 16) }, 0);
        assert_eq!(nix::errno::Errno::last(), nix::errno::Errno::EDOM);
    }

    #[test]
    fn the_time_stamp_grows() {
        let before = time_stamp();
        std::thread::park_timeout(std::time::Duration::from_millis(1));
        assert!(time_stamp() > before);
    }

    #[test]
    fn an_address_of_code_is_its_own() {
        let address = time_stamp as *const () as u64;
        assert_eq!(code_address(address), address);
    }
}
