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

/// Where the sequences of a unit's line program start.
#[derive(Debug, Default)]
pub(crate) struct LineTable {
    sequences: Vec<CodeRange>,
}

impl LineTable {
    pub(crate) fn read<R: Reader<Offset = usize>>(unit: UnitRef<'_, R>) -> Result<LineTable> {
        let mut sequences = Vec::new();
        let Some(program) = &unit.line_program else {
            return Ok(LineTable::default());
        };
        let mut machine = Machine::new(program.header(), 0)?;
        let mut offset = 0;
        let mut first = None;
        // A damaged sequence ends the program; those before it are good.
        while let Ok(Some(row)) = machine.next_row() {
            let start = *first.get_or_insert(row.address);
            if row.ends {
                sequences.extend(CodeRange::new(start, row.address, offset));
                offset = machine.offset();
                first = None;
            }
            if sequences.len() == SEQUENCES_MAX {
                break;
            }
        }
        sequences.sort_unstable();
        sequences.shrink_to_fit();
        Ok(LineTable { sequences })
    }

    pub(crate) fn len(&self) -> usize {
        self.sequences.len()
    }

    pub(crate) fn line_of<R: Reader<Offset = usize>>(
        &self,
        unit: UnitRef<'_, R>,
        address: u64,
    ) -> Result<Option<Line>> {
        let Some(sequence) = range_of(&self.sequences, address) else {
            return Ok(None);
        };
        let Some(program) = &unit.line_program else {
            return Ok(None);
        };
        let mut machine = Machine::new(program.header(), sequence.target as usize)?;
        let mut last = None;
        while let Some(row) = machine.next_row()? {
            if row.address > address {
                break;
            }
            last = Some(row);
            if row.ends {
                break;
            }
        }
        let Some(row) = last else { return Ok(None) };
        let line = u32::try_from(row.line).unwrap_or(0);
        Ok(Some(Line {
            file: file_name(unit, row.file)?,
            line,
        }))
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
