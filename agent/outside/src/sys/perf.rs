//! Samples of a running thread by the kernel (`perf_event_open`): after a period of its CPU time, the registers and a copy
//! of the stack of its user code.
//!
//! The kernel writes records into a ring that this process reads. What finds no room is counted by the kernel.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use system::processor::REGISTERS;

/// Bytes of a ring's records: seven samples of full stacks, or three. The smaller one is for users whose locked memory is
/// limited (`kernel.perf_event_mlock_kb`).
const RING_BYTES: [usize; 2] = [256 << 10, 64 << 10];
/// Most bytes of a stack that are copied. A record has less than 64 KiB.
const STACK_BYTES_MAX: usize = 32 << 10;
/// Most records that are read at once; others wait for the next time.
const RECORDS_MAX: usize = 64;

/// `PERF_TYPE_SOFTWARE`, and its `PERF_COUNT_SW_CPU_CLOCK`.
const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;

/// Parts of a sample, in the order of its record.
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_READ: u64 = 1 << 4;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;

const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const RECORD_MAPPINGS_OF_CODE: u64 = 1 << 8;
const USE_CLOCK_ID: u64 = 1 << 25;

const RECORD_MAPPING: u32 = 1;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
/// The registers of a sample are those of 64-bit code.
const ABI_64: u64 = 2;

/// `PERF_EVENT_IOC_PERIOD`: the kernel reads a number of 8 bytes.
const SET_PERIOD: libc::Ioctl = 0x4008_2404;

/// Offsets in the first page of the memory.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;
const DATA_SIZE: usize = 1048;

/// The kernel's attributes of an event, in their fifth version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock_id: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// By their number in DWARF: the kernel's number of a register.
#[cfg(target_arch = "x86_64")]
const KERNEL_NUMBERS: [u8; REGISTERS] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8];
#[cfg(target_arch = "aarch64")]
const KERNEL_NUMBERS: [u8; REGISTERS] = {
    let mut numbers = [0; REGISTERS];
    let mut number = 0;
    while number < REGISTERS {
        numbers[number] = number as u8;
        number += 1;
    }
    numbers
};

/// One sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<'a> {
    /// When it was taken, by the monotonic clock.
    pub(crate) at_ns: u64,
    /// CPU time of the thread since the event was opened.
    pub(crate) cpu_ns: u64,
    /// By their DWARF numbers.
    pub(crate) registers: [u64; REGISTERS],
    /// The stack from the stack pointer on.
    pub(crate) words: &'a [u64],
}

/// A record of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'a> {
    Sample(Sample<'a>),
    /// The thread has mapped code.
    Mapping,
}

/// Samples of one thread.
#[derive(Debug)]
pub(crate) struct Event {
    /// Closed after the memory is unmapped.
    file: File,
    memory: Memory,
    /// The record that is being read.
    record: Vec<u8>,
    words: Vec<u64>,
}

/// Code of a thread that is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// Also while it runs in the kernel, where its user code made a call.
    All,
    /// Its user code only, which needs fewer rights.
    User,
}

/// The mapped memory of an event.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    data_offset: usize,
    data_bytes: u64,
}

// SAFETY: the memory belongs to this value alone, and the kernel does not care which thread reads it.
unsafe impl Send for Memory {}

impl Event {
    /// Samples a thread from now on, after each `period_ns` of its CPU time.
    ///
    /// # Errors
    /// If the system refuses, or the thread is gone.
    pub(crate) fn open(thread_id: u32, period_ns: u64, scope: Scope) -> io::Result<Event> {
        let [large, small] = RING_BYTES;
        Event::with_ring(thread_id, period_ns, scope, large).or_else(|error| {
            match error.raw_os_error() {
                // Too much locked memory, or not allowed at all.
                Some(libc::EPERM) => Event::with_ring(thread_id, period_ns, scope, small),
                _ => Err(error),
            }
        })
    }

