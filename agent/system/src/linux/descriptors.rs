//! The descriptor table of the agent's threads.
//!
//! A program may close descriptors that it does not own, count them, wait for the end of a pipe, or
//! run out of them. So the agent's threads have a table of their own: the first one leaves the
//! program's table and starts the others, which inherit its table. Threads of the program never use
//! a descriptor of the agent.
//!
//! Where the system refuses that (a filter of system calls), the agent's descriptors stay in the
//! program's table, and [`CheckedFile`](super::file::CheckedFile) checks each of them before every
//! use.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

use super::{directory, probe};

/// The first descriptor after standard input, output and error.
const FIRST: u32 = 3;

/// Whether the agent's threads use the program's table.
static SHARED: AtomicBool = AtomicBool::new(true);

/// Whether the agent's descriptors are in the program's table, where the program may close them.
pub fn are_shared() -> bool {
    SHARED.load(Ordering::Relaxed)
}

/// Moves the calling thread to a table of its own, which the threads that it starts will share. Of
/// the program's descriptors it holds standard error only, for the messages of panics.
///
/// The caller is not the only thread that uses the program's table: the thread that started it
/// waits meanwhile.
///
/// # Errors
/// Why the system refuses; then the thread still uses the program's table.
pub fn leave_table_of_program() -> Result<(), Errno> {
    SHARED.store(true, Ordering::Relaxed);
    leave_table()?;
    SHARED.store(false, Ordering::Relaxed);
    Ok(())
}

/// Like [`leave_table_of_program`], for a thread that uses none of the agent's other descriptors.
///
/// # Errors
/// As for [`leave_table_of_program`].
pub fn leave_table() -> Result<(), Errno> {
    // Linux 5.9 and newer; copies nothing. `unshare` copies the table first.
    probe::allowed(unshare_and_close).or_else(|_| {
        probe::allowed(unshare)?;
        close_all();
        Ok(())
    })?;
    replace_standard_streams();
    Ok(())
}

fn unshare_and_close() -> Result<(), Errno> {
    let flags = libc::CLOSE_RANGE_UNSHARE;
    // SAFETY: takes plain numbers. The table is shared with a thread that exists, so the kernel
    // copies it first, and nothing that another thread uses is closed.
    let result = unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, flags) };
    Errno::result(result).map(drop)
}

fn unshare() -> Result<(), Errno> {
    // SAFETY: takes a plain number; affects only the calling thread's table.
    Errno::result(unsafe { libc::unshare(libc::CLONE_FILES) }).map(drop)
}

/// Closes the copies of the program's descriptors. Record locks stay, because they belong to the
/// program's table.
fn close_all() {
    let Ok(numbers) = directory::numbers("/proc/thread-self/fd") else {
        return;
    };
    for number in numbers.into_iter().filter(|number| *number >= FIRST) {
        // SAFETY: the table belongs to this thread alone, and nothing uses its descriptors. The one
        // that read the list is closed already, so closing it again fails.
        unsafe { libc::close(number as i32) };
    }
}

/// Replaces standard input and output by `/dev/null`: with a copy of a pipe's end, the program could
/// not close the pipe. Standard error is replaced only if it is closed, or else a file of the agent
/// would get its number, and messages would be written into it.
fn replace_standard_streams() {
    // SAFETY: the path is a string that ends in a 0.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if null < 0 {
        return;
    }
    // SAFETY: takes plain numbers; reading the flags changes nothing.
    let stderr_is_open = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFD) } >= 0;
    let streams = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];
    for stream in &streams[..if stderr_is_open { 2 } else { 3 }] {
        // SAFETY: takes plain numbers. The table belongs to this thread alone.
        unsafe { libc::dup2(null, *stream) };
    }
    if null as u32 >= FIRST {
        // SAFETY: opened above and used nowhere else.
        unsafe { libc::close(null) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::thread;

    use super::*;

    fn own_numbers() -> Vec<u32> {
        directory::numbers("/proc/thread-self/fd").unwrap().to_vec()
    }

    /// Descriptors that are open without the one that reads the list.
    fn open_descriptors() -> usize {
        own_numbers().len() - 1
    }

    fn check(leave: fn()) {
        let file = File::open("/proc/self/exe").unwrap();
        let number = file.as_raw_fd() as u32;
        assert!(own_numbers().contains(&number));
        let agent = thread::spawn(move || {
            leave();
            let inherited = thread::spawn(open_descriptors).join().unwrap();
            (open_descriptors(), inherited)
        });
        assert_eq!(agent.join().unwrap(), (3, 3), "standard streams only");
        assert!(
            own_numbers().contains(&number),
            "the program's table is untouched"
        );
        assert!(file.metadata().is_ok());
    }

    #[test]
    fn a_thread_and_its_children_have_a_table_of_their_own() {
        check(|| unshare_and_close().unwrap());
    }

    #[test]
    fn without_close_range_the_copied_descriptors_are_closed_one_by_one() {
        check(|| {
            unshare().unwrap();
            close_all();
        });
    }

    #[test]
    fn the_ends_of_pipes_are_not_held() {
        thread::spawn(|| {
            unshare_and_close().unwrap();
            replace_standard_streams();
            for stream in 0..2 {
                let path = std::fs::read_link(format!("/proc/thread-self/fd/{stream}")).unwrap();
                assert_eq!(path.to_str(), Some("/dev/null"));
            }
        })
        .join()
        .unwrap();
    }
}
