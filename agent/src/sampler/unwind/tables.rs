//! Finding functions in a module's unwind tables, which the unwinder has no interface for.

use crate::sampler::sys::modules::{Module, Tables, read_i32};

/// A function of the sorted table in `.eh_frame_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Function {
    pub(super) start: u64,
    /// The first address after it.
    pub(super) end: u64,
}

/// The function that contains `address`; `None` if no table describes it, as for much code written
/// in assembly.
pub(super) fn function_of(modules: &[Module], address: u64) -> Option<Function> {
    let module = modules
        .iter()
        .find(|module| module.range.contains(&address))?;
    let function = preceding(module.tables.as_ref()?, address)?;
    (address < function.end).then_some(function)
}

/// Where the code around `address` begins that no table describes; `None` if a table describes it, or none is known.
pub(super) fn undescribed_from(modules: &[Module], address: u64) -> Option<u64> {
    let module = modules
        .iter()
        .find(|module| module.range.contains(&address))?;
    match preceding(module.tables.as_ref()?, address) {
        Some(function) => (function.end <= address).then_some(function.end),
        None => Some(module.range.start),
    }
}

/// The last function that starts at or before `address`.
fn preceding(tables: &Tables, address: u64) -> Option<Function> {
    // The count is a 4-byte number; entries are relative to the table's address, 4 bytes each.
    let [_, _, 0x03, 0x3b, ..] = *tables.index else {
        return None;
    };
    let count = usize::try_from(read_i32(&tables.index, 8)?).ok()?;
    let entry = |index: usize| read_i32(&tables.index, 12 + index * 8);
    let relative = i32::try_from(i128::from(address) - i128::from(tables.index_at)).ok()?;
    let mut low = 0;
    let mut high = count;
    while low < high {
        let middle = low.midpoint(high);
        if entry(middle)? <= relative {
            low = middle + 1
        } else {
            high = middle
        }
    }
    let index = low.checked_sub(1)?;
    let start = tables.index_at.wrapping_add_signed(entry(index)?.into());
    let record = read_i32(&tables.index, 16 + index * 8)?;
    let record_at = tables.index_at.wrapping_add_signed(record.into());
    // A record: length, pointer to the common entry, start relative to itself, length of the code.
    let offset = usize::try_from(record_at.checked_sub(tables.frames_at)?).ok()?;
    let begin = record_at + 8;
    let stated = begin.wrapping_add_signed(read_i32(&tables.frames, offset + 8)?.into());
    let length = u64::from(read_i32(&tables.frames, offset + 12)? as u32);
    // With another encoding the start is still right, but the end is not known.
    let end = if stated == start {
        start.saturating_add(length)
    } else {
        u64::MAX
    };
    Some(Function { start, end })
}
