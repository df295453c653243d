//! From registers and a copy of the stack to return addresses, on the sampler's thread.

mod code;
mod tables;

use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use profiler_core::limits::STACK_FRAMES_MAX;
use rustc_hash::FxHashMap;

use self::code::{distance_in_prologue, returns_here};
use self::tables::function_of;
use super::sys::modules::{self, Generation, Module};
use super::sys::process::read_memory;

/// Most code addresses of which something is remembered.
const REMEMBERED_MAX: usize = 65_536;
/// Most words of the stack that are tried as the return address of code without tables.
const SCANNED_WORDS_MAX: u64 = 512;
/// Stands for an unknown frame pointer: no stack lies there, so every use of it fails.
const UNKNOWN: u64 = 1;

/// Registers to start from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Registers {
    pub(super) pc: u64,
    pub(super) sp: u64,
    /// `None` if it is not known: it is then recovered where a frame needs it.
    pub(super) bp: Option<u64>,
}

/// A stack, innermost frame first, each the address of an instruction inside its function: the
/// return address less one, except for the innermost.
#[derive(Debug, Default)]
pub(super) struct Stack {
    pub(super) addresses: Vec<u64>,
    /// Whether the outermost frame is the thread's first.
    pub(super) complete: bool,
}

/// The loaded modules and what unwinding needs of them; rebuilt when the loader's list changes.
pub(super) struct Unwinder {
    generation: Generation,
    modules: Arc<[Module]>,
    framehop: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
    /// By code address: distance from the stack pointer to the frame pointer, if it is known.
    prologues: FxHashMap<u64, Option<u64>>,
    /// By code address: whether the tables describe it.
    described: FxHashMap<u64, bool>,
}

impl Unwinder {
    pub(super) fn new() -> Self {
        let mut unwinder = Unwinder {
            generation: Generation::default(),
            modules: Arc::from([]),
            framehop: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
            prologues: FxHashMap::default(),
            described: FxHashMap::default(),
        };
        unwinder.rebuild();
        unwinder
    }

    /// Takes over the loader's list if it has changed; says whether it had.
    pub(super) fn refresh(&mut self) -> bool {
        let changed = modules::generation() != self.generation;
        if changed {
            self.rebuild();
        }
        changed
    }

    /// The modules that present addresses belong to.
    pub(super) fn modules(&self) -> &Arc<[Module]> {
        &self.modules
    }

    fn rebuild(&mut self) {
        let (generation, modules) = modules::load();
        self.generation = generation;
        self.modules = modules.into();
        self.framehop = UnwinderX86_64::new();
        self.prologues.clear();
        self.described.clear();
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
            let (name, range) = (module.path.to_string(), module.range.clone());
            self.framehop.add_module(framehop::Module::new(name, range, module.base, sections));
        }
    }

    /// Unwinds from `registers` into `stack`; `read` gives a word of the thread's stack, or fails.
    pub(super) fn unwind(
        &mut self,
        registers: Registers,
        mut read: impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        stack.addresses.clear();
        stack.complete = false;
        let frame = FrameAddress::from_instruction_pointer(registers.pc);
        let bp = registers.bp.unwrap_or(UNKNOWN);
        let state = UnwindRegsX86_64::new(registers.pc, registers.sp, bp);
        if self.is_described(frame.address_for_lookup()) {
            self.unwind_from(frame, state, &mut read, stack);
        } else {
            self.unwind_undescribed(frame, state, &mut read, stack);
        }
    }

    /// Unwinds from a frame that the tables describe, and appends to `stack`.
    fn unwind_from(
        &mut self,
        mut frame: FrameAddress,
        mut state: UnwindRegsX86_64,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        loop {
            stack.addresses.push(frame.address_for_lookup());
            if stack.addresses.len() == STACK_FRAMES_MAX {
                return;
            }
            let saved = state;
            let mut next = self.framehop.unwind_frame(frame, &mut state, &mut self.cache, read);
            if next.is_err() && saved.bp() == UNKNOWN && frame.is_return_address() {
                // This frame needs the frame pointer: derive it from the function's prologue.
                let Some(distance) = self.frame_pointer_distance(frame.address_for_lookup()) else {
                    return;
                };
                state = saved;
                state.set_bp(saved.sp().wrapping_add(distance));
                next = self.framehop.unwind_frame(frame, &mut state, &mut self.cache, read);
            }
            match next {
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

    /// Unwinds from code without unwind tables, such as assembly: tries the words above the stack
    /// pointer that can be return addresses, and believes the first from which the thread's root is
    /// reached.
    fn unwind_undescribed(
        &mut self,
        frame: FrameAddress,
        state: UnwindRegsX86_64,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        let pc = frame.address_for_lookup();
        for slot in 0..SCANNED_WORDS_MAX {
            let at = (state.sp() & !7) + slot * 8;
            let Ok(word) = read(at) else { break };
            if !self.is_described(word.wrapping_sub(1)) || !returns_here(word) {
                continue;
            }
            let Some(caller) = FrameAddress::from_return_address(word) else {
                continue;
            };
            // What the code has saved since is not known, so neither is the frame pointer, unless
            // the caller's still stands.
            for bp in [state.bp(), UNKNOWN] {
                stack.addresses.clear();
                stack.addresses.push(pc);
                let above = UnwindRegsX86_64::new(word, at + 8, bp);
                self.unwind_from(caller, above, read, stack);
                if stack.complete {
                    return;
                }
            }
        }
        stack.addresses.clear();
        stack.addresses.push(pc);
    }

    /// Whether unwind tables describe the code at `address`.
    fn is_described(&mut self, address: u64) -> bool {
        if let Some(known) = self.described.get(&address) {
            return *known;
        }
        let described = function_of(&self.modules, address).is_some();
        if self.described.len() < REMEMBERED_MAX {
            self.described.insert(address, described);
        }
        described
    }

    /// For code after a call: how far above the stack pointer its function keeps the frame pointer.
    fn frame_pointer_distance(&mut self, address: u64) -> Option<u64> {
        if let Some(distance) = self.prologues.get(&address) {
            return *distance;
        }
        let distance = function_of(&self.modules, address).and_then(|function| {
            let mut code = [0; 64];
            let length = usize::try_from(address - function.start).ok()?.min(code.len());
            let read = read_memory(function.start, &mut code[..length]);
            distance_in_prologue(&code[..read])
        });
        if self.prologues.len() < REMEMBERED_MAX {
            self.prologues.insert(address, distance);
        }
        distance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_an_address_inside_it() {
        let unwinder = Unwinder::new();
        let start = function_of as *const () as u64;
        let function = function_of(unwinder.modules(), start + 5).unwrap();
        assert_eq!(function.start, start);
        assert!(function.end > start + 5 && function.end < start + 10_000, "{function:?}");
        assert_eq!(function_of(unwinder.modules(), 16), None);
    }

    #[test]
    fn an_unreadable_stack_leaves_its_innermost_frame() {
        let mut unwinder = Unwinder::new();
        let mut stack = Stack::default();
        let pc = function_of as *const () as u64;
        let registers = Registers { pc, sp: 0x1000, bp: None };
        unwinder.unwind(registers, |_| Err(()), &mut stack);
        assert_eq!((stack.addresses.as_slice(), stack.complete), ([pc].as_slice(), false));
    }
}
