//! The door of the target `unwind`.

use std::sync::Arc;

use super::modules::{self, Module};
use super::*;
use crate::sampler::memory::copied;
use crate::sampler::sys::modules::Tables as ModuleTables;

/// Unwind tables of a module, and their addresses in memory.
#[derive(Clone, Debug)]
pub struct Tables<'a> {
    /// The module's first address.
    pub start: u64,
    /// The address after its last one.
    pub end: u64,
    /// The address of `.eh_frame_hdr`.
    pub index_at: u64,
    /// The content of `.eh_frame_hdr`.
    pub index: &'a [u8],
    /// The address of `.eh_frame`.
    pub frames_at: u64,
    /// The content of `.eh_frame`.
    pub frames: &'a [u8],
}

/// An unwound stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unwound {
    /// Innermost first.
    pub addresses: Vec<u64>,
    /// Whether the thread's root was reached.
    pub complete: bool,
}

/// Unwinds a copy of a stack at `stack_at`, from all registers of an interrupted thread, and from those
/// that are known of a blocked one.
#[must_use]
pub fn unwind(
    tables: &Tables<'_>,
    registers: [u64; REGISTERS],
    stack_at: u64,
    words: &[u64],
) -> [Unwound; 2] {
    let module = Module {
        path: "module".into(),
        build_id: "".into(),
        file: None,
        range: tables.start..tables.end,
        base: tables.start,
        tables: ModuleTables::new(
            tables.index_at,
            tables.index.into(),
            tables.frames_at,
            tables.frames.into(),
        ),
    };
    let mut unwinder = Unwinder::without_modules();
    unwinder.set_modules(Arc::from([module]));
    let starts = [
        Registers::all(registers),
        Registers::of_caller(registers[PC], registers[SP], None),
    ];
    starts.map(|start| {
        let mut stack = Stack::default();
        unwinder.unwind(start, copied(stack_at, words), &mut stack);
        Unwound {
            addresses: stack.addresses,
            complete: stack.complete,
        }
    })
}

/// The tables of the kernel's own library, which every process has and which are small: start, end,
/// index and frames with their addresses.
#[must_use]
pub fn with_vdso<T>(use_tables: impl FnOnce(&Tables<'_>) -> T) -> Option<T> {
    let (_, modules) = modules::load(&[]);
    let vdso = modules.iter().find(|module| module.path.contains("vdso"))?;
    let tables = vdso.tables.as_ref()?;
    Some(use_tables(&Tables {
        start: vdso.range.start,
        end: vdso.range.end,
        index_at: tables.index_at,
        index: &tables.index,
        frames_at: tables.frames_at,
        frames: &tables.frames,
    }))
}
