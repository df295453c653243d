//! Threads that a single instruction or system call of somebody else would end: with small alternate
//! stacks, without a clock, and in strict seccomp.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{hint, io, mem, ptr};

/// Faults that [`resume`] has resolved.
static RESOLVED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn resolved() -> u64 {
    RESOLVED.load(Ordering::Relaxed)
}

/// Turns that each fault's handler works for.
static WORK_TURNS: AtomicU64 = AtomicU64::new(0);

/// Goes on after the instruction of [`read_null`], as a runtime does that finds null pointers by their
/// faults.
extern "C" fn resume(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    RESOLVED.fetch_add(1, Ordering::Relaxed);
    let mut turns = WORK_TURNS.load(Ordering::Relaxed);
    while turns > 0 {
        turns = hint::black_box(turns) - 1;
    }
    // SAFETY: under SA_SIGINFO the kernel passes a valid context.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    {
        machine.gregs[libc::REG_RIP as usize] += 2;
    }
    #[cfg(target_arch = "aarch64")]
    {
        machine.pc += 4;
    }
}

/// Installs the handler of null reads, on the alternate stack. Each call of it works for so many turns.
pub(crate) fn handle_null_reads(extra_flags: c_int, work_turns: u64) {
    WORK_TURNS.store(work_turns, Ordering::Relaxed);
    // SAFETY: every byte pattern of zeros is a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = resume as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | extra_flags;
    // SAFETY: `resume` has the type of a handler with information.
    let result = unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Reads from the address 0.
#[inline(never)]
pub(crate) fn read_null() {
    // SAFETY: the handler of the fault goes on after the instruction, which has two bytes.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov eax, dword ptr [rdi]", in("rdi") 0u64, out("eax") _, options(nostack));
    }
    // SAFETY: as above, with four bytes.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("ldr w0, [x1]", in("x1") 0u64, out("x0") _, options(nostack));
    }
}

/// Installs an alternate stack on the calling thread, of this size for as long as it lives, within memory that
/// nobody else uses. Returns whether the system allows one of this size.
pub(crate) fn use_alternate_stack(bytes: usize) -> bool {
    // Below it nothing else may be overwritten unseen.
    let room: &'static mut [u8] = Vec::leak(vec![0xa5; bytes + GUARD_BYTES]);
    let start = room[GUARD_BYTES..].as_mut_ptr().cast();
    let stack = libc::stack_t {
        ss_sp: start,
        ss_flags: 0,
        ss_size: bytes,
    };
    // SAFETY: the memory is never freed.
    unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) == 0 }
}

const GUARD_BYTES: usize = 4_096;

/// Whether nothing was written below the calling thread's alternate stack.
pub(crate) fn is_guard_untouched() -> bool {
    let mut stack = libc::stack_t {
        ss_sp: ptr::null_mut(),
        ss_flags: 0,
        ss_size: 0,
    };
    // SAFETY: without a new stack this only reads.
    assert_eq!(unsafe { libc::sigaltstack(ptr::null(), &raw mut stack) }, 0);
    let guard = stack.ss_sp.cast::<u8>().wrapping_sub(GUARD_BYTES);
    // SAFETY: `use_alternate_stack` allocated it below the stack.
    let guard = unsafe { std::slice::from_raw_parts(guard, GUARD_BYTES) };
    guard.iter().all(|byte| *byte == 0xa5)
}

/// Works without any call.
pub(crate) fn spin(turns: u64) {
    for step in 0..turns {
        hint::black_box(step);
    }
}

/// Forbids the calling thread to read the time-stamp counter, and with it the clock.
pub(crate) fn forbid_clock() {
    // SAFETY: takes plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Confines the calling thread to `read`, `write` and `exit`, works, counts itself and ends, which it
/// does without the C library.
pub(crate) fn work_in_strict_seccomp(turns: u64, finished: &AtomicU64) -> ! {
    // SAFETY: takes plain numbers.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    spin(turns);
    finished.fetch_add(1, Ordering::Release);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: ends this thread, whose stack nobody frees.
    unsafe {
        std::arch::asm!("syscall", in("rax") libc::SYS_exit, in("rdi") 0, options(noreturn));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("svc #0", in("x8") libc::SYS_exit, in("x0") 0, options(noreturn));
    }
}
