//! Lines of code by address. A unit's program has a sequence of instructions per function; only the
//! sequence that contains an address is run.

use gimli::{AttributeValue, LineProgramHeader, Reader, Result, UnitRef};

use crate::debug_info::{CodeRange, range_of};
use crate::text;

/// Most sequences of one unit.
const SEQUENCES_MAX: usize = 1 << 20;

/// Most lines of one sequence in a symbol file.
const LINES_MAX: usize = 4 << 20;

/// A file and a line in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// Rows of a sequence between two checkpoints.
const CHECKPOINT_ROWS: u32 = 256;

/// Where the sequences of a unit's line program start, and how the program goes on in the middle of long ones.
#[derive(Debug, Default)]
pub(crate) struct LineTable {
    sequences: Vec<CodeRange>,
    /// By the offset of their sequence, and then by the address that was reached.
    checkpoints: Vec<Checkpoint>,
}

/// A row of a sequence, after which its program can be continued.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// The offset of its sequence in the program.
    sequence: u32,
    /// The offset in the program after the row.
    offset: u32,
    /// The highest address of the sequence's rows up to this one.
    reached: u32,
    address: u32,
    file: u32,
    line: u32,
}

impl Checkpoint {
    /// `None` if a number is too large for its field.
    fn new(sequence: u64, offset: u64, reached: u64, row: Row) -> Option<Checkpoint> {
        Some(Checkpoint {
            sequence: u32::try_from(sequence).ok()?,
            offset: u32::try_from(offset).ok()?,
            reached: u32::try_from(reached).ok()?,
            address: u32::try_from(row.address).ok()?,
            file: u32::try_from(row.file).ok()?,
            line: u32::try_from(row.line).ok()?,
        })
    }

    fn row(self) -> Row {
        Row {
            address: self.address.into(),
            file: self.file.into(),
            line: self.line.into(),
            ends: false,
        }
    }
}

impl LineTable {
    pub(crate) fn read<R: Reader<Offset = usize>>(unit: UnitRef<'_, R>) -> Result<LineTable> {
        match &unit.line_program {
            Some(program) => LineTable::of(program.header()),
            None => Ok(LineTable::default()),
        }
    }

    fn of<R: Reader<Offset = usize>>(header: &LineProgramHeader<R>) -> Result<LineTable> {
        let mut machine = Machine::new(header, 0)?;
        let mut sequences = Vec::new();
        let mut checkpoints = Vec::new();
        let mut offset = 0;
        let mut first = None;
        let mut reached = 0;
        let mut rows = 0;
        // A damaged sequence ends the program; those before it are good.
        while let Ok(Some(row)) = machine.next_row() {
            let start = *first.get_or_insert(row.address);
            reached = row.address.max(reached);
            rows += 1;
            if row.ends {
                sequences.extend(CodeRange::new(start, row.address, offset));
                offset = machine.offset();
                first = None;
                reached = 0;
                rows = 0;
            } else if rows % CHECKPOINT_ROWS == 0 {
                checkpoints.extend(Checkpoint::new(offset, machine.offset(), reached, row));
            }
            if sequences.len() == SEQUENCES_MAX {
                break;
            }
        }
        sequences.sort_unstable();
        sequences.shrink_to_fit();
        checkpoints.shrink_to_fit();
        Ok(LineTable {
            sequences,
            checkpoints,
        })
    }

    /// Number of entries in memory.
    pub(crate) fn len(&self) -> usize {
        self.sequences.len() + self.checkpoints.len()
    }

    /// The last checkpoint of a sequence from which on a row may be beyond `address`, and none before it is.
    fn checkpoint(&self, sequence: CodeRange, address: u64) -> Option<Checkpoint> {
        let is_before = |checkpoint: &Checkpoint| {
            (checkpoint.sequence, u64::from(checkpoint.reached)) <= (sequence.target, address)
        };
        let after = self.checkpoints.partition_point(is_before);
        let last = self.checkpoints[..after].last();
        last.copied()
            .filter(|last| last.sequence == sequence.target)
    }

    pub(crate) fn line_of<R: Reader<Offset = usize>>(
        &self,
        unit: UnitRef<'_, R>,
        address: u64,
    ) -> Result<Option<Line>> {
        let Some(program) = &unit.line_program else {
            return Ok(None);
        };
        let Some(row) = self.row_of(program.header(), address)? else {
            return Ok(None);
        };
        let line = u32::try_from(row.line).unwrap_or(0);
        Ok(Some(Line {
            file: file_name(unit, row.file)?,
            line,
        }))
    }

