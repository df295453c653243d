//! The executables and libraries that the loader has mapped, and their unwind tables.
//!
//! Tables are copied out of this process's memory by checked reads, so that a `dlclose` at any
//! moment causes a failed read and not a crash. This also works for the vdso, and for files that
//! were deleted or are outside this mount namespace.

#[cfg(feature = "outside")]
mod other;

use std::ffi::CStr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "outside")]
pub(in crate::sampler) use self::other::{is_go, of_process};
use symbolize::{FileIdentity, build_id_in};
use system::fork::without_fork;
use system::process::Memory;

/// Most bytes of one module's unwind tables; the largest programs known have about 60 MB.
const TABLE_BYTES_MAX: u64 = 128 << 20;
/// Most modules that are read.
const MODULES_MAX: usize = 4096;

/// How often the loader has added and removed modules. If two values are equal, nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::sampler) struct Generation {
    adds: u64,
    removes: u64,
}

/// One mapped executable or library.
#[derive(Clone, Debug)]
pub(in crate::sampler) struct Module {
    /// Its path; empty for the vdso of some kernels.
    pub(in crate::sampler) path: Arc<str>,
    /// Its build id in hexadecimal; empty if it has none.
    pub(in crate::sampler) build_id: Arc<str>,
    /// Its file, if it has no build id.
    pub(in crate::sampler) file: Option<FileIdentity>,
    /// Its addresses in memory.
    pub(in crate::sampler) range: Range<u64>,
    /// Add it to an address in the file to get the address in memory.
    pub(in crate::sampler) base: u64,
    /// Its unwind tables; `None` if there are none or they cannot be read.
    pub(in crate::sampler) tables: Option<Tables>,
}

/// Copies of a module's `.eh_frame_hdr` and `.eh_frame`, and their addresses in memory.
#[derive(Clone, Debug)]
pub(in crate::sampler) struct Tables {
    pub(in crate::sampler) index_at: u64,
    pub(in crate::sampler) index: Arc<[u8]>,
    pub(in crate::sampler) frames_at: u64,
    pub(in crate::sampler) frames: Arc<[u8]>,
}

impl Tables {
    /// The tables, if they have the form that every linker writes: version 1, a pointer to the frames
    /// that is relative to itself, and a sorted table of addresses relative to the index, whose records
    /// are inside the frames. The unwinder relies on that: it subtracts without a check.
    pub(in crate::sampler) fn new(
        index_at: u64,
        index: Arc<[u8]>,
        frames_at: u64,
        frames: Arc<[u8]>,
    ) -> Option<Tables> {
        let [1, 0x1b, 0x03, 0x3b, ..] = *index else {
            return None;
        };
        if frames_of(index_at, &index)? != frames_at {
            return None;
        }
        let count = usize::try_from(read_i32(&index, 8)?).ok()?;
        let entries = index.get(12..)?.get(..count.checked_mul(8)?)?;
        let is_valid = entries.chunks_exact(8).all(|entry: &[u8]| {
            let record_at = read_i32(entry, 4).map(|at| index_at.wrapping_add_signed(at.into()));
            let offset = record_at.and_then(|record_at| record_at.checked_sub(frames_at));
            offset.is_some_and(|offset| offset < frames.len() as u64)
        });
        is_valid.then_some(Tables {
            index_at,
            index,
            frames_at,
            frames,
        })
    }
}

/// The address of the frames, which an index has behind its first four bytes.
fn frames_of(index_at: u64, index: &[u8]) -> Option<u64> {
    Some(
        index_at
            .wrapping_add(4)
            .wrapping_add_signed(read_i32(index, 4)?.into()),
    )
}

/// The loader's current generation.
pub(in crate::sampler) fn generation() -> Generation {
    let mut generation = Generation::default();
    visit(|info| {
        generation = Generation {
            adds: info.dlpi_adds,
            removes: info.dlpi_subs,
        };
        false
    });
    generation
}

