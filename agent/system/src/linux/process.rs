//! Kernel data about this process's threads, read without disturbing them.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::IoSliceMut;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::descriptors;
use super::file::{CheckedFile, read_text};
use super::task_list::{TaskPath, ThreadName};

/// Most bytes of a thread's name, with the 0 at its end.
const NAME_BYTES: usize = 16;

/// The id of a thread's CPU clock.
pub fn cpu_clock_of(thread_id: u32) -> libc::clockid_t {
    // The kernel's layout: the complement of the thread's id, and "CPU clock of a thread" (6).
    ((!thread_id) << 3 | 6) as libc::clockid_t
}

/// CPU time of a thread of this process, in nanoseconds; `None` if there is no such thread.
#[inline]
pub fn thread_cpu_ns(thread_id: u32) -> Option<u64> {
    clock_ns(ClockId::from_raw(cpu_clock_of(thread_id)))
}

/// CPU time of the calling thread, in nanoseconds; 0 if the system refuses to tell.
#[inline]
pub fn own_cpu_ns() -> u64 {
    // For the kernel, 0 is the calling thread.
    thread_cpu_ns(0).unwrap_or(0)
}

/// How often the calling thread has blocked, and how often it has lost its processor to another thread.
pub fn own_switches() -> [u64; 2] {
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    usage.map_or([0; 2], |usage| {
        [
            usage.voluntary_context_switches(),
            usage.involuntary_context_switches(),
        ]
        .map(i64::unsigned_abs)
    })
}

/// Returns the CPU time of the whole process, also of threads that have ended.
pub fn process_cpu_ns() -> Option<u64> {
    clock_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the CPU time of another process, also of its threads that have ended; `None` if it is gone.
pub fn process_cpu_ns_of(process: u32) -> Option<u64> {
    // The kernel's layout: the complement of the process's id, and "CPU clock" (2).
    let clock = (!process << 3 | 2) as libc::clockid_t;
    clock_ns(ClockId::from_raw(clock))
}

/// Reads a clock, in nanoseconds.
#[inline]
pub fn clock_ns(clock: ClockId) -> Option<u64> {
    let time = clock_gettime(clock).ok()?;
    Some(u64::try_from(time.tv_sec()).ok()? * 1_000_000_000 + u64::try_from(time.tv_nsec()).ok()?)
}

/// Returns the kernel's id of the calling thread.
#[inline]
pub fn thread_id() -> u32 {
    nix::unistd::gettid().as_raw().unsigned_abs()
}

/// Returns the kernel's name of the calling thread, which threads that no Rust code started have
/// too.
pub fn own_thread_name() -> String {
    let mut name = [0u8; NAME_BYTES];
    // Not from `/proc`, because this may be a thread of the program, whose descriptors are not ours.
    // SAFETY: the kernel writes a string of at most `NAME_BYTES` with a 0 at its end.
    let result = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = CStr::from_bytes_until_nul(&name)
        .ok()
        .filter(|_| result == 0);
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the name of this machine.
pub fn host_name() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok()
}

/// The name of a thread; empty if it is gone.
pub fn thread_name(thread_id: u32) -> ThreadName {
    let mut name = [0; NAME_BYTES];
    let opened = File::open(TaskPath::new(thread_id, "comm"))
        .ok()
        .and_then(CheckedFile::new);
    let length = opened.map_or(0, |file| {
        file.unchecked().read_at(&mut name, 0).unwrap_or(0)
    });
    ThreadName::of(name[..length].trim_ascii_end())
}

/// Whether `signal` was sent to a thread and waits there; `None` if its status cannot be read.
pub fn has_pending(thread_id: u32, signal: Signal) -> Option<bool> {
    let mut buffer = [0; STATUS_BYTES];
    let set = u64::from_str_radix(status_value(thread_id, "SigPnd:", &mut buffer)?, 16).ok()?;
    Some(set & 1 << (signal as i32 - 1) != 0)
}

/// The id of a process or thread in its own namespace, from its folder in `/proc`; `None` if it has ended.
#[must_use]
pub fn innermost_id(folder: &str) -> Option<u32> {
    let status = read_text(&format!("{folder}/status")).ok()?;
    let ids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().last()?.parse().ok()
}

/// Whether a thread may only read, write and exit (strict seccomp); `None` if its status cannot be
/// read.
pub fn has_strict_filter(thread_id: u32) -> Option<bool> {
    const STRICT: &str = "1";
    let mut buffer = [0; STATUS_BYTES];
    status_value(thread_id, "Seccomp:", &mut buffer).map(|mode| mode == STRICT)
}

/// Bytes of a thread's status that are read: it has 1.5 KiB, and up to 11 for each group of the user.
const STATUS_BYTES: usize = 16 * 1024;

/// Reads a line of a thread's status, without memory of the allocator.
fn status_value<'b>(thread_id: u32, key: &str, buffer: &'b mut [u8]) -> Option<&'b str> {
    let opened = File::open(TaskPath::new(thread_id, "status")).ok();
    let length = opened
        .and_then(CheckedFile::new)?
        .unchecked()
        .read_at(buffer, 0)
        .ok()?;
    let mut lines = buffer[..length].split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(key.as_bytes()))?;
    std::str::from_utf8(value.trim_ascii()).ok()
}

