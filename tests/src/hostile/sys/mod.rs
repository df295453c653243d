//! What the hostile worker does to itself below the safe interfaces. All unsafe code of the tests is
//! in this folder.
#![expect(unsafe_code, reason = "signals, stacks, filters and loaders have no safe interface")]

pub(crate) mod confine;
pub(crate) mod fiber;
pub(crate) mod waits;

use std::ffi::{CString, c_int, c_void};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, mem, ptr};

/// Signals that one of our own handlers has seen, by number.
static SEEN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

extern "C" fn count(signal: c_int) {
    SEEN[signal as usize].fetch_add(1, Ordering::Relaxed);
}

/// How many signals of a kind [`handle`]'s handler has seen.
pub(crate) fn seen(signal: c_int) -> u64 {
    SEEN[signal as usize].load(Ordering::Relaxed)
}

/// Installs a handler that counts, on the alternate stack where there is one.
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

/// Runs `work` while this thread's handlers run on a stack of the smallest size on which a second
/// signal can be taken. On a smaller one, any signal that meets a running handler is fatal: the
/// kernel has no room for its frame (seen with the sampler's).
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
    // SAFETY: the stack before is still there; no handler runs on `room` at this point.
    let result = unsafe { libc::sigaltstack(&raw const before, ptr::null_mut()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// A loaded library; closed when it is dropped.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Loads the soak's own library; `None` if no descriptor is left or there is no loader.
    pub(crate) fn open(path: &str) -> Option<Library> {
        let path = CString::new(path).ok()?;
        // SAFETY: the library, which the harness compiled, has no constructor.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then(|| Library(handle))
    }

    /// Calls its one function, which works for a moment.
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

/// Makes `command` start by `fork` and `exec`, where the standard library would use `posix_spawn`.
pub(crate) fn by_fork(command: &mut Command) -> &mut Command {
    // SAFETY: the closure does nothing.
    unsafe { command.pre_exec(|| Ok(())) }
}

/// Forks. The child runs `child` and exits with what it gives, as a program does that ends: with
/// destructors of statics and handlers of `atexit`.
pub(crate) fn fork(child: impl FnOnce() -> i32) -> nix::unistd::Pid {
    // SAFETY: the child uses the allocator and starts threads, which the C library supports after a
    // fork of a process with threads, as far as no other lock was held: that is what is tested.
    match unsafe { nix::unistd::fork() }.expect("forking") {
        nix::unistd::ForkResult::Parent { child } => child,
        nix::unistd::ForkResult::Child => std::process::exit(child()),
    }
}