/// All modules, and their generation. A module in `known` is not read again. A module that is
/// unloaded while it is read is omitted; the next generation then differs.
pub(in crate::sampler) fn load(known: &[Module]) -> (Generation, Vec<Module>) {
    let before = generation();
    let mut headers = Vec::new();
    visit(|info| {
        headers.push(Headers::of(info));
        headers.len() < MODULES_MAX
    });
    (
        before,
        headers
            .iter()
            .filter_map(|headers| headers.read(known))
            .collect(),
    )
}

/// Calls `each` with the loader's description of each module, until it returns `false`.
fn visit<F: FnMut(&libc::dl_phdr_info) -> bool>(mut each: F) {
    unsafe extern "C" fn call<F: FnMut(&libc::dl_phdr_info) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        each: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: the loader passes a valid description, which outlives this call.
        let info = unsafe { &*info };
        // SAFETY: `each` is the closure that `visit` passed below, and has no other user meanwhile.
        let each = unsafe { &mut *each.cast::<F>() };
        libc::c_int::from(!each(info))
    }
    let each = (&raw mut each).cast();
    // A child that is forked meanwhile would have the loader's lock forever.
    without_fork(|| {
        // SAFETY: `call` has the type that the loader expects and does not unwind: the closures of this
        // module only copy numbers and strings.
        unsafe { libc::dl_iterate_phdr(Some(call::<F>), each) };
    });
}

/// A segment of a module, in memory.
#[derive(Clone, Debug)]
struct Segment {
    kind: u32,
    range: Range<u64>,
}

/// The data that must be copied while the loader keeps the module loaded.
#[derive(Debug)]
struct Headers {
    memory: Memory,
    path: String,
    base: u64,
    segments: Vec<Segment>,
}

impl Headers {
    fn of(info: &libc::dl_phdr_info) -> Headers {
        let path = if info.dlpi_name.is_null() {
            String::new()
        } else {
            // SAFETY: the loader's name is NUL-terminated and valid for the visit.
            unsafe { CStr::from_ptr(info.dlpi_name) }
                .to_string_lossy()
                .into_owned()
        };
        let count = usize::from(info.dlpi_phnum);
        let headers: &[libc::Elf64_Phdr] = if info.dlpi_phdr.is_null() {
            &[]
        } else {
            // SAFETY: the loader's table has `dlpi_phnum` entries and is valid for the visit.
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, count) }
        };
        let segments = headers
            .iter()
            .map(|header| {
                let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
                let range = start..start.saturating_add(header.p_memsz);
                Segment {
                    kind: header.p_type,
                    range,
                }
            })
            .collect();
        Headers {
            memory: Memory::Own,
            path,
            base: info.dlpi_addr,
            segments,
        }
    }

    fn read(&self, known: &[Module]) -> Option<Module> {
        let loaded = || self.of_kind(libc::PT_LOAD);
        let low = loaded().map(|range| range.start).min()?;
        let high = loaded().map(|range| range.end).max()?;
        // Only the executable has no name.
        let path = if self.path.is_empty() {
            std::fs::read_link("/proc/self/exe")
                .ok()?
                .to_string_lossy()
                .into_owned()
        } else {
            self.path.clone()
        };
        let build_id = self.build_id().unwrap_or_default();
        // Without a build id, another file may be at the same path.
        let same = known.iter().find(|module| {
            !build_id.is_empty()
                && *module.build_id == *build_id
                && *module.path == *path
                && module.base == self.base
                && module.range == (low..high)
        });
        let own_file = || match self.memory {
            Memory::Own => FileIdentity::at(Path::new(&path)),
            Memory::Of(process) => {
                FileIdentity::at(Path::new(&format!("/proc/{process}/root{path}")))
            }
        };
        let file = build_id.is_empty().then(own_file).flatten();
        Some(same.cloned().unwrap_or_else(|| Module {
            file,
            path: path.into(),
            build_id: build_id.into(),
            range: low..high,
            base: self.base,
            tables: self.tables(),
        }))
    }

    fn of_kind(&self, kind: u32) -> impl Iterator<Item = Range<u64>> {
        let of_kind = self
            .segments
            .iter()
            .filter(move |segment| segment.kind == kind);
        of_kind.map(|segment| segment.range.clone())
    }

    fn tables(&self) -> Option<Tables> {
        let index_range = self.of_kind(libc::PT_GNU_EH_FRAME).next()?;
        let index = copy(self.memory, &index_range)?;
        let frames_at = frames_of(index_range.start, &index)?;
        // No header has the end of the frames. Copy to the end of the segment; the frames end with
        // a terminator before that.
        let segment = self
            .of_kind(libc::PT_LOAD)
            .find(|range| range.contains(&frames_at))?;
        let frames = copy(self.memory, &(frames_at..segment.end))?;
        Tables::new(index_range.start, index, frames_at, frames)
    }

    fn build_id(&self) -> Option<String> {
        self.of_kind(libc::PT_NOTE)
            .find_map(|range| build_id_in(&copy(self.memory, &range)?))
    }
}

