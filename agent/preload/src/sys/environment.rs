//! The environment of programs that must not get this library.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::{Cursor, Write as _};
use std::ops::Range;
use std::os::fd::{FromRawFd as _, OwnedFd};

use super::foreign::Access;
use super::scratch::{Caller, Memory, PRELOAD_VARIABLE, Scratch, VALUE_BYTES_MAX};
use super::variables::{self, Strings};
use crate::image::{self, Obstacle};
use crate::journal::{self, Entry};
use crate::lifecycle;

/// The name of this library's file.
const LIBRARY: &[u8] = b"libemberline_preload.so";

/// Where the C library looks for programs if `PATH` is not set.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// How a call names its program.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    /// By its path.
    Path(*const c_char),
    /// In the folders of `PATH`, unless it has a `/`.
    Search(*const c_char),
    /// By its open file.
    Descriptor(c_int),
    /// By its path from a folder, or the open file itself, with the flags of `execveat`.
    From {
        folder: c_int,
        path: *const c_char,
        flags: c_int,
    },
}

/// Calls `become_it` with the environment for a program: without this library if it must not get it. Invalid
/// pointers reach the kernel unchanged, which rejects them.
///
/// # Safety
/// Where a filter of system calls is in force, `environment` is null or an array of strings that ends in a null pointer.
pub(super) unsafe fn with_environment_for<R>(
    program: Program,
    environment: Strings,
    become_it: impl FnOnce(Strings) -> R,
) -> R {
    let caller = if lifecycle::is_confined() {
        Caller::Confined
    } else {
        Caller::Process
    };
    let Some(mut scratch) = Scratch::claim(caller) else {
        return become_it(environment);
    };
    // SAFETY: the caller's contract.
    let changed = unsafe { without_library(program, environment, caller, scratch.memory()) };
    if let Some(changed) = changed {
        return become_it(changed);
    }
    // Before the call, which a child that shares this memory may not return from.
    drop(scratch);
    become_it(environment)
}

/// Returns a copy of an environment in which `LD_PRELOAD` has no entry of this library; `None` if the program may have
/// it, if the variable does not name it, which the journal notes, or if anything is invalid.
///
/// # Safety
/// As [`with_environment_for`].
#[inline(never)]
unsafe fn without_library(
    program: Program,
    environment: Strings,
    caller: Caller,
    memory: &mut Memory,
) -> Option<Strings> {
    let access = match caller {
        Caller::Process => Access::of_process(),
        // The loader of the program would make calls for this library that a filter may forbid. The look at it, too.
        Caller::Confined => Access::Direct,
    };
    if environment.is_null() {
        // The kernel takes it for an empty one.
        note_cleared(program, caller, access, memory);
        return None;
    }
    // SAFETY: the caller's contract.
    let count = unsafe { access.array(environment, &mut memory.variables) }?;
    let variables = &memory.variables[..count];
    let beginnings = &mut memory.beginnings;
    // SAFETY: as above.
    let index = unsafe { access.last_with_prefix(variables, PRELOAD_VARIABLE, beginnings) };
    let Some(index) = index else {
        note_cleared(program, caller, access, memory);
        return None;
    };
    // SAFETY: as above.
    let preload = unsafe { access.string(variables[index], &mut memory.preload) }?;
    let length = preload.to_bytes().len();
    let Some(library) = find_library(&memory.preload[..length]) else {
        note_cleared(program, caller, access, memory);
        return None;
    };
    if matches!(caller, Caller::Process) && may_have(program, access, library, memory) {
        return None;
    }
    if remove_library(&mut memory.preload[..=length]) {
        memory.variables[index] = memory.preload.as_ptr().cast();
    } else {
        memory.variables.copy_within(index + 1..=count, index);
    }
    Some(memory.variables.as_ptr())
}

/// Whether a program may have this library, whose file is at `library` in the copy of the variable. Otherwise the reason
/// is in the journal.
fn may_have(program: Program, access: Access, library: Range<usize>, memory: &mut Memory) -> bool {
    let file = &memory.preload[library];
    memory.path[..file.len()].copy_from_slice(file);
    memory.path[file.len()] = 0;
    // In another root, or for another user, the loader would complain about a missing library.
    let is_readable = is_accessible(&memory.path, libc::R_OK);
    let file = open_program(program, access, memory);
    match file.and_then(|file| image::obstacle_in(file, &mut memory.name)) {
        None => is_readable,
        Some(obstacle) => {
            note(obstacle, memory);
            // It ignores the variable, and its children may have the library.
            obstacle == Obstacle::Static && is_readable
        }
    }
}