/// Lets the calling thread read clocks although the thread that started it may not.
pub fn allow_clocks() {
    // SAFETY: takes plain numbers, and affects the calling thread only.
    let result = unsafe { libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_ENABLE) };
    // Where it is not known, nothing can be forbidden either.
    let _ = result;
}

/// Leaves a real-time policy, which a thread inherits from the one that starts it: work of the agent must not come before
/// the program's.
///
/// # Errors
/// If the system refuses it.
pub fn leave_real_time() -> Result<(), Errno> {
    // SAFETY: takes a plain number; 0 means the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if ![libc::SCHED_FIFO, libc::SCHED_RR].contains(&(policy & !libc::SCHED_RESET_ON_FORK)) {
        return Ok(());
    }
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads `ordinary`; 0 means the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) };
    Errno::result(result).map(drop)
}

/// The kind of file behind a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescriptorKind {
    /// A socket.
    Socket,
    /// A file or folder of a file system, or a disk.
    File,
    /// A pipe, a terminal, or anything else.
    Other,
}

/// The kind of the program's `descriptor`; `None` if it is closed.
pub fn descriptor_kind(descriptor: i32) -> Option<DescriptorKind> {
    let mode = if descriptors::are_shared() {
        mode_in_own_table(descriptor)?
    } else {
        // The number means something else on this thread.
        fs::metadata(format!("/proc/self/fd/{descriptor}"))
            .ok()?
            .mode()
    };
    Some(kind_of_mode(mode))
}

/// The kind of a descriptor of another process; `None` if it is closed or the system refuses.
pub fn descriptor_kind_of(process: u32, descriptor: i32) -> Option<DescriptorKind> {
    let facts = fs::metadata(format!("/proc/{process}/fd/{descriptor}")).ok()?;
    Some(kind_of_mode(facts.mode()))
}

fn kind_of_mode(mode: libc::mode_t) -> DescriptorKind {
    match mode & libc::S_IFMT {
        libc::S_IFSOCK => DescriptorKind::Socket,
        libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR => DescriptorKind::File,
        _ => DescriptorKind::Other,
    }
}

fn mode_in_own_table(descriptor: i32) -> Option<libc::mode_t> {
    // SAFETY: every byte pattern of zeros is a valid `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing; `fstat` accepts any descriptor number.
    let result = unsafe { libc::fstat(descriptor, &raw mut stat) };
    (result == 0).then_some(stat.st_mode)
}

/// How to copy memory of this process that may be unmapped at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryAccess {
    /// By `process_vm_readv`.
    Call,
    /// By reading `/proc/self/mem`, which is slower.
    File,
}

/// The process id to pass to `process_vm_readv`; 0 if memory is read as a file.
static MEMORY_PID: AtomicI32 = AtomicI32::new(0);

/// Chooses how [`read_memory`] works in this process.
pub fn set_memory_access(access: MemoryAccess) {
    let pid = if access == MemoryAccess::Call {
        Pid::this().as_raw()
    } else {
        0
    };
    MEMORY_PID.store(pid, Ordering::Relaxed);
}

/// The process whose memory is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Memory {
    /// This one.
    #[default]
    Own,
    /// Another one, by its id.
    Of(u32),
}

