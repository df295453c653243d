//! The sampler's side of the slots and buffers that it shares with the signal handlers.

use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::sys::signal::Signal;

use super::alternate;
use super::protocol::BufferWord;
use super::signal::{
    self, BUFFER_WORDS, BUFFERS, Buffer, EXPIRED, NO_WORD, SLOTS, SLOTS_MAX, Slot,
};
use crate::registry::ThreadCell;
use crate::sampler::foreign::Found;
use system::page_vec::PageVec;
use system::processor::{REGISTERS, SP};

/// A thread's slot, until it is released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::sampler) struct SlotId {
    index: usize,
    generation: u32,
}

impl SlotId {
    /// The value that the thread's timer must send with its signal.
    pub(in crate::sampler) fn signal_value(self) -> isize {
        signal::value_of(self.index, self.generation)
    }

    /// Its number among all slots.
    pub(in crate::sampler) fn index(self) -> usize {
        self.index
    }
}

/// The part of a thread's stack that its handler may copy; empty if it is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::sampler) struct StackSpan {
    pub(in crate::sampler) low: u64,
    pub(in crate::sampler) end: u64,
    /// Whether the thread was seen on another stack, of which the handler may make a checked copy.
    pub(in crate::sampler) checked: bool,
}

/// A running thread's state, as its handler copied it.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct Sample<'s> {
    /// As [`system::processor::register`] numbers them.
    pub(in crate::sampler) registers: [u64; REGISTERS],
    /// The word of [`ThreadCell::task_word`]; `None` if no cell was known when the thread was
    /// asked.
    pub(in crate::sampler) task_word: Option<u64>,
    /// The thread pointer, which is at the upper end of a stack that the C library created.
    pub(in crate::sampler) thread_pointer: u64,
    /// The stack from `sp` (rounded down to a word) upwards; empty if it could not be copied.
    pub(in crate::sampler) stack: &'s [u64],
    /// The frames of an interpreter.
    pub(in crate::sampler) foreign: Found<'s>,
    /// Whether the stack continues above the copy.
    pub(in crate::sampler) cut: bool,
    /// The samples of the process are numbered in their order.
    pub(in crate::sampler) number: u64,
    /// `None` if the handler did not read the time-stamp counter.
    pub(in crate::sampler) time: Option<HandlerTime>,
    /// Samples of the same thread after this one that are harvested with it.
    pub(in crate::sampler) later: u64,
}

/// The time-stamp counter when a handler began, and how many ticks of it the handler took.
#[derive(Clone, Copy, Debug)]
pub(in crate::sampler) struct HandlerTime {
    pub(in crate::sampler) begin: u64,
    pub(in crate::sampler) took: u64,
}

impl Sample<'_> {
    pub(in crate::sampler) fn sp(&self) -> u64 {
        self.registers[SP]
    }
}

/// All slots. They have one owner at a time.
#[derive(Debug)]
pub(in crate::sampler) struct Slots {
    signal: Signal,
    /// By slot, as far as slots have been used: keeps the thread's task word alive while a handler
    /// may read it.
    cells: PageVec<Option<Arc<ThreadCell>>>,
    /// Used slots that are free again.
    free: PageVec<usize>,
    /// Released while a handler was running.
    ending: PageVec<usize>,
    /// Full buffers, by the numbers of their samples.
    full: PageVec<(u64, usize)>,
}

impl Slots {
    /// Installs the handler. `checked`: handlers may copy unknown stacks by `process_vm_readv`.
    ///
    /// # Errors
    /// If the system refuses.
    pub(in crate::sampler) fn install(checked: bool) -> io::Result<Slots> {
        Slots::install_for(checked, None)
    }

    /// Installs the handler for the other signal.
    ///
    /// # Errors
    /// If the system refuses.
    pub(in crate::sampler) fn install_other(self, checked: bool) -> io::Result<Slots> {
        let wanted = self.other_signal();
        drop(self);
        Slots::install_for(checked, Some(wanted))
    }

