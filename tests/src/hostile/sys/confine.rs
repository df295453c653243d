//! Removes permissions from this process, as sandboxes do.

use std::{io, mem};

const EPERM_ANSWER: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// Denies one system call with `EPERM` on this thread and all that it starts from now on.
pub(crate) fn refuse(call: libc::c_long) {
    set_filter(call, 0);
}

/// Denies one system call with `EPERM` on all threads of this process.
pub(crate) fn refuse_everywhere(call: libc::c_long) {
    set_filter(call, libc::SECCOMP_FILTER_FLAG_TSYNC);
}

fn set_filter(call: libc::c_long, flags: libc::c_ulong) {
    // The call's number is the first word of a filter's input.
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            call as u32,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, EPERM_ANSWER),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: it takes plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // SAFETY: the program is well formed and outlives the call, which copies it.
    let result = unsafe {
        let operation = libc::SECCOMP_SET_MODE_FILTER;
        libc::syscall(libc::SYS_seccomp, operation, flags, &raw const program)
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn statement(code: u32, jump_true: u8, jump_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k,
    }
}

/// Becomes an unprivileged user in a process that nobody may inspect.
pub(crate) fn become_nobody() {
    const NOBODY: libc::uid_t = 65_534;
    // SAFETY: it takes plain numbers.
    let result = unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // SAFETY: it takes plain numbers.
    let result = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    // SAFETY: it takes plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Hides `/proc` behind an empty directory for this process; `false` if it lacks the permission.
pub(crate) fn hide_proc() -> bool {
    // SAFETY: it takes plain numbers.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return false;
    }
    let none = c"none".as_ptr();
    let root = c"/".as_ptr();
    let proc = c"/proc".as_ptr();
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: all strings end in a 0; no options are passed.
    if unsafe { libc::mount(none, root, none, private, std::ptr::null()) } != 0 {
        return false;
    }
    // SAFETY: likewise.
    unsafe {
        libc::mount(
            c"tmpfs".as_ptr(),
            proc,
            c"tmpfs".as_ptr(),
            0,
            std::ptr::null(),
        ) == 0
    }
}

/// Sets the soft limit of a resource; returns the previous one.
pub(crate) fn limit(resource: libc::__rlimit_resource_t, soft: u64) -> u64 {
    // SAFETY: every byte pattern of zeros is a valid `rlimit`.
    let mut limits: libc::rlimit = unsafe { mem::zeroed() };
    // SAFETY: there is room for the limits.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut limits) }, 0);
    let before = std::mem::replace(&mut limits.rlim_cur, soft);
    // SAFETY: `limits` is valid.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limits) }, 0);
    before
}
