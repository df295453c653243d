//! The environment of programs that must not get this library.

use std::ffi::{CStr, c_char};
use std::ptr;

use super::variables;
use crate::image::{self, Obstacle};
use crate::journal::{self, Entry};

/// Lists the libraries that the loader adds to programs.
const PRELOAD_VARIABLE: &[u8] = b"LD_PRELOAD=";
/// The name of this library's file.
const LIBRARY: &[u8] = b"libemberline_preload.so";

/// Limits of what is copied to the stack. Beyond them an environment is passed on as it is.
const VARIABLES_MAX: usize = 2_048;
const VALUE_BYTES_MAX: usize = 4_096;

/// Where the C library looks for programs if `PATH` is not set.
const PATH_DEFAULT: &[u8] = b"/bin:/usr/bin";

/// Where a program is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lookup {
    /// By its path.
    Path,
    /// In the folders of `PATH`, unless it has a `/`.
    Search,
}

/// Calls `become_it` with the environment for the program `name`: without this library if it must not get it.
///
/// # Safety
/// `name` is null or a string; `environment` is null or an array of strings that ends in a null pointer.
pub(super) unsafe fn with_environment_for<R>(
    name: *const c_char,
    lookup: Lookup,
    environment: *const *const c_char,
    become_it: impl FnOnce(*const *const c_char) -> R,
) -> R {
    if name.is_null() || environment.is_null() {
        return become_it(environment);
    }
    // SAFETY: the caller guarantees that it is a string.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: the caller guarantees what it is.
    let Some(preload) = (unsafe { find_preload(environment) }) else {
        return become_it(environment);
    };
    // In another root, or for another user, the loader would complain about a missing library.
    match obstacle_of(name, lookup) {
        None if preload.is_readable => return become_it(environment),
        None => {}
        Some(obstacle) => {
            journal::add(Entry::Refused(obstacle), name.to_str().unwrap_or("unknown"));
        }
    }
    // SAFETY: the caller guarantees what it is, and the index is that of a variable.
    unsafe { without_library(environment, preload.index, become_it) }
}

/// The variable `LD_PRELOAD` of an environment.
struct Preload {
    index: usize,
    /// Whether the file of this library can be read.
    is_readable: bool,
}

/// Finds `LD_PRELOAD`, if it names this library and there are not too many variables.
///
/// # Safety
/// `environment` is an array of strings that ends in a null pointer.
unsafe fn find_preload(environment: *const *const c_char) -> Option<Preload> {
    let mut found = None;
    for index in 0..VARIABLES_MAX {
        // SAFETY: no element before this one is the null pointer at the end.
        let variable = unsafe { *environment.wrapping_add(index) };
        if variable.is_null() {
            return found;
        }
        // SAFETY: an element that is not null is a string.
        let variable = unsafe { CStr::from_ptr(variable) }.to_bytes();
        let value = variable
            .strip_prefix(PRELOAD_VARIABLE)
            .filter(|value| value.len() < VALUE_BYTES_MAX);
        let mut entries = value.unwrap_or_default().split(is_separator);
        if let Some(library) = entries.find(|entry| is_library(entry)) {
            let is_readable = is_readable(library);
            found = Some(Preload { index, is_readable });
        }
    }
    None
}

fn is_readable(file: &[u8]) -> bool {
    let mut path = [0; VALUE_BYTES_MAX];
    path[..file.len()].copy_from_slice(file);
    // SAFETY: the file's name is shorter than the array of zeros, so this is a string that ends in a 0.
    unsafe { libc::access(path.as_ptr().cast(), libc::R_OK) == 0 }
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b':' | b' ')
}

fn is_library(entry: &[u8]) -> bool {
    entry.ends_with(LIBRARY)
}