/// Notes in the journal that a program begins without this library because its environment does not name it.
fn note_cleared(program: Program, caller: Caller, access: Access, memory: &mut Memory) {
    if matches!(caller, Caller::Confined) {
        return;
    }
    let Some(file) = open_program(program, access, memory) else {
        return;
    };
    let obstacle = image::obstacle_in(file, &mut memory.name);
    note(obstacle.unwrap_or(Obstacle::Cleared), memory);
}

fn note(obstacle: Obstacle, memory: &Memory) {
    let path = CStr::from_bytes_until_nul(&memory.path).unwrap_or_default();
    journal::add(Entry::Refused(obstacle), path.to_str().unwrap_or("unknown"));
}

fn is_accessible(path: &[u8; VALUE_BYTES_MAX], mode: c_int) -> bool {
    let path = CStr::from_bytes_until_nul(path);
    // SAFETY: the path is a string that ends in a 0.
    path.is_ok_and(|path| unsafe { libc::access(path.as_ptr(), mode) == 0 })
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b':' | b' ')
}

fn is_library(entry: &[u8]) -> bool {
    entry.ends_with(LIBRARY)
}

/// The range of the first entry of this library in a variable, with its name.
fn find_library(variable: &[u8]) -> Option<Range<usize>> {
    let mut start = PRELOAD_VARIABLE.len();
    for entry in variable[start..].split(is_separator) {
        let end = start + entry.len();
        if is_library(entry) {
            return Some(start..end);
        }
        start = end + 1;
    }
    None
}

/// Removes all entries of this library from a variable with its name, which keeps its 0 at the end. Returns whether
/// other entries are left.
fn remove_library(variable: &mut [u8]) -> bool {
    let mut written = PRELOAD_VARIABLE.len();
    let mut start = written;
    while start < variable.len() {
        let rest = &variable[start..];
        let length = rest
            .iter()
            .position(|byte| is_separator(byte) || *byte == 0)
            .unwrap_or(rest.len());
        let entry = &rest[..length];
        let end = start + length;
        if !entry.is_empty() && !is_library(entry) {
            if written > PRELOAD_VARIABLE.len() {
                // Not past the entry, before which there was a separator too.
                variable[written] = b':';
                written += 1;
            }
            variable.copy_within(start..end, written);
            written += length;
        }
        start = end + 1;
    }
    variable[written] = 0;
    written > PRELOAD_VARIABLE.len()
}

/// Opens a program's file, and leaves its path in `memory`.
fn open_program(program: Program, access: Access, memory: &mut Memory) -> Option<File> {
    match program {
        Program::Path(path) => open_path(path, access, memory),
        Program::Search(name) => search(name, access, memory),
        Program::Descriptor(descriptor) => open_descriptor(descriptor, memory),
        Program::From {
            folder,
            path,
            flags,
        } => open_from(folder, path, flags, access, memory),
    }
}

fn open_path(path: *const c_char, access: Access, memory: &mut Memory) -> Option<File> {
    // SAFETY: the access is a checked one, because the process is not confined.
    let path = unsafe { access.string(path, &mut memory.path) }?;
    image::open_file(path).ok()
}

fn search(name: *const c_char, access: Access, memory: &mut Memory) -> Option<File> {
    // SAFETY: as above.
    let name = unsafe { access.string(name, &mut memory.name) }?.to_bytes();
    if name.contains(&b'/') {
        memory.path[..name.len()].copy_from_slice(name);
        memory.path[name.len()] = 0;
        return open(&memory.path);
    }
    let folders = variables::present(b"PATH").unwrap_or(PATH_DEFAULT);
    for folder in folders.split(|byte| *byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let name_at = folder.len() + 1;
        let end = name_at + name.len();
        if end >= memory.path.len() {
            continue;
        }
        memory.path[..folder.len()].copy_from_slice(folder);
        memory.path[folder.len()] = b'/';
        memory.path[name_at..end].copy_from_slice(name);
        memory.path[end] = 0;
        if is_accessible(&memory.path, libc::X_OK) {
            return open(&memory.path);
        }
    }
    None
}

