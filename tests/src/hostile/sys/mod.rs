//! System-level interference of the hostile worker with itself. All unsafe code of the tests is in
//! this directory.
#![expect(
    unsafe_code,
    reason = "signals, stacks, filters and loaders have no safe interface"
)]

pub(crate) mod confine;
pub(crate) mod faults;
pub(crate) mod fiber;
pub(crate) mod waits;

use std::ffi::{CString, c_int, c_void};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, mem, ptr};

/// Signals seen by one of our own handlers, by number.
static SEEN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

extern "C" fn count(signal: c_int) {
    SEEN[signal as usize].fetch_add(1, Ordering::Relaxed);
}

/// Number of signals of a kind seen by the handler of [`handle`].
pub(crate) fn seen(signal: c_int) -> u64 {
    SEEN[signal as usize].load(Ordering::Relaxed)
}

/// Installs a counting handler, on the alternate stack if there is one.
pub(crate) fn handle(signal: c_int) {
    handle_with(signal, libc::SA_RESTART | libc::SA_ONSTACK);
}

/// Installs a counting handler with these flags.
pub(crate) fn handle_with(signal: c_int, flags: c_int) {
    // SAFETY: every byte pattern of zeros is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = count as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: `count` has the type of a plain handler and touches atomics only.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Ignores a signal by default again.
pub(crate) fn reset(signal: c_int) {
    // SAFETY: every byte pattern of zeros is a valid `sigaction`: no flags, default action.
    let action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: the default of the signals that are reset here is to be ignored.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Disposition of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Action {
    handler: usize,
    pub(crate) flags: c_int,
    /// The blocked signals, of those that the kernel knows.
    mask: u64,
}

/// Returns the current disposition of a signal.
pub(crate) fn action(signal: c_int) -> Action {
    // SAFETY: every byte pattern of zeros is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: without a new action this only reads.
    let result = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    let members = (1..64).filter(|member| {
        // SAFETY: the mask is a valid set.
        unsafe { libc::sigismember(&raw const action.sa_mask, *member) == 1 }
    });
    let mask = members.fold(0, |mask, member| mask | 1 << member);
    Action {
        handler: action.sa_sigaction,
        flags: action.sa_flags,
        mask,
    }
}

/// Whether a signal interrupts a thread that reads from a pipe.
pub(crate) fn read_interrupted(signal: c_int) -> bool {
    let (reader, writer) = io::pipe().expect("descriptors are free");
    let (sender, receiver) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        // SAFETY: takes nothing.
        sender
            .send(unsafe { libc::pthread_self() })
            .expect("the receiver waits");
        let mut byte = 0u8;
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        // SAFETY: there is room for one byte.
        let result = unsafe { libc::read(number, (&raw mut byte).cast(), 1) };
        result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    });
    let thread = receiver.recv().expect("it sends its id");
    // The first signals may come before it reads; they have no effect.
    for _ in 0..100 {
        if reading.is_finished() {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
        // SAFETY: the thread was not joined, so its id is valid; the signal has a handler.
        unsafe { libc::pthread_kill(thread, signal) };
    }
    drop(writer);
    reading.join().expect("it does not panic")
}

/// Closes all descriptors from `first` on, also those of others.
pub(crate) fn close_from(first: c_int) {
    // A filter may refuse `close_range`.
    for number in first..1024 {
        // SAFETY: takes a plain number. That nobody expects it is what is tested.
        unsafe { libc::close(number) };
    }
}

pub(crate) fn is_open(descriptor: c_int) -> bool {
    // SAFETY: takes plain numbers; reading the flags changes nothing.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) >= 0 }
}

/// Whether a descriptor is a socket of the local machine.
pub(crate) fn is_socket(descriptor: c_int) -> bool {
    let mut family: c_int = 0;
    let mut length = mem::size_of::<c_int>() as libc::socklen_t;
    let value = (&raw mut family).cast();
    // SAFETY: the value is one integer of this length; any descriptor number is accepted.
    let result = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            value,
            &raw mut length,
        )
    };
    result == 0 && family == libc::AF_UNIX
}

/// Makes a pipe with a name. Opening it for reading waits for a writer.
pub(crate) fn make_fifo(path: &str) {
    let path = CString::new(path).expect("no 0 in it");
    // SAFETY: the path ends in a 0.
    let result = unsafe { libc::mkfifo(path.as_ptr(), 0o600) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Sends a signal to the calling thread.
pub(crate) fn raise(signal: c_int) {
    // SAFETY: it takes a plain number; every signal that is raised here has a handler.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// Runs `work` while this thread's handlers use an alternate stack of the smallest size that can
/// take a second signal. On a smaller one, any signal that arrives in a running handler is fatal,
/// because the kernel has no room for its frame (seen with the sampler's).
pub(crate) fn on_smallest_alternate_stack(work: impl FnOnce()) {
    // SAFETY: it takes a plain number.
    let least = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    // The kernel's frames, and a little for each handler.
    let mut room = vec![0u8; 2 * (least.max(libc::MINSIGSTKSZ) + 1024)];
    let stack = libc::stack_t {
        ss_sp: room.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: room.len(),
    };
    let mut before = libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    // SAFETY: `room` outlives its use as a stack, which ends below.
    let result = unsafe { libc::sigaltstack(&raw const stack, &raw mut before) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    work();
    // SAFETY: the previous stack still exists; no handler runs on `room` at this point.
    let result = unsafe { libc::sigaltstack(&raw const before, ptr::null_mut()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// A loaded library; closed when it is dropped.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Loads the soak's own library; `None` if no descriptor is free or there is no loader.
    pub(crate) fn open(path: &str) -> Option<Library> {
        let path = CString::new(path).ok()?;
        // SAFETY: the library, which the harness compiled, has no constructor.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then(|| Library(handle))
    }

    /// Calls its only function, which works for a moment.
    pub(crate) fn call(&self, number: u64) -> u64 {
        // SAFETY: the handle is open; the name ends in a 0.
        let function = unsafe { libc::dlsym(self.0, c"soak_work".as_ptr()) };
        assert!(
            !function.is_null(),
            "the library has no function `soak_work`"
        );
        // SAFETY: the harness defines it so.
        let function: extern "C" fn(u64) -> u64 = unsafe { mem::transmute(function) };
        function(number)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and its function is not running.
        unsafe { libc::dlclose(self.0) };
    }
}

/// Makes `command` start by `fork` and `exec` instead of `posix_spawn`.
pub(crate) fn by_fork(command: &mut Command) -> &mut Command {
    // SAFETY: the closure does nothing.
    unsafe { command.pre_exec(|| Ok(())) }
}

/// Forks. The child runs `child` and exits with its result like an ordinary program, with
/// destructors of statics and `atexit` handlers.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> nix::unistd::Pid {
    // SAFETY: the child uses the allocator and starts threads. The C library supports this after a
    // fork of a multithreaded process unless another lock was held, which is under test here.
    match unsafe { nix::unistd::fork() }.expect("forking") {
        nix::unistd::ForkResult::Parent { child } => child,
        nix::unistd::ForkResult::Child => std::process::exit(child()),
    }
}
