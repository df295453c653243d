//! Another program in this process, or in a child that the C library makes for it.

use std::ffi::{c_char, c_int, c_void};

use nix::errno::Errno;

use super::missing;
use crate::lifecycle;
use crate::sys::environment::{Lookup, with_environment_for};
use crate::sys::next::Next;
use crate::sys::variables::{Strings, environment as own_environment};

type Exec = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
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
// SAFETY: two functions of this type.
static SPAWN: Next<Spawn> = unsafe { Next::new(c"posix_spawn") };
// SAFETY: as above.
static SPAWNP: Next<Spawn> = unsafe { Next::new(c"posix_spawnp") };

pub(super) fn resolve() {
    EXECVE.resolve();
    EXECVPE.resolve();
    FEXECVE.resolve();
    EXECVEAT.resolve();
    SPAWN.resolve();
    SPAWNP.resolve();
}

unsafe extern "C" {
    fn emberline_execl();
    fn emberline_execlp();
    fn emberline_execle();
}

/// Makes a call that returns only if it fails, after a flush.
pub(super) fn as_another(call: impl FnOnce() -> c_int) -> c_int {
    let was_running = lifecycle::finish();
    let was_confined_child = lifecycle::leave_memory();
    let result = call();
    let error = Errno::last_raw();
    if was_confined_child {
        lifecycle::stay_in_memory();
    }
    if was_running {
        lifecycle::resume();
    }
    Errno::set_raw(error);
    result
}

/// # Safety
/// As `execve`, or `execvpe` with [`Lookup::Search`].
unsafe fn exec(
    lookup: Lookup,
    name: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let next = match lookup {
        Lookup::Path => EXECVE.get(),
        Lookup::Search => EXECVPE.get(),
    };
    let Some(exec) = next else {
        return missing();
    };
    // SAFETY: as called.
    let become_it = |environment| unsafe { exec(name, arguments, environment) };
    // SAFETY: as called.
    as_another(|| unsafe { with_environment_for(name, lookup, environment, become_it) })
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
    // SAFETY: as called.
    unsafe { exec(Lookup::Path, path, arguments, environment) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as called.
    unsafe { exec(Lookup::Path, path, arguments, own_environment()) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as called.
    unsafe { exec(Lookup::Search, file, arguments, own_environment()) }
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
    // SAFETY: as called.
    unsafe { exec(Lookup::Search, file, arguments, environment) }
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
    as_another(|| unsafe { fexecve(file, arguments, environment) })
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
    // SAFETY: as called.
    as_another(|| unsafe { execveat(folder, path, arguments, environment, flags) })
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

/// # Safety
/// As `posix_spawn`, or `posix_spawnp` with [`Lookup::Search`].
unsafe fn spawn(
    lookup: Lookup,
    child: *mut libc::pid_t,
    name: *const c_char,
    options: [*const c_void; 2],
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let next = match lookup {
        Lookup::Path => SPAWN.get(),
        Lookup::Search => SPAWNP.get(),
    };
    let Some(spawn) = next else {
        return libc::ENOSYS;
    };
    let [actions, attributes] = options;
    // SAFETY: as called.
    let start =
        |environment| unsafe { spawn(child, name, actions, attributes, arguments, environment) };
    // SAFETY: as called.
    unsafe { with_environment_for(name, lookup, environment, start) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    child: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let options = [actions, attributes];
    // SAFETY: as called.
    unsafe { spawn(Lookup::Path, child, path, options, arguments, environment) }
}

/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    child: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let options = [actions, attributes];
    // SAFETY: as called.
    unsafe { spawn(Lookup::Search, child, file, options, arguments, environment) }
}
