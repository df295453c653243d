//! aarch64.

/// Registers that are copied of an interrupted thread: by their DWARF numbers, and the program counter,
/// which has none.
pub const REGISTERS: usize = 33;
/// The frame pointer.
pub const FP: usize = 29;
/// The link register: where a function without a frame returns to.
pub const LR: usize = 30;
/// The stack pointer.
pub const SP: usize = 31;
/// The program counter.
pub const PC: usize = 32;

/// Register `index` of an interrupted thread.
#[inline(always)]
pub fn register(machine: &libc::mcontext_t, index: usize) -> u64 {
    match index {
        SP => machine.sp,
        PC => machine.pc,
        _ => machine.regs[index],
    }
}

/// Reads the processor's virtual counter, which ticks at a constant rate of its own.
#[inline(always)]
pub fn time_stamp() -> u64 {
    let stamp: u64;
    // SAFETY: Linux lets programs read the counter; reading it changes nothing.
    unsafe {
        std::arch::asm!(
            "mrs {}, cntvct_el0",
            out(reg) stamp,
            options(nostack, nomem, preserves_flags)
        );
    }
    stamp
}

/// The address of code in a pointer to it: without the signature that pointer authentication puts into
/// its upper bits. How many these are depends on the kernel's configuration, so the processor removes
/// them; one without pointer authentication takes the instruction for a hint and does nothing.
#[inline]
pub fn code_address(pointer: u64) -> u64 {
    let address: u64;
    // SAFETY: `xpaclri` changes the link register only.
    unsafe {
        std::arch::asm!(
            "hint #7",
            inlateout("x30") pointer => address,
            options(nostack, nomem, preserves_flags)
        );
    }
    address
}

/// The thread pointer.
#[inline(always)]
pub fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the ABI keeps the thread pointer in this register; reading it changes nothing.
    unsafe {
        std::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) pointer,
            options(nostack, nomem, preserves_flags)
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
    // SAFETY: guaranteed by the caller: pairs of words, then the odd one.
    unsafe {
        std::arch::asm!(
            "subs {words}, {words}, #2",
            "b.lo 3f",
            "2:",
            "ldp {first}, {second}, [{from}], #16",
            "stp {first}, {second}, [{to}], #16",
            "subs {words}, {words}, #2",
            "b.hs 2b",
            "3:",
            "tbz {words}, #0, 4f",
            "ldr {first}, [{from}]",
            "str {first}, [{to}]",
            "4:",
            words = inout(reg) words => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            first = out(reg) _,
            second = out(reg) _,
            options(nostack)
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
            "svc #0",
            in("x8") libc::SYS_process_vm_readv,
            inlateout("x0") i64::from(pid) => result,
            in("x1") &raw const local,
            in("x2") 1,
            in("x3") &raw const remote,
            in("x4") 1,
            in("x5") 0,
            options(nostack)
        );
    }
    usize::try_from(result).unwrap_or(0)
}
