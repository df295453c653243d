//! aarch64: a call puts the return address into a register, which a function without calls of its own
//! may leave there.

use std::mem::offset_of;
use std::sync::{Arc, LazyLock};

use framehop::MustNotAllocateDuringUnwind;
use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use gimli::{AArch64, Register, Vendor};

use crate::sampler::unwind::rows::RegisterValues;
use crate::sampler::unwind::{FP, SP, UNKNOWN};
use system::process::Memory;
use system::processor::{LR, REGISTERS, code_address};

pub(in crate::sampler::unwind) type Framehop =
    UnwinderAarch64<Arc<[u8]>, MustNotAllocateDuringUnwind>;
pub(in crate::sampler::unwind) type Cache = CacheAarch64<MustNotAllocateDuringUnwind>;
pub(in crate::sampler::unwind) type State = UnwindRegsAarch64;

/// Its tables say where a return address is signed, by an instruction of its own.
pub(in crate::sampler::unwind) const VENDOR: Vendor = Vendor::AArch64;
/// The column of the return address.
pub(in crate::sampler::unwind) const RETURN_ADDRESS: Register = AArch64::X30;
/// The registers that a function preserves for its caller, by the ABI.
pub(in crate::sampler::unwind) const PRESERVED: [Register; 11] = [
    AArch64::X19,
    AArch64::X20,
    AArch64::X21,
    AArch64::X22,
    AArch64::X23,
    AArch64::X24,
    AArch64::X25,
    AArch64::X26,
    AArch64::X27,
    AArch64::X28,
    AArch64::X29,
];
/// Whether a return address without a rule is in its register; otherwise it is undefined.
pub(in crate::sampler::unwind) const RETURNS_BY_REGISTER: bool = true;
/// Length of a call instruction.
pub(in crate::sampler::unwind) const CALL_BYTES_MAX: usize = 4;

/// Most instructions of a prologue.
const PROLOGUE_MAX: usize = 16;

pub(in crate::sampler::unwind) fn state_of(values: &RegisterValues) -> State {
    /// The bits of an address, without those of a signature.
    static MASK: LazyLock<u64> = LazyLock::new(|| code_address((1 << 55) - 1));
    let or_unknown = |register: usize| values[register].unwrap_or(UNKNOWN);
    UnwindRegsAarch64::new_with_ptr_auth_mask(
        PtrAuthMask(*MASK),
        or_unknown(LR),
        or_unknown(SP),
        or_unknown(FP),
    )
}

pub(in crate::sampler::unwind) fn frame_pointer(state: &State) -> u64 {
    state.fp()
}

pub(in crate::sampler::unwind) fn set_frame_pointer(state: &mut State, value: u64) {
    state.set_fp(value);
}

/// The code that a signal handler returns to: it calls `rt_sigreturn`. The tables of the kernel restore
/// only two registers there, and emulators have none.
pub(in crate::sampler::unwind) fn is_signal_return(memory: Memory, address: u64) -> bool {
    const CODE: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4]; // mov x8, #139; svc #0
    let mut code = [0; CODE.len()];
    address % 4 == 0 && memory.read(address, &mut code) == code.len() && code == CODE
}

