//! The modules of another process, from its list of mappings and its memory. The loader of that process cannot be asked,
//! and a static program has none.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use gimli::{BaseAddresses, CieOrFde, EhFrame, NativeEndian, UnwindSection as _};
use system::process::Memory;

use super::{Headers, MODULES_MAX, Module, Segment, TABLE_BYTES_MAX, Tables, copy, read_i32};

/// Most program headers of a module; real ones have about 15.
const HEADERS_MAX: usize = 128;
/// Most sections of a file; executables have about 50.
const SECTIONS_MAX: usize = 4096;
/// Most functions of an index that is made here.
const FUNCTIONS_MAX: usize = 4 << 20;
/// The kernel appends it to the path of a mapped file that was deleted or replaced.
const DELETED: &str = " (deleted)";
/// The loader's name for the code that the kernel maps into every process.
const VDSO: &str = "linux-vdso.so.1";
const LOADED: u32 = libc::PT_LOAD;

/// The modules in a list of mappings (`/proc/PID/maps`). `executable` is the file of the program. A module in `known` is
/// not read again.
pub(in crate::sampler) fn of_process(
    memory: Memory,
    maps: &str,
    executable: &Path,
    known: &[Module],
) -> Vec<Module> {
    let mappings: Vec<Mapping<'_>> = maps.lines().filter_map(Mapping::parse).collect();
    let starts = mappings.iter().filter(|mapping| mapping.offset == 0);
    let found = starts.filter_map(|mapping| {
        let headers = headers_at(memory, mapping)?;
        // A file that is only read, as linkers and debuggers do, is no code of the process.
        let module = headers.read(known)?;
        let is_code = mappings.iter().any(|other| {
            other.is_executable
                && other.path == mapping.path
                && module.range.contains(&other.range.start)
        });
        let module = is_code.then_some(module)?;
        Some(match module.tables {
            Some(_) => module,
            None if mapping.path.starts_with('/') => Module {
                tables: tables_of_file(memory, executable, module.base),
                ..module
            },
            None => module,
        })
    });
    found.take(MODULES_MAX).collect()
}

/// Whether a module is made by Go's compiler, which keeps the frame pointer and writes no tables. If it is linked with
/// code of C, there are tables for that alone.
pub(in crate::sampler) fn is_go(memory: Memory, module: &Module) -> bool {
    let mapping = Mapping {
        range: module.range.clone(),
        offset: 0,
        is_executable: true,
        path: &module.path,
    };
    let notes = headers_at(memory, &mapping).map(|headers| {
        headers
            .of_kind(libc::PT_NOTE)
            .filter_map(|range| copy(memory, &range))
            .collect::<Vec<_>>()
    });
    notes.is_some_and(|notes| notes.iter().any(|notes| has_note_of_go(notes)))
}

/// Whether one of the notes, which follow each other, is Go's.
fn has_note_of_go(notes: &[u8]) -> bool {
    const HEADER_BYTES: usize = 12;
    let mut rest = notes;
    while let Some((header, content)) = rest.split_at_checked(HEADER_BYTES) {
        let length = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("four bytes");
            (u32::from_le_bytes(bytes) as usize).next_multiple_of(4)
        };
        if content.starts_with(b"Go\0\0") {
            return true;
        }
        let after = length(0).saturating_add(length(4));
        rest = content.get(after..).unwrap_or_default();
    }
    false
}

/// A line of the list.
struct Mapping<'a> {
    range: Range<u64>,
    offset: u64,
    is_executable: bool,
    path: &'a str,
}

impl Mapping<'_> {
    fn parse(line: &str) -> Option<Mapping<'_>> {
        let mut rest = line;
        let mut field = || {
            let (field, after) = rest.split_once(' ')?;
            rest = after.trim_start();
            Some(field)
        };
        let [range, access, offset, _device, _inode] =
            [field()?, field()?, field()?, field()?, field()?];
        let (start, end) = range.split_once('-')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let is_vdso = rest == "[vdso]";
        if !is_vdso && !rest.starts_with('/') {
            return None;
        }
        Some(Mapping {
            range: number(start)?..number(end)?,
            offset: number(offset)?,
            is_executable: access.contains('x'),
            path: if is_vdso {
                VDSO
            } else {
                rest.strip_suffix(DELETED).unwrap_or(rest)
            },
        })
    }
}

/// The program headers of an ELF file that is mapped from its beginning.
fn headers_at(memory: Memory, mapping: &Mapping<'_>) -> Option<Headers> {
    const HEADER_BYTES: usize = 64;
    const ENTRY_BYTES: usize = size_of::<libc::Elf64_Phdr>();
    let start = mapping.range.start;
    let mut header = [0; HEADER_BYTES];
    if memory.read(start, &mut header) < HEADER_BYTES || header[..6] != *b"\x7fELF\x02\x01" {
        return None;
    }
    let count = usize::from(short(&header, 56)?);
    if usize::from(short(&header, 54)?) != ENTRY_BYTES || count > HEADERS_MAX {
        return None;
    }
    let mut entries = vec![0; count * ENTRY_BYTES];
    let at = start.checked_add(word(&header, 32)?)?;
    if memory.read(at, &mut entries) < entries.len() {
        return None;
    }
    let kind = |entry: &[u8]| Some(read_i32(entry, 0)? as u32);
    let first = entries
        .chunks_exact(ENTRY_BYTES)
        .find(|entry| kind(entry) == Some(LOADED))?;
    // Both are rounded down to pages by the loader.
    let base = start.wrapping_sub(word(first, 16)?.wrapping_sub(word(first, 8)?));
    let segments = entries.chunks_exact(ENTRY_BYTES).filter_map(|entry| {
        let start = base.wrapping_add(word(entry, 16)?);
        Some(Segment {
            kind: kind(entry)?,
            range: start..start.saturating_add(word(entry, 40)?),
        })
    });
    Some(Headers {
        memory,
        path: mapping.path.to_owned(),
        base,
        segments: segments.collect(),
    })
}