fn obstacle_of(name: &CStr, lookup: Lookup) -> Option<Obstacle> {
    if matches!(lookup, Lookup::Path) || name.to_bytes().contains(&b'/') {
        return image::obstacle_of(name);
    }
    let folders = variables::present(b"PATH").unwrap_or(PATH_DEFAULT);
    for folder in folders.split(|byte| *byte == b':') {
        let mut path = [0; VALUE_BYTES_MAX];
        let name = name.to_bytes();
        let folder = if folder.is_empty() { b"." } else { folder };
        if folder.len() + name.len() + 2 > path.len() {
            continue;
        }
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = b'/';
        path[folder.len() + 1..][..name.len()].copy_from_slice(name);
        let Ok(path) = CStr::from_bytes_until_nul(&path) else {
            continue;
        };
        // SAFETY: the path is a string that ends in a 0.
        if unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0 {
            return image::obstacle_of(path);
        }
    }
    None
}

/// Calls `become_it` with a copy of the environment in which `LD_PRELOAD` has no entry of this library. The
/// copy is on the stack, because the caller may be a forked child of a process with many threads.
///
/// # Safety
/// `environment` is an array of strings that ends in a null pointer, after at most [`VARIABLES_MAX`] of them;
/// the one at `preload_at` is `LD_PRELOAD` with a value of less than [`VALUE_BYTES_MAX`] bytes.
#[inline(never)]
unsafe fn without_library<R>(
    environment: *const *const c_char,
    preload_at: usize,
    become_it: impl FnOnce(*const *const c_char) -> R,
) -> R {
    let mut variables = [ptr::null::<c_char>(); VARIABLES_MAX + 1];
    let mut preload = [0; PRELOAD_VARIABLE.len() + VALUE_BYTES_MAX];
    preload[..PRELOAD_VARIABLE.len()].copy_from_slice(PRELOAD_VARIABLE);
    let mut written = PRELOAD_VARIABLE.len();
    let mut copied = 0;
    for index in 0..VARIABLES_MAX {
        // SAFETY: no element before this one is the null pointer at the end.
        let variable = unsafe { *environment.wrapping_add(index) };
        if variable.is_null() {
            break;
        }
        variables[copied] = variable;
        copied += 1;
        if index != preload_at {
            continue;
        }
        // SAFETY: an element that is not null is a string.
        let bytes = unsafe { CStr::from_ptr(variable) }.to_bytes();
        let others = bytes[PRELOAD_VARIABLE.len()..].split(is_separator);
        for entry in others.filter(|entry| !entry.is_empty() && !is_library(entry)) {
            if written > PRELOAD_VARIABLE.len() {
                preload[written] = b':';
                written += 1;
            }
            preload[written..][..entry.len()].copy_from_slice(entry);
            written += entry.len();
        }
        copied -= usize::from(written == PRELOAD_VARIABLE.len());
        if written > PRELOAD_VARIABLE.len() {
            variables[copied - 1] = preload.as_ptr().cast();
        }
    }
    variables[copied] = ptr::null();
    become_it(variables.as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// The environment without this library.
    fn filtered(variables: &[&str]) -> Option<Vec<String>> {
        let owned: Vec<CString> = variables
            .iter()
            .map(|variable| CString::new(*variable).unwrap())
            .collect();
        let mut pointers: Vec<_> = owned.iter().map(|variable| variable.as_ptr()).collect();
        pointers.push(ptr::null());
        // SAFETY: an array of strings with a null pointer at its end.
        let index = unsafe { find_preload(pointers.as_ptr()) }?.index;
        let read = |copy: *const *const c_char| {
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
            texts
        };
        // SAFETY: as above.
        Some(unsafe { without_library(pointers.as_ptr(), index, read) })
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
        let variables: Vec<_> = (0..VARIABLES_MAX)
            .map(|number| format!("V{number}="))
            .collect();
        let mut many: Vec<&str> = variables.iter().map(String::as_str).collect();
        let ours = format!("LD_PRELOAD={ours}");
        many[VARIABLES_MAX - 1] = &ours;
        assert_eq!(filtered(&many), None, "too many");
        assert_eq!(
            filtered(&many[1..]).map(|rest| rest.len()),
            Some(VARIABLES_MAX - 2)
        );
    }
}
