//! Names of frames, from code objects, by checked reads: the code may be freed at any moment.

use system::foreign::{ForeignFrame, ForeignName};

use super::layout::{CODE_BYTES, Layout, Lines};
use super::sys;

/// Most characters of a name or path; longer ones are cut.
const TEXT_MAX: u64 = 1_024;
/// Most bytes of a table of lines; code with a longer one has the line of its function.
const TABLE_MAX: u64 = 1 << 20;
/// Offsets in objects of all versions: the type of an object, the length of an array, and the bytes of `bytes`.
const TYPE: usize = 8;
const LENGTH: u64 = 16;
const BYTES: u64 = 32;

/// The fields of a code object that name it.
struct Code {
    qualname: u64,
    filename: u64,
    linetable: u64,
    first_line: u32,
}

impl Code {
    /// Bytes of a code object that are read.
    fn bytes(layout: &Layout) -> usize {
        let fields = [
            layout.code_qualname,
            layout.code_filename,
            layout.code_linetable,
            layout.code_firstlineno,
        ];
        fields.into_iter().max().unwrap_or(0) + 8
    }

    fn read(layout: &Layout, address: u64) -> Option<Code> {
        let mut bytes = [0; CODE_BYTES];
        let needed = &mut bytes[..Code::bytes(layout)];
        if !layout.read(address, needed) {
            return None;
        }
        Code::of(layout, needed)
    }

    /// `None` if the bytes are not those of code that is in use.
    fn of(layout: &Layout, bytes: &[u8]) -> Option<Code> {
        let is_code = sys::word_in(bytes, TYPE) == layout.code_type;
        (is_code && is_counted(sys::word_in(bytes, 0))).then(|| Code {
            qualname: sys::word_in(bytes, layout.code_qualname),
            filename: sys::word_in(bytes, layout.code_filename),
            linetable: sys::word_in(bytes, layout.code_linetable),
            first_line: sys::word_in(bytes, layout.code_firstlineno) as u32,
        })
    }

