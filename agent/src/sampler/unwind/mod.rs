//! Unwinds registers and a copy of the stack to return addresses, on the sampler's thread.

mod code;
#[cfg(emberline_fuzzing)]
#[allow(unreachable_pub, reason = "`crate::fuzzing` is the door")]
pub mod fuzzing;
mod made_code;
mod processor;
mod rows;
mod tables;

use std::ops::Range;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use gimli::UnwindContext;
use profiler_core::limits::STACK_FRAMES_MAX;

use self::code::{called_before, code_at, returns_here};
use self::made_code::MadeCode;
use self::processor::{
    Cache, Framehop, State, distance_in_prologue, frame_pointer, frame_pointers, is_signal_return,
    lacks_return_address, released_before_return, return_address_in_register, set_frame_pointer,
    state_of,
};
use self::rows::{RegisterValues, Step};
use self::tables::{function_of, undescribed_from};
use super::pages::page_map::PageMap;
use super::sys::modules::{self, Generation, Module};
use system::process::Memory;
use system::processor::{FP, PC, REGISTERS, SP, code_address};

/// Most entries of each cache by code address.
const CACHED_MAX: usize = 65_536;
/// Most words of the stack that are tried as the return address of code without unwind tables.
const SCANNED_WORDS_MAX: u64 = 512;
/// The same for words that must follow a call of this very code: frames of such code are small.
const SURE_WORDS_MAX: u64 = 64;
/// Most steps from a frame to its caller for one stack, all attempts of a scan together. A stack takes as many as it
/// has frames, and more if the tables need other registers than the standard ones.
const STEPS_MAX: u32 = 16_384;
/// An unknown register: no stack is at this address, so every use of it fails.
const UNKNOWN: u64 = 1;

/// The registers to start from, by their DWARF numbers, if known. An unknown frame pointer is
/// recovered where a frame needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers(RegisterValues);

impl Registers {
    /// All registers of an interrupted thread.
    pub(super) fn all(registers: [u64; REGISTERS]) -> Registers {
        Registers(registers.map(Some))
    }

    /// The registers that are known of a blocked thread, or of the caller of code without tables.
    pub(super) fn of_caller(pc: u64, sp: u64, fp: Option<u64>) -> Registers {
        let mut values = [None; REGISTERS];
        values[PC] = Some(pc);
        values[SP] = Some(sp);
        values[FP] = fp;
        Registers(values)
    }
}

/// How the caller of code is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnwindMethod {
    /// The tables need the stack pointer or the frame pointer only.
    StandardRegisters,
    /// The tables need other registers.
    AnyRegister,
    /// No table describes the code, and it may follow a call: the frame pointer may work.
    NoTable,
    /// Not code that anything returns to, or whose callers cannot be found.
    NotCode,
}

/// A stack, innermost frame first. Each address is inside its function: the return address minus
/// one, except for the innermost frame.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) addresses: Vec<u64>,
    /// The stack pointer of each frame: the lower end of its part of the stack.
    pub(super) pointers: Vec<u64>,
    /// Whether the outermost frame is the thread's root.
    pub(super) complete: bool,
}

impl Default for Stack {
    /// Room for the deepest stack, and for the caller that a scan adds.
    fn default() -> Stack {
        Stack {
            addresses: Vec::with_capacity(STACK_FRAMES_MAX + 1),
            pointers: Vec::with_capacity(STACK_FRAMES_MAX + 1),
            complete: false,
        }
    }
}

/// Marks entries of a stack that are frames of the tree instead of addresses: no program has code there.
pub(super) const FOREIGN: u64 = 1 << 63;

impl Stack {
    /// Adds the caller of the last frame. A word of a stack that was taken for an address may be any number, but not a
    /// [mark](FOREIGN).
    pub(super) fn push(&mut self, address: u64, pointer: u64) {
        self.push_entry(address & !FOREIGN, pointer);
    }

    /// Adds the caller of the last frame, which may be a frame of an interpreter.
    pub(super) fn push_entry(&mut self, entry: u64, pointer: u64) {
        self.addresses.push(entry);
        self.pointers.push(pointer);
    }

