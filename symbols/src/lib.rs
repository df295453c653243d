#![doc = include_str!("../README.md")]

#[cfg(feature = "cpp")]
mod cpp;
mod debug_info;
mod frames;
mod functions;
mod lines;
mod names;
mod origins;
pub mod perf_map;
mod symbol_index;
#[doc(hidden)]
pub mod whole;

use gimli::{Reader, SectionId};

pub use debug_info::{DebugInfo, LastUnit, Locations, Sections};
pub use frames::frames_of;
pub use names::demangled_name;
pub use symbol_index::{ENTRY_BYTES, SymbolIndex, SymbolTable};

/// Longest text that is copied; names and paths are shorter.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// The sections that lead to functions, files and lines. Those of variables and types are larger.
pub const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// The text up to the end.
///
/// # Errors
/// If it is too long.
#[doc(hidden)]
pub fn text<R: Reader<Offset = usize>>(bytes: &R) -> gimli::Result<String> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(gimli::Error::Io);
    }
    Ok(bytes.to_string_lossy()?.into_owned())
}