    fn identity(&self) -> u64 {
        let fields = [
            self.qualname,
            self.filename,
            self.linetable,
            self.first_line.into(),
        ];
        let mix = |hash: u64, field: u64| {
            (hash.rotate_left(5) ^ field).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        fields.into_iter().fold(1, mix).max(1)
    }
}

/// Whether the first word of an object is its count of references. That of a freed one is 0 or an address, while its type
/// stays.
fn is_counted(word: u64) -> bool {
    // Bits from 48 on are flags (3.14).
    let above_count = word >> 32 & 0xffff;
    word as u32 != 0 && above_count == 0
}

/// Whether code is at an address.
pub(crate) fn is_code(layout: &Layout, address: u64) -> bool {
    Code::read(layout, address).is_some()
}

/// See [`FrameWalker::identities`](system::foreign::FrameWalker::identities).
pub(crate) fn identities(layout: &Layout, codes: &[u64], identities: &mut [u64]) {
    let part = Code::bytes(layout);
    let mut bytes = [0; CODE_BYTES * sys::EACH_MAX];
    let batches = codes.chunks(sys::EACH_MAX);
    for (codes, identities) in batches.zip(identities.chunks_mut(sys::EACH_MAX)) {
        let read = sys::read_each(layout.memory, codes, part, &mut bytes);
        let all = codes.iter().zip(bytes.chunks(part)).zip(identities);
        for (index, ((code, bytes), identity)) in all.enumerate() {
            let code = if index < read {
                Code::of(layout, bytes)
            } else {
                Code::read(layout, *code)
            };
            *identity = code.map_or(0, |code| code.identity());
        }
    }
}

/// See [`FrameWalker::name`](system::foreign::FrameWalker::name).
pub(crate) fn name(layout: &Layout, frame: ForeignFrame) -> Option<ForeignName> {
    let code = Code::read(layout, frame.code)?;
    let line = table(layout, &code).and_then(|table| line_of(layout, &table, &code, frame));
    Some(ForeignName {
        function: text(layout, code.qualname)?,
        file: text(layout, code.filename)?,
        line: u32::try_from(line.unwrap_or(code.first_line.into())).unwrap_or(0),
    })
}

fn line_of(layout: &Layout, table: &[u8], code: &Code, frame: ForeignFrame) -> Option<i64> {
    let first_line = code.first_line.into();
    match layout.lines {
        Lines::Pairs => line_of_pairs(table, first_line, frame.at),
        Lines::Ranges => line_of_ranges(table, first_line, 2 * frame.at),
        Lines::Entries { first_instruction } => {
            let first = frame.code + first_instruction as u64;
            // A new frame of 3.11 and 3.12 is one unit before its first instruction.
            line(table, first_line, frame.at.saturating_sub(first))
        }
    }
}

/// Reads the table of lines.
fn table(layout: &Layout, code: &Code) -> Option<Vec<u8>> {
    let length = layout.word(code.linetable.checked_add(LENGTH)?)?;
    if length > TABLE_MAX {
        return None;
    }
    let mut table = vec![0; length as usize];
    layout
        .read(code.linetable.checked_add(BYTES)?, &mut table)
        .then_some(table)
}

/// Reads a `str`, whose characters have 1, 2 or 4 bytes.
fn text(layout: &Layout, address: u64) -> Option<String> {
    let length = layout.word(address.checked_add(LENGTH)?)?.min(TEXT_MAX) as usize;
    let state = layout.word(address.checked_add(layout.text_state)?)? as u32 >> 2;
    let width = state as usize & 7;
    let is_compact = state >> 3 & 1 == 1;
    let is_ascii = state >> 4 & 1 == 1;
    if !is_compact || ![1, 2, 4].contains(&width) {
        return None;
    }
    let head = if is_ascii {
        layout.ascii_bytes
    } else {
        layout.compact_bytes
    };
    let mut bytes = vec![0; length * width];
    if !layout.read(address.checked_add(head)?, &mut bytes) {
        return None;
    }
    let character = |unit: &[u8]| {
        let mut wide = [0; 4];
        wide[..unit.len()].copy_from_slice(unit);
        // Lone surrogates are no characters.
        char::from_u32(u32::from_le_bytes(wide)).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    Some(bytes.chunks(width).map(character).collect())
}

/// The line of the instruction at `offset`, by pairs of bytes: after so many bytes the line changes by so many.
fn line_of_pairs(table: &[u8], first_line: i64, offset: u64) -> Option<i64> {
    let mut line = first_line;
    let mut start = 0;
    for [bytes, lines] in table.as_chunks().0 {
        start += u64::from(*bytes);
        if start > offset {
            break;
        }
        line += i64::from(*lines as i8);
    }
    Some(line)
}

/// The line of the instruction at `offset`, by pairs of bytes: the line has changed by so many for a range of so many.
/// `None` if it has no line.
fn line_of_ranges(table: &[u8], first_line: i64, offset: u64) -> Option<i64> {
    let mut line = first_line;
    let mut end = 0;
    for [bytes, lines] in table.as_chunks().0 {
        let lines = *lines as i8;
        let has_line = lines != i8::MIN;
        if has_line {
            line += i64::from(lines);
        }
        end += u64::from(*bytes);
        if offset < end {
            return has_line.then_some(line);
        }
    }
    None
}

/// The line of the instruction at `offset`, by a table whose entries have a byte with kind and length, and details in
/// bytes below 128. `None` if it has no line.
fn line(table: &[u8], first_line: i64, offset: u64) -> Option<i64> {
    /// Kinds of entries: no line; a difference of lines as a number of variable length; of 0 to 2 lines.
    const NONE: u8 = 15;
    const LONG: std::ops::RangeInclusive<u8> = 13..=14;
    const SHORT: std::ops::RangeInclusive<u8> = 10..=12;
    let mut line = first_line;
    let mut end = 0;
    let mut rest = table;
    while let [head, after @ ..] = rest {
        let details = after
            .iter()
            .position(|byte| byte & 128 != 0)
            .unwrap_or(after.len());
        let (details, next) = after.split_at(details);
        let kind = head >> 3 & 15;
        if LONG.contains(&kind) {
            line += signed(details);
        } else if SHORT.contains(&kind) {
            line += i64::from(kind - SHORT.start());
        }
        end += (u64::from(head & 7) + 1) * 2;
        if offset < end {
            return (kind != NONE).then_some(line);
        }
        rest = next;
    }
    None
}

/// A number in groups of 6 bits, the lowest first, whose lowest bit is the sign. Bit 6 of a byte: more follow.
fn signed(bytes: &[u8]) -> i64 {
    const GROUPS_MAX: usize = 6;
    let mut value = 0;
    for (index, byte) in bytes.iter().take(GROUPS_MAX).enumerate() {
        value |= i64::from(byte & 63) << (6 * index);
        if byte & 64 == 0 {
            break;
        }
    }
    if value & 1 == 1 {
        -(value >> 1)
    } else {
        value >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_objects_have_no_count() {
        let in_use = [1, 0x3fff_ffff, 0xffff_ffff, 5 | 3 << 48];
        assert!(in_use.into_iter().all(is_counted));
        let freed = [0, 0x7f12_3456_7000, 0x5512_3456_7010];
        assert!(!freed.into_iter().any(is_counted));
    }

    #[test]
    fn lines_follow_the_table() {
        // Two units of line 10; one of line 12; one without a line; one of line 9.
        let table = [
            0x80 | 10 << 3 | 1,
            0,
            0,
            0x80 | 12 << 3,
            0,
            0,
            0x80 | 15 << 3,
            0x80 | 13 << 3,
            7,
        ];
        let lines = [0, 2, 4, 6, 8, 10].map(|offset| line(&table, 10, offset));
        assert_eq!(lines, [Some(10), Some(10), Some(12), None, Some(9), None]);
    }

    #[test]
    fn lines_of_old_tables_follow_their_pairs() {
        // From offset 4 on line 12, 300 bytes later line 11, and after two more line 141.
        let pairs = [4, 2, 255, 0, 45, 255, 2, 127, 0, 3];
        let lines =
            [0, 3, 4, 303, 304, 305, 306, 999].map(|offset| line_of_pairs(&pairs, 10, offset));
        assert_eq!(lines, [10, 10, 12, 12, 11, 11, 141, 141].map(Some));
        assert_eq!(line_of_pairs(&[], 10, 0), Some(10));
        // 4 bytes of line 10, 2 without a line, 2 of line 12, 254 and 6 of line 9.
        let ranges = [4, 0, 2, 128, 2, 2, 254, 253, 6, 0];
        let lines =
            [0, 2, 4, 6, 8, 261, 267, 268].map(|offset| line_of_ranges(&ranges, 10, offset));
        let expected = [
            Some(10),
            Some(10),
            None,
            Some(12),
            Some(9),
            Some(9),
            Some(9),
            None,
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn numbers_have_a_sign_and_several_groups() {
        assert_eq!(signed(&[6]), 3);
        assert_eq!(signed(&[7]), -3);
        assert_eq!(signed(&[64 | 2, 1]), 33);
        assert_eq!(signed(&[127; 40]), -((1 << 35) - 1));
        assert_eq!(signed(&[]), 0);
    }
}