    /// The last row before one beyond `address`.
    fn row_of<R: Reader<Offset = usize>>(
        &self,
        header: &LineProgramHeader<R>,
        address: u64,
    ) -> Result<Option<Row>> {
        let Some(sequence) = range_of(&self.sequences, address) else {
            return Ok(None);
        };
        let checkpoint = self.checkpoint(sequence, address);
        let offset = checkpoint.map_or(sequence.target, |checkpoint| checkpoint.offset);
        let mut machine = Machine::new(header, offset as usize)?;
        let mut last = checkpoint.map(Checkpoint::row);
        machine.row = last.unwrap_or(FIRST_ROW);
        while let Some(row) = machine.next_row()? {
            if row.address > address {
                break;
            }
            last = Some(row);
            if row.ends {
                break;
            }
        }
        Ok(last)
    }
}

/// A line from an address on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineStart {
    pub(crate) address: u64,
    pub(crate) file: u64,
    pub(crate) line: u32,
}

impl LineTable {
    pub(crate) fn sequences(&self) -> &[CodeRange] {
        &self.sequences
    }

    /// The lines of a sequence, by rising address. As [`LineTable::line_of`] finds them: a row that
    /// goes back counts from where the rows before it ended.
    pub(crate) fn starts_of<R: Reader<Offset = usize>>(
        unit: UnitRef<'_, R>,
        sequence: CodeRange,
    ) -> Result<Vec<LineStart>> {
        let Some(program) = &unit.line_program else {
            return Ok(Vec::new());
        };
        let mut machine = Machine::new(program.header(), sequence.target as usize)?;
        let mut starts: Vec<LineStart> = Vec::new();
        while let Some(row) = machine.next_row()? {
            let address = starts
                .last()
                .map_or(0, |last| last.address)
                .max(row.address);
            let line = u32::try_from(row.line).unwrap_or(0);
            starts.push(LineStart {
                address,
                file: row.file,
                line,
            });
            if row.ends || starts.len() == LINES_MAX {
                break;
            }
        }
        Ok(starts)
    }
}

/// The path of the file with that index in the unit's list.
pub(crate) fn file_name<R: Reader<Offset = usize>>(
    unit: UnitRef<'_, R>,
    index: u64,
) -> Result<String> {
    let Some(program) = &unit.line_program else {
        return Ok(String::new());
    };
    let header = program.header();
    let Some(file) = header.file(index) else {
        return Ok(String::new());
    };
    let part = |value: AttributeValue<R>| text(&unit.attr_string(value)?);
    let mut path = String::new();
    if let Some(folder) = &unit.comp_dir {
        path = text(folder)?;
    }
    // The folder with index 0 is the one of the compilation, which is already there.
    if header.version() >= 5 || file.directory_index() != 0 {
        if let Some(folder) = file.directory(header) {
            push(&mut path, &part(folder)?);
        }
    }
    push(&mut path, &part(file.path_name())?);
    Ok(path)
}

fn push(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}

/// A row of the table that a program describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    address: u64,
    file: u64,
    line: u64,
    ends: bool,
}

/// Runs a line program. `gimli` runs one too, but cannot say where a sequence starts.
struct Machine<'h, R: Reader<Offset = usize>> {
    header: &'h LineProgramHeader<R>,
    program: R,
    input: R,
    row: Row,
}

const FIRST_ROW: Row = Row {
    address: 0,
    file: 1,
    line: 1,
    ends: false,
};

