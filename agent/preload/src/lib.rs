//! Profiles a program that does not know of Emberline. `emberline record` and `emberline run` name this
//! library in `LD_PRELOAD`, so the system's loader loads it into the program and into its children.
//!
//! ```text
//! constructor ─▶ keeper ─ 50 ms ─▶ profiler ─▶ agent ─▶ … ─▶ flush
//!                   ▲
//! exit, exec, fork, unshare, seccomp … of the program (`sys::exports`)
//! ```
//!
//! # Rules
//! - A program that ends within 50 ms has no agent, and costs a sleeping thread.
//! - The program's threads read no clock and take no lock here: they change [`lifecycle`]'s phase and wait for the
//!   keeper, at most 2.5 s. They allocate only to start one.
//! - Nothing allocates by the program's allocator, except the C library for a new thread.
//! - The profiler has a descriptor table of its own. A file is in the program's table only within a call of the program
//!   that ends, replaces or confines it.
//! - A program that confines itself (seccomp, a limit of its address space) has no agent from then on.
//!
//! Nothing links the rlib, which would replace these functions in its program: cargo builds the library for crates that
//! depend on this one.

mod image;
mod journal;
mod keeper;
mod lifecycle;
mod profiler;
mod sys;
