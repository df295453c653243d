//! A section in every program that has an agent: so `emberline record` and its library know that it reports by
//! itself, also when it is stripped.

/// The section is `.emberline_agent`.
// SAFETY: nothing else uses a section of this name, and the content is plain bytes.
#[used]
#[unsafe(link_section = ".emberline_agent")]
static MARKER: [u8; 8] = *b"emberln1";

/// Keeps the section in the program.
pub fn keep() {
    std::hint::black_box(&raw const MARKER);
}
