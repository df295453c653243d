//! Machine code that the unwinder reads: prologues, and calls before a return address.

use crate::sys::process::read_memory;

/// Length of the longest call instruction that is recognized.
const CALL_BYTES_MAX: u64 = 7;

/// Whether the code before `address` is a call, so that `address` can be a return address.
pub(super) fn returns_here(address: u64) -> bool {
    let mut code = [0; CALL_BYTES_MAX as usize];
    let Some(start) = address.checked_sub(CALL_BYTES_MAX) else {
        return false;
    };
    read_memory(start, &mut code) == code.len() && is_call(&code)
}

/// Whether `code` ends in a call.
fn is_call(code: &[u8; CALL_BYTES_MAX as usize]) -> bool {
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
pub(super) fn distance_in_prologue(code: &[u8]) -> Option<u64> {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code); // endbr64
    let mut code = code.strip_prefix(&[0x55, 0x48, 0x89, 0xe5])?; // push rbp; mov rbp, rsp
    let mut distance = 0u64;
    loop {
        match *code {
            [0x41, 0x50..=0x57, ref rest @ ..] | [0x50..=0x57, ref rest @ ..] => {
                distance += 8; // push
                code = rest;
            }
            [0x48, 0x83, 0xec, size, ..] => {
                return distance.checked_add_signed(i64::from(size.cast_signed())); // sub rsp, 8 bits
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
        check(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x53, 0xe8], Some(8));
        check(&[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 0x28], Some(56));
        check(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 1, 0, 0], Some(256));
        check(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0], None);
        check(&[0x48, 0x83, 0xec, 0x28], None);
        check(&[], None);
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
