//! The protocol between the sampler and the signal handlers: two small state machines and a set,
//! separate from the rest so that a model checker can run every interleaving of them.
//!
//! A *slot* belongs to one thread and holds the data that its handler needs. A *buffer* has no
//! fixed owner; a handler claims one for its answer. The *set of expired slots* tells the sampler
//! whose timers have expired, so that it looks at the threads that ran instead of at all.
//!
//! ```text
//!   slot    IDLE ──arm (sampler)──▶ ARMED ──take (handler)──▶ TAKEN ──put_down (handler)──▶ IDLE,
//!             │ ◀─disarm (sampler)──┘                                          or ARMED again
//!             └───────── retire (sampler), from IDLE or ARMED ─────────▶ IDLE, next generation
//!
//!   buffer  FREE ──claim (handler)──▶ FILLING ──publish (handler)──▶ FULL ──free (sampler)──▶ FREE
//! ```
//!
//! A handler publishes its buffer, then puts its slot down, then adds it to the set. So the sampler
//! finds the answer of each slot in the set, and can arm the slot again. Every signal adds its slot,
//! even one that finds it disarmed: its timer has expired all the same and must be set again. A
//! signal carries its slot's generation, so one that arrives after the slot was retired has no
//! effect, except that it may add the slot's next owner to the set, which is then looked at in vain.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic word: the standard library's, or a model checker's.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// Replaces `old` by `new`. Returns whether the word was `old`.
    fn exchange(&self, old: u64, new: u64, order: Ordering) -> bool;
    /// Sets bits.
    fn set_bits(&self, bits: u64, order: Ordering);
    /// Clears all bits and returns those that were set.
    fn take_bits(&self, order: Ordering) -> u64;
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn exchange(&self, old: u64, new: u64, order: Ordering) -> bool {
        self.compare_exchange(old, new, order, Ordering::Relaxed)
            .is_ok()
    }

    #[inline(always)]
    fn set_bits(&self, bits: u64, order: Ordering) {
        self.fetch_or(bits, order);
    }

    #[inline(always)]
    fn take_bits(&self, order: Ordering) -> u64 {
        self.swap(0, order)
    }
}

const STATE_BITS: u64 = 0b11;
const IDLE: u64 = 0;
const ARMED: u64 = 1;
const TAKEN: u64 = 2;
const GENERATION: u64 = STATE_BITS + 1;

/// The generation and state of a slot.
pub(super) struct SlotWord<W = AtomicU64>(pub(super) W);

impl<W: Word> SlotWord<W> {
    /// Sampler: how often the slot was retired, modulo 2^32.
    pub(super) fn generation(&self) -> u32 {
        // Truncated on purpose: no signal is four billion uses late.
        (self.0.load(Ordering::Relaxed) / GENERATION) as u32
    }

    /// Sampler: whether the slot is neither armed nor taken.
    pub(super) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) & STATE_BITS == IDLE
    }

    /// Sampler: whether the slot is armed and no handler has taken it.
    pub(super) fn is_armed(&self) -> bool {
        self.0.load(Ordering::Acquire) & STATE_BITS == ARMED
    }

    /// Sampler: lets a handler in, which sees everything written to the slot before. The slot must
    /// be idle.
    pub(super) fn arm(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & STATE_BITS, IDLE, "only an idle slot is armed");
        self.0.store(word | ARMED, Ordering::Release);
    }

    /// Sampler: undoes `arm`. Returns `false` while a handler is running.
    pub(super) fn disarm(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        let idle = word & !STATE_BITS | IDLE;
        word & STATE_BITS == ARMED && self.0.exchange(word, idle, Ordering::AcqRel)
    }

    /// Sampler: shuts out every handler of this generation. Returns `false` while one is running:
    /// it still reads the data that the slot points to.
    pub(super) fn retire(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        let next = (word & !STATE_BITS).wrapping_add(GENERATION) | IDLE;
        word & STATE_BITS != TAKEN && self.0.exchange(word, next, Ordering::AcqRel)
    }

    /// Handler: whether the slot still has this generation.
    #[inline(always)]
    pub(super) fn is_of(&self, generation: u32) -> bool {
        (self.0.load(Ordering::Relaxed) / GENERATION) as u32 == generation
    }

    /// Handler: begins, if the slot is armed for this generation.
    #[inline(always)]
    pub(super) fn take(&self, generation: u32) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        (word / GENERATION) as u32 == generation
            && word & STATE_BITS == ARMED
            && self
                .0
                .exchange(word, word & !STATE_BITS | TAKEN, Ordering::Acquire)
    }

    /// Handler: ends; `again` lets the next handler in.
    #[inline(always)]
    pub(super) fn put_down(&self, again: bool) {
        let word = self.0.load(Ordering::Relaxed);
        let state = if again { ARMED } else { IDLE };
        self.0.store(word & !STATE_BITS | state, Ordering::Release);
    }
}

