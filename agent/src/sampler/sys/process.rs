//! What the kernel tells about this process's threads without disturbing them.

use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read};
use std::os::unix::fs::MetadataExt;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// CPU time of a thread of this process, in nanoseconds; `None` if there is no such thread.
pub(in crate::sampler) fn thread_cpu_ns(thread_id: u32) -> Option<u64> {
    // The kernel's layout: the complement of the thread's id, and "CPU clock of a thread" (6).
    let clock = ((!thread_id) << 3 | 6).cast_signed();
    let time = clock_gettime(ClockId::from_raw(clock)).ok()?;
    Some(u64::try_from(time.tv_sec()).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec()).ok()?)
}

/// A number that changes when threads come or go (though not if as many come as go).
pub(in crate::sampler) fn thread_count() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/task")?.nlink())
}

/// The ids of all threads of this process.
pub(in crate::sampler) fn thread_ids() -> io::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc/self/task")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The name of a thread, at most 15 bytes; empty if it is gone.
pub(in crate::sampler) fn thread_name(thread_id: u32) -> String {
    let name = fs::read(format!("/proc/self/task/{thread_id}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// What a thread is doing, as the kernel sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) enum Activity {
    /// On a processor or ready for one.
    Running,
    /// Blocked in the kernel.
    Blocked(WaitSite),
}

/// Where a thread is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) struct WaitSite {
    /// Number of the system call; negative outside one, such as in a page fault.
    pub(in crate::sampler) call: i64,
    pub(in crate::sampler) sp: u64,
    pub(in crate::sampler) pc: u64,
}

/// Reads what `thread_id` is doing, without a signal.
pub(in crate::sampler) fn activity(thread_id: u32) -> io::Result<Activity> {
    let mut buffer = [0; 256];
    let text = read_small(&format!("/proc/self/task/{thread_id}/syscall"), &mut buffer)?;
    parse_activity(text)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("`{text}`")))
}

/// `running`, or `call [arguments] sp pc` with the last two in hexadecimal.
fn parse_activity(text: &str) -> Option<Activity> {
    if text == "running" {
        return Some(Activity::Running);
    }
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let call = text.split(' ').next()?.parse().ok()?;
    let mut words = text.rsplit(' ');
    let pc = hexadecimal(words.next()?)?;
    let sp = hexadecimal(words.next()?)?;
    Some(Activity::Blocked(WaitSite { call, sp, pc }))
}

/// Nanoseconds that a thread has spent ready but without a processor; `None` if the kernel does
/// not count it or the thread is gone.
pub(in crate::sampler) fn run_delay_ns(thread_id: u32) -> Option<u64> {
    let mut buffer = [0; 128];
    let text = read_small(&format!("/proc/self/task/{thread_id}/schedstat"), &mut buffer).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

/// Reads a file of `/proc` that fits `buffer`.
fn read_small<'b>(path: &str, buffer: &'b mut [u8]) -> io::Result<&'b str> {
    let length = File::open(path)?.read(buffer)?;
    let text = std::str::from_utf8(&buffer[..length]);
    Ok(text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?.trim_end())
}

/// Copies memory of this process from `address`; gives how many bytes could be read. Memory that is
/// not mapped ends the copy instead of the process.
pub(in crate::sampler) fn read_memory(address: u64, buffer: &mut [u8]) -> usize {
    let Ok(base) = usize::try_from(address) else {
        return 0;
    };
    let remote = [RemoteIoVec { base, len: buffer.len() }];
    process_vm_readv(Pid::this(), &mut [IoSliceMut::new(buffer)], &remote).unwrap_or(0)
}

/// The mapping that holds `address`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sampler) struct Mapping {
    pub(in crate::sampler) low: u64,
    pub(in crate::sampler) end: u64,
    /// The main thread's stack, which the kernel grows and never joins with another mapping.
    pub(in crate::sampler) main_stack: bool,
}

/// Finds the mapping that holds `address`.
pub(in crate::sampler) fn mapping_of(address: u64) -> Option<Mapping> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().filter_map(parse_mapping).find(|map| (map.low..map.end).contains(&address))
}

fn parse_mapping(line: &str) -> Option<Mapping> {
    let (low, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let low = u64::from_str_radix(low, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    Some(Mapping { low, end, main_stack: line.ends_with("[stack]") })
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
    fn activity_is_read_as_the_kernel_writes_it() {
        assert_eq!(parse_activity("running"), Some(Activity::Running));
        let site = WaitSite { call: 202, sp: 0x7ffd_1000, pc: 0x7f00_2000 };
        let text = "202 0x7f 0x80 0x2 0x0 0x0 0x0 0x7ffd1000 0x7f002000";
        assert_eq!(parse_activity(text), Some(Activity::Blocked(site)));
        let fault = WaitSite { call: -1, ..site };
        assert_eq!(parse_activity("-1 0x7ffd1000 0x7f002000"), Some(Activity::Blocked(fault)));
        assert_eq!(parse_activity(""), None);
        assert_eq!(parse_activity("202"), None);
    }

    #[test]
    fn memory_is_copied_up_to_what_is_mapped() {
        let source = *b"the bytes of this stack";
        let mut copy = [0; 23];
        assert_eq!(read_memory(source.as_ptr() as u64, &mut copy), 23);
        assert_eq!(copy, source);
        assert_eq!(read_memory(8, &mut copy), 0);
    }

    #[test]
    fn this_threads_stack_is_a_mapping() {
        let here = &raw const *b"x" as u64;
        let local = 0u8;
        let stack = &raw const local as u64;
        let map = mapping_of(stack).unwrap();
        assert!(map.low <= stack && stack < map.end);
        assert_ne!(mapping_of(here), Some(map));
        assert_eq!(mapping_of(8), None);
    }

    #[test]
    fn a_thread_that_is_not_there_has_no_clock() {
        let own = nix::unistd::gettid().as_raw().unsigned_abs();
        assert!(thread_cpu_ns(own).is_some());
        assert!(thread_ids().unwrap().contains(&own));
        assert_eq!(thread_cpu_ns(4_194_303), None);
    }
}