fn open(path: &[u8; VALUE_BYTES_MAX]) -> Option<File> {
    image::open_file(CStr::from_bytes_until_nul(path).ok()?).ok()
}

fn open_descriptor(descriptor: c_int, memory: &mut Memory) -> Option<File> {
    let mut path = Cursor::new(&mut memory.path[..]);
    write!(path, "/proc/self/fd/{descriptor}\0").ok()?;
    open(&memory.path)
}

fn open_from(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    access: Access,
    memory: &mut Memory,
) -> Option<File> {
    // SAFETY: as above.
    let path = unsafe { access.string(path, &mut memory.path) }?;
    if path.is_empty() {
        return open_descriptor(folder, memory);
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | no_follow(flags);
    // SAFETY: the path is a string that ends in a 0.
    let opened = unsafe { libc::openat(folder, path.as_ptr(), flags) };
    // SAFETY: it was opened above, and nothing else has it.
    (opened >= 0).then(|| unsafe { OwnedFd::from_raw_fd(opened) }.into())
}

fn no_follow(flags: c_int) -> c_int {
    if flags & libc::AT_SYMLINK_NOFOLLOW == 0 {
        0
    } else {
        libc::O_NOFOLLOW
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::ptr;

    use super::super::scratch::VARIABLES_MAX;
    use super::*;

    /// The environment without this library.
    fn filtered(variables: &[&str]) -> Option<Vec<String>> {
        let owned: Vec<CString> = variables
            .iter()
            .map(|variable| CString::new(*variable).unwrap())
            .collect();
        let mut pointers: Vec<_> = owned.iter().map(|variable| variable.as_ptr()).collect();
        pointers.push(ptr::null());
        let mut scratch = Scratch::claim(Caller::Confined).unwrap();
        let program = Program::Descriptor(-1);
        let memory = scratch.memory();
        // SAFETY: an array of strings with a null pointer at its end.
        let copy =
            unsafe { without_library(program, pointers.as_ptr(), Caller::Confined, memory) }?;
        let mut texts = Vec::new();
        for index in 0.. {
            // SAFETY: the array ends in a null pointer, at which this loop ends.
            let variable = unsafe { *copy.wrapping_add(index) };
            if variable.is_null() {
                break;
            }
            // SAFETY: not null, so a string.
            let text = unsafe { CStr::from_ptr(variable) };
            texts.push(text.to_str().unwrap().to_owned());
        }
        Some(texts)
    }

    #[test]
    fn only_this_library_leaves_an_environment() {
        let ours = "/opt/lib/emberline/libemberline_preload.so";
        for (value, expected) in [
            (ours.to_owned(), None),
            (format!("liba.so:{ours}"), Some("liba.so")),
            (
                format!("{ours} liba.so:/b/libb.so"),
                Some("liba.so:/b/libb.so"),
            ),
            (format!("::liba.so {ours}:"), Some("liba.so")),
            (format!("a:{ours}:b:{ours}"), Some("a:b")),
        ] {
            let variable = format!("LD_PRELOAD={value}");
            let before = ["A=1", &variable, "B="];
            let expected: Vec<String> = ["A=1".to_owned()]
                .into_iter()
                .chain(expected.map(|value| format!("LD_PRELOAD={value}")))
                .chain(["B=".to_owned()])
                .collect();
            assert_eq!(filtered(&before), Some(expected), "{value}");
        }
        for others in [&["LD_PRELOAD=liba.so", "B=1"][..], &["A=1"], &[]] {
            assert_eq!(filtered(others), None, "{others:?}");
        }
        let long = format!("LD_PRELOAD={}:{ours}", "x".repeat(VALUE_BYTES_MAX));
        assert_eq!(filtered(&[&long]), None);
        let variables: Vec<_> = (0..=VARIABLES_MAX)
            .map(|number| format!("V{number}="))
            .collect();
        let mut many: Vec<&str> = variables.iter().map(String::as_str).collect();
        let ours = format!("LD_PRELOAD={ours}");
        many[VARIABLES_MAX] = &ours;
        assert_eq!(filtered(&many), None, "too many");
        assert_eq!(
            filtered(&many[1..]).map(|rest| rest.len()),
            Some(VARIABLES_MAX - 1)
        );
    }
}