    pub(super) fn truncate(&mut self, frames: usize) {
        self.addresses.truncate(frames);
        self.pointers.truncate(frames);
    }

    pub(super) fn clear(&mut self) {
        self.truncate(0);
        self.complete = false;
    }

    /// Replaces the innermost frames by others, the innermost first.
    pub(super) fn replace_innermost(&mut self, frames: usize, by: &[u64]) {
        let pointer = self.pointers.first().copied().unwrap_or(UNKNOWN);
        self.addresses.splice(..frames, by.iter().copied());
        self.pointers.splice(..frames, by.iter().map(|_| pointer));
    }

    /// The part of the stack that the frame with this index uses.
    pub(super) fn range(&self, index: usize) -> Range<u64> {
        let end = self.pointers.get(index + 1).copied();
        self.pointers[index]..end.unwrap_or(u64::MAX)
    }
}

/// The loaded modules and their unwind tables; rebuilt when the loader's list changes.
pub(super) struct Unwinder {
    /// Where code is read.
    memory: Memory,
    generation: Generation,
    modules: Arc<[Module]>,
    /// Code without tables that keeps the frame pointer, as Go's compiler makes it: in the first function of a stack it
    /// is 0.
    framed: Vec<Range<u64>>,
    made_code: MadeCode,
    framehop: Framehop,
    cache: Cache,
    /// By code address: the distance from the stack pointer to the frame pointer, if known.
    prologues: PageMap<u64, Option<u64>>,
    /// By code address.
    methods: PageMap<u64, UnwindMethod>,
    context: UnwindContext<usize>,
    /// Remaining steps for the current stack, at most [`STEPS_MAX`].
    steps_left: u32,
}

impl Unwinder {
    pub(super) fn new() -> Self {
        let mut unwinder = Unwinder::without_modules();
        unwinder.rebuild();
        unwinder
    }

    /// An unwinder of another process, without modules yet.
    #[cfg(feature = "outside")]
    pub(super) fn of_other(memory: Memory) -> Self {
        Unwinder {
            memory,
            ..Unwinder::without_modules()
        }
    }

    fn without_modules() -> Self {
        Unwinder {
            memory: Memory::Own,
            generation: Generation::default(),
            modules: Arc::from([]),
            framed: Vec::new(),
            made_code: MadeCode::default(),
            framehop: Framehop::new(),
            cache: Cache::default(),
            prologues: PageMap::default(),
            methods: PageMap::default(),
            context: UnwindContext::new(),
            steps_left: 0,
        }
    }

    /// Rebuilds if the loader's list has changed. Returns whether it had.
    pub(super) fn refresh(&mut self) -> bool {
        let changed = modules::generation() != self.generation;
        if changed {
            self.rebuild();
        }
        changed
    }

    /// The modules that are loaded now.
    pub(super) fn modules(&self) -> &Arc<[Module]> {
        &self.modules
    }

    fn rebuild(&mut self) {
        let (generation, modules) = modules::load(&self.modules);
        self.generation = generation;
        self.set_modules(modules.into());
    }