    fn with_ring(
        thread_id: u32,
        period_ns: u64,
        scope: Scope,
        ring_bytes: usize,
    ) -> io::Result<Event> {
        let registers = KERNEL_NUMBERS
            .iter()
            .fold(0, |mask, number| mask | 1 << number);
        let exclude_kernel = if scope == Scope::User {
            EXCLUDE_KERNEL
        } else {
            0
        };
        let attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: CPU_CLOCK,
            sample_period: period_ns,
            sample_type: SAMPLE_TID
                | SAMPLE_TIME
                | SAMPLE_READ
                | SAMPLE_REGS_USER
                | SAMPLE_STACK_USER,
            flags: exclude_kernel | EXCLUDE_HYPERVISOR | RECORD_MAPPINGS_OF_CODE | USE_CLOCK_ID,
            sample_regs_user: registers,
            sample_stack_user: STACK_BYTES_MAX.min(ring_bytes / 4) as u32,
            clock_id: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        const ANY_PROCESSOR: libc::c_int = -1;
        const NO_GROUP: libc::c_int = -1;
        const CLOSE_ON_EXEC: libc::c_ulong = 8;
        // SAFETY: the kernel reads `size` bytes of `attributes`; the others are plain numbers.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread_id.cast_signed(),
                ANY_PROCESSOR,
                NO_GROUP,
                CLOSE_ON_EXEC,
            )
        };
        let Ok(descriptor) = i32::try_from(descriptor) else {
            return Err(io::Error::other("the kernel returned no descriptor"));
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, which nobody else has.
        let file = unsafe { File::from_raw_fd(descriptor) };
        let memory = Memory::map(&file, ring_bytes)?;
        Ok(Event {
            file,
            memory,
            record: Vec::new(),
            words: Vec::new(),
        })
    }

    /// Lets the next sample, and further ones, come after this much CPU time from now on.
    ///
    /// # Errors
    /// If the kernel refuses; the period stays then.
    pub(crate) fn set_period(&self, period_ns: u64) -> io::Result<()> {
        // SAFETY: the kernel reads the 8 bytes of `period_ns`.
        let done = unsafe { libc::ioctl(self.file.as_raw_fd(), SET_PERIOD, &raw const period_ns) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Passes the records since the last call to `each`, oldest first. Returns how many the kernel had no room for.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Record<'_>)) -> u64 {
        const HEADER_BYTES: u64 = 8;
        let head = self.memory.head();
        let mut at = self.memory.tail();
        let mut lost = 0;
        for _ in 0..RECORDS_MAX {
            if head.wrapping_sub(at) < HEADER_BYTES {
                break;
            }
            self.memory.copy(at, HEADER_BYTES, &mut self.record);
            let kind = number(&self.record, 0) as u32;
            let bytes = number(&self.record, 0) >> 48;
            if bytes < HEADER_BYTES || bytes > head.wrapping_sub(at) {
                // Never seen. The rest cannot be divided into records.
                at = head;
                break;
            }
            self.memory.copy(at, bytes, &mut self.record);
            at = at.wrapping_add(bytes);
            match kind {
                RECORD_LOST => lost += number(&self.record, 16),
                RECORD_SAMPLE => {
                    if let Some(sample) = parse(&self.record, &mut self.words) {
                        each(Record::Sample(sample));
                    }
                }
                RECORD_MAPPING => each(Record::Mapping),
                _ => {}
            }
        }
        self.memory.set_tail(at);
        lost
    }
}

/// Parses a record of a sample; `None` without registers, as of code for 32 bits.
fn parse<'a>(record: &[u8], words: &'a mut Vec<u64>) -> Option<Sample<'a>> {
    const TIME: usize = 16;
    const COUNT: usize = 24;
    const ABI: usize = 32;
    const FIRST_REGISTER: usize = 40;
    const STACK: usize = FIRST_REGISTER + 8 * REGISTERS;
    if record.len() < STACK + 8 || number(record, ABI) != ABI_64 {
        return None;
    }
    let mut sorted = KERNEL_NUMBERS;
    sorted.sort_unstable();
    let registers = KERNEL_NUMBERS.map(|wanted| {
        let index = sorted.partition_point(|number| *number < wanted);
        number(record, FIRST_REGISTER + 8 * index)
    });
    let room = usize::try_from(number(record, STACK)).ok()?;
    words.clear();
    if room > 0 {
        let copy = record.get(STACK + 8..)?.get(..room)?;
        let used = usize::try_from(number(record, STACK + 8 + room)).ok()?;
        let used = copy.get(..used)?;
        let chunks = used.as_chunks::<8>().0;
        words.extend(chunks.iter().map(|bytes| u64::from_ne_bytes(*bytes)));
    }
    Some(Sample {
        at_ns: number(record, TIME),
        cpu_ns: number(record, COUNT),
        registers,
        words,
    })
}

