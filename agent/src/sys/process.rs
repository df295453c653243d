//! What the kernel knows about this process's threads, read without disturbing them.

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// The id of a thread's CPU clock.
pub(crate) fn cpu_clock_of(thread_id: u32) -> libc::clockid_t {
    // The kernel's layout: the complement of the thread's id, and "CPU clock of a thread" (6).
    ((!thread_id) << 3 | 6).cast_signed()
}

/// CPU time of a thread of this process, in nanoseconds; `None` if there is no such thread.
pub(crate) fn thread_cpu_ns(thread_id: u32) -> Option<u64> {
    let time = clock_gettime(ClockId::from_raw(cpu_clock_of(thread_id))).ok()?;
    Some(u64::try_from(time.tv_sec()).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec()).ok()?)
}

/// Reads the processor's time-stamp counter, which ticks at a constant rate of its own.
pub(crate) fn time_stamp() -> u64 {
    // SAFETY: reading the counter changes nothing.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The ids of all threads of this process.
pub(crate) fn thread_ids() -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc/self/task")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Returns the kernel's id of the calling thread.
pub(crate) fn thread_id() -> u32 {
    nix::unistd::gettid().as_raw().unsigned_abs()
}

/// Returns the kernel's name of the calling thread, which threads that no Rust code started have
/// too.
pub(crate) fn own_thread_name() -> String {
    let name = fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

pub(crate) fn host_name() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok()
}

/// The name of a thread, at most 15 bytes; empty if it is gone.
pub(crate) fn thread_name(thread_id: u32) -> String {
    let name = fs::read(format!("/proc/self/task/{thread_id}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// Whether a thread blocks `signal`; `None` if its status cannot be read.
pub(crate) fn blocks(thread_id: u32, signal: Signal) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/self/task/{thread_id}/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & 1 << (signal as i32 - 1) != 0)
}

/// The kind of file behind a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DescriptorKind {
    Socket,
    /// A file or folder of a file system, or a disk.
    File,
    /// A pipe, a terminal, or anything else.
    Other,
}

/// The kind of `descriptor`; `None` if it is closed.
pub(crate) fn descriptor_kind(descriptor: i32) -> Option<DescriptorKind> {
    // SAFETY: every byte pattern of zeros is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing; `fstat` accepts any descriptor number.
    let result = unsafe { libc::fstat(descriptor, &raw mut stat) };
    if result != 0 {
        return None;
    }
    Some(match stat.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => DescriptorKind::Socket,
        libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR => DescriptorKind::File,
        _ => DescriptorKind::Other,
    })
}

/// How to copy memory of this process that may be unmapped at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryAccess {
    /// By `process_vm_readv`.
    Call,
    /// By reading `/proc/self/mem`, which is slower.
    File,
}

/// The process id to pass to `process_vm_readv`; 0 if memory is read as a file.
static MEMORY_PID: AtomicI32 = AtomicI32::new(0);

/// Chooses how [`read_memory`] works in this process.
pub(crate) fn set_memory_access(access: MemoryAccess) {
    let pid = if access == MemoryAccess::Call { Pid::this().as_raw() } else { 0 };
    MEMORY_PID.store(pid, Ordering::Relaxed);
}

/// Copies memory of this process from `address` and returns the number of bytes read. Unmapped
/// memory ends the copy early; it does not fault.
pub(crate) fn read_memory(address: u64, buffer: &mut [u8]) -> usize {
    let pid = MEMORY_PID.load(Ordering::Relaxed);
    if pid == 0 {
        let memory = File::open("/proc/self/mem");
        return memory.and_then(|memory| memory.read_at(buffer, address)).unwrap_or(0);
    }
    let Ok(base) = usize::try_from(address) else {
        return 0;
    };
    let remote = [RemoteIoVec { base, len: buffer.len() }];
    process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(buffer)], &remote).unwrap_or(0)
}

/// Lowers the calling thread's share of a busy machine to about a third of an ordinary thread's:
/// low enough not to get in the way, high enough to symbolize a second's samples within a second.
pub(crate) fn lower_priority() {
    const NICE: libc::c_int = 5;
    // SAFETY: `setpriority` takes plain numbers; 0 means the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    // A sandbox may refuse it; the thread then keeps its normal priority.
    let _ = result;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_memory_ends_at_the_first_unmapped_page() {
        let source = *b"the bytes of this stack";
        let mut copy = [0; 23];
        assert_eq!(read_memory(source.as_ptr() as u64, &mut copy), 23);
        assert_eq!(copy, source);
        assert_eq!(read_memory(8, &mut copy), 0);
    }

    #[test]
    fn a_missing_thread_has_no_cpu_clock() {
        let own = nix::unistd::gettid().as_raw().unsigned_abs();
        assert!(thread_cpu_ns(own).is_some());
        assert!(thread_ids().unwrap().contains(&own));
        assert_eq!(thread_cpu_ns(4_194_303), None);
    }
}