const WORD_BITS: usize = 64;

/// The slots whose timers have expired since the sampler last looked: a bit for each, and a summary
/// of which words have bits, so that an empty set costs one load.
pub(super) struct ExpiredSlots<W, const WORDS: usize> {
    /// Each bit stands for `GROUP` words.
    pub(super) summary: W,
    pub(super) words: [W; WORDS],
}

impl<W: Word, const WORDS: usize> ExpiredSlots<W, WORDS> {
    const GROUP: usize = WORDS.div_ceil(WORD_BITS);

    /// Handler: adds a slot, after everything that the sampler may read because of it.
    #[inline(always)]
    pub(super) fn add(&self, slot: usize) {
        let word = slot / WORD_BITS;
        self.words[word].set_bits(1 << (slot % WORD_BITS), Ordering::Release);
        self.summary
            .set_bits(1 << (word / Self::GROUP), Ordering::Release);
    }

    /// Sampler: removes all slots and calls `each` with every one of them. A slot that is added
    /// meanwhile is found now or at the next call.
    pub(super) fn take(&self, mut each: impl FnMut(usize)) {
        if self.summary.load(Ordering::Relaxed) == 0 {
            return;
        }
        for group in bits(self.summary.take_bits(Ordering::Acquire)) {
            let first = group * Self::GROUP;
            let words = first..WORDS.min(first + Self::GROUP);
            for word in words {
                let slots = bits(self.words[word].take_bits(Ordering::Acquire));
                slots.for_each(|bit| each(word * WORD_BITS + bit));
            }
        }
    }
}

/// The numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(bit)
    })
}

const FREE: u64 = 0;
const FILLING: u64 = 1;
const FULL: u64 = 2;

/// The state of a buffer.
pub(super) struct BufferWord<W = AtomicU64>(pub(super) W);

impl<W: Word> BufferWord<W> {
    /// Handler: claims the buffer. Returns whether it was free.
    #[inline(always)]
    pub(super) fn claim(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FREE && self.0.exchange(FREE, FILLING, Ordering::Acquire)
    }

    /// Handler: passes the buffer to the sampler.
    #[inline(always)]
    pub(super) fn publish(&self) {
        self.0.store(FULL, Ordering::Release);
    }

    /// Sampler: whether the buffer can be read; its content is stable until `free`.
    pub(super) fn is_full(&self) -> bool {
        self.0.load(Ordering::Acquire) == FULL
    }

