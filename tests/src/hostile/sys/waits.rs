//! Raw system calls that wait with a time limit: the C library restarts none of them, so each
//! `EINTR` is visible.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::{io, mem, ptr};

/// Resources of a wait; each thread has its own.
pub(crate) struct Waiter {
    kind: Kind,
    /// An epoll instance, a socket that nobody writes to, or the end of a pipe.
    descriptor: RawFd,
}

/// A kind of wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Poll,
    EpollWait,
    Nanosleep,
    ClockNanosleep,
    Futex,
    SemTimedwait,
    Recv,
}

impl Kind {
    pub(crate) const ALL: [Kind; 7] = [
        Kind::Poll,
        Kind::EpollWait,
        Kind::Nanosleep,
        Kind::ClockNanosleep,
        Kind::Futex,
        Kind::SemTimedwait,
        Kind::Recv,
    ];
}

const WAIT_MS: c_int = 5;
const WAIT_NS: i64 = WAIT_MS as i64 * 1_000_000;

fn time(ns: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: ns / 1_000_000_000,
        tv_nsec: ns % 1_000_000_000,
    }
}

impl Waiter {
    pub(crate) fn new(kind: Kind) -> Waiter {
        let descriptor = match kind {
            // SAFETY: it takes a plain number.
            Kind::EpollWait => unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) },
            Kind::Recv => silent_socket(),
            _ => 0,
        };
        assert!(descriptor >= 0, "{}", io::Error::last_os_error());
        Waiter { kind, descriptor }
    }

    /// Waits once; returns whether it was interrupted.
    pub(crate) fn wait(&self) -> bool {
        let wait = time(WAIT_NS);
        let result = match self.kind {
            // SAFETY: no descriptors are passed.
            Kind::Poll => unsafe { libc::poll(ptr::null_mut(), 0, WAIT_MS) },
            Kind::EpollWait => {
                let mut event = libc::epoll_event { events: 0, u64: 0 };
                // SAFETY: there is room for one event.
                unsafe { libc::epoll_wait(self.descriptor, &raw mut event, 1, WAIT_MS) }
            }
            // SAFETY: `wait` is a valid time; the other output is not requested.
            Kind::Nanosleep => unsafe { libc::nanosleep(&raw const wait, ptr::null_mut()) },
            Kind::ClockNanosleep => {
                let clock = libc::CLOCK_MONOTONIC;
                // SAFETY: likewise.
                let error =
                    unsafe { libc::clock_nanosleep(clock, 0, &raw const wait, ptr::null_mut()) };
                return error == libc::EINTR;
            }
            Kind::Futex => futex(&wait),
            Kind::SemTimedwait => semaphore(),
            Kind::Recv => {
                let mut byte = 0u8;
                // SAFETY: there is space for one byte.
                let result = unsafe { libc::recv(self.descriptor, (&raw mut byte).cast(), 1, 0) };
                result as c_int
            }
        };
        result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    }
}

fn silent_socket() -> RawFd {
    let mut ends = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: there is room for two descriptors.
    let result = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    let limit = libc::timeval {
        tv_sec: 0,
        tv_usec: i64::from(WAIT_MS) * 1_000,
    };
    let size = mem::size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the option's value is one `timeval`.
    let result = unsafe {
        libc::setsockopt(
            ends[0],
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const limit).cast(),
            size,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    ends[0]
}

fn futex(wait: &libc::timespec) -> c_int {
    let word = 0u32;
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the time outlive the call, and nothing wakes the word.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const word,
            operation,
            0,
            ptr::from_ref(wait),
            0,
            0,
        )
    };
    result as c_int
}

fn semaphore() -> c_int {
    // SAFETY: every byte pattern of zeros is memory for a semaphore.
    let mut semaphore: libc::sem_t = unsafe { mem::zeroed() };
    // SAFETY: it is this thread's own.
    unsafe { libc::sem_init(&raw mut semaphore, 0, 0) };
    let mut now = time(0);
    // SAFETY: there is room for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    let until = time(now.tv_sec * 1_000_000_000 + now.tv_nsec + WAIT_NS);
    // SAFETY: the semaphore was made above, and the time is valid.
    unsafe { libc::sem_timedwait(&raw mut semaphore, &raw const until) }
}
