//! x86-64: a call pushes the return address, so every frame has it on its stack.

use std::sync::Arc;

use framehop::MustNotAllocateDuringUnwind;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use gimli::{Register, Vendor, X86_64};
use system::process::Memory;

use crate::sampler::unwind::rows::RegisterValues;
use crate::sampler::unwind::{FP, PC, SP, UNKNOWN};

pub(in crate::sampler::unwind) type Framehop =
    UnwinderX86_64<Arc<[u8]>, MustNotAllocateDuringUnwind>;
pub(in crate::sampler::unwind) type Cache = CacheX86_64<MustNotAllocateDuringUnwind>;
pub(in crate::sampler::unwind) type State = UnwindRegsX86_64;

pub(in crate::sampler::unwind) const VENDOR: Vendor = Vendor::Default;
/// The column of the return address.
pub(in crate::sampler::unwind) const RETURN_ADDRESS: Register = X86_64::RA;
/// The registers that a function preserves for its caller, by the ABI.
pub(in crate::sampler::unwind) const PRESERVED: [Register; 6] = [
    X86_64::RBX,
    X86_64::RBP,
    X86_64::R12,
    X86_64::R13,
    X86_64::R14,
    X86_64::R15,
];
/// Whether a return address without a rule is in its register; otherwise it is undefined.
pub(in crate::sampler::unwind) const RETURNS_BY_REGISTER: bool = false;
/// Length of the longest call instruction that is recognized.
pub(in crate::sampler::unwind) const CALL_BYTES_MAX: usize = 7;

pub(in crate::sampler::unwind) fn state_of(values: &RegisterValues) -> State {
    let or_unknown = |register: usize| values[register].unwrap_or(UNKNOWN);
    UnwindRegsX86_64::new(or_unknown(PC), or_unknown(SP), or_unknown(FP))
}

pub(in crate::sampler::unwind) fn frame_pointer(state: &State) -> u64 {
    state.bp()
}

pub(in crate::sampler::unwind) fn set_frame_pointer(state: &mut State, value: u64) {
    state.set_bp(value);
}

/// The kernel's signal trampoline has tables like other code.
pub(in crate::sampler::unwind) fn is_signal_return(_memory: Memory, _address: u64) -> bool {
    false
}

