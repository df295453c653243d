//! What the kernel tells about this process's threads without disturbing them.

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// The clock that counts a thread's CPU time.
pub(in crate::sampler) fn cpu_clock_of(thread_id: u32) -> libc::clockid_t {
    // The kernel's layout: the complement of the thread's id, and "CPU clock of a thread" (6).
    ((!thread_id) << 3 | 6).cast_signed()
}

/// CPU time of a thread of this process, in nanoseconds; `None` if there is no such thread.
pub(crate) fn thread_cpu_ns(thread_id: u32) -> Option<u64> {
    let time = clock_gettime(ClockId::from_raw(cpu_clock_of(thread_id))).ok()?;
    Some(u64::try_from(time.tv_sec()).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec()).ok()?)
}

/// The processor's time-stamp counter: ticks evenly, at a rate of its own.
pub(in crate::sampler) fn time_stamp() -> u64 {
    // SAFETY: reading the counter changes nothing.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The ids of all threads of this process.
pub(in crate::sampler) fn thread_ids() -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc/self/task")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The name of a thread, at most 15 bytes; empty if it is gone.
pub(crate) fn thread_name(thread_id: u32) -> String {
    let name = fs::read(format!("/proc/self/task/{thread_id}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// Whether a thread blocks `signal`; `None` if it cannot be known.
pub(in crate::sampler) fn blocks(thread_id: u32, signal: Signal) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/self/task/{thread_id}/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & 1 << (signal as i32 - 1) != 0)
}

/// What a descriptor stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) enum DescriptorKind {
    Socket,
    /// Of a file system, or a disk.
    File,
    /// A pipe, a terminal, or something else.
    Other,
}

/// What `descriptor` stands for; `None` if it is closed.
pub(in crate::sampler) fn descriptor_kind(descriptor: i32) -> Option<DescriptorKind> {
    // SAFETY: every byte pattern of zeros is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is a valid place for the answer; any number may be asked for.
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

/// How memory of this process can be copied without trusting that it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) enum MemoryAccess {
    /// By `process_vm_readv`.
    Call,
    /// By `/proc/self/mem`, which takes longer.
    File,
}

/// Whose memory is copied by call; 0 if it is read as a file.
static MEMORY_OF: AtomicI32 = AtomicI32::new(0);

/// Chooses how [`read_memory`] works in this process.
pub(in crate::sampler) fn set_memory_access(access: MemoryAccess) {
    let of = if access == MemoryAccess::Call { Pid::this().as_raw() } else { 0 };
    MEMORY_OF.store(of, Ordering::Relaxed);
}

/// Copies memory of this process from `address`; gives how many bytes could be read. Memory that is
/// not mapped ends the copy instead of the process.
pub(in crate::sampler) fn read_memory(address: u64, buffer: &mut [u8]) -> usize {
    let of = MEMORY_OF.load(Ordering::Relaxed);
    if of == 0 {
        let memory = File::open("/proc/self/mem");
        return memory.and_then(|memory| memory.read_at(buffer, address)).unwrap_or(0);
    }
    let Ok(base) = usize::try_from(address) else {
        return 0;
    };
    let remote = [RemoteIoVec { base, len: buffer.len() }];
    process_vm_readv(Pid::from_raw(of), &mut [IoSliceMut::new(buffer)], &remote).unwrap_or(0)
}

/// Lowers the calling thread's share of a busy machine to about a third of an ordinary thread's:
/// low enough not to be in the way, high enough that a second's samples are folded in a second.
pub(crate) fn lower_priority() {
    const NICE: libc::c_int = 5;
    // SAFETY: `setpriority` takes plain numbers; 0 names the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    // Refused by a sandbox at worst: the thread then runs as others do.
    let _ = result;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_copied_up_to_what_is_mapped() {
        let source = *b"the bytes of this stack";
        let mut copy = [0; 23];
        assert_eq!(read_memory(source.as_ptr() as u64, &mut copy), 23);
        assert_eq!(copy, source);
        assert_eq!(read_memory(8, &mut copy), 0);
    }

    #[test]
    fn a_thread_that_is_not_there_has_no_clock() {
        let own = nix::unistd::gettid().as_raw().unsigned_abs();
        assert!(thread_cpu_ns(own).is_some());
        assert!(thread_ids().unwrap().contains(&own));
        assert_eq!(thread_cpu_ns(4_194_303), None);
    }
}
