//! Profiles a program that does not know of Emberline. `emberline record` and `emberline run` name this
//! library in `LD_PRELOAD`, so the system's loader loads it into the program and into its children.
//!
//! ```text
//! constructor ─▶ keeper thread ─ 50 ms ─▶ agent ─▶ … ─▶ flush
//!                      ▲
//! exit, exec, fork, unshare, seccomp … of the program (`sys::exports`)
//! ```
//!
//! # Rules
//! - A program that ends within 50 ms has no agent, and costs a sleeping thread.
//! - The program's threads read no clock, take no lock and allocate nothing here: they change
//!   [`lifecycle`]'s phase and wait for the keeper, at most 2.5 s.
//! - The program's descriptors are used before its first instruction only. Later, the keeper has a
//!   descriptor table of its own.
//! - A program that confines itself (seccomp, a limit of its address space) has no agent from then on.
//!
//! The rlib is empty for programs that link it: cargo builds the library for crates that depend on this one.

mod image;
mod journal;
mod keeper;
mod lifecycle;
mod sys;
