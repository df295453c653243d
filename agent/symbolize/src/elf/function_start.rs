//! Where functions without symbols start: by the tables for unwinding, which stripped files have too, and between their
//! entries, where assembly is, by the code itself.

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, Pointer, UnwindSection as _};

use super::{Elf, SectionHeader};

/// Most bytes of code before an address that are searched for the start of its function.
const SEARCHED_BYTES_MAX: u64 = 16 << 10;
/// Assemblers align functions.
const ALIGNMENT: u64 = 16;

impl Elf {
    /// The start of the function at an address. Parts that a compiler moves away from their function are functions of their
    /// own. Of code without an entry it is the last aligned address after a return and padding, or else the end of the
    /// entry before.
    pub(crate) fn function_start(&self, address: u64) -> Option<u64> {
        let code = self.code_section(address)?;
        let before = self.entry_before(address);
        if let Some(entry) = before.filter(|entry| address < entry.end) {
            return Some(entry.start);
        }
        let end_before = before.map_or(0, |entry| entry.end);
        let gap = end_before.max(code.address);
        Some(self.start_in_gap(code, gap, address).unwrap_or(gap))
    }

    fn code_section(&self, address: u64) -> Option<&SectionHeader> {
        let mut sections = self.sections.iter();
        sections.find(|section| {
            let offset = address.checked_sub(section.address);
            section.is_code() && offset.is_some_and(|offset| offset < section.bytes)
        })
    }

    /// The last entry of the tables that starts at or before an address.
    fn entry_before(&self, address: u64) -> Option<Entry> {
        const ADDRESS_BYTES: u8 = 8;
        let index = self.section(".eh_frame_hdr")?;
        let frames_at = self.section(".eh_frame")?;
        let mut bases = BaseAddresses::default()
            .set_eh_frame_hdr(index.address)
            .set_eh_frame(frames_at.address);
        if let Some(code) = self.section(".text") {
            bases = bases.set_text(code.address);
        }
        let index = EhFrameHdr::from(self.reader(index))
            .parse(&bases, ADDRESS_BYTES)
            .ok()?;
        let frames = EhFrame::from(self.reader(frames_at));
        let Pointer::Direct(pointer) = index.table()?.lookup(address, &bases).ok()? else {
            return None;
        };
        let offset = usize::try_from(pointer.checked_sub(frames_at.address)?).ok()?;
        let entry = frames
            .fde_from_offset(&bases, EhFrameOffset(offset), EhFrame::cie_from_offset)
            .ok()?;
        let start = entry.initial_address();
        let end = start.checked_add(entry.len())?;
        (start <= address).then_some(Entry { start, end })
    }

    /// The last start of a function in code from `gap` to `address`, both in that section.
    fn start_in_gap(&self, section: &SectionHeader, gap: u64, address: u64) -> Option<u64> {
        let from = gap.max(address.saturating_sub(SEARCHED_BYTES_MAX));
        // With the byte at the address, where a function may start.
        let mut code = vec![0; usize::try_from(address.checked_sub(from)? + 1).ok()?];
        let offset = section
            .offset
            .checked_add(from.checked_sub(section.address)?)?;
        self.file.read(offset, &mut code).ok()?;
        last_start(&code, from)
    }
}

/// The code of an entry.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    /// The first address after it.
    end: u64,
}

/// The last aligned address in `code` that follows a return and padding. The code begins at `at`.
fn last_start(code: &[u8], at: u64) -> Option<u64> {
    let after_return = |end: usize| {
        let mut start = end;
        while (at + start as u64) % ALIGNMENT != 0 {
            start += padding(&code[start..])?;
        }
        (start < code.len()).then_some(at + start as u64)
    };
    (0..code.len())
        .rev()
        .filter_map(|begin| return_at(&code[begin..]).map(|bytes| begin + bytes))
        .find_map(after_return)
}

/// Bytes of a return instruction at the beginning of `code`, if it is one.
#[cfg(target_arch = "x86_64")]
fn return_at(code: &[u8]) -> Option<usize> {
    code.starts_with(&[0xc3]).then_some(1)
}

#[cfg(target_arch = "aarch64")]
fn return_at(code: &[u8]) -> Option<usize> {
    code.starts_with(&[0xc0, 0x03, 0x5f, 0xd6]).then_some(4)
}

/// Bytes of an instruction without effect at the beginning of `code`, if it is one.
#[cfg(target_arch = "x86_64")]
fn padding(code: &[u8]) -> Option<usize> {
    // Prefixes, and 0f 1f with an operand whose form the next byte tells.
    let prefixes = code
        .iter()
        .take_while(|byte| matches!(byte, 0x66 | 0x2e))
        .count();
    let bytes = match *code.get(prefixes..)? {
        [0x90 | 0xcc, ..] => 1,
        [0x0f, 0x1f, 0x00, ..] => 3,
        [0x0f, 0x1f, 0x40, ..] => 4,
        [0x0f, 0x1f, 0x44, ..] => 5,
        [0x0f, 0x1f, 0x80, ..] => 7,
        [0x0f, 0x1f, 0x84, ..] => 8,
        _ => return None,
    };
    let end = prefixes + bytes;
    (end <= code.len()).then_some(end)
}

#[cfg(target_arch = "aarch64")]
fn padding(code: &[u8]) -> Option<usize> {
    let is_padding = code.starts_with(&[0x1f, 0x20, 0x03, 0xd5]) || code.starts_with(&[0; 4]);
    is_padding.then_some(4)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn functions_of_assembly_start_after_a_return_and_padding() {
        // From 0x1008 on: a return and padding to 0x1010, a function to 0x1020, which has a return without padding.
        let mut code = vec![0x48, 0x89, 0xc8, 0xc3, 0x0f, 0x1f, 0x40, 0x00];
        code.extend([0x48, 0x01, 0xc8, 0xc3, 0x48, 0x01, 0xc8, 0xeb]);
        code.extend([0xf6, 0xc3, 0x66, 0x66, 0x66, 0x90, 0x66, 0x90]);
        code.extend([0x31, 0xc0, 0xc3]);
        let start_before =
            |address: u64| last_start(&code[..(address - 0x1008) as usize + 1], 0x1008);
        for (address, expected) in [
            (0x1008, None),
            (0x100f, None),
            (0x1010, Some(0x1010)),
            (0x101f, Some(0x1010)),
            (0x1020, Some(0x1020)),
            (0x1022, Some(0x1020)),
        ] {
            assert_eq!(start_before(address), expected, "{address:#x}");
        }
        // The padding may be cut off anywhere.
        for end in 0..code.len() {
            let _ = last_start(&code[..end], u64::MAX - 64);
        }
    }
}
