//! The agent for programs that are not written in Rust. `include/emberline.h` is made of the functions in
//! [`sys::exports`] by `cargo xtask header`.
//!
//! ```text
//! sys::exports ─▶ lifecycle (the agent) · objects (tasks, transfers and runs by number)
//!                 scopes (what a thread has entered) ─▶ emberline_agent
//! ```
//!
//! # Rules
//! - Handles are numbers that are never used again, so that a second end or a wrong number is an error, not a crash.
//! - No panic leaves a function, and every function may be called at any time, from any thread, but not in a handler of
//!   a signal: locks are taken and memory is allocated.
//! - No lock is held while another one is taken. A forked child has locks of its own.

mod call;
mod lifecycle;
mod objects;
mod scopes;
mod settings;
pub mod sys;

pub use call::EmberlineStatus;
