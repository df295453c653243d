//! The kind of wait of a blocked thread, by the system call that it is in.

use libc::c_long;
use profiler_core::State;

use system::process::{self, DescriptorKind};

/// Where a thread is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WaitSite {
    /// Number of the system call; negative outside one: in a page fault, or stopped.
    pub(super) call: i64,
    /// Whether a signal or a debugger has stopped the thread outside a call.
    pub(super) is_stopped: bool,
    /// Its first argument; 0 outside one.
    pub(super) argument: u64,
    pub(super) sp: u64,
    pub(super) pc: u64,
}

impl WaitSite {
    /// Whether the thread takes pending signals here instead of having them handled.
    pub(super) fn waits_for_signals(&self) -> bool {
        self.call == libc::SYS_rt_sigtimedwait
    }

    /// The address of the futex on which the thread waits.
    pub(super) fn futex(&self) -> Option<u64> {
        (self.call == libc::SYS_futex).then_some(self.argument)
    }

    /// The kind of wait.
    pub(super) fn state(&self) -> State {
        self.state_by(process::descriptor_kind)
    }

    /// The kind of wait, with the kinds of that process's descriptors.
    pub(super) fn state_by(&self, kind_of: impl Fn(i32) -> Option<DescriptorKind>) -> State {
        let mut kinds = KINDS.iter().chain(OLD_KINDS);
        match kinds.find(|(_, calls)| calls.contains(&self.call)) {
            Some((state, _)) => *state,
            None if self.is_stopped => State::Other,
            // A page fault waits for a disk.
            None if self.call < 0 => State::Disk,
            None if BY_DESCRIPTOR.contains(&self.call) => self.state_by_descriptor(kind_of),
            None if DESCRIPTOR_SETS.contains(&self.call) => self.state_by_descriptor_set(),
            None => State::Other,
        }
    }

    fn state_by_descriptor_set(&self) -> State {
        if self.argument == 0 {
            State::Sleep
        } else {
            State::Network
        }
    }

    fn state_by_descriptor(&self, kind_of: impl Fn(i32) -> Option<DescriptorKind>) -> State {
        let kind = i32::try_from(self.argument).ok().and_then(kind_of);
        match kind {
            Some(DescriptorKind::Socket) => State::Network,
            Some(DescriptorKind::File) => State::Disk,
            Some(DescriptorKind::Other) | None => State::Other,
        }
    }
}

/// Calls that wait for one kind of event.
const KINDS: &[(State, &[c_long])] = &[
    (
        State::Lock,
        &[
            libc::SYS_futex,
            libc::SYS_futex_waitv,
            454, // futex_wake
            455, // futex_wait
            libc::SYS_semop,
            libc::SYS_semtimedop,
            libc::SYS_flock,
            // Of its commands, only those that lock a part of a file wait.
            libc::SYS_fcntl,
        ],
    ),
    (
        State::Sleep,
        &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep],
    ),
    (
        State::Network,
        &[
            libc::SYS_epoll_pwait,
            libc::SYS_epoll_pwait2,
            libc::SYS_accept,
            libc::SYS_accept4,
            libc::SYS_connect,
            libc::SYS_recvfrom,
            libc::SYS_recvmsg,
            libc::SYS_recvmmsg,
            libc::SYS_sendto,
            libc::SYS_sendmsg,
            libc::SYS_sendmmsg,
            libc::SYS_sendfile,
            libc::SYS_io_uring_enter,
        ],
    ),
    (
        State::Disk,
        &[
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_sync,
            libc::SYS_syncfs,
            libc::SYS_sync_file_range,
            libc::SYS_msync,
            libc::SYS_pread64,
            libc::SYS_preadv,
            libc::SYS_preadv2,
            libc::SYS_pwrite64,
            libc::SYS_pwritev,
            libc::SYS_pwritev2,
            libc::SYS_copy_file_range,
            libc::SYS_fallocate,
            libc::SYS_ftruncate,
            libc::SYS_truncate,
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_close,
            libc::SYS_fstat,
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_getdents64,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_unlinkat,
            libc::SYS_mkdirat,
            libc::SYS_io_getevents,
            libc::SYS_madvise,
            libc::SYS_readahead,
        ],
    ),
];

/// Calls that have successors, and that only processors with older interfaces have.
#[cfg(target_arch = "x86_64")]
const OLD_KINDS: &[(State, &[c_long])] = &[
    (State::Sleep, &[libc::SYS_pause]),
    (State::Network, &[libc::SYS_epoll_wait]),
    (
        State::Disk,
        &[
            libc::SYS_open,
            libc::SYS_stat,
            libc::SYS_lstat,
            libc::SYS_rename,
            libc::SYS_unlink,
            libc::SYS_mkdir,
            libc::SYS_rmdir,
        ],
    ),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_KINDS: &[(State, &[c_long])] = &[];

/// Calls whose first argument is 0 if they wait for no descriptor, as programs sleep for less than a second.
#[cfg(target_arch = "x86_64")]
const DESCRIPTOR_SETS: &[c_long] = &[
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
];
#[cfg(not(target_arch = "x86_64"))]
const DESCRIPTOR_SETS: &[c_long] = &[libc::SYS_ppoll, libc::SYS_pselect6];

/// Calls whose kind of wait depends on the descriptor in their first argument.
const BY_DESCRIPTOR: [c_long; 5] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_splice,
];

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_kind_of_wait_follows_from_the_call() {
        let check = |call, argument, state| {
            let site = WaitSite {
                call,
                is_stopped: false,
                argument,
                sp: 0,
                pc: 0,
            };
            assert_eq!(site.state(), state, "call {call} on {argument}");
        };
        check(libc::SYS_futex, 0x7f00, State::Lock);
        check(libc::SYS_clock_nanosleep, 1, State::Sleep);
        check(libc::SYS_epoll_pwait, 5, State::Network);
        check(libc::SYS_pselect6, 4, State::Network);
        check(libc::SYS_pselect6, 0, State::Sleep);
        check(libc::SYS_ppoll, 0x7ffc_0000, State::Network);
        check(libc::SYS_ppoll, 0, State::Sleep);
        check(libc::SYS_fcntl, 3, State::Lock);
        check(libc::SYS_fdatasync, 5, State::Disk);
        check(libc::SYS_wait4, u64::MAX, State::Other);
        check(-1, 0, State::Disk);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        check(
            libc::SYS_read,
            file.as_raw_fd().cast_unsigned().into(),
            State::Disk,
        );
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        check(
            libc::SYS_write,
            socket.as_raw_fd().cast_unsigned().into(),
            State::Network,
        );
        let (pipe, _writer) = std::io::pipe().unwrap();
        check(
            libc::SYS_read,
            pipe.as_raw_fd().cast_unsigned().into(),
            State::Other,
        );
        check(libc::SYS_read, 1 << 40, State::Other);
    }
}