/// The registers that a signal interrupted, which the tables restore here.
pub(in crate::sampler::unwind) fn interrupted_registers(
    _memory: Memory,
    _address: u64,
    _values: &RegisterValues,
    _read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<RegisterValues> {
    None
}

/// Whether the return address of the first frame is lost: every frame has it on its stack.
pub(in crate::sampler::unwind) fn lacks_return_address(_values: &RegisterValues) -> bool {
    false
}

/// The return address of a function without a frame, if it is in a register: a call never puts it there.
pub(in crate::sampler::unwind) fn return_address_in_register(
    _values: &RegisterValues,
) -> Option<u64> {
    None
}

/// The function that a direct call calls, whose code is at `at`.
pub(in crate::sampler::unwind) fn called_by(code: [u8; CALL_BYTES_MAX], at: u64) -> Option<u64> {
    let [_, _, 0xe8, distance @ ..] = code else {
        return None;
    };
    let after = at.wrapping_add(CALL_BYTES_MAX as u64);
    Some(after.wrapping_add_signed(i32::from_le_bytes(distance).into()))
}

/// Frame pointers to try in the caller whose return address is at `at`: code without tables may have
/// changed it.
pub(in crate::sampler::unwind) fn frame_pointers(
    values: &RegisterValues,
    _at: u64,
    _read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> [Option<u64>; 2] {
    [values[FP], None]
}

/// Length of the end of a function that is recognized.
pub(in crate::sampler::unwind) const EPILOGUE_BYTES: usize = 5;

/// The bytes of the stack that code releases before it returns, if that is all it does.
pub(in crate::sampler::unwind) fn released_before_return(
    code: &[u8; EPILOGUE_BYTES],
) -> Option<u64> {
    match *code {
        [0x48, 0x83, 0xc4, bytes @ ..0x80, 0xc3] => Some(bytes.into()), // add rsp, 7 bits; ret
        _ => None,
    }
}

/// Whether `code` ends in a call.
pub(in crate::sampler::unwind) fn is_call(code: &[u8; CALL_BYTES_MAX]) -> bool {
    // `call` through a register or memory: opcode ff with 2 in the middle bits of the next byte,
    // which also determines the length.
    let indirect = |mode: u8| mode & 0b0011_1000 == 0b0001_0000;
    code[2] == 0xe8 // direct, with a distance of 4 bytes
        || matches!(*code, [.., 0xff, mode] if indirect(mode) && matches!(mode >> 6, 0 | 3))
        || matches!(*code, [.., 0xff, mode, _] if indirect(mode) && matches!(mode >> 6, 0 | 1))
        || matches!(*code, [.., 0xff, mode, _, _] if indirect(mode) && mode >> 6 == 1)
        || matches!(*code, [_, 0xff, mode, ..] if indirect(mode) && matches!(mode >> 6, 0 | 2))
        || matches!(*code, [0xff, mode, ..] if indirect(mode) && matches!(mode >> 6, 0 | 2))
}

/// Parses `push rbp; mov rbp, rsp; push …; sub rsp, n` and returns the distance from the final
/// stack pointer to the frame pointer; `None` for any other prologue.
pub(in crate::sampler::unwind) fn distance_in_prologue(code: &[u8]) -> Option<u64> {
    let body = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code); // endbr64
    let mut code = body.strip_prefix(&[0x55, 0x48, 0x89, 0xe5])?; // push rbp; mov rbp, rsp
    let mut distance = 0u64;
    loop {
        match *code {
            [0x41, 0x50..=0x57, ref rest @ ..] | [0x50..=0x57, ref rest @ ..] => {
                distance += 8; // push
                code = rest;
            }
            [0x48, 0x83, 0xec, size, ..] => {
                return distance.checked_add_signed(i64::from(size as i8)); // sub rsp, 8 bits
            }
            [0x48, 0x81, 0xec, a, b, c, d, ..] => {
                return Some(distance + u64::from(u32::from_le_bytes([a, b, c, d])));
            }
            [0x48, 0x83, 0xe4, ..] => return None, // and rsp: aligned by an unknown amount
            _ => return Some(distance),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_pointer_distance_follows_from_the_prologue() {
        let check = |code: &[u8], distance| assert_eq!(distance_in_prologue(code), distance);
        check(&[0x55, 0x48, 0x89, 0xe5, 0xe8], Some(0));
        check(
            &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x53, 0xe8],
            Some(8),
        );
        check(
            &[
                0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 0x28,
            ],
            Some(56),
        );
        check(
            &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 1, 0, 0],
            Some(256),
        );
        check(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0], None);
        check(&[0x48, 0x83, 0xec, 0x28], None);
        check(&[], None);
    }

    #[test]
    fn the_end_of_a_function_says_what_it_releases() {
        let check = |code, released| assert_eq!(released_before_return(&code), released);
        check([0x48, 0x83, 0xc4, 0x08, 0xc3], Some(8));
        check([0x48, 0x83, 0xc4, 0xf8, 0xc3], None); // a negative number
        check([0x48, 0x83, 0xc4, 0x08, 0x5b], None); // pop rbx
    }

    #[test]
    fn a_direct_call_names_its_function() {
        let back = [0x90, 0x90, 0xe8, 0xf0, 0xff, 0xff, 0xff];
        assert_eq!(called_by(back, 0x1000), Some(0x1007 - 0x10));
        assert_eq!(called_by([0x90, 0xff, 0x15, 1, 0, 0, 0], 0x1000), None);
    }

    #[test]
    fn a_return_address_follows_a_call() {
        assert!(is_call(&[0x90, 0x90, 0xe8, 0xf0, 0xff, 0xff, 0xff]));
        assert!(is_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0])); // call rax
        assert!(is_call(&[0x90, 0xff, 0x15, 1, 0, 0, 0])); // call [rip + 1]
        assert!(is_call(&[0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x18])); // call [rax + 24]
        assert!(!is_call(&[0x90; 7]));
        assert!(!is_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0])); // jmp rax
    }
}
