//! The function `syscall`, by which some programs make calls without the C library's functions for them.
//!
//! All other calls pass without a frame, a word of stack or a look at the loader's tables: allocators call it before this
//! library has looked anything up, and programs start children by it that share their stack.

use std::arch::{asm, naked_asm};
use std::ffi::{c_int, c_long, c_uint};

use nix::errno::Errno;

use super::{become_other, confine, users};
use crate::lifecycle;

/// Makes the call of a number.
///
/// # Safety
/// As the C library's.
// SAFETY: a function of this name is expected by programs, with these arguments. It keeps the convention of calls: the
// functions to which it jumps find arguments, stack and return address as it did.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {exit_group}",
        "je 2f",
        "cmp rdi, {exit}",
        "je 2f",
        "cmp rdi, {execve}",
        "je 2f",
        "cmp rdi, {execveat}",
        "je 2f",
        "cmp rdi, {unshare}",
        "je 2f",
        "cmp rdi, {setns}",
        "je 2f",
        "cmp rdi, {capset}",
        "je 2f",
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "cmp rdi, {prlimit}",
        "je 2f",
        "cmp rdi, {setrlimit}",
        "je 2f",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "2:",
        "jmp {special}",
        "3:",
        "mov rdi, rax",
        "jmp {failed}",
        ".cfi_endproc",
        exit_group = const libc::SYS_exit_group,
        exit = const libc::SYS_exit,
        execve = const libc::SYS_execve,
        execveat = const libc::SYS_execveat,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        capset = const libc::SYS_capset,
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        prlimit = const libc::SYS_prlimit64,
        setrlimit = const libc::SYS_setrlimit,
        special = sym special,
        failed = sym failed,
    );
}

/// Makes the call of a number.
///
/// # Safety
/// As the C library's.
// SAFETY: as above.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "cmp x0, {exit_group}",
        "b.eq 2f",
        "cmp x0, {exit}",
        "b.eq 2f",
        "cmp x0, {execve}",
        "b.eq 2f",
        "cmp x0, {execveat}",
        "b.eq 2f",
        "cmp x0, {unshare}",
        "b.eq 2f",
        "cmp x0, {setns}",
        "b.eq 2f",
        "cmp x0, {capset}",
        "b.eq 2f",
        "cmp x0, {seccomp}",
        "b.eq 2f",
        "cmp x0, {prctl}",
        "b.eq 2f",
        "cmp x0, {prlimit}",
        "b.eq 2f",
        "cmp x0, {setrlimit}",
        "b.eq 2f",
        "mov x8, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "svc 0",
        "cmn x0, 4095",
        "b.cs 3f",
        "ret",
        "2:",
        "b {special}",
        "3:",
        "b {failed}",
        ".cfi_endproc",
        exit_group = const libc::SYS_exit_group,
        exit = const libc::SYS_exit,
        execve = const libc::SYS_execve,
        execveat = const libc::SYS_execveat,
        unshare = const libc::SYS_unshare,
        setns = const libc::SYS_setns,
        capset = const libc::SYS_capset,
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        prlimit = const libc::SYS_prlimit64,
        setrlimit = const libc::SYS_setrlimit,
        special = sym special,
        failed = sym failed,
    );
}

/// Returns a result of the kernel as the C library does.
extern "C" fn failed(result: c_long) -> c_long {
    Errno::set_raw(-result as c_int);
    -1
}

/// Makes a call that has a function here.
///
/// # Safety
/// As [`syscall`].
unsafe extern "C" fn special(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: as called.
    let plain = || unsafe { call(number, [a, b, c, d, e, f]) };
    // The kernel reads the lower half of these, as the functions do.
    let first = a as c_int;
    match number {
        libc::SYS_exit_group => {
            lifecycle::ends_with(first);
            lifecycle::finish();
            plain()
        }
        libc::SYS_exit => {
            lifecycle::exit_of_thread();
            plain()
        }
        libc::SYS_execve => {
            // SAFETY: as called.
            unsafe { become_other::execve(a as *const _, b as *const _, c as *const _) }.into()
        }
        libc::SYS_execveat => {
            let path = b as *const _;
            // SAFETY: as called.
            let result = unsafe {
                become_other::execveat(first, path, c as *const _, d as *const _, e as c_int)
            };
            result.into()
        }
        libc::SYS_unshare if confine::needs_one_thread(first) => confine::alone(plain),
        libc::SYS_setns => confine::alone_if_refused(plain),
        libc::SYS_capset => users::change_capabilities(plain),
        libc::SYS_seccomp if confine::installs_filter(a as c_uint, c as usize) => {
            confine::confined(plain)
        }
        libc::SYS_prctl if confine::confines(first, b as u64, c as usize) => {
            confine::confined(plain)
        }
        libc::SYS_prlimit64 => confine::limited(first, b as c_uint, c as *const _, plain),
        libc::SYS_setrlimit => confine::limited(0, a as c_uint, b as *const _, plain),
        _ => plain(),
    }
}

/// Makes a call as the C library does.
///
/// # Safety
/// As [`syscall`].
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let result: c_long;
    // SAFETY: the program makes this call. The kernel changes the registers that are named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            in("r9") f,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    returned(result)
}

/// Makes a call as the C library does.
///
/// # Safety
/// As [`syscall`].
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let result: c_long;
    // SAFETY: as above.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x5") f,
            options(nostack),
        );
    }
    returned(result)
}

fn returned(result: c_long) -> c_long {
    const ERROR_MAX: c_long = 4_095;
    if (-ERROR_MAX..0).contains(&result) {
        failed(result)
    } else {
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

    #[test]
    fn arguments_results_and_errors_are_those_of_the_kernel() {
        // SAFETY: the type by which programs call it.
        let syscall = unsafe { std::mem::transmute::<*const (), Syscall>(syscall as *const ()) };
        // SAFETY: takes plain numbers.
        let process = unsafe { syscall(libc::SYS_getpid) };
        assert_eq!(process, c_long::from(crate::sys::process::id()));
        let bytes = 4_096_usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: six arguments; maps memory that nothing uses.
        let mapped = unsafe { syscall(libc::SYS_mmap, 0_usize, bytes, protection, flags, -1, 0) };
        assert!(mapped > 0);
        // SAFETY: nothing uses the memory.
        assert_eq!(unsafe { syscall(libc::SYS_munmap, mapped, bytes) }, 0);
        for (number, expected) in [
            (libc::SYS_close, Errno::EBADF),
            (libc::SYS_setns, Errno::EBADF),
            (9_999, Errno::ENOSYS),
        ] {
            // SAFETY: takes plain numbers; there is no such descriptor.
            assert_eq!(unsafe { syscall(number, -1, 0) }, -1);
            assert_eq!(Errno::last(), expected, "{number}");
        }
    }
}