    pub(super) fn set_modules(&mut self, modules: Arc<[Module]>) {
        self.modules = modules;
        if self.made_code == MadeCode::Unknown {
            // Its options stay as they are.
            self.made_code = MadeCode::of(self.memory, &self.modules);
        }
        self.framehop = Framehop::new();
        self.prologues.clear();
        self.methods.clear();
        for module in &*self.modules {
            let Some(tables) = &module.tables else {
                continue;
            };
            let svma =
                |at: u64, bytes: &[u8]| at - module.base..at - module.base + bytes.len() as u64;
            let sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                eh_frame_svma: Some(svma(tables.frames_at, &tables.frames)),
                eh_frame: Some(tables.frames.clone()),
                eh_frame_hdr_svma: Some(svma(tables.index_at, &tables.index)),
                eh_frame_hdr: Some(tables.index.clone()),
                ..Default::default()
            };
            self.framehop.add_module(framehop::Module::new(
                module.path.to_string(),
                module.range.clone(),
                module.base,
                sections,
            ));
        }
    }

    /// Unwinds from `registers` into `stack`; `read` returns a word of the thread's stack, or
    /// fails.
    pub(super) fn unwind(
        &mut self,
        registers: Registers,
        mut read: impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        stack.clear();
        self.steps_left = STEPS_MAX;
        let pc = registers.0[PC].unwrap_or(UNKNOWN);
        match self.method(pc) {
            UnwindMethod::StandardRegisters | UnwindMethod::AnyRegister => {
                let frame = FrameAddress::from_instruction_pointer(pc);
                self.unwind_from(frame, &registers.0, &mut read, stack);
                if stack.addresses.len() == 1 && lacks_return_address(&registers.0) {
                    self.unwind_by_scan(&registers.0, &mut read, stack);
                }
            }
            UnwindMethod::NoTable | UnwindMethod::NotCode => {
                self.unwind_without_table(&registers.0, &mut read, stack);
            }
        }
    }

    /// Unwinds from code that no table describes: made by a runtime while the program runs, or a module's assembly.
    fn unwind_without_table(
        &mut self,
        values: &RegisterValues,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        self.unwind_by_frame_pointer(values, read, stack);
        // Assembly of a module keeps the frame pointer of some caller, and the frames in between would be missing.
        if stack
            .addresses
            .iter()
            .any(|address| !self.is_in_module(*address))
        {
            return;
        }
        stack.clear();
        self.unwind_by_register(values, read, stack);
        if !stack.complete {
            self.unwind_by_scan(values, read, stack);
        }
    }

    /// Takes one of the steps that are left, if any.
    fn may_step(&mut self) -> bool {
        let left = self.steps_left.checked_sub(1);
        self.steps_left = left.unwrap_or(0);
        left.is_some()
    }

    /// Unwinds from a frame that the tables describe. Appends to `stack`.
    fn unwind_from(
        &mut self,
        first: FrameAddress,
        values: &RegisterValues,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        let first_index = stack.addresses.len();
        self.unwind_by_tables(first, values, read, stack);
        if stack.complete {
            return;
        }
        // Frames above code of a runtime are guesses unless they lead to the root.
        let mut frames = stack.addresses.iter().skip(first_index);
        if let Some(made) = frames.position(|address| !self.is_in_module(*address)) {
            stack.truncate(first_index + made + 1);
        }
    }

    /// Like [`Unwinder::unwind_from`]. Frames above code without tables may be false if the root is not reached.
    fn unwind_by_tables(
        &mut self,
        first: FrameAddress,
        values: &RegisterValues,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        let mut frame = first;
        let mut state = state_of(values);
        let first_index = stack.addresses.len();
        loop {
            let address = frame.address_for_lookup();
            stack.push(address, state.sp());
            if stack.addresses.len() == STACK_FRAMES_MAX || !self.may_step() {
                return;
            }
            match self.method(address) {
                UnwindMethod::NoTable => {
                    if let Some(caller) = caller_after_epilogue(self.memory, frame, &state, read) {
                        frame = caller.frame;
                        state = caller.state;
                        continue;
                    }
                }
                UnwindMethod::StandardRegisters => {}
                UnwindMethod::AnyRegister => {
                    let depth = stack.addresses.len() - 1 - first_index;
                    let mut above = self.replay(first, values, depth, read);
                    let pc = frame.address();
                    if above[PC] != Some(pc) || above[SP] != Some(state.sp()) {
                        let fp = Some(frame_pointer(&state)).filter(|fp| *fp != UNKNOWN);
                        above = Registers::of_caller(pc, state.sp(), fp).0;
                    }
                    match rows::step(
                        self.memory,
                        &self.modules,
                        &mut self.context,
                        address,
                        &mut above,
                        read,
                    ) {
                        Step::Lost => return,
                        Step::Root => {
                            stack.complete = true;
                            return;
                        }
                        step => match frame_of(step, &above) {
                            Some(caller) => frame = caller,
                            None => return,
                        },
                    }
                    state = state_of(&above);
                    continue;
                }
                UnwindMethod::NotCode => {
                    // The first function of a stack follows no call.
                    stack.complete = frame_pointer(&state) == 0 && self.is_framed(address);
                    return;
                }
            }
            let saved = state;
            let mut next = self
                .framehop
                .unwind_frame(frame, &mut state, &mut self.cache, read);
            if next.is_err() && frame_pointer(&saved) == UNKNOWN && frame.is_return_address() {
                // This frame needs the frame pointer: derive it from the function's prologue.
                let Some(distance) = self.frame_pointer_distance(frame.address_for_lookup()) else {
                    return;
                };
                state = saved;
                set_frame_pointer(&mut state, saved.sp().wrapping_add(distance));
                next = self
                    .framehop
                    .unwind_frame(frame, &mut state, &mut self.cache, read);
            }
            match next {
                // The first frame's return address was in a register that is not known.
                Ok(Some(UNKNOWN)) => return,
                Ok(Some(address)) => match FrameAddress::from_return_address(address) {
                    Some(address) => frame = address,
                    None => return,
                },
                Ok(None) => {
                    stack.complete = true;
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// The registers `depth` frames above `first`, all of them restored by the tables.
    fn replay(
        &mut self,
        first: FrameAddress,
        values: &RegisterValues,
        depth: usize,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> RegisterValues {
        let mut values = *values;
        let mut address = first.address_for_lookup();
        for _ in 0..depth {
            if !self.may_step() {
                return [None; REGISTERS];
            }
            let step = rows::step(
                self.memory,
                &self.modules,
                &mut self.context,
                address,
                &mut values,
                read,
            );
            match frame_of(step, &values) {
                Some(caller) => address = caller.address_for_lookup(),
                None => return [None; REGISTERS],
            }
        }
        values
    }

    /// Unwinds from code without unwind tables and without a frame of its own, such as an entry of a procedure
    /// linkage table, whose return address is still in its register. Leaves `stack` empty if it is not, or if
    /// this processor has no such register.
    fn unwind_by_register(
        &mut self,
        values: &RegisterValues,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        let [Some(pc), Some(word)] = [values[PC], return_address_in_register(values)] else {
            return;
        };
        let Some(caller) = self.caller_at(word) else {
            return;
        };
        let mut above = *values;
        above[PC] = Some(word);
        stack.push(pc, values[SP].unwrap_or(UNKNOWN));
        self.unwind_from(caller, &above, read, stack);
    }

    /// The frame that `word` returns to, if it is after a call in code with unwind tables.
    fn caller_at(&mut self, word: u64) -> Option<FrameAddress> {
        use UnwindMethod::{AnyRegister, StandardRegisters};
        // Most words are no addresses of code.
        if !self.is_in_module(word) {
            return None;
        }
        let has_table = matches!(
            self.method(word.wrapping_sub(1)),
            StandardRegisters | AnyRegister
        );
        if !has_table || !returns_here(self.memory, word) {
            return None;
        }
        FrameAddress::from_return_address(word)
    }

    /// Unwinds from code without unwind tables, such as assembly, or from code whose return address was
    /// in a register that is not known: tries the words above the stack pointer that can be return
    /// addresses, and uses the first from which the thread's root is reached. Words that earlier calls have left
    /// behind may be such, so those after a call of this very code come first.
    fn unwind_by_scan(
        &mut self,
        values: &RegisterValues,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        let [Some(pc), Some(sp)] = [values[PC], values[SP]] else {
            return;
        };
        let called = undescribed_from(&self.modules, pc).map(|start| start..pc + 1);
        if let Some(called) = called {
            self.scan(values, Some(called), read, stack);
        }
        if !stack.complete {
            self.scan(values, None, read, stack);
        }
        if !stack.complete {
            stack.truncate(0);
            stack.push(pc, sp);
        }
    }

    /// Tries return addresses, of calls of the code in `called` only if there is some. The stack is that of the last
    /// attempt.
    fn scan(
        &mut self,
        values: &RegisterValues,
        called: Option<Range<u64>>,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        let [Some(pc), Some(sp)] = [values[PC], values[SP]] else {
            return;
        };
        let words_max = if called.is_some() {
            SURE_WORDS_MAX
        } else {
            SCANNED_WORDS_MAX
        };
        for slot in 0..words_max {
            // Registers may hold anything.
            let at = (sp & !7).wrapping_add(slot * 8);
            let Ok(word) = read(at) else { break };
            let word = code_address(word);
            let Some(caller) = self.caller_at(word) else {
                continue;
            };
            let named = called_before(self.memory, word);
            let is_of_called = |called: &Range<u64>| named.is_some_and(|it| called.contains(&it));
            if !called.as_ref().is_none_or(is_of_called) {
                continue;
            }
            // Where the return address of the first frame is not on the stack, this is that of its
            // caller, and the call before it names the caller.
            let between = named.filter(|_| lacks_return_address(values));
            let saved_at = between.and_then(|start| {
                rows::return_address_offset(&self.modules, &mut self.context, start)
            });
            let sp_above = at.wrapping_sub(saved_at.unwrap_or(-8) as u64);
            for fp in frame_pointers(values, at, read) {
                stack.truncate(0);
                stack.push(pc, sp);
                if let Some(start) = between {
                    stack.push(start, at);
                }
                let above = Registers::of_caller(word, sp_above, fp);
                self.unwind_from(caller, &above.0, read, stack);
                if stack.complete {
                    return;
                }
            }
        }
    }

    /// How the caller of the code at `address` is found.
    fn method(&mut self, address: u64) -> UnwindMethod {
        if let Some(known) = self.methods.get(&address) {
            return *known;
        }
        let method = if is_signal_return(self.memory, address.wrapping_add(1)) {
            UnwindMethod::AnyRegister
        } else if function_of(&self.modules, address).is_none() {
            if self.may_return_to(address.wrapping_add(1)) {
                UnwindMethod::NoTable
            } else {
                UnwindMethod::NotCode
            }
        } else {
            match rows::needs_standard_registers(&self.modules, &mut self.context, address) {
                Some(false) => UnwindMethod::AnyRegister,
                Some(true) | None => UnwindMethod::StandardRegisters,
            }
        };
        if self.methods.len() < CACHED_MAX {
            self.methods.insert(address, method);
        }
        method
    }

    /// The distance from the stack pointer to the frame pointer in the function of code after a
    /// call.
    fn frame_pointer_distance(&mut self, address: u64) -> Option<u64> {
        if let Some(distance) = self.prologues.get(&address) {
            return *distance;
        }
        let distance = function_of(&self.modules, address).and_then(|function| {
            let mut code = [0; 64];
            let length = usize::try_from(address - function.start)
                .ok()?
                .min(code.len());
            let read = self.memory.read(function.start, &mut code[..length]);
            distance_in_prologue(&code[..read])
        });
        if self.prologues.len() < CACHED_MAX {
            self.prologues.insert(address, distance);
        }
        distance
    }
}

/// A frame, and the registers in it.
struct Caller {
    frame: FrameAddress,
    state: State,
}

/// The caller of code without tables that returns right after the call in which it is, as CPython's trampolines for
/// `perf` do, which have no frame pointer.
fn caller_after_epilogue(
    memory: Memory,
    frame: FrameAddress,
    state: &State,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Option<Caller> {
    let released = released_before_return(&code_at(memory, frame.address())?)?;
    let at = state.sp().checked_add(released)?;
    let word = code_address(read(at).ok()?);
    let above = Registers::of_caller(word, at.checked_add(8)?, Some(frame_pointer(state)));
    Some(Caller {
        frame: FrameAddress::from_return_address(word)?,
        state: state_of(&above.0),
    })
}

/// The frame that `step` led to.
fn frame_of(step: Step, values: &RegisterValues) -> Option<FrameAddress> {
    match step {
        Step::Caller => FrameAddress::from_return_address(values[PC]?),
        Step::Interrupted => Some(FrameAddress::from_instruction_pointer(values[PC]?)),
        Step::Root | Step::Lost => None,
    }
}

#[cfg(test)]
mod tests;
