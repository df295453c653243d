//! The vDSO: code of the kernel in every process, such as for reading clocks. Its file is in memory only.

use std::path::Path;

use super::elf::{Elf, SECTION_HEADER_BYTES, short, word};
use super::file::ChunkCache;
use super::module::CodeModule;
use system::process::Memory;

/// The loader's name for it.
const NAME: &str = "linux-vdso.so.1";
/// Most bytes of it; kernels have 8 KiB.
const BYTES_MAX: usize = 64 << 10;
const HEADER_BYTES: usize = 64;

pub(super) fn is_vdso(module: &CodeModule) -> bool {
    &*module.path == NAME
}

/// Opens a copy of it.
pub(super) fn open(memory: Memory, module: &CodeModule, cache: &ChunkCache) -> Option<Elf> {
    let mut header = [0; HEADER_BYTES];
    if memory.read(module.base, &mut header) < HEADER_BYTES || !header.starts_with(b"\x7fELF") {
        return None;
    }
    // It ends with the table of sections.
    let sections = usize::from(short(&header, 60)?) * SECTION_HEADER_BYTES;
    let bytes = usize::try_from(word(&header, 40)?)
        .ok()?
        .checked_add(sections)?;
    let mut content = vec![0; Some(bytes).filter(|bytes| *bytes <= BYTES_MAX)?];
    let is_whole = memory.read(module.base, &mut content) == content.len();
    is_whole
        .then(|| Elf::in_memory(Path::new(NAME), content, cache))
        .flatten()
}
