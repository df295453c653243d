//! Functions of the C library that this one calls, and that a program or another library may replace.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;

/// Functions that the agent calls and that programs may have for something else. Others, such as `malloc` or Chromium's
/// `close`, are replaced by programs to do the same and more.
const CALLED: [&CStr; 9] = [
    c"access",
    c"connect",
    c"getsockopt",
    c"pause",
    c"poll",
    c"recv",
    c"send",
    c"setsockopt",
    c"socket",
];

const CLOCK: &CStr = c"clock_gettime";

/// Where a function is defined.
struct Definition {
    /// Where the file begins in memory.
    base: *const c_void,
    file: *const c_char,
}

impl Definition {
    /// The definition that calls of this library reach; `None` if it is not known.
    fn of(function: &CStr) -> Option<Definition> {
        /// Asks for the entry of the symbol.
        const SYMBOL_ENTRY: c_int = 1;
        const UNDEFINED: u16 = 0;
        // SAFETY: the name is a string that ends in a 0.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, function.as_ptr()) };
        // SAFETY: every byte pattern of zeros is a valid value of this type.
        let mut found: libc::Dl_info = unsafe { mem::zeroed() };
        let mut entry: *mut c_void = ptr::null_mut();
        // SAFETY: both are valid for writing, and any address may be looked up.
        let is_found =
            unsafe { libc::dladdr1(address, &raw mut found, &raw mut entry, SYMBOL_ENTRY) } != 0;
        let entry: *const libc::Elf64_Sym = entry.cast();
        // SAFETY: not null, so an entry of a table that the loader has mapped.
        if !is_found || entry.is_null() || unsafe { (*entry).st_shndx } == UNDEFINED {
            // A program that has not moved may have the only address of a function that others define.
            return None;
        }
        Some(Definition {
            base: found.dli_fbase,
            file: found.dli_fname,
        })
    }

    fn file_name(&self) -> &[u8] {
        if self.file.is_null() {
            return b"";
        }
        // SAFETY: the loader's name of a file, which is a string that ends in a 0.
        let path = unsafe { CStr::from_ptr(self.file) }.to_bytes();
        path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

/// Whether the clock of this process is not the C library's: the agent measures time by it.
pub(crate) fn has_other_clock() -> bool {
    let of_c_library: [&[u8]; 4] = [b"libc.", b"libc-", b"librt", b"linux-vdso"];
    Definition::of(CLOCK).is_some_and(|clock| {
        let name = clock.file_name();
        !of_c_library.iter().any(|start| name.starts_with(start))
    })
}

/// Whether the program itself has one of the functions: it may do anything else. Those of libraries that are loaded for
/// that, such as fakeroot's, do the same as the C library's.
pub(crate) fn are_replaced() -> bool {
    // SAFETY: takes a plain number and reads a value that the kernel has passed.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as *const c_void;
    // SAFETY: every byte pattern of zeros is a valid value of this type.
    let mut program: libc::Dl_info = unsafe { mem::zeroed() };
    // SAFETY: `program` is valid for writing, and any address may be looked up.
    if unsafe { libc::dladdr(headers, &raw mut program) } == 0 {
        return false;
    }
    CALLED
        .iter()
        .filter_map(|function| Definition::of(function))
        .any(|definition| definition.base == program.dli_fbase.cast_const())
}
