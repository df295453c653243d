//! Another program in this process, or in a child that the C library makes for it.

use std::ffi::{c_char, c_int, c_void};

use nix::errno::Errno;

use super::missing;
use crate::lifecycle;
use crate::sys::environment::{Program, with_environment_for};
use crate::sys::next::Next;
use crate::sys::variables::{Strings, environment as own_environment};

type Exec = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
type Spawn = unsafe extern "C" fn(
    *mut c_int,
    *const c_char,
    *const c_void,
    *const c_void,
    Strings,
    Strings,
) -> c_int;

// SAFETY: two functions of this type.
static EXECVE: Next<Exec> = unsafe { Next::new(c"execve") };
// SAFETY: as above.
static EXECVPE: Next<Exec> = unsafe { Next::new(c"execvpe") };
// SAFETY: the type of the C library's function.
static FEXECVE: Next<unsafe extern "C" fn(c_int, Strings, Strings) -> c_int> =
    unsafe { Next::new(c"fexecve") };
// SAFETY: the type of the C library's function.
static EXECVEAT: Next<
    unsafe extern "C" fn(c_int, *const c_char, Strings, Strings, c_int) -> c_int,
> = unsafe { Next::new(c"execveat") };
// SAFETY: four functions of this type.
static SPAWN: Next<Spawn> = unsafe { Next::new(c"posix_spawn") };
// SAFETY: as above.
static SPAWNP: Next<Spawn> = unsafe { Next::new(c"posix_spawnp") };
// SAFETY: as above; since glibc 2.39.
static PIDFD_SPAWN: Next<Spawn> = unsafe { Next::new(c"pidfd_spawn") };
// SAFETY: as above.
static PIDFD_SPAWNP: Next<Spawn> = unsafe { Next::new(c"pidfd_spawnp") };

pub(super) fn resolve() {
    EXECVE.resolve();
    EXECVPE.resolve();
    FEXECVE.resolve();
    EXECVEAT.resolve();
    SPAWN.resolve();
    SPAWNP.resolve();
    PIDFD_SPAWN.resolve();
    PIDFD_SPAWNP.resolve();
}

unsafe extern "C" {
    fn emberline_execl();
    fn emberline_execlp();
    fn emberline_execle();
}

/// Makes a call that returns only if it fails, after a flush.
///
/// # Safety
/// As [`with_environment_for`].
unsafe fn as_another(
    program: Program,
    environment: Strings,
    call: impl FnOnce(Strings) -> c_int,
) -> c_int {
    let was_running = lifecycle::finish();
    let become_it = |environment| {
        let was_confined_child = lifecycle::leave_memory();
        let result = call(environment);
        if was_confined_child {
            lifecycle::stay_in_memory();
        }
        result
    };
    // SAFETY: the caller's contract.
    let result = unsafe { with_environment_for(program, environment, become_it) };
    let error = Errno::last_raw();
    if was_running {
        lifecycle::resume();
    }
    Errno::set_raw(error);
    result
}

/// # Safety
/// As the C library's.
// SAFETY: a function of this name is expected by programs, with these arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let Some(execve) = EXECVE.get() else {
        return missing();
    };
    // SAFETY: as called.
    let call = |environment| unsafe { execve(path, arguments, environment) };
    // SAFETY: as called.
    unsafe { as_another(Program::Path(path), environment, call) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as called.
    unsafe { execve(path, arguments, own_environment()) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as called.
    unsafe { execvpe(file, arguments, own_environment()) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let Some(execvpe) = EXECVPE.get() else {
        return missing();
    };
    // SAFETY: as called.
    let call = |environment| unsafe { execvpe(file, arguments, environment) };
    // SAFETY: as called.
    unsafe { as_another(Program::Search(file), environment, call) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(file: c_int, arguments: Strings, environment: Strings) -> c_int {
    let Some(fexecve) = FEXECVE.get() else {
        return missing();
    };
    // SAFETY: as called.
    let call = |environment| unsafe { fexecve(file, arguments, environment) };
    // SAFETY: as called.
    unsafe { as_another(Program::Descriptor(file), environment, call) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    let Some(execveat) = EXECVEAT.get() else {
        return missing();
    };
    let program = Program::From {
        folder,
        path,
        flags,
    };
    // SAFETY: as called.
    let call = |environment| unsafe { execveat(folder, path, arguments, environment, flags) };
    // SAFETY: as called.
    unsafe { as_another(program, environment, call) }
}

/// Defines a function of a variable number of arguments, which are where they were when the function of
/// `execl.c` begins.
macro_rules! jump {
    ($name:ident, $to:ident) => {
        /// # Safety
        /// As the C library's.
        // SAFETY: a function of this name is expected by programs; it leaves all registers to the one that
        // takes the arguments.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!("jmp {}", sym $to);
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!("b {}", sym $to);
        }
    };
}

jump!(execl, emberline_execl);
jump!(execlp, emberline_execlp);
jump!(execle, emberline_execle);

/// Defines a function that starts a child, whose number or descriptor it writes to its first argument.
macro_rules! spawn {
    ($name:ident, $next:ident, $program:path) => {
        /// # Safety
        /// As the C library's.
        // SAFETY: a function of this name is expected by programs, with these arguments.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            child: *mut c_int,
            name: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: Strings,
            environment: Strings,
        ) -> c_int {
            let Some(spawn) = $next.get() else {
                return libc::ENOSYS;
            };
            // SAFETY: as called.
            let start = |environment| unsafe {
                spawn(child, name, actions, attributes, arguments, environment)
            };
            // SAFETY: as called.
            unsafe { with_environment_for($program(name), environment, start) }
        }
    };
}

spawn!(posix_spawn, SPAWN, Program::Path);
spawn!(posix_spawnp, SPAWNP, Program::Search);
spawn!(pidfd_spawn, PIDFD_SPAWN, Program::Path);
spawn!(pidfd_spawnp, PIDFD_SPAWNP, Program::Search);
