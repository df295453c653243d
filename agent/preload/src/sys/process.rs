//! This process and its threads.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{Pid, gettid};
use system::file;

use super::{functions, variables};
use crate::image::Obstacle;

/// Filters of system calls that `emberline` had; more are the program's own.
const FILTERS_VARIABLE: &[u8] = b"EMBERLINE_PRELOAD_FILTERS";

/// Exported by the runtimes of sanitizers.
const SANITIZERS: [&CStr; 4] = [
    c"__asan_init",
    c"__tsan_init",
    c"__msan_init",
    c"__hwasan_init",
];

pub(crate) fn id() -> i32 {
    Pid::this().as_raw()
}

pub(crate) fn thread_id() -> i32 {
    gettid().as_raw()
}

/// The kernel's name of a thread.
pub(crate) struct Name([u8; 16]);

impl Name {
    pub(crate) fn of_thread() -> Name {
        let mut name = [0; 16];
        // SAFETY: the kernel writes a string of at most 16 bytes with a 0 at its end.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        Name(name)
    }

    pub(crate) fn text(&self) -> &str {
        let name = CStr::from_bytes_until_nul(&self.0).unwrap_or_default();
        name.to_str().unwrap_or("unknown")
    }
}

/// Whether this process has a thread of this id.
pub(crate) fn has_thread(thread: i32) -> bool {
    // SAFETY: takes plain numbers; the signal 0 is not sent.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, id(), thread, 0) };
    result == 0
}

/// Capabilities of the calling thread.
pub(super) struct Capabilities {
    /// Those that it may have.
    pub(super) permitted: [u32; 2],
}

impl Capabilities {
    pub(super) fn of_thread() -> Capabilities {
        const VERSION_3: u32 = 0x2008_0522;
        /// The kernel's description of the thread: 0 is the calling one.
        #[repr(C)]
        struct Header {
            version: u32,
            thread: i32,
        }
        let mut header = Header {
            version: VERSION_3,
            thread: 0,
        };
        // Effective, permitted and inheritable ones, the lower half of each first.
        let mut sets = [0_u32; 6];
        // SAFETY: both pointers are valid for the call, of the sizes of this version.
        unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
        Capabilities {
            permitted: [sets[1], sets[4]],
        }
    }
}

/// Ends the process without a flush of its streams.
pub(crate) fn end_at_once(code: i32) -> ! {
    // SAFETY: takes a plain number. No thread of the program is left.
    unsafe { libc::_exit(code) }
}

/// Replaces standard error in the calling thread's own table. Returns whether that worked.
pub(crate) fn leave_standard_error() -> bool {
    let Ok(null) = OpenOptions::new().write(true).open("/dev/null") else {
        return false;
    };
    // SAFETY: takes plain numbers. The table belongs to this thread alone, which does not use the number.
    unsafe { libc::dup2(null.as_raw_fd(), libc::STDERR_FILENO) >= 0 }
}

/// Whether the program runs with other rights than its user.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: takes a plain number and reads a value that the kernel has passed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Why no agent may start in this process, as far as it is known before the program begins.
pub(crate) fn obstacle() -> Option<Obstacle> {
    if has_memory_limit() {
        return Some(Obstacle::AddressSpace);
    }
    if SANITIZERS.iter().any(|name| is_loaded(name)) {
        return Some(Obstacle::Sanitizer);
    }
    if is_zygote() {
        return Some(Obstacle::Zygote);
    }
    if functions::has_other_clock() {
        return Some(Obstacle::Clock);
    }
    if !has_own_proc() {
        return Some(Obstacle::OtherProc);
    }
    is_confined().then_some(Obstacle::Confined)
}

/// Whether this is the process of Chromium, Electron or a program with either from which others are forked. It ends
/// itself if it finds a second thread.
fn is_zygote() -> bool {
    const ARGUMENT: &[u8] = b"--type=zygote";
    // The argument is the second one, behind the path.
    let mut bytes = [0; 4_096];
    let read = file::read_start("/proc/self/cmdline", &mut bytes).unwrap_or(0);
    bytes[..read]
        .split(|byte| *byte == 0)
        .any(|argument| argument == ARGUMENT)
}

/// Whether `/proc`, if it is there, shows this process by the number that it knows. The threads in another PID
/// namespace's would not be found.
pub(crate) fn has_own_proc() -> bool {
    let mut bytes = [0; 16];
    // SAFETY: the path is a string that ends in a 0, and the kernel writes at most as many bytes as there are.
    let read = unsafe {
        libc::readlink(
            c"/proc/self".as_ptr(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
        )
    };
    let Some(number) = usize::try_from(read)
        .ok()
        .and_then(|read| bytes.get(..read))
    else {
        return true;
    };
    let number = str::from_utf8(number)
        .ok()
        .and_then(|number| number.parse().ok());
    number == Some(id())
}

/// Whether the program is linked with the library of the C interface, whose agent it starts by itself.
pub(crate) fn embeds_agent() -> bool {
    is_loaded(c"emberline_start")
}

/// Whether the program or a library that it is linked with exports this name.
fn is_loaded(name: &CStr) -> bool {
    // SAFETY: the name is a string that ends in a 0.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() }
}

/// Whether `emberline` had no filter of system calls, which ends a program at calls that it does not make itself.
pub(crate) fn began_unfiltered() -> bool {
    variables::copied(FILTERS_VARIABLE).is_none_or(|count| count == c"0")
}

/// Whether an allocation may fail, which ends a Rust program.
fn has_memory_limit() -> bool {
    let is_limited = |resource| getrlimit(resource).is_ok_and(|(limit, _)| limit != RLIM_INFINITY);
    is_limited(Resource::RLIMIT_AS) || is_limited(Resource::RLIMIT_DATA)
}

/// Whether the program that became this one has installed a filter of system calls. Those of a container
/// are older than `emberline`.
fn is_confined() -> bool {
    // SAFETY: takes plain numbers and changes nothing.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) };
    if mode <= 0 {
        return false;
    }
    let known = variables::copied(FILTERS_VARIABLE)
        .and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
    let status = file::read_text("/proc/self/status").unwrap_or_default();
    let count = status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp_filters:"))
        .find_map(|count| count.trim().parse::<u32>().ok());
    count.unwrap_or(u32::MAX) > known.unwrap_or(0)
}
