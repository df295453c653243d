//! x86-64.

/// Registers that are copied of an interrupted thread: by their DWARF numbers, the last is the return
/// address, which is the program counter.
pub const REGISTERS: usize = 17;
/// The frame pointer.
pub const FP: usize = 6;
/// The stack pointer.
pub const SP: usize = 7;
/// The program counter.
pub const PC: usize = 16;

/// The kernel's numbers of the registers.
const KERNEL_NUMBERS: [libc::c_int; REGISTERS] = [
    libc::REG_RAX,
    libc::REG_RDX,
    libc::REG_RCX,
    libc::REG_RBX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
    libc::REG_RIP,
];

/// Register `index` of an interrupted thread.
#[inline(always)]
pub fn register(machine: &libc::mcontext_t, index: usize) -> u64 {
    machine.gregs[KERNEL_NUMBERS[index] as usize] as u64
}

/// Reads the processor's time-stamp counter, which ticks at a constant rate of its own.
#[inline(always)]
pub fn time_stamp() -> u64 {
    // SAFETY: reading the counter changes nothing.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The address of code in a pointer to it.
#[inline]
pub fn code_address(pointer: u64) -> u64 {
    pointer
}

/// The thread pointer, which on x86-64 is stored at the address that it points to.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the ABI puts the thread pointer at fs:0; reading it changes nothing.
    unsafe {
        std::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}

/// Copies without calling the C library, whose `memcpy` may not be bound yet.
///
/// # Safety
/// `from` is readable and `to` writable for `words` words; they do not overlap.
#[inline(always)]
pub unsafe fn copy_words(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: guaranteed by the caller; the ABI requires a clear direction flag at every call.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") words => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies memory of this process that may be unmapped, by a system call. Returns the number of bytes
/// copied. The system call is written out, because the C library's wrapper would change errno.
///
/// # Safety
/// `to` is writable for `bytes` bytes.
#[inline(always)]
pub unsafe fn read_memory(pid: i32, from: u64, to: *mut u64, bytes: usize) -> usize {
    let local = libc::iovec {
        iov_base: to.cast(),
        iov_len: bytes,
    };
    let remote = libc::iovec {
        iov_base: from as *mut libc::c_void,
        iov_len: bytes,
    };
    let result: i64;
    // SAFETY: process_vm_readv(pid, &local, 1, &remote, 1, 0) writes only to `to`, which the caller
    // guarantees to be writable; unmapped source memory ends the copy.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_process_vm_readv => result,
            in("rdi") i64::from(pid),
            in("rsi") &raw const local,
            in("rdx") 1,
            in("r10") &raw const remote,
            in("r8") 1,
            in("r9") 0,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    usize::try_from(result).unwrap_or(0)
}