impl<'h, R: Reader<Offset = usize>> Machine<'h, R> {
    /// Starts at an offset of the program.
    fn new(header: &'h LineProgramHeader<R>, offset: usize) -> Result<Machine<'h, R>> {
        let program = header.raw_program_buf();
        let mut input = program.clone();
        input.skip(offset)?;
        Ok(Machine {
            header,
            program,
            input,
            row: FIRST_ROW,
        })
    }

    fn offset(&self) -> u64 {
        self.input.offset_from(&self.program) as u64
    }

    fn advance(&mut self, operations: u64) {
        let bytes = operations.wrapping_mul(self.header.minimum_instruction_length().into());
        self.row.address = self.row.address.wrapping_add(bytes);
    }

    /// Runs to the next row.
    fn next_row(&mut self) -> Result<Option<Row>> {
        if self.row.ends {
            self.row = FIRST_ROW;
        }
        while !self.input.is_empty() {
            let code = self.input.read_u8()?;
            if code >= self.header.opcode_base() {
                self.advance_by_special(code);
                return Ok(Some(self.row));
            }
            match gimli::DwLns(code) {
                gimli::DwLns(0) => {
                    if self.run_extended()? {
                        return Ok(Some(self.row));
                    }
                }
                gimli::DW_LNS_copy => return Ok(Some(self.row)),
                gimli::DW_LNS_advance_pc => {
                    let operations = self.input.read_uleb128()?;
                    self.advance(operations);
                }
                gimli::DW_LNS_advance_line => {
                    let lines = self.input.read_sleb128()?;
                    self.row.line = self.row.line.wrapping_add_signed(lines);
                }
                gimli::DW_LNS_set_file => self.row.file = self.input.read_uleb128()?,
                gimli::DW_LNS_const_add_pc => {
                    let adjusted = 255 - self.header.opcode_base();
                    self.advance(u64::from(adjusted / self.header.line_range().max(1)));
                }
                gimli::DW_LNS_fixed_advance_pc => {
                    let bytes = self.input.read_u16()?;
                    self.row.address = self.row.address.wrapping_add(bytes.into());
                }
                gimli::DW_LNS_negate_stmt
                | gimli::DW_LNS_set_basic_block
                | gimli::DW_LNS_set_prologue_end
                | gimli::DW_LNS_set_epilogue_begin => {}
                _ => self.skip_operands(code)?,
            }
        }
        Ok(None)
    }

    /// An instruction that changes both address and line.
    fn advance_by_special(&mut self, code: u8) {
        let adjusted = code - self.header.opcode_base();
        let range = self.header.line_range().max(1);
        self.advance(u64::from(adjusted / range));
        let lines = i64::from(self.header.line_base()) + i64::from(adjusted % range);
        self.row.line = self.row.line.wrapping_add_signed(lines);
    }

    /// Runs an extended instruction; returns whether it ends the sequence.
    fn run_extended(&mut self) -> Result<bool> {
        let length = self.input.read_uleb128()?;
        let length = usize::try_from(length).map_err(|_| gimli::Error::UnsupportedOffset)?;
        let mut operands = self.input.split(length)?;
        match gimli::DwLne(operands.read_u8()?) {
            gimli::DW_LNE_end_sequence => {
                self.row.ends = true;
                Ok(true)
            }
            gimli::DW_LNE_set_address => {
                self.row.address = operands.read_address(self.header.address_size())?;
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Skips an instruction that this version does not know, by the number of its operands.
    fn skip_operands(&mut self, code: u8) -> Result<()> {
        let mut lengths = self.header.standard_opcode_lengths().clone();
        lengths.skip(usize::from(code) - 1)?;
        for _ in 0..lengths.read_u8()? {
            self.input.read_uleb128()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gimli::{DebugLine, DebugLineOffset, EndianSlice, LittleEndian};

    use super::*;

    const SPECIAL: u8 = 13 + 1 + 2 * 12;

    /// A section with one program of version 4 with these instructions.
    fn section(instructions: &[u8]) -> Vec<u8> {
        let fields = [1, 1, 1, 0, 12, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
        let files = [0, b'f', 0, 0, 0, 0, 0];
        let header = [&fields[..], &files].concat();
        let rest = [
            &(header.len() as u32).to_le_bytes()[..],
            &header,
            instructions,
        ]
        .concat();
        let version = 4_u16.to_le_bytes();
        let length = (version.len() + rest.len()) as u32;
        [&length.to_le_bytes()[..], &version, &rest].concat()
    }

    fn set_address(address: u64) -> Vec<u8> {
        [&[0, 9, 2][..], &address.to_le_bytes()].concat()
    }

    #[test]
    fn checkpoints_lead_to_the_rows_of_the_whole_program() {
        let end = [0, 1, 1];
        let back = [set_address(0x1500), vec![SPECIAL; 700]].concat();
        let instructions = [
            set_address(0x1000),
            vec![SPECIAL; 1_000],
            back,
            set_address(0x3000),
            end.to_vec(),
            set_address(0x8000),
            vec![SPECIAL; 300],
            end.to_vec(),
        ]
        .concat();
        let section = section(&instructions);
        let lines = DebugLine::from(EndianSlice::new(&section, LittleEndian));
        let program = lines
            .program(DebugLineOffset(0), 8, None, None)
            .expect("a program");
        let table = LineTable::of(program.header()).expect("a table");
        let whole = LineTable {
            sequences: table.sequences.clone(),
            checkpoints: Vec::new(),
        };
        let sequences: Vec<u64> = table.sequences.iter().map(|it| it.start.into()).collect();
        assert_eq!(sequences, [0x1002, 0x8002]);
        assert_eq!(table.checkpoints.len(), 1_700 / 256 + 300 / 256);
        for address in (0x1000..0x3010).chain(0x7ff0..0x8300) {
            let row = table.row_of(program.header(), address);
            assert_eq!(
                row,
                whole.row_of(program.header(), address),
                "at {address:x}"
            );
        }
    }
}