/// Copies a range of memory up to the first unreadable part; `None` if nothing can be read.
fn copy(memory: Memory, range: &Range<u64>) -> Option<Arc<[u8]>> {
    let length = range
        .end
        .checked_sub(range.start)
        .filter(|length| *length <= TABLE_BYTES_MAX)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let read = memory.read(range.start, &mut bytes);
    bytes.truncate(read);
    (read > 0).then(|| bytes.into())
}

pub(in crate::sampler) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_the_c_library_are_found_with_tables() {
        let (generation, modules) = load(&[]);
        assert_eq!(generation, self::generation());
        let here = load as *const () as u64;
        let own = modules
            .iter()
            .find(|module| module.range.contains(&here))
            .unwrap();
        assert_eq!(
            *own.path,
            *std::env::current_exe().unwrap().to_string_lossy()
        );
        assert!(own.tables.is_some());
        let libc = modules
            .iter()
            .find(|module| module.path.contains("libc.so"))
            .unwrap();
        assert_eq!(
            libc.build_id.len(),
            40,
            "a SHA-1 in hexadecimal: {}",
            libc.build_id
        );
        let vdso = modules
            .iter()
            .find(|module| module.path.contains("vdso"))
            .unwrap();
        assert!(
            vdso.tables.is_some(),
            "the vdso's tables are read from memory"
        );
    }

    #[test]
    fn a_known_module_is_not_read_again() {
        let frames = |modules: &[Module]| {
            let libc = modules
                .iter()
                .find(|module| module.path.contains("libc.so"))
                .unwrap();
            libc.tables.as_ref().unwrap().frames.clone()
        };
        let (_, known) = load(&[]);
        let (_, again) = load(&known);
        assert!(Arc::ptr_eq(&frames(&known), &frames(&again)));
        let others: Vec<Module> = known
            .iter()
            .map(|module| Module {
                build_id: "another".into(),
                ..module.clone()
            })
            .collect();
        let (_, reread) = load(&others);
        assert!(!Arc::ptr_eq(&frames(&known), &frames(&reread)));
    }

    #[test]
    fn tables_with_records_outside_of_the_frames_are_rejected() {
        let index = |record: i32| {
            let numbers = [0x3b03_1b01, 0x100 - 4, 1, 0x1000, record];
            numbers
                .into_iter()
                .flat_map(i32::to_le_bytes)
                .collect::<Vec<u8>>()
        };
        let tables = |index: Vec<u8>| Tables::new(0x5000, index.into(), 0x5100, [0; 64].into());
        assert!(tables(index(0x100)).is_some());
        assert!(tables(index(0x100 + 63)).is_some());
        assert!(tables(index(0x100 - 1)).is_none(), "before the frames");
        assert!(tables(index(0x100 + 64)).is_none(), "behind the frames");
        assert!(
            tables(index(0x100)[..19].to_vec()).is_none(),
            "fewer entries than it says"
        );
        assert!(Tables::new(0x5000, index(0x100).into(), 0x5108, [0; 64].into()).is_none());
    }
}