    fn install_for(checked: bool, wanted: Option<Signal>) -> io::Result<Slots> {
        let signal = signal::install(checked, wanted)?;
        // Left over by an earlier agent, or by the parent of this process.
        BUFFER_WORDS
            .iter()
            .filter(|word| word.is_full())
            .for_each(BufferWord::free);
        EXPIRED.take(|_| {});
        alternate::block_in_handlers(signal, true);
        Ok(Slots {
            signal,
            cells: PageVec::new(),
            free: PageVec::new(),
            ending: PageVec::new(),
            full: PageVec::new(),
        })
    }

    /// The signal that timers must send.
    pub(in crate::sampler) fn signal(&self) -> Signal {
        self.signal
    }

    /// The signal that they could send instead.
    pub(in crate::sampler) fn other_signal(&self) -> Signal {
        signal::other(self.signal)
    }

    /// Whether the program leaves that one alone.
    pub(in crate::sampler) fn is_other_free(&self) -> bool {
        signal::is_free(self.other_signal())
    }

    /// Whether our handler is still installed.
    pub(in crate::sampler) fn are_ours(&self) -> bool {
        signal::is_ours(self.signal)
    }

    /// Makes handlers of the program that use alternate stacks block the signal: those of faults, or
    /// `all`. Returns whether one was changed: then a thread may still be in a call of it that does not
    /// block the signal.
    pub(in crate::sampler) fn keep_off_alternate_stacks(&self, all: bool) -> bool {
        alternate::block_in_handlers(self.signal, all)
    }

    /// The signals whose handlers were made to block the signal, as a mask of the first 31.
    pub(in crate::sampler) fn changed_handlers(&self) -> u64 {
        alternate::changed()
    }

    /// A slot for one thread; `None` if all are in use.
    pub(in crate::sampler) fn claim(&mut self) -> Option<SlotId> {
        let index = self.free.pop().or_else(|| self.first_use())?;
        Some(SlotId {
            index,
            generation: SLOTS[index].word.generation(),
        })
    }

    /// A slot that this owner has not used yet. An earlier agent's timer may still have its old
    /// generation; a slot that cannot be retired has a running handler and is skipped for good.
    fn first_use(&mut self) -> Option<usize> {
        while self.cells.len() < SLOTS_MAX {
            let index = self.cells.len();
            if !self.cells.push(None) {
                return None;
            }
            if SLOTS[index].word.retire() {
                return Some(index);
            }
        }
        None
    }

    /// Lets the slot's thread answer its next signal, or every signal if `repeat`. Returns `false`
    /// while a handler is running: then [`Slots::take_expired`] will name the slot once it has
    /// answered.
    pub(in crate::sampler) fn arm(
        &mut self,
        slot: SlotId,
        cell: Option<&Arc<ThreadCell>>,
        span: StackSpan,
        repeat: bool,
    ) -> bool {
        let shared = &SLOTS[slot.index];
        let task = cell
            .map_or(ptr::null(), |cell| ptr::from_ref(cell.task_word()))
            .cast_mut();
        if !shared.word.is_idle() {
            let same = shared.task.load(Ordering::Relaxed) == task
                && shared.low.load(Ordering::Relaxed) == span.low
                && shared.end.load(Ordering::Relaxed) == span.end
                && shared.checked.load(Ordering::Relaxed) == span.checked
                && shared.repeat.load(Ordering::Relaxed) == repeat;
            if same && shared.word.is_armed() {
                return true;
            }
            // Fields that a handler may read are changed only while no handler can run.
            if !shared.word.disarm() {
                return false;
            }
        }
        if shared.task.load(Ordering::Relaxed) != task {
            shared.task.store(task, Ordering::Relaxed);
            self.cells[slot.index] = cell.cloned();
        }
        shared.low.store(span.low, Ordering::Relaxed);
        shared.end.store(span.end, Ordering::Relaxed);
        shared.checked.store(span.checked, Ordering::Relaxed);
        shared.repeat.store(repeat, Ordering::Relaxed);
        shared.word.arm();
        true
    }

