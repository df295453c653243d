//! The parts that have no safe interface: functions of the C library that programs call here first, and a few
//! system calls.
#![expect(
    unsafe_code,
    reason = "the C library's functions have no safe interface"
)]

mod environment;
mod exports;
mod foreign;
pub(crate) mod functions;
pub(crate) mod futex;
mod heap;
mod next;
pub(crate) mod process;
mod scratch;
pub(crate) mod start;
pub(crate) mod variables;
