//! Rows of the unwind tables, for the few functions whose frames depend on another register than
//! the stack pointer and the frame pointer: the loader's lazy binding, entries of a procedure
//! linkage table, realigned stacks, signal trampolines. Only here all registers are restored.

use gimli::{
    AArch64, BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CfaRule, EhFrame,
    EhFrameHdr, EndianSlice, Evaluation, EvaluationResult, EvaluationStorage,
    FrameDescriptionEntry, Location, NativeEndian, ParsedEhFrameHdr, Piece, Reader, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value, Vendor,
};

use super::processor::{
    PRESERVED, RETURN_ADDRESS, RETURNS_BY_REGISTER, VENDOR, interrupted_registers,
};
use super::{FP, PC, SP};
use crate::sampler::sys::modules::Module;
use system::process::Memory;
use system::processor::{REGISTERS, code_address};

/// Most steps of one expression of the tables; real ones take about ten.
const EXPRESSION_STEPS_MAX: u32 = 100;

/// Room for an expression, outside of the program's allocator. One that needs more fails.
struct OnStack;

impl<R: Reader> EvaluationStorage<R> for OnStack {
    type Stack = [Value; 32];
    type ExpressionStack = [(R, R); 4];
    type Result = [Piece<R>; 1];
}

/// Registers by their DWARF numbers, if known.
pub(super) type RegisterValues = [Option<u64>; REGISTERS];

type Bytes<'m> = EndianSlice<'m, NativeEndian>;
type Row = UnwindTableRow<usize>;

/// Where one frame leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// To its caller.
    Caller,
    /// To code that a signal interrupted, whose address is exact.
    Interrupted,
    /// The thread's first frame.
    Root,
    /// Nowhere: a register or a word of the stack is not known.
    Lost,
}

/// Whether the frame of the code at `address` depends on the stack pointer or the frame pointer
/// only.
pub(super) fn needs_standard_registers(
    modules: &[Module],
    context: &mut UnwindContext<usize>,
    address: u64,
) -> Option<bool> {
    let found = find(modules, context, address)?;
    let by_offset = |register| {
        use RegisterRule::{Offset, SameValue, Undefined};
        matches!(
            found.row.register(register),
            Offset(_) | SameValue | Undefined
        )
    };
    let cfa = match found.row.cfa() {
        CfaRule::RegisterAndOffset { register, .. } => [SP, FP].contains(&register.0.into()),
        CfaRule::Expression(_) => false,
    };
    let frame_pointer = Register(FP as u16);
    let is_standard = cfa && by_offset(RETURN_ADDRESS) && by_offset(frame_pointer);
    Some(is_standard && !found.is_trampoline() && !found.is_signed())
}

/// Steps from the frame of the code at `address` to its caller's frame, whose registers `values`
/// then holds.
pub(super) fn step(
    memory: Memory,
    modules: &[Module],
    context: &mut UnwindContext<usize>,
    address: u64,
    values: &mut RegisterValues,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Step {
    if let Some(interrupted) = interrupted_registers(memory, address, values, read) {
        *values = interrupted;
        return Step::Interrupted;
    }
    let Some(found) = find(modules, context, address) else {
        return Step::Lost;
    };
    if found.row.register(RETURN_ADDRESS) == RegisterRule::Undefined && found.is_root() {
        return Step::Root;
    }
    let mut frame = Frame {
        found: &found,
        values,
        read,
    };
    let cfa = match found.row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => frame
            .value(*register)
            .map(|value| value.wrapping_add_signed(*offset)),
        CfaRule::Expression(expression) => frame.evaluate(expression, None),
    };
    let Some(cfa) = cfa else {
        return Step::Lost;
    };
    let mut above: RegisterValues = [None; REGISTERS];
    for (register, place) in (0u16..).map(Register).zip(&mut above) {
        *place = frame.restored(register, cfa);
    }
    above[SP] = above[SP].or(Some(cfa));
    above[PC] = above[usize::from(RETURN_ADDRESS.0)].map(code_address);
    if above[PC].is_none() || above[SP] < values[SP] {
        return Step::Lost;
    }
    *values = above;
    if found.is_trampoline() {
        Step::Interrupted
    } else {
        Step::Caller
    }
}

/// Where the function at `start` stores its return address, relative to its caller's stack pointer.
pub(super) fn return_address_offset(
    modules: &[Module],
    context: &mut UnwindContext<usize>,
    start: u64,
) -> Option<i64> {
    let section = Section::of(modules, start)?;
    let entry = section.entry(start)?;
    let mut rows = entry.rows(&section.frames, &section.bases, context).ok()?;
    while let Some(row) = rows.next_row().ok()? {
        if let RegisterRule::Offset(offset) = row.register(RETURN_ADDRESS) {
            return Some(offset);
        }
    }
    None
}

/// The row of the tables for one address.
struct AddressRow<'m, 'c> {
    section: Section<'m>,
    entry: FrameDescriptionEntry<Bytes<'m>>,
    row: &'c Row,
}

fn find<'m, 'c>(
    modules: &'m [Module],
    context: &'c mut UnwindContext<usize>,
    address: u64,
) -> Option<AddressRow<'m, 'c>> {
    let section = Section::of(modules, address)?;
    let entry = section.entry(address)?;
    let row = entry
        .unwind_info_for_address(&section.frames, &section.bases, context, address)
        .ok()?;
    Some(AddressRow {
        section,
        entry,
        row,
    })
}

