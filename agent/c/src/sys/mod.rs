//! The functions of the interface, and reading what the program's pointers point to.
#![expect(
    unsafe_code,
    reason = "C has no references, and its functions need unmangled names"
)]

pub mod exports;
mod read;

pub(crate) use self::exports::EmberlineDirection;
