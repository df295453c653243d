//! Machine code that the unwinder reads: calls before a return address.

use super::processor::{CALL_BYTES_MAX, EPILOGUE_BYTES, called_by, is_call};
use system::process::Memory;

/// Whether the code before `address` is a call, so that `address` can be a return address.
pub(super) fn returns_here(memory: Memory, address: u64) -> bool {
    code_before(memory, address).is_some_and(|code| is_call(&code))
}

/// The function that the call before `address` calls, if the call names it.
pub(super) fn called_before(memory: Memory, address: u64) -> Option<u64> {
    called_by(
        code_before(memory, address)?,
        address - CALL_BYTES_MAX as u64,
    )
}

/// The code from `address` on.
pub(super) fn code_at(memory: Memory, address: u64) -> Option<[u8; EPILOGUE_BYTES]> {
    let mut code = [0; EPILOGUE_BYTES];
    (memory.read(address, &mut code) == code.len()).then_some(code)
}

fn code_before(memory: Memory, address: u64) -> Option<[u8; CALL_BYTES_MAX]> {
    let mut code = [0; CALL_BYTES_MAX];
    let start = address.checked_sub(CALL_BYTES_MAX as u64)?;
    (memory.read(start, &mut code) == code.len()).then_some(code)
}