    /// Sampler: the buffer has been read.
    pub(super) fn free(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    //! Checks all interleavings and memory orders with loom. The data that a handler reads through
    //! its slot and writes to its buffer are cells that loom checks for races.

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    impl Word for loom::sync::atomic::AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }

        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }

        fn exchange(&self, old: u64, new: u64, order: Ordering) -> bool {
            self.compare_exchange(old, new, order, Ordering::Relaxed)
                .is_ok()
        }

        fn set_bits(&self, bits: u64, order: Ordering) {
            self.fetch_or(bits, order);
        }

        fn take_bits(&self, order: Ordering) -> u64 {
            self.swap(0, order)
        }
    }

    type LoomWord = loom::sync::atomic::AtomicU64;

    /// One slot and one buffer, as the handler and the sampler share them.
    struct Shared {
        slot: SlotWord<LoomWord>,
        /// Stands for the thread's cell: 0 once it is freed.
        asked: UnsafeCell<u64>,
        buffer: BufferWord<LoomWord>,
        answer: UnsafeCell<u64>,
        expired: ExpiredSlots<LoomWord, 1>,
    }

    impl Shared {
        fn new() -> Arc<Shared> {
            Arc::new(Shared {
                slot: SlotWord(LoomWord::new(0)),
                asked: UnsafeCell::new(0),
                buffer: BufferWord(LoomWord::new(0)),
                answer: UnsafeCell::new(0),
                expired: ExpiredSlots {
                    summary: LoomWord::new(0),
                    words: [LoomWord::new(0)],
                },
            })
        }

        /// Handles a signal of `generation`, as the signal handler does.
        fn handle_and_add(&self, generation: u32) {
            if self.slot.is_of(generation) {
                self.handle(generation, false);
                self.expired.add(0);
            }
        }

        /// The part of it that concerns the slot and the buffer.
        fn handle(&self, generation: u32, again: bool) {
            if !self.slot.take(generation) {
                return;
            }
            if self.buffer.claim() {
                // SAFETY: the slot is taken, so the sampler does not write the data that it points
                // to.
                let asked = self.asked.with(|asked| unsafe { *asked });
                assert_ne!(asked, 0, "the handler read a cell that was freed");
                // SAFETY: only this handler has claimed the buffer.
                self.answer.with_mut(|answer| unsafe { *answer = asked });
                self.buffer.publish();
            }
            self.slot.put_down(again);
        }

        fn ask(&self, question: u64) {
            // SAFETY: the slot is idle or was just retired, so no handler reads.
            self.asked.with_mut(|asked| unsafe { *asked = question });
            self.slot.arm();
        }

        /// Whether the timer has expired since the last call.
        fn has_expired(&self) -> bool {
            let mut slots = Vec::new();
            self.expired.take(|slot| slots.push(slot));
            assert!(slots.iter().all(|slot| *slot == 0));
            !slots.is_empty()
        }

        fn harvest(&self) -> Option<u64> {
            self.buffer.is_full().then(|| {
                // SAFETY: a full buffer does not change until it is freed.
                let answer = self.answer.with(|answer| unsafe { *answer });
                self.buffer.free();
                answer
            })
        }
    }

    #[test]
    fn a_slot_can_be_reassigned_at_any_moment() {
        loom::model(|| {
            let shared = Shared::new();
            shared.ask(1);
            let handlers = [0, 1].map(|generation| {
                let shared = shared.clone();
                thread::spawn(move || shared.handle(generation, false))
            });
            let mut answers = vec![shared.harvest()];
            if shared.slot.retire() {
                // SAFETY: the slot is retired, so no handler of the old generation reads.
                shared.asked.with_mut(|asked| unsafe { *asked = 0 });
                shared.ask(2);
            }
            answers.push(shared.harvest());
            for handler in handlers {
                handler.join().unwrap();
            }
            answers.push(shared.harvest());
            let answers: Vec<u64> = answers.into_iter().flatten().collect();
            assert!(
                [&[][..], &[1], &[2], &[1, 2]].contains(&&answers[..]),
                "each request is answered at most once, and in order: {answers:?}"
            );
        });
    }

    #[test]
    fn a_slot_changes_only_while_no_handler_reads_it() {
        loom::model(|| {
            let shared = Shared::new();
            shared.ask(1);
            let handler = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.handle(0, true);
                    shared.handle(0, true);
                })
            };
            let mut answers = vec![shared.harvest()];
            if shared.slot.disarm() {
                shared.ask(2);
            }
            answers.push(shared.harvest());
            handler.join().unwrap();
            answers.push(shared.harvest());
            let answers: Vec<u64> = answers.into_iter().flatten().collect();
            assert!(
                answers.is_sorted(),
                "an old request after a new one: {answers:?}"
            );
        });
    }

    #[test]
    fn a_slot_in_the_set_has_answered_and_can_be_armed_again() {
        loom::model(|| {
            let shared = Shared::new();
            shared.ask(1);
            let handler = {
                let shared = shared.clone();
                thread::spawn(move || shared.handle_and_add(0))
            };
            let early = shared.has_expired();
            if early {
                assert!(shared.slot.is_idle());
                assert_eq!(shared.harvest(), Some(1));
            }
            handler.join().unwrap();
            assert_ne!(
                shared.has_expired(),
                early,
                "each signal is found exactly once"
            );
        });
    }

    #[test]
    fn a_signal_that_finds_its_slot_disarmed_is_in_the_set() {
        loom::model(|| {
            let shared = Shared::new();
            shared.ask(1);
            let handler = {
                let shared = shared.clone();
                thread::spawn(move || shared.handle_and_add(0))
            };
            if shared.slot.disarm() {
                shared.ask(2);
            }
            handler.join().unwrap();
            assert!(shared.has_expired(), "its timer must be set again");
            assert!(shared.slot.is_idle() || shared.slot.disarm());
        });
    }

    #[test]
    fn two_handlers_never_share_a_buffer_or_a_request() {
        loom::model(|| {
            let shared = Shared::new();
            shared.ask(7);
            let handlers = [0, 0].map(|generation| {
                let shared = shared.clone();
                thread::spawn(move || shared.handle(generation, false))
            });
            for handler in handlers {
                handler.join().unwrap();
            }
            assert!(shared.slot.is_idle());
            assert_eq!((shared.harvest(), shared.harvest()), (Some(7), None));
        });
    }

    #[test]
    fn a_slot_survives_a_full_buffer() {
        loom::model(|| {
            let shared = Shared::new();
            assert!(shared.buffer.claim());
            shared.ask(7);
            let handler = {
                let shared = shared.clone();
                thread::spawn(move || shared.handle(0, false))
            };
            assert_eq!(shared.slot.generation(), 0);
            handler.join().unwrap();
            assert!(shared.slot.is_idle(), "it can be armed again");
        });
    }
}
