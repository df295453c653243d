//! Functions that the loader calls before the program's first instruction and after its last one.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{exports, heap, process, variables};
use crate::journal::{self, Entry};
use crate::lifecycle;

/// Where agents report. Without it nothing is profiled.
const URL_VARIABLE: &[u8] = b"EMBERLINE_URL";

// SAFETY: the loader calls the functions of this section once, without reading arguments that it passes.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

// SAFETY: as above.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

extern "C" fn constructor() {
    heap::keep_in_forked_children();
    exports::resolve();
    variables::copy();
    let has_collector = variables::copied(URL_VARIABLE).is_some_and(|url| !url.is_empty());
    if !has_collector || process::is_privileged() {
        return;
    }
    let name = process::Name::of_thread();
    if let Some(obstacle) = process::obstacle() {
        return journal::add(Entry::Refused(obstacle), name.text());
    }
    journal::add(Entry::Began, name.text());
    if process::embeds_agent() {
        // It reports by itself.
        return journal::add(Entry::Sampled, name.text());
    }
    lifecycle::enable();
}

/// Learns with which status the process ends. Not before the program has begun: the C library calls such functions in the
/// reverse order, and those that end libraries are registered first.
pub(crate) fn watch_exit() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the function takes what the C library passes, and lives as long as the process.
    unsafe { on_exit(at_exit, ptr::null_mut()) };
}

// SAFETY: declared as in the header of the C library.
unsafe extern "C" {
    /// Calls a function with the status of the process when it ends by `exit`, or by the return from `main`.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Runs before [`destructor`].
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    lifecycle::ends_with(status);
}

extern "C" fn destructor() {
    lifecycle::finish();
}