/// The tables of a static program, whose headers do not name them: its file has their address. Their index is made here.
fn tables_of_file(memory: Memory, executable: &Path, base: u64) -> Option<Tables> {
    let range = section_of_frames(executable)?;
    let frames_at = base.wrapping_add(range.start);
    let frames = copy(
        memory,
        &(frames_at..frames_at.checked_add(range.end - range.start)?),
    )?;
    // No memory of the process is there; both addresses only have to be near each other.
    let index_at = (frames_at.checked_add(frames.len() as u64)?).next_multiple_of(8);
    let index = index_of(index_at, frames_at, &frames)?;
    Tables::new(index_at, index, frames_at, frames)
}

/// The addresses of `.eh_frame` in the file.
fn section_of_frames(executable: &Path) -> Option<Range<u64>> {
    const SECTION_BYTES: usize = 64;
    const NAME: &[u8] = b".eh_frame\0";
    let file = File::open(executable).ok()?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let count = usize::from(short(&header, 60)?).min(SECTIONS_MAX);
    let names = usize::from(short(&header, 62)?);
    let mut sections = vec![0; count * SECTION_BYTES];
    file.read_exact_at(&mut sections, word(&header, 40)?).ok()?;
    let section = |index: usize| sections.get(index * SECTION_BYTES..)?.get(..SECTION_BYTES);
    let names_at = word(section(names)?, 24)?;
    (0..count).find_map(|index| {
        let section = section(index)?;
        let name_at = names_at.checked_add(u64::from(read_i32(section, 0)? as u32))?;
        let mut name = [0; NAME.len()];
        file.read_exact_at(&mut name, name_at).ok()?;
        let start = word(section, 16)?;
        let end = start.checked_add(word(section, 32)?.min(TABLE_BYTES_MAX))?;
        (name == NAME && start > 0).then_some(start..end)
    })
}

/// The content of `.eh_frame_hdr` for these frames.
fn index_of(index_at: u64, frames_at: u64, frames: &[u8]) -> Option<Arc<[u8]>> {
    let mut section = EhFrame::new(frames, NativeEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(frames_at);
    let mut entries = section.entries(&bases);
    let mut functions = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(function) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let start = relative(index_at, function.initial_address());
        let record = relative(
            index_at,
            frames_at.checked_add(function.offset().try_into().ok()?)?,
        );
        functions.extend(start.zip(record));
        if functions.len() == FUNCTIONS_MAX {
            break;
        }
    }
    functions.sort_unstable();
    let count = u32::try_from(functions.len()).ok()?;
    let mut index = vec![1, 0x1b, 0x03, 0x3b];
    index.extend(relative(index_at.checked_add(4)?, frames_at)?.to_le_bytes());
    index.extend(count.to_le_bytes());
    for (start, record) in functions {
        index.extend(start.to_le_bytes());
        index.extend(record.to_le_bytes());
    }
    (count > 0).then(|| index.into())
}

fn relative(index_at: u64, address: u64) -> Option<i32> {
    i32::try_from(i128::from(address) - i128::from(index_at)).ok()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_list_of_mappings_leads_to_the_modules_that_the_loader_knows() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let executable = Path::new("/proc/self/exe");
        let found = of_process(Memory::Own, &maps, executable, &[]);
        let (_, expected) = super::super::load(&[]);
        for module in &expected {
            let mut with_base = found.iter().filter(|other| other.base == module.base);
            let Some(other) = with_base.next() else {
                panic!("{} is missing", module.path);
            };
            assert_eq!(other.range, module.range, "{}", module.path);
            assert_eq!(other.build_id, module.build_id, "{}", module.path);
            assert_eq!(other.tables.is_some(), module.tables.is_some());
            assert!(!is_go(Memory::Own, other));
        }
    }

    #[test]
    fn an_index_that_is_made_here_finds_the_same_functions() {
        let (_, modules) = super::super::load(&[]);
        let libc = modules
            .iter()
            .find(|module| module.path.contains("libc.so"));
        let tables = libc.unwrap().tables.clone().unwrap();
        let index_at = (tables.frames_at + tables.frames.len() as u64).next_multiple_of(8);
        let index = index_of(index_at, tables.frames_at, &tables.frames).unwrap();
        let starts = |at: u64, index: &[u8]| {
            let entries = index[12..].chunks_exact(8);
            let start = |entry: &[u8]| at.wrapping_add_signed(read_i32(entry, 0).unwrap().into());
            entries.map(start).collect::<Vec<u64>>()
        };
        assert_eq!(
            starts(index_at, &index),
            starts(tables.index_at, &tables.index)
        );
        assert!(Tables::new(index_at, index, tables.frames_at, tables.frames).is_some());
    }

    #[test]
    fn damaged_headers_and_lines_are_no_modules() {
        for line in [
            "",
            "7f00-7f10",
            "x-y r-xp 0 08:01 7 /a",
            "1-2 r-xp 0 08:01 0",
        ] {
            assert!(Mapping::parse(line).is_none(), "{line:?}");
        }
        let line = "1000-2000 r-xp 00000000 08:01 77        /opt/my app/x.so (deleted)";
        assert_eq!(Mapping::parse(line).unwrap().path, "/opt/my app/x.so");
        assert!(section_of_frames(Path::new("/proc/self/maps")).is_none());
        assert!(index_of(0x2000, 0x1000, &[1, 2, 3]).is_none());
    }
}
