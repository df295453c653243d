//! Functions that the loader calls before the program's first instruction and after its last one.

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

extern "C" fn destructor() {
    lifecycle::finish();
}