/// The registers that a signal interrupted, from the kernel's frame, if `address` is before the code
/// that a handler returns to.
pub(in crate::sampler::unwind) fn interrupted_registers(
    memory: Memory,
    address: u64,
    values: &RegisterValues,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<RegisterValues> {
    /// The kernel's frame: `siginfo_t`, then `ucontext_t`, whose registers are in our order.
    const REGISTERS_AT: u64 = (size_of::<libc::siginfo_t>()
        + offset_of!(libc::ucontext_t, uc_mcontext)
        + offset_of!(libc::mcontext_t, regs)) as u64;
    if !is_signal_return(memory, address.wrapping_add(1)) {
        return None;
    }
    let sp = values[SP]?;
    let mut interrupted = [None; REGISTERS];
    for (index, value) in (0u64..).zip(&mut interrupted) {
        *value = Some(read(sp.wrapping_add(REGISTERS_AT + 8 * index)).ok()?);
    }
    Some(interrupted)
}

/// Whether the return address of the first frame is lost, because it was in a register: the kernel shows
/// only the stack pointer and the program counter of a blocked thread.
pub(in crate::sampler::unwind) fn lacks_return_address(values: &RegisterValues) -> bool {
    values[LR].is_none()
}

/// The return address of a function without a frame: a call puts it into a register.
pub(in crate::sampler::unwind) fn return_address_in_register(
    values: &RegisterValues,
) -> Option<u64> {
    values[LR].map(code_address)
}

/// Frame pointers to try in the caller whose return address is at `at`: the one that was stored next to
/// it, then the one in its register.
pub(in crate::sampler::unwind) fn frame_pointers(
    values: &RegisterValues,
    at: u64,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> [Option<u64>; 2] {
    [read(at.wrapping_sub(8)).ok(), values[FP]]
}

/// Length of the end of a function that is recognized.
pub(in crate::sampler::unwind) const EPILOGUE_BYTES: usize = 4;

/// The bytes of the stack that code releases before it returns: its frame pointer tells more.
pub(in crate::sampler::unwind) fn released_before_return(
    _code: &[u8; EPILOGUE_BYTES],
) -> Option<u64> {
    None
}

/// Whether `code` is a call.
pub(in crate::sampler::unwind) fn is_call(code: &[u8; CALL_BYTES_MAX]) -> bool {
    let code = u32::from_le_bytes(*code);
    code & 0xfc00_0000 == 0x9400_0000 // bl
        || code & 0xffff_fc1f == 0xd63f_0000 // blr
        || code & 0xfeff_f800 == 0xd63f_0800 // blraa, blrab and those without a modifier
}

/// The function that the call `code` at `at` calls, if the call names it.
pub(in crate::sampler::unwind) fn called_by(code: [u8; CALL_BYTES_MAX], at: u64) -> Option<u64> {
    let code = u32::from_le_bytes(code);
    if code & 0xfc00_0000 != 0x9400_0000 {
        return None;
    }
    // 26 bits, signed, in instructions.
    let distance = (code << 6) as i32 >> 4;
    Some(at.wrapping_add_signed(distance.into()))
}

/// Finds `add x29, sp, n` in a prologue, and returns the distance from the final stack pointer to the
/// frame pointer; `None` for any other prologue.
pub(in crate::sampler::unwind) fn distance_in_prologue(code: &[u8]) -> Option<u64> {
    let mut distance = None;
    for code in code.chunks_exact(4).take(PROLOGUE_MAX) {
        let code = u32::from_le_bytes(code.try_into().ok()?);
        let number = u64::from(code >> 10 & 0xfff);
        if code & 0xffc0_03ff == 0x9100_03fd {
            distance = Some(number); // add x29, sp, n
        } else if code & 0xff80_03ff == 0xd100_03ff {
            // sub sp, sp, n: before the frame pointer is set it changes nothing.
            let size = if code & 1 << 22 == 0 {
                number
            } else {
                number << 12
            };
            distance = distance.map(|distance| distance + size);
        } else if distance.is_some() && !is_store(code) {
            break;
        }
    }
    distance
}

/// Whether `code` stores a register, or a pair, relative to the stack pointer.
fn is_store(code: u32) -> bool {
    let is_relative = code >> 5 & 0x1f == 31;
    let is_pair = code & 0x3a40_0000 == 0x2800_0000; // stp
    let is_single = code & 0x3be0_0000 == 0x3800_0000; // str
    let is_single_by_number = code & 0x3bc0_0000 == 0x3900_0000; // str with an unsigned offset
    is_relative && (is_pair || is_single || is_single_by_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(instructions: &[u32]) -> Vec<u8> {
        instructions
            .iter()
            .flat_map(|code| code.to_le_bytes())
            .collect()
    }

    #[test]
    fn the_frame_pointer_distance_follows_from_the_prologue() {
        let check =
            |code: &[u32], distance| assert_eq!(distance_in_prologue(&bytes(code)), distance);
        // stp x29, x30, [sp, #-32]!; mov x29, sp; bl
        check(&[0xa9be_7bfd, 0x9100_03fd, 0x9400_0000], Some(0));
        // sub sp, sp, #96; stp x29, x30, [sp, #80]; add x29, sp, #80
        check(
            &[0xd101_83ff, 0xa905_7bfd, 0x9101_43fd, 0x9400_0000],
            Some(80),
        );
        // bti c; paciasp; stp x29, x30, [sp, #-16]!; mov x29, sp; str x19, [sp, #8]; sub sp, sp, #1, lsl #12
        let code = [
            0xd503_245f,
            0xd503_233f,
            0xa9bf_7bfd,
            0x9100_03fd,
            0xf900_07f3,
            0xd140_07ff,
            0x9400_0000,
        ];
        check(&code, Some(4096));
        // str x30, [sp, #-16]!; bl
        check(&[0xf81f_0ffe, 0x9400_0000], None);
        check(&[], None);
    }

    #[test]
    fn a_return_address_follows_a_call() {
        assert!(is_call(&0x9400_0001_u32.to_le_bytes())); // bl
        assert!(is_call(&0x97ff_ffff_u32.to_le_bytes())); // bl backwards
        assert!(is_call(&0xd63f_0100_u32.to_le_bytes())); // blr x8
        assert!(is_call(&0xd63f_091f_u32.to_le_bytes())); // blraaz x8
        assert!(is_call(&0xd73f_0909_u32.to_le_bytes())); // blraa x8, x9
        assert!(!is_call(&0xd61f_0100_u32.to_le_bytes())); // br x8
        assert!(!is_call(&0x1400_0001_u32.to_le_bytes())); // b
        assert!(!is_call(&0xd65f_03c0_u32.to_le_bytes())); // ret
    }

    #[test]
    fn a_call_names_its_function() {
        let called = |code: u32| called_by(code.to_le_bytes(), 0x1000);
        assert_eq!(called(0x9400_0001), Some(0x1004));
        assert_eq!(called(0x97ff_ffff), Some(0xffc));
        assert_eq!(called(0xd63f_0100), None);
    }
}
