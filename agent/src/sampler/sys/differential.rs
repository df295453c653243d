//! Compares a stack unwound from a copy with the stack that the `backtrace` crate finds in place at the
//! same instant: a handler on the interrupted thread copies registers and stack like the sampler's, and
//! walks the stack with the compiler's unwinder (libgcc). Each workload is one kind of code. Run with
//! `--nocapture` to see the shares, and with `SAMPLES=50000` for a longer run.

mod workloads;

use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use std::{env, mem, ptr, thread};

use self::workloads::{Helper, Workload};
use crate::sampler::memory::copied;
use crate::sampler::unwind::{Registers, Stack, Unwinder};
use system::processor::{PC, REGISTERS, SP, register};

/// Samples of each workload, unless the environment variable `SAMPLES` is set.
const SAMPLES: usize = 2_000;
/// Least share of identical stacks, in ten-thousandths.
const IDENTICAL_MIN: usize = 9_995;
/// On aarch64 our stacks end with the C library's first function written in C, whose caller's frame pointer
/// is 0. Theirs have the assembly that starts a thread, too.
const ROOT_FRAMES_LEFT_OUT: bool = cfg!(target_arch = "aarch64");
/// One sample of this many is the most on which the `backtrace` crate may crash. On aarch64 it knows of signed
/// return addresses only where the tables are right, which they are not between instructions of a prologue: it
/// crashes on 3 to 8 of 100 samples of C++.
const CRASHED_OF: usize = if cfg!(target_arch = "aarch64") { 5 } else { 20 };
const STACK_WORDS: usize = 64 * 1024 / 8;
const FRAMES_MAX: usize = 1_024;
/// Polls of the answer, each followed by a yield, before the thread is considered stuck: minutes.
const POLLS_MAX: u64 = 1_000_000_000;

const ASKED: u32 = 1;
const ANSWERED: u32 = 2;
/// The `backtrace` crate followed an invalid address.
const CRASHED: u32 = 3;

/// The handler's answer; one thread is asked at a time.
struct Answer {
    state: AtomicU32,
    registers: [AtomicU64; REGISTERS],
    /// Address of the interrupted registers, which the kernel stores on the thread's stack.
    context: AtomicUsize,
    words: AtomicUsize,
    frames: AtomicUsize,
    stack: UnsafeCell<[u64; STACK_WORDS]>,
    found: UnsafeCell<[u64; FRAMES_MAX]>,
}

// SAFETY: only the handler writes `stack` and `found`, and only while `state` is ASKED; the test's thread
// reads them only while it is ANSWERED, which it observes with acquire.
unsafe impl Sync for Answer {}

static ANSWER: Answer = Answer {
    state: AtomicU32::new(ANSWERED),
    registers: [const { AtomicU64::new(0) }; REGISTERS],
    context: AtomicUsize::new(0),
    words: AtomicUsize::new(0),
    frames: AtomicUsize::new(0),
    stack: UnsafeCell::new([0; STACK_WORDS]),
    found: UnsafeCell::new([0; FRAMES_MAX]),
};

extern "C" fn handler(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    if ANSWER.state.load(Ordering::Acquire) != ASKED {
        return;
    }
    // SAFETY: under SA_SIGINFO the kernel passes a valid `ucontext_t`.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    for (index, slot) in ANSWER.registers.iter().enumerate() {
        slot.store(register(machine, index), Ordering::Relaxed);
    }
    ANSWER.context.store(context.addr(), Ordering::Relaxed);
    let sp = ANSWER.registers[SP].load(Ordering::Relaxed);
    // SAFETY: it takes nothing and returns the address of this thread's control block, which is at the
    // upper end of the stack that the C library created for it.
    let end = unsafe { libc::pthread_self() };
    let from = sp & !7;
    let words = (end.saturating_sub(from) / 8).min(STACK_WORDS as u64) as usize;
    // SAFETY: the stack between its pointer and its end is mapped and this thread's own; `stack` is
    // the handler's while the state is ASKED.
    unsafe { ptr::copy_nonoverlapping(from as *const u64, ANSWER.stack.get().cast(), words) };
    ANSWER.words.store(words, Ordering::Relaxed);
    let guarded = GUARDED.get().expect("set before the first signal");
    // `siglongjmp` leaves `walk` where it faults; none of its frames owns anything.
    let crashed = guarded(walk) != 0;
    ANSWER
        .state
        .store(if crashed { CRASHED } else { ANSWERED }, Ordering::Release);
}

