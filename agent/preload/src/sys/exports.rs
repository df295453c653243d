//! Functions of the C library that programs call here first: those that end the process, make it another
//! program or another process, or forbid it what the agent needs. Each then calls the C library's own. And one for
//! other copies of the agent.
//!
//! All of them keep the meaning of the C library's functions, and none of them allocates or takes a lock.

#![expect(unreachable_pub, reason = "the loader finds them by their names")]

mod become_other;
mod confine;
mod end;
mod fork;
mod hand_over;
mod numbered;
mod users;

use std::ffi::c_int;

use nix::errno::Errno;

pub(super) fn resolve() {
    become_other::resolve();
    confine::resolve();
    end::resolve();
    fork::resolve();
    users::resolve();
}

/// The error of a function that the C library lacks.
fn missing() -> c_int {
    Errno::ENOSYS.set();
    -1
}
