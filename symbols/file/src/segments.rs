//! Where a file has its code, and at which addresses: its program headers, reduced.

use std::fmt::Write as _;

use super::elf::{long, word};

/// Bytes of a program header.
pub(super) const PROGRAM_HEADER_BYTES: usize = 56;
/// Most parts with code; programs have one, the kernel two.
const SEGMENTS_MAX: usize = 16;
const PT_LOAD: u32 = 1;
const PF_EXECUTABLE: u32 = 1;
const PF_WRITABLE: u32 = 2;

/// A part of a file that is loaded as code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    /// Where the file has it.
    offset: u64,
    bytes: u64,
    /// The address that the file gives it.
    address: u64,
}

/// The parts of a file that are loaded as code.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Segments(Vec<Segment>);

impl Segments {
    /// Reads a table of program headers. `objcopy --only-keep-debug` removes contents and overwrites the offsets
    /// of parts without any; their offsets are inferred.
    pub(super) fn of_headers(table: &[u8]) -> Segments {
        let mut segments = Vec::new();
        // Where the part before ends in the file, if that is certain.
        let mut end = Some(0);
        for header in table.as_chunks::<PROGRAM_HEADER_BYTES>().0 {
            let Some(load) = Load::parse(header) else {
                continue;
            };
            let offset = if load.has_content {
                Some(load.offset)
            } else {
                load.offset_after(end)
            };
            if load.flags & PF_EXECUTABLE != 0 && segments.len() < SEGMENTS_MAX {
                let Load { bytes, address, .. } = load;
                segments.extend(offset.map(|offset| Segment {
                    offset,
                    bytes,
                    address,
                }));
            }
            // Data may be longer in memory than in the file.
            let is_data = load.flags & PF_WRITABLE != 0;
            end = offset
                .filter(|_| !is_data)
                .and_then(|offset| offset.checked_add(load.bytes));
        }
        Segments(segments)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The address of the code that is there in the file.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        self.0.iter().find_map(|segment| {
            let within = offset.checked_sub(segment.offset)?;
            (within < segment.bytes).then(|| segment.address.checked_add(within))?
        })
    }

    /// The text that a symbol file has.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for Segment {
            offset,
            bytes,
            address,
        } in &self.0
        {
            let _ = writeln!(text, "{offset:x} {bytes:x} {address:x}");
        }
        text
    }

    pub(super) fn parse(text: &str) -> Option<Segments> {
        let segments: Vec<Segment> = text
            .lines()
            .map(|line| {
                let mut numbers = line
                    .split(' ')
                    .map(|digits| u64::from_str_radix(digits, 16));
                let mut next = || numbers.next()?.ok();
                Some(Segment {
                    offset: next()?,
                    bytes: next()?,
                    address: next()?,
                })
            })
            .take(SEGMENTS_MAX)
            .collect::<Option<_>>()?;
        Some(Segments(segments))
    }
}

/// A part of a file that is loaded.
#[derive(Clone, Copy, Debug)]
struct Load {
    flags: u32,
    offset: u64,
    address: u64,
    /// In memory.
    bytes: u64,
    alignment: u64,
    has_content: bool,
}

impl Load {
    fn parse(header: &[u8]) -> Option<Load> {
        let load = Load {
            flags: word(header, 4),
            offset: long(header, 8),
            address: long(header, 16),
            bytes: long(header, 40),
            alignment: long(header, 48).max(1),
            has_content: long(header, 32) > 0,
        };
        (word(header, 0) == PT_LOAD && load.bytes > 0).then_some(load)
    }

    /// The offset that linkers give a part: the first one after the part before that is the same within a page
    /// as its address.
    fn offset_after(&self, end: Option<u64>) -> Option<u64> {
        let end = end?;
        let within_page = self.address % self.alignment;
        let distance = within_page.wrapping_sub(end) % self.alignment;
        // Exact where the alignment is a power of two, as it has to be.
        end.checked_add(distance)
            .filter(|_| self.alignment.is_power_of_two())
    }
}

#[cfg(test)]
mod tests;
