//! Variables of this process, without the C library's `getenv`: some programs have one of their own, which is theirs
//! alone, and programs change their variables while threads of ours run.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;

/// Strings with a null pointer at their end.
pub(super) type Strings = *const *const c_char;

/// Begins the names of all variables that are copied.
const PREFIX: &[u8] = b"EMBERLINE_";

/// Most bytes of copies. Variables that do not fit are as if they were not set.
const COPY_BYTES_MAX: usize = 16 << 10;

/// Most variables of a process that are looked at.
const VARIABLES_MAX: usize = 1 << 16;

unsafe extern "C" {
    static environ: Strings;
}

/// Variables with a 0 at the end of each.
struct Copy {
    bytes: Vec<u8>,
}

static COPY: OnceLock<Copy> = OnceLock::new();

/// The environment of this process.
pub(super) fn environment() -> Strings {
    // SAFETY: the C library's variable. A program that changes it meanwhile has the same race without us.
    unsafe { environ }
}

/// Copies Emberline's variables. The loader calls this, before the program or a thread of it can change them.
pub(super) fn copy() {
    // SAFETY: the environment with which the process began.
    let variables = unsafe { variables(environment()) };
    COPY.get_or_init(|| Copy::of(variables));
    system::environment::replace(|name| {
        let value = copied(name.as_bytes())?;
        Some(OsStr::from_bytes(value.to_bytes()).to_owned())
    });
}

/// The value that one of Emberline's variables had when the program began. Allocates nothing.
pub(crate) fn copied(name: &[u8]) -> Option<&'static CStr> {
    COPY.get()?.value(name)
}

/// The present value of a variable, as a function of the C library finds it that the program calls.
pub(super) fn present(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: the caller is within a call that reads the environment without us too.
    let mut variables = unsafe { variables(environment()) };
    variables.find_map(|variable| value_of(variable.to_bytes(), name))
}

/// # Safety
/// `strings` is null or an array of strings that ends in a null pointer, and stays so while the result is used.
unsafe fn variables(strings: Strings) -> impl Iterator<Item = &'static CStr> {
    let count = if strings.is_null() { 0 } else { VARIABLES_MAX };
    (0..count).map_while(move |index| {
        // SAFETY: no element before this one is the null pointer at the end.
        let variable = unsafe { *strings.wrapping_add(index) };
        // SAFETY: an element that is not null is a string.
        (!variable.is_null()).then(|| unsafe { CStr::from_ptr(variable) })
    })
}

fn value_of<'v>(variable: &'v [u8], name: &[u8]) -> Option<&'v [u8]> {
    variable.strip_prefix(name)?.strip_prefix(b"=")
}

impl Copy {
    fn of<'v>(variables: impl Iterator<Item = &'v CStr>) -> Copy {
        let mut bytes = Vec::new();
        for variable in variables {
            let variable = variable.to_bytes_with_nul();
            let is_copied =
                variable.starts_with(PREFIX) && bytes.len() + variable.len() <= COPY_BYTES_MAX;
            // Without memory, the program starts all the same.
            if is_copied && bytes.try_reserve(variable.len()).is_ok() {
                bytes.extend_from_slice(variable);
            }
        }
        Copy { bytes }
    }

    fn value(&self, name: &[u8]) -> Option<&CStr> {
        let mut variables = self.bytes.split_inclusive(|byte| *byte == 0);
        let value = variables.find_map(|variable| value_of(variable, name))?;
        CStr::from_bytes_with_nul(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_of_emberline_are_copied_as_far_as_they_fit() {
        let long = format!("EMBERLINE_LABELS={}", "x".repeat(COPY_BYTES_MAX));
        let strings = [
            "HOME=/root",
            "EMBERLINE_URL=unix:/a=b",
            &long,
            "EMBERLINE_URLS=c",
            "EMBERLINE_WORKER=",
            "EMBERLINE_URL=second",
            "EMBERLINE_",
        ]
        .map(|text| std::ffi::CString::new(text).unwrap());
        let copy = Copy::of(strings.iter().map(|text| &**text));
        let value = |name: &str| copy.value(name.as_bytes());
        assert_eq!(value("EMBERLINE_URL"), Some(c"unix:/a=b"));
        assert_eq!(value("EMBERLINE_WORKER"), Some(c""));
        for missing in ["HOME", "EMBERLINE_LABELS", "EMBERLINE_", "EMBERLINE_UR", ""] {
            assert_eq!(value(missing), None, "{missing}");
        }
    }
}
