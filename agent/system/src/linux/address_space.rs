//! The limit on this process's address space (`ulimit -v`).
//!
//! An allocation that fails ends a Rust program, and Rust code cannot avoid that. So an agent does
//! not start unless there is plenty of room. While it runs, the C library has reserved a heap of 64
//! MiB for each of its threads; small allocations of theirs come from there and do not depend on the
//! room that the program leaves.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

use super::file;

/// Address space that four threads reserve, mostly as heaps; they use little of it.
const RESERVED_BYTES: u64 = 288 << 20;

/// The agent reserves at most this part of the free address space.
const PART: u64 = 4;

/// Too little free address space.
#[derive(Debug)]
pub struct Shortage {
    /// Free, in MiB.
    pub free_mib: u64,
    /// Needed, in MiB.
    pub needed_mib: u64,
}

/// Checks that the agent leaves the program most of the address space.
///
/// # Errors
/// If it does not.
pub fn check() -> Result<(), Shortage> {
    let Some(free_bytes) = free_bytes() else {
        return Ok(());
    };
    let needed_bytes = RESERVED_BYTES * PART;
    if free_bytes >= needed_bytes {
        return Ok(());
    }
    Err(Shortage {
        free_mib: free_bytes >> 20,
        needed_mib: needed_bytes >> 20,
    })
}

/// Address space that this process may still use; `None` if it has no limit.
fn free_bytes() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    if limit == RLIM_INFINITY {
        return None;
    }
    // If the size is unknown, so is the room.
    let pages = file::read_text("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let page_bytes = sysconf(SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .unwrap_or(4_096);
    let used = pages.map(|pages| pages.saturating_mul(page_bytes as u64));
    Some(limit.saturating_sub(used.unwrap_or(limit)))
}