    /// Calls `each` with the number of every slot whose timer has expired since the last call.
    /// Their samples are complete. A slot that was released meanwhile may be among them.
    pub(in crate::sampler) fn take_expired(&self, each: impl FnMut(usize)) {
        EXPIRED.take(each);
    }

    /// Frees the slot: its thread is gone or no longer asked. A late signal finds another
    /// generation.
    pub(in crate::sampler) fn release(&mut self, slot: SlotId) {
        self.ending.push(slot.index);
        self.end_released();
    }

    fn end_released(&mut self) {
        let Slots {
            cells,
            free,
            ending,
            ..
        } = self;
        ending.retain(|index| {
            let Slot { word, task, .. } = &SLOTS[*index];
            let retired = word.retire();
            if retired {
                task.store(ptr::null_mut(), Ordering::Relaxed);
                cells[*index] = None;
                free.push(*index);
            }
            !retired
        });
    }

    /// Calls `see` with every sample since the last call and its slot, the earliest first, and
    /// frees its buffer. The slot may have been released meanwhile.
    pub(in crate::sampler) fn harvest(&mut self, mut see: impl FnMut(SlotId, Sample<'_>)) {
        self.end_released();
        let full = BUFFER_WORDS
            .iter()
            .enumerate()
            .filter(|(_, word)| word.is_full());
        let numbered =
            full.map(|(index, _)| (BUFFERS[index].number.load(Ordering::Relaxed), index));
        self.full.extend(numbered);
        self.full.sort_unstable();
        for (number, (_, index)) in self.full.iter().copied().enumerate() {
            let owner = owner_of(index);
            let rest = self.full.iter().skip(number + 1);
            let later = rest.filter(|(_, other)| owner_of(*other) == owner).count();
            signal::take_stack(index, |buffer, stack, frames| {
                let slot = SlotId {
                    index: buffer.slot.load(Ordering::Relaxed),
                    generation: buffer.generation.load(Ordering::Relaxed),
                };
                let foreign = Found {
                    frames,
                    is_complete: buffer.foreign_complete.load(Ordering::Relaxed),
                };
                let sample = sample_of(buffer, stack);
                let whole = Sample {
                    foreign,
                    later: later as u64,
                    ..sample
                };
                see(slot, whole);
            });
        }
        self.full.clear();
    }
}

/// The slot that a full buffer is for.
fn owner_of(index: usize) -> usize {
    BUFFERS[index].slot.load(Ordering::Relaxed)
}

fn sample_of<'s>(buffer: &Buffer, stack: &'s [u64]) -> Sample<'s> {
    Sample {
        registers: buffer
            .registers
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed)),
        task_word: Some(buffer.task_word.load(Ordering::Relaxed)).filter(|word| *word != NO_WORD),
        thread_pointer: buffer.thread_pointer.load(Ordering::Relaxed),
        stack,
        foreign: Found::default(),
        cut: buffer.cut.load(Ordering::Relaxed),
        number: buffer.number.load(Ordering::Relaxed),
        time: Some(HandlerTime {
            begin: buffer.stamp.load(Ordering::Relaxed),
            took: buffer.took.load(Ordering::Relaxed),
        })
        .filter(|time| time.begin != 0),
        later: 0,
    }
}

impl Drop for Slots {
    /// Shuts out all handlers and waits for those that are running, because they read the cells
    /// that are dropped next; then restores the program's handler. A handler takes about a microsecond.
    fn drop(&mut self) {
        let in_use = (0..self.cells.len()).filter(|index| self.cells[*index].is_some());
        for index in in_use {
            while !SLOTS[index].word.retire() {
                std::thread::yield_now();
            }
        }
        // The timers were deleted with their threads.
        signal::restore();
        alternate::unblock_in_handlers(self.signal);
    }
}