/// Walks the interrupted thread's stack in place.
extern "C" fn walk() {
    let pc = ANSWER.registers[PC].load(Ordering::Relaxed);
    let context = ANSWER.context.load(Ordering::Relaxed);
    let found: *mut u64 = ANSWER.found.get().cast();
    let mut count = 0;
    let mut inside = false;
    let each = |frame: &backtrace::Frame| {
        let address = frame.ip().addr() as u64;
        // Frames above the interrupted instruction belong to the handler. The last of them is the signal
        // trampoline, which may be the interrupted code, too.
        inside |= address == pc && frame.sp().addr() > context;
        // The outermost frame may be followed by one without an address.
        if inside && address != 0 {
            // SAFETY: `count` is below the array's length; only the handler uses the array now.
            unsafe { found.wrapping_add(count).write(address) };
            count += 1;
            ANSWER.frames.store(count, Ordering::Relaxed);
        }
        count < FRAMES_MAX
    };
    ANSWER.frames.store(0, Ordering::Relaxed);
    // SAFETY: only this thread walks a stack, because one is asked at a time.
    unsafe { backtrace::trace_unsynchronized(each) };
}

/// The helper's `helper_guarded`.
static GUARDED: OnceLock<extern "C" fn(extern "C" fn()) -> c_int> = OnceLock::new();

fn install(helper: &Helper) {
    let _ = GUARDED.set(helper.guarded);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The unwinder initializes itself at its first use, which must not be in a handler.
        backtrace::trace(|_| true);
        // SAFETY: all zeros are a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: `handler` has the type that SA_SIGINFO requires.
        let result = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()) };
        assert_eq!(result, 0);
    });
}

/// Asks a thread and waits for its answer. Returns `false` if the `backtrace` crate crashed.
fn ask(thread_id: u32) -> bool {
    ANSWER.state.store(ASKED, Ordering::Release);
    // SAFETY: `tgkill` takes plain numbers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            std::process::id(),
            thread_id,
            libc::SIGUSR1,
        )
    };
    assert_eq!(result, 0, "thread {thread_id} is gone");
    let mut polls = 0;
    loop {
        match ANSWER.state.load(Ordering::Acquire) {
            ASKED => thread::yield_now(),
            state => return state == ANSWERED,
        }
        polls += 1;
        assert!(polls < POLLS_MAX, "thread {thread_id} does not answer");
    }
}

/// The two stacks of one sample.
struct Comparison {
    /// The sampler's stack, innermost frame first.
    ours: Vec<u64>,
    complete: bool,
    /// Whether a stack from what the kernel shows of a blocked thread has the same callers.
    as_if_blocked: bool,
    /// Whether code without tables, where theirs ends, lacks the caller that the return address in its register
    /// names, on a processor with such a register.
    caller_lost: bool,
    /// The stack of the `backtrace` crate, innermost frame first.
    theirs: Vec<u64>,
}

fn compare(unwinder: &mut Unwinder) -> Comparison {
    let registers = ANSWER
        .registers
        .each_ref()
        .map(|word| word.load(Ordering::Relaxed));
    // SAFETY: the state is ANSWERED, so no handler writes until the next `ask`.
    let stack: &[u64; STACK_WORDS] = unsafe { &*ANSWER.stack.get() };
    // SAFETY: likewise.
    let found: &[u64; FRAMES_MAX] = unsafe { &*ANSWER.found.get() };
    let words = &stack[..ANSWER.words.load(Ordering::Relaxed)];
    let mut ours = Stack::default();
    unwinder.unwind(
        Registers::all(registers),
        copied(registers[SP] & !7, words),
        &mut ours,
    );
    let mut blocked = Stack::default();
    let known = Registers::of_caller(registers[PC], registers[SP], None);
    unwinder.unwind(known, copied(registers[SP] & !7, words), &mut blocked);
    // The nearest caller may be known by its function only.
    let callers = |stack: &Stack| stack.addresses.iter().skip(2).copied().collect::<Vec<_>>();
    let as_if_blocked = callers(&ours) == callers(&blocked);
    let mut theirs = found[..ANSWER.frames.load(Ordering::Relaxed)].to_vec();
    // Theirs are return addresses, where ours are inside the call; the interrupted address is exact.
    for (address, ours) in theirs.iter_mut().zip(&ours.addresses).skip(1) {
        *address -= u64::from(*address != *ours);
    }
    #[cfg(target_arch = "aarch64")]
    let return_address = Some(registers[system::processor::LR] - 1);
    #[cfg(not(target_arch = "aarch64"))]
    let return_address: Option<u64> = None;
    let caller = ours.addresses.get(1);
    let caller_lost =
        theirs.len() == 1 && return_address.is_some_and(|address| caller != Some(&address));
    let complete = ours.complete;
    Comparison {
        ours: ours.addresses,
        complete,
        as_if_blocked,
        caller_lost,
        theirs,
    }
}

