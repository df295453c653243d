//! The parts that have no safe interface: what this process inherited, and what its program is to inherit.
#![expect(
    unsafe_code,
    reason = "signals before `main`, and code in a child before its program"
)]

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};

/// Whether `SIGPIPE` was ignored before the standard library ignored it.
static IGNORES_PIPE: AtomicBool = AtomicBool::new(false);

/// Whether each standard stream was closed before the standard library opened `/dev/null` in its place.
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

// SAFETY: the loader calls the functions of this section once, without reading arguments that it passes.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    // SAFETY: every byte pattern of zeros is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is valid for writing; without a new action nothing changes.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), &raw mut action) };
    let is_ignored = result == 0 && action.sa_sigaction == libc::SIG_IGN;
    IGNORES_PIPE.store(is_ignored, Ordering::Relaxed);
    for (stream, is_closed) in (0..).zip(&CLOSED) {
        // SAFETY: takes plain numbers and changes nothing.
        let flags = unsafe { libc::fcntl(stream, libc::F_GETFD) };
        is_closed.store(flags < 0, Ordering::Relaxed);
    }
}

/// Standard streams that were closed when this process began.
pub(super) fn closed_streams() -> [bool; 3] {
    CLOSED
        .each_ref()
        .map(|is_closed| is_closed.load(Ordering::Relaxed))
}

/// Whether this process began with an ignored `SIGPIPE`.
pub(super) fn ignored_pipe() -> bool {
    IGNORES_PIPE.load(Ordering::Relaxed)
}

/// Makes this process know of the ends of its children although it inherited that it does not.
///
/// # Errors
/// If the system refuses it.
pub(super) fn expect_children() -> io::Result<()> {
    // SAFETY: the default action runs no code.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}

/// A program's arguments and environment.
struct Exec {
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    /// Behind the pointers.
    _texts: [Vec<CString>; 2],
}

// SAFETY: the pointers lead to texts that it owns, and that nothing changes.
unsafe impl Send for Exec {}
// SAFETY: likewise.
unsafe impl Sync for Exec {}

impl Exec {
    fn new(arguments: Vec<CString>, environment: Vec<CString>) -> Exec {
        Exec {
            arguments: pointers(&arguments),
            environment: pointers(&environment),
            _texts: [arguments, environment],
        }
    }

    /// Becomes the program, which is searched as by the standard library.
    fn run(&self) -> io::Error {
        // SAFETY: both lists end with a null pointer, and all others lead to texts that end with a 0.
        unsafe {
            libc::execvpe(
                self.arguments[0],
                self.arguments.as_ptr(),
                self.environment.as_ptr(),
            )
        };
        io::Error::last_os_error()
    }
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    let pointers = texts.iter().map(|text| text.as_ptr());
    pointers.chain([ptr::null()]).collect()
}

/// Starts the program with these arguments, its name first, and exactly this environment, after everything else that the
/// command does in the child.
pub(super) fn exec_with(command: &mut Command, arguments: Vec<CString>, environment: Vec<CString>) {
    let exec = Exec::new(arguments, environment);
    let run = move || Err(exec.run());
    // SAFETY: it makes system calls, and reads `PATH`; it neither allocates nor locks.
    unsafe { command.pre_exec(run) };
}

/// Signals and limits that a program inherits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inheritance {
    pub(super) ignored: SigSet,
    pub(super) blocked: SigSet,
    /// The soft and the hard limit on descriptors.
    pub(super) descriptors: (rlim_t, rlim_t),
    /// By number of the standard stream.
    pub(super) closed: [bool; 3],
}

/// Sets it in the child, after the standard library has reset the mask and `SIGPIPE` there.
pub(super) fn pass_on(command: &mut Command, inheritance: Inheritance) {
    let set = move || {
        for ignored in &inheritance.ignored {
            // SAFETY: to ignore a signal runs no code.
            unsafe { signal(ignored, SigHandler::SigIgn) }?;
        }
        let (soft, hard) = inheritance.descriptors;
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard)?;
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&inheritance.blocked), None)?;
        for (stream, is_closed) in (0..).zip(inheritance.closed) {
            if is_closed {
                // SAFETY: it is /dev/null, which nothing in the child uses.
                unsafe { libc::close(stream) };
            }
        }
        Ok(())
    };
    // SAFETY: it makes system calls only; it neither allocates nor locks.
    unsafe { command.pre_exec(set) };
}