impl Memory {
    /// Copies memory from `address` and returns the number of bytes read, as [`read_memory`] does. The process is
    /// neither stopped nor changed.
    #[inline]
    pub fn read(self, address: u64, buffer: &mut [u8]) -> usize {
        match self {
            Memory::Own => read_memory(address, buffer),
            Memory::Of(process) => read_memory_of(process as i32, address, buffer),
        }
    }
}

/// Copies memory of this process from `address` and returns the number of bytes read. Unmapped
/// memory ends the copy early; it does not fault.
#[inline]
pub fn read_memory(address: u64, buffer: &mut [u8]) -> usize {
    let pid = MEMORY_PID.load(Ordering::Relaxed);
    if pid == 0 {
        let memory = File::open("/proc/self/mem").ok().and_then(CheckedFile::new);
        return memory
            .and_then(|memory| memory.unchecked().read_at(buffer, address).ok())
            .unwrap_or(0);
    }
    read_memory_of(pid, address, buffer)
}

fn read_memory_of(pid: i32, address: u64, buffer: &mut [u8]) -> usize {
    let Ok(base) = usize::try_from(address) else {
        return 0;
    };
    let remote = [RemoteIoVec {
        base,
        len: buffer.len(),
    }];
    process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(buffer)], &remote).unwrap_or(0)
}

/// Lowers the calling thread's share of a busy machine to about a third of an ordinary thread's:
/// low enough not to get in the way, high enough to symbolize a second's samples within a second.
pub fn lower_priority() {
    const NICE: libc::c_int = 5;
    // SAFETY: `setpriority` takes plain numbers; 0 means the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    // A sandbox may refuse it; the thread then keeps its normal priority.
    let _ = result;
}

/// Raises the calling thread's share of a busy machine to about ten times that of an ordinary thread, if
/// the system permits it: that needs `CAP_SYS_NICE`, or a limit (`RLIMIT_NICE`). Otherwise nothing changes.
pub fn raise_priority() {
    const NICE_LESS: libc::c_int = 10;
    // SAFETY: takes plain numbers; 0 means the calling thread. It cannot fail for that.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: as in `lower_priority`.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice - NICE_LESS) };
    // Most programs may not.
    let _ = result;
}

/// Requests the shortest slice for the calling thread. Among threads that have had less than their share,
/// Linux (from 6.12 on) prefers the one whose slice ends first.
pub fn shorten_slice() -> Result<(), Errno> {
    /// The kernel's attributes of a thread, in their first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const SLICE_NS: u64 = 100_000;
    // SAFETY: takes a plain number; 0 means the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    if policy != libc::SCHED_OTHER {
        return Ok(());
    }
    // SAFETY: takes plain numbers; 0 means the calling thread. It cannot fail for that.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: policy.unsigned_abs(),
        flags: 0,
        nice,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of `attributes`; 0 means the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    // Older kernels ignore the slice.
    Errno::result(result).map(drop)
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
    fn a_thread_is_preferred_as_far_as_the_system_permits() {
        // On a thread of its own, which keeps its priority.
        let nice_values = std::thread::spawn(|| {
            // SAFETY: takes plain numbers; 0 means the calling thread.
            let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            let before = nice();
            raise_priority();
            let raised = nice();
            shorten_slice().unwrap();
            assert_eq!(nice(), raised, "the slice leaves the priority as it is");
            (before, raised)
        });
        let (before, raised) = nice_values.join().unwrap();
        assert!(
            raised == before || raised == (before - 10).max(-20),
            "{before}, then {raised}"
        );
    }

    #[test]
    fn real_time_is_left_for_the_ordinary_policy() {
        std::thread::spawn(|| {
            // SAFETY: takes a plain number; 0 means the calling thread.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            for real_time in [libc::SCHED_FIFO, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK] {
                let lowest = libc::sched_param { sched_priority: 1 };
                // SAFETY: the kernel reads `lowest`. Only the superuser may do this.
                unsafe { libc::sched_setscheduler(0, real_time, &raw const lowest) };
                leave_real_time().unwrap();
                assert_eq!(policy(), libc::SCHED_OTHER);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_missing_thread_has_no_cpu_clock() {
        let own = nix::unistd::gettid().as_raw().unsigned_abs();
        assert!(thread_cpu_ns(own).is_some());
        assert_eq!(thread_cpu_ns(4_194_303), None);
    }
}