/// Counts of one workload.
#[derive(Default)]
struct Score {
    samples: usize,
    crashed: usize,
    identical: usize,
    /// Theirs ends at code without tables, where ours continues to the root.
    further: usize,
    complete: usize,
    as_if_blocked: usize,
    callers_lost: usize,
    frames: usize,
    leaves: HashMap<u64, usize>,
    differences: HashMap<String, usize>,
}

impl Score {
    fn add(&mut self, comparison: &Comparison) {
        let Comparison {
            ours,
            complete,
            as_if_blocked,
            caller_lost,
            theirs,
        } = comparison;
        self.callers_lost += usize::from(*caller_lost);
        self.samples += 1;
        self.complete += usize::from(*complete);
        self.as_if_blocked += usize::from(*as_if_blocked);
        self.frames += ours.len();
        *self.leaves.entry(ours[0]).or_default() += 1;
        if ours == theirs
            || ROOT_FRAMES_LEFT_OUT && theirs.split_last().is_some_and(|(_, rest)| rest == ours)
        {
            self.identical += 1;
            return;
        }
        if *complete && ours.starts_with(theirs) {
            self.further += 1;
            return;
        }
        let common = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        let last = |stack: &[u64]| stack.last().map_or("nothing".into(), |last| name(*last));
        let text = format!(
            "leaf {} | {common} common | ours {} to {}{} | theirs {} to {}",
            name(ours[0]),
            ours.len(),
            last(ours),
            if *complete { " (the root)" } else { "" },
            theirs.len(),
            last(theirs),
        );
        *self.differences.entry(text).or_default() += 1;
    }

    /// Counts a sample on which the `backtrace` crate crashed.
    fn count_crash(&mut self) {
        self.crashed += 1;
        let pc = ANSWER.registers[PC].load(Ordering::Relaxed);
        *self
            .differences
            .entry(format!("leaf {} | theirs crashed", name(pc)))
            .or_default() += 1;
    }

    fn print(&self, workload: &str) {
        let share = |part: usize| 100.0 * part as f64 / self.samples as f64;
        println!(
            "{workload:12} {:6} samples  {:5} leaves  {:5.1} frames  {:8.4} % identical  {:4} further  \
             {:8.4} % to the root  {:8.4} % as if blocked  {:4} crashed",
            self.samples,
            self.leaves.len(),
            self.frames as f64 / self.samples as f64,
            share(self.identical),
            self.further,
            share(self.complete),
            share(self.as_if_blocked),
            self.crashed,
        );
        let mut differences: Vec<_> = self.differences.iter().collect();
        differences.sort_by_key(|(_, count)| usize::MAX - **count);
        for (text, count) in differences.iter().take(12) {
            println!("    {count:5} × {text}");
        }
    }
}

/// The function at `address`, or the address itself. On aarch64 it is always the address, because under emulation
/// the first name takes more than a minute.
fn name(address: u64) -> String {
    let mut name = None;
    if cfg!(target_arch = "aarch64") {
        return format!("{address:#x}");
    }
    backtrace::resolve(ptr::without_provenance_mut(address as usize), |symbol| {
        name = name
            .take()
            .or_else(|| Some(format!("{:#}", symbol.name()?)));
    });
    name.unwrap_or_else(|| format!("{address:#x}"))
}

#[test]
fn stacks_equal_those_of_the_backtrace_crate() {
    let samples = env::var("SAMPLES").map_or(SAMPLES, |text| text.parse().unwrap());
    let helper = Helper::load();
    install(&helper);
    let mut too_few = Vec::new();
    for workload in workloads::all(&helper) {
        let Workload { name, start } = workload;
        let running = start();
        let mut unwinder = Unwinder::new();
        let mut score = Score::default();
        while score.samples < samples {
            let round = score.samples + score.crashed;
            if ask(running.threads[round % running.threads.len()]) {
                score.add(&compare(&mut unwinder));
            } else {
                score.count_crash();
            }
        }
        drop(running);
        score.print(name);
        assert!(
            score.crashed * CRASHED_OF < samples,
            "{name}: too few can be compared"
        );
        if name == "plt" {
            assert_eq!(
                score.callers_lost, 0,
                "entries of a linkage table without their caller"
            );
        }
        // Neither has `memcpy` a frame, nor does its caller need another register than the stack pointer.
        if name == "memcpy" {
            let share = score.as_if_blocked * 100 / samples;
            assert!(
                share >= 95,
                "{share} % of stacks are found from the registers of a blocked thread"
            );
        }
        if (score.identical + score.further) * 10_000 < samples * IDENTICAL_MIN {
            too_few.push(name);
        }
    }
    assert!(
        too_few.is_empty(),
        "fewer than {IDENTICAL_MIN} of 10,000 identical: {too_few:?}"
    );
}