/// The number at an offset; 0 behind the end.
fn number(record: &[u8], at: usize) -> u64 {
    let bytes = record.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

impl Memory {
    fn map(file: &File, ring_bytes: usize) -> io::Result<Memory> {
        // SAFETY: takes a plain number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(io::Error::other)?;
        let bytes = page + ring_bytes;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        let memory = Memory {
            start,
            bytes,
            data_offset: page,
            data_bytes: ring_bytes as u64,
        };
        let stated = [DATA_OFFSET, DATA_SIZE].map(|at| memory.word(at).load(Ordering::Relaxed));
        if stated != [memory.data_offset as u64, memory.data_bytes] && stated != [0, 0] {
            return Err(io::Error::other("the kernel's ring has another form"));
        }
        Ok(memory)
    }

    /// A word of the first page.
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the offsets are within the first page.
        let pointer = unsafe { self.start.add(at) }.cast::<AtomicU64>();
        // SAFETY: the word is aligned, is mapped as long as `self` lives, and is only accessed atomically here.
        unsafe { pointer.as_ref() }
    }

    fn head(&self) -> u64 {
        // The records up to it were written before.
        self.word(DATA_HEAD).load(Ordering::Acquire)
    }

    fn tail(&self) -> u64 {
        self.word(DATA_TAIL).load(Ordering::Relaxed)
    }

    fn set_tail(&self, tail: u64) {
        // The kernel may overwrite the records before it.
        self.word(DATA_TAIL).store(tail, Ordering::Release);
    }

    /// Copies `bytes` of the ring from the position `at` on, at most all of it.
    fn copy(&self, at: u64, bytes: u64, to: &mut Vec<u8>) {
        let length = bytes.min(self.data_bytes) as usize;
        let begin = (at % self.data_bytes) as usize;
        let first = length.min(self.data_bytes as usize - begin);
        to.clear();
        to.resize(length, 0);
        // SAFETY: the ring begins there, within the mapping.
        let data = unsafe { self.start.add(self.data_offset) };
        // SAFETY: `begin` is within the ring.
        let from = unsafe { data.add(begin) };
        // SAFETY: `first` bytes from `begin` on are in the ring, which the kernel does not write between head and tail,
        // and `to` has room for them.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), first) };
        let rest = &mut to[first..];
        // SAFETY: the rest is at the beginning of the ring, and shorter than it.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), rest.as_mut_ptr(), rest.len()) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `map`, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use system::processor::{PC, SP};

    use super::*;

    #[test]
    fn a_record_is_parsed_within_its_bounds() {
        let mut record = vec![0; 40];
        record[32..40].copy_from_slice(&ABI_64.to_ne_bytes());
        record[24..32].copy_from_slice(&55u64.to_ne_bytes());
        record[16..24].copy_from_slice(&77u64.to_ne_bytes());
        for register in 0..REGISTERS as u64 {
            record.extend((100 + register).to_ne_bytes());
        }
        for word in [24, 1, 2, 3, 16u64] {
            record.extend(word.to_ne_bytes());
        }
        let mut words = Vec::new();
        let sample = parse(&record, &mut words).unwrap();
        assert_eq!((sample.at_ns, sample.cpu_ns), (77, 55));
        assert_eq!(sample.words, [1, 2]);
        if cfg!(target_arch = "x86_64") {
            assert_eq!([sample.registers[SP], sample.registers[PC]], [107, 108]);
        }
        for length in 0..record.len() {
            assert!(parse(&record[..length.min(record.len() - 40)], &mut words).is_none());
        }
        let stack_at = record.len() - 40;
        record[stack_at..stack_at + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(parse(&record, &mut words).is_none());
    }
}