/// The tables of one module.
struct Section<'m> {
    frames: EhFrame<Bytes<'m>>,
    index: ParsedEhFrameHdr<Bytes<'m>>,
    bases: BaseAddresses,
}

impl<'m> Section<'m> {
    /// The tables of the module that contains `address`.
    fn of(modules: &'m [Module], address: u64) -> Option<Section<'m>> {
        let module = modules
            .iter()
            .find(|module| module.range.contains(&address))?;
        let tables = module.tables.as_ref()?;
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(tables.index_at)
            .set_eh_frame(tables.frames_at);
        let mut frames = EhFrame::new(&tables.frames, NativeEndian);
        frames.set_address_size(8);
        frames.set_vendor(VENDOR);
        let index = EhFrameHdr::new(&tables.index, NativeEndian)
            .parse(&bases, 8)
            .ok()?;
        Some(Section {
            frames,
            index,
            bases,
        })
    }

    /// The entry of the function that contains `address`.
    fn entry(&self, address: u64) -> Option<FrameDescriptionEntry<Bytes<'m>>> {
        let Section {
            frames,
            index,
            bases,
        } = self;
        index
            .table()?
            .fde_for_address(frames, bases, address, EhFrame::cie_from_offset)
            .ok()
    }
}

impl AddressRow<'_, '_> {
    fn is_trampoline(&self) -> bool {
        self.entry.is_signal_trampoline()
    }

    /// Whether a function whose return address is undefined here is the thread's first. Rows do not tell
    /// a register without a rule from one that an instruction makes undefined.
    fn is_root(&self) -> bool {
        let Section { frames, bases, .. } = &self.section;
        let is_undefined = |instruction| matches!(instruction, CallFrameInstruction::Undefined { register } if register == RETURN_ADDRESS);
        !RETURNS_BY_REGISTER
            || instructions_of(self.entry.cie().instructions(frames, bases)).any(is_undefined)
            || instructions_of(self.entry.instructions(frames, bases)).any(is_undefined)
    }

    /// Whether the return address carries a signature, which only this module removes.
    fn is_signed(&self) -> bool {
        VENDOR == Vendor::AArch64
            && self.row.register(AArch64::RA_SIGN_STATE) != RegisterRule::Undefined
    }
}

/// The instructions up to a damaged one.
fn instructions_of<R: Reader>(
    mut instructions: CallFrameInstructionIter<'_, R>,
) -> impl Iterator<Item = CallFrameInstruction<R::Offset>> {
    std::iter::from_fn(move || instructions.next().ok().flatten())
}

/// A frame whose caller is being found.
struct Frame<'f, 'm, 'c, R> {
    found: &'f AddressRow<'m, 'c>,
    values: &'f RegisterValues,
    read: &'f mut R,
}

impl<R: FnMut(u64) -> Result<u64, ()>> Frame<'_, '_, '_, R> {
    fn value(&self, register: Register) -> Option<u64> {
        *self.values.get(usize::from(register.0))?
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        (self.read)(address).ok()
    }

    /// The caller's value of `register`.
    fn restored(&mut self, register: Register, cfa: u64) -> Option<u64> {
        match self.found.row.register(register) {
            RegisterRule::SameValue => self.value(register),
            // No rule: by the ABI a function preserves these registers for its caller, and no
            // others.
            RegisterRule::Undefined => {
                let is_kept = PRESERVED.contains(&register)
                    || RETURNS_BY_REGISTER && register == RETURN_ADDRESS;
                is_kept.then(|| self.value(register)).flatten()
            }
            RegisterRule::Offset(offset) => {
                let address = cfa.wrapping_add_signed(offset);
                // Below the stack pointer: an epilogue has popped it already.
                let popped = Some(address) < self.values[SP];
                if popped {
                    self.value(register)
                } else {
                    self.word(address)
                }
            }
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Register(other) => self.value(other),
            RegisterRule::Expression(expression) => {
                let address = self.evaluate(&expression, Some(cfa))?;
                self.word(address)
            }
            RegisterRule::ValExpression(expression) => self.evaluate(&expression, Some(cfa)),
            _ => None,
        }
    }

    fn evaluate(
        &mut self,
        expression: &UnwindExpression<usize>,
        first: Option<u64>,
    ) -> Option<u64> {
        let expression = expression.get(&self.found.section.frames).ok()?;
        let encoding = self.found.entry.cie().encoding();
        let mut evaluation = Evaluation::<_, OnStack>::new_in(expression.0, encoding);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        evaluation.set_max_iterations(EXPRESSION_STEPS_MAX);
        let mut state = evaluation.evaluate().ok()?;
        // Each round supplies one value that the expression needs.
        for _ in 0..EXPRESSION_STEPS_MAX {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.value(register)?);
                    evaluation.resume_with_register(value).ok()?
                }
                EvaluationResult::RequiresMemory {
                    address, size: 8, ..
                } => {
                    let value = Value::Generic(self.word(address)?);
                    evaluation.resume_with_memory(value).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Some(address),
                _ => None,
            },
            _ => None,
        }
    }
}
