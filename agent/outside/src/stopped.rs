//! Samples of a running thread that is stopped for a moment (`ptrace`), where the kernel refuses events.
//!
//! The thread is attached to for one sample only: between two of them its signals and system calls are its own. While it
//! is stopped, a system call that it has just entered may fail with `EINTR`.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;
use system::foreign::{ForeignFrame, FrameWalker, Walk};
use system::process::Memory;
use system::processor::REGISTERS;

use crate::sys::trace::{Traced, detach, traced};

/// Most bytes of a stack that are copied.
const STACK_BYTES: usize = 64 << 10;
/// Most frames of an interpreter.
const FRAMES_MAX: usize = 512;

/// Samples of stopped threads, by one thread of this process: the kernel takes requests from the thread that has attached.
#[derive(Debug)]
pub(crate) struct Stopper {
    memory: Memory,
    /// Threads that are attached to and have not stopped yet. They run on until then. The kernel lets them go if this
    /// process's thread ends.
    asked: Vec<ToStop>,
    bytes: Vec<u8>,
    words: Vec<u64>,
    frames: Vec<ForeignFrame>,
}

/// A thread that was asked to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToStop {
    pub(crate) id: u32,
    /// Its id in the namespace of its process.
    pub(crate) inner_id: u32,
}

impl ToStop {
    fn pid(self) -> Pid {
        Pid::from_raw(self.id.cast_signed())
    }
}

/// Registers by their DWARF numbers, and the stack from the stack pointer on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopped<'a> {
    pub(crate) registers: [u64; REGISTERS],
    pub(crate) words: &'a [u64],
    /// The frames of the interpreter, the innermost first.
    pub(crate) frames: &'a [ForeignFrame],
    /// Whether the last one is the outermost.
    pub(crate) is_complete: bool,
}

impl Stopper {
    pub(crate) fn new(process: u32) -> Stopper {
        Stopper {
            memory: Memory::Of(process),
            asked: Vec::new(),
            bytes: vec![0; STACK_BYTES],
            words: Vec::new(),
            frames: vec![ForeignFrame::default(); FRAMES_MAX],
        }
    }

    /// Asks a thread to stop.
    ///
    /// # Errors
    /// The system's refusal. A thread that has ended is none.
    pub(crate) fn ask(&mut self, thread: ToStop) -> Result<(), Errno> {
        if self.is_asked(thread.id) {
            return Ok(());
        }
        match ptrace::seize(thread.pid(), ptrace::Options::empty()) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(()),
            Err(error) => return Err(error),
        }
        // It fails if the thread has just ended, which `collect` finds out.
        let _ = ptrace::interrupt(thread.pid());
        self.asked.push(thread);
        Ok(())
    }

    /// Whether a thread was asked to stop and has not stopped yet.
    pub(crate) fn is_asked(&self, thread: u32) -> bool {
        self.asked.iter().any(|asked| asked.id == thread)
    }

    /// Whether any thread is to stop.
    pub(crate) fn is_pending(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Passes each thread that has stopped to `each`, with the frames that `walker` finds, and lets it go on.
    pub(crate) fn collect(
        &mut self,
        walker: Option<&dyn FrameWalker>,
        mut each: impl FnMut(u32, Stopped<'_>),
    ) {
        let Stopper {
            memory,
            asked,
            bytes,
            words,
            frames,
        } = self;
        asked.retain(|thread| {
            let pid = thread.pid();
            let signal = match traced(pid.as_raw()) {
                Ok(Traced::Runs) => return true,
                Ok(Traced::Stopped(signal)) => signal,
                Ok(Traced::Ended) | Err(_) => return false,
            };
            let registers = registers_of(pid);
            let mut walk = Walk::default();
            if let Some(registers) = &registers {
                let sp = registers[system::processor::SP];
                let length = memory.read(sp & !7, bytes);
                let chunks = bytes[..length].as_chunks::<8>().0;
                words.clear();
                words.extend(chunks.iter().map(|bytes| u64::from_ne_bytes(*bytes)));
                if let Some(walker) = walker {
                    walk = walker.walk_blocked(thread.inner_id, frames);
                }
            }
            // It fails if the thread has just been killed.
            let _ = detach(pid.as_raw(), signal);
            if let Some(registers) = registers {
                let stopped = Stopped {
                    registers,
                    words,
                    frames: &frames[..walk.frames],
                    is_complete: walk.is_complete,
                };
                each(thread.id, stopped);
            }
            false
        });
    }
}

#[cfg(target_arch = "x86_64")]
fn registers_of(thread: Pid) -> Option<[u64; REGISTERS]> {
    let all = ptrace::getregs(thread).ok()?;
    Some([
        all.rax, all.rdx, all.rcx, all.rbx, all.rsi, all.rdi, all.rbp, all.rsp, all.r8, all.r9,
        all.r10, all.r11, all.r12, all.r13, all.r14, all.r15, all.rip,
    ])
}

#[cfg(target_arch = "aarch64")]
fn registers_of(thread: Pid) -> Option<[u64; REGISTERS]> {
    let all = ptrace::getregset::<ptrace::regset::NT_PRSTATUS>(thread).ok()?;
    let mut registers = [0; REGISTERS];
    registers[..31].copy_from_slice(&all.regs);
    registers[31] = all.sp;
    registers[32] = all.pc;
    Some(registers)
}
