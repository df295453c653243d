//! The moments at which a thread changed its task, by its own clock.
//!
//! Among many threads that wait for a processor a thread may run for one turn between two looks of the
//! sampler, and no look tells which part of it belongs to which task. So the sampler asks a thread that it
//! sees rarely to note its next changes: two system calls for each, and none after the [`CHANGES_MAX`]th
//! between two looks. A thread may lose its processor after a system call, so one that is seen often is not
//! asked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::early::{SharedUsage, Usage};

/// Most changes that are noted between two looks. Time after the last one is the sampler's to divide.
const CHANGES_MAX: usize = 4;
/// The number of notes of a thread that is not to note anything.
const UNWANTED: usize = CHANGES_MAX + 1;

/// A change of a thread's task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub(crate) at_ns: u64,
    pub(crate) usage: Usage,
    /// The word of the task that it began, or went back to.
    pub(crate) word: u64,
}

/// See the [module](self). The thread adds notes, the sampler takes them.
#[derive(Debug)]
pub(crate) struct ChangeNotes {
    /// The number of notes, or [`UNWANTED`].
    count: AtomicUsize,
    notes: [Note; CHANGES_MAX],
}

#[derive(Debug, Default)]
struct Note {
    word: AtomicU64,
    ns: AtomicU64,
    usage: SharedUsage,
}

impl ChangeNotes {
    /// No notes are wanted.
    pub(super) fn new() -> ChangeNotes {
        ChangeNotes {
            count: AtomicUsize::new(UNWANTED),
            notes: Default::default(),
        }
    }

    /// Whether the thread is to note its next change.
    pub(super) fn is_wanted(&self) -> bool {
        self.count.load(Ordering::Relaxed) < CHANGES_MAX
    }

    /// The thread changes its task.
    pub(super) fn add(&self, change: Change) {
        let mut count = self.count.load(Ordering::Relaxed);
        // The sampler takes the notes at most once per look, so this ends.
        while let Some(note) = self.notes.get(count) {
            note.set(change);
            match self.count.compare_exchange(
                count,
                count + 1,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return,
                Err(taken) => count = taken,
            }
        }
    }

    /// The sampler takes the changes since the last call, the earliest first. `again`: it asks for the next ones.
    pub(crate) fn take(&self, again: bool) -> impl Iterator<Item = Change> + use<> {
        let next = if again { 0 } else { UNWANTED };
        let mut count = self.count.load(Ordering::Acquire);
        loop {
            let notes = self.notes.each_ref().map(Note::get);
            match self
                .count
                .compare_exchange(count, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {
                    break notes
                        .into_iter()
                        .take(if count == UNWANTED { 0 } else { count });
                }
                Err(more) => count = more,
            }
        }
    }

    /// Whether a change is noted.
    pub(crate) fn is_noted(&self) -> bool {
        (1..=CHANGES_MAX).contains(&self.count.load(Ordering::Relaxed))
    }
}

impl Note {
    fn set(&self, change: Change) {
        self.word.store(change.word, Ordering::Relaxed);
        self.ns.store(change.at_ns, Ordering::Relaxed);
        self.usage.set(change.usage);
    }

    fn get(&self) -> Change {
        let word = self.word.load(Ordering::Relaxed);
        Change {
            at_ns: self.ns.load(Ordering::Relaxed),
            usage: self.usage.get(),
            word,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn change(at_ns: u64) -> Change {
        let usage = Usage {
            cpu_ns: at_ns + 1,
            blocks: at_ns + 2,
            preemptions: at_ns + 3,
        };
        Change {
            at_ns,
            usage,
            word: at_ns + 4,
        }
    }

    #[test]
    fn the_first_changes_after_a_look_are_noted() {
        let notes = ChangeNotes::new();
        assert!(!notes.is_wanted() && !notes.is_noted());
        assert_eq!(notes.take(true).count(), 0, "none was wanted");
        for at_ns in 1..=6 {
            if notes.is_wanted() {
                notes.add(change(at_ns));
            }
        }
        assert!(notes.is_noted());
        assert_eq!(
            notes.take(true).collect::<Vec<_>>(),
            [1, 2, 3, 4].map(change)
        );
        assert!(notes.is_wanted() && !notes.is_noted());
        assert_eq!(notes.take(false).count(), 0);
        assert!(!notes.is_wanted());
    }

    #[test]
    fn notes_are_whole_and_in_order_while_they_are_taken() {
        let notes = ChangeNotes::new();
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..200_000)
                    .filter(|_| notes.is_wanted())
                    .for_each(|at_ns| notes.add(change(at_ns)));
                has_ended.store(true, Ordering::Release);
            });
            let mut last = 0;
            while !has_ended.load(Ordering::Acquire) {
                for noted in notes.take(true) {
                    assert_eq!(noted, change(noted.at_ns));
                    assert!(noted.at_ns > last);
                    last = noted.at_ns;
                }
            }
        });
    }
}
