//! Free space of disks.

use std::io;
use std::path::Path;

/// Bytes that this process may still write to the disk of `folder`.
///
/// # Errors
/// If there is no such folder, or the system refuses.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let stat = nix::sys::statvfs::statvfs(folder)?;
    Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
}
