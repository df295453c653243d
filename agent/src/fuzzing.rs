//! The doors of `cargo xtask fuzz`: what the agent reads that others wrote, from memory.
//!
//! Compiled with `--cfg emberline_fuzzing` only, so it is part of no ordinary build.

pub use crate::sampler::fuzzing::{Tables, Unwound, unwind, with_vdso};
pub use symbolize::fuzzing::symbols;
