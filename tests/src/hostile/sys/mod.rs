//! System-level interference of the hostile worker with itself. All unsafe code of the tests is in
//! this directory.
#![expect(unsafe_code, reason = "signals, stacks, filters and loaders have no safe interface")]

pub(crate) mod confine;
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
    // SAFETY: every byte pattern of zeros is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = count as *const () as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `count` has the type of a plain handler and touches atomics only.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
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
    let stack = libc::stack_t { ss_sp: room.as_mut_ptr().cast(), ss_flags: 0, ss_size: room.len() };
    let mut before = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 };
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
        assert!(!function.is_null(), "the library has no function `soak_work`");
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
