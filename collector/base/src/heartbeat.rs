//! Heartbeats: whether the threads go on that a collector cannot do without. A watchdog outside of it reads them.
//!
//! Each heart beats at least once a second as long as all is well, also when there is nothing to do, and at each step
//! of long work: each file, each group of rows. Reading them takes no lock, so that a hang cannot hold up who looks.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Hearts in one process. A collector has three, so only tests of many collectors at once have more; those that find
/// no place are not watched.
const HEARTS_MAX: usize = 32;

/// The owner of a heart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Log,
    Store,
    Runtime,
}

const PARTS: [(Part, &str); 3] = [
    (
        Part::Log,
        "the thread emberline-log, which writes the log and acknowledges",
    ),
    (
        Part::Store,
        "the thread emberline-store, which seals and maintains the tables",
    ),
    (
        Part::Runtime,
        "the runtime, which serves agents and readers",
    ),
];

#[derive(Debug)]
struct Heart {
    is_taken: AtomicBool,
    part: AtomicU8,
    beats: AtomicU64,
    /// How many waits it is in that have a deadline of their own.
    bounded_waits: AtomicU8,
}

static HEARTS: [Heart; HEARTS_MAX] = [const { Heart::none() }; HEARTS_MAX];

thread_local! {
    /// The heart of this thread.
    static OWN: Cell<Option<&'static Heart>> = const { Cell::new(None) };
}

/// A heart as a watchdog sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// The same for two looks at one heart.
    pub place: usize,
    /// Its owner, for people.
    pub name: &'static str,
    /// Changes with each step.
    pub beats: u64,
    /// Whether it waits for what ends the wait by itself, such as a bucket's server: no step is due then.
    pub is_in_bounded_wait: bool,
}

/// The hearts that beat, or should.
pub fn heartbeats() -> impl Iterator<Item = Heartbeat> {
    seen(&HEARTS)
}

fn seen(hearts: &[Heart]) -> impl Iterator<Item = Heartbeat> {
    hearts
        .iter()
        .enumerate()
        .filter(|(_, heart): &(usize, &Heart)| heart.is_taken.load(Ordering::Acquire))
        .map(|(place, heart)| Heartbeat {
            place,
            name: PARTS[heart.part.load(Ordering::Relaxed) as usize].1,
            beats: heart.beats.load(Ordering::Relaxed),
            is_in_bounded_wait: heart.bounded_waits.load(Ordering::Relaxed) > 0,
        })
}

/// A heart in use; it is watched until this is dropped.
#[derive(Debug)]
pub struct Pulse(Option<&'static Heart>);

/// The heart of a thread, for those that help it.
#[derive(Clone, Copy, Debug)]
pub struct Own(Option<&'static Heart>);

impl Own {
    pub fn beat(self) {
        self.0.iter().for_each(|heart| heart.beat());
    }
}

impl Pulse {
    /// The heart of the runtime.
    pub fn of_runtime() -> Pulse {
        Pulse::take(&HEARTS, Part::Runtime)
    }

    fn take(hearts: &'static [Heart], part: Part) -> Pulse {
        let heart = hearts
            .iter()
            .find(|heart: &&Heart| !heart.is_taken.swap(true, Ordering::AcqRel));
        if let Some(heart) = heart {
            heart.part.store(part as u8, Ordering::Relaxed);
            heart.bounded_waits.store(0, Ordering::Relaxed);
            heart.beat();
        }
        Pulse(heart)
    }

    pub fn beat(&self) {
        self.0.iter().for_each(|heart| heart.beat());
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        if let Some(heart) = self.0 {
            heart.is_taken.store(false, Ordering::Release);
        }
    }
}

impl Heart {
    const fn none() -> Heart {
        Heart {
            is_taken: AtomicBool::new(false),
            part: AtomicU8::new(0),
            beats: AtomicU64::new(0),
            bounded_waits: AtomicU8::new(0),
        }
    }

    fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }
}

/// The heart of the calling thread; it is watched until this is dropped.
#[derive(Debug)]
pub struct ThreadPulse {
    _pulse: Pulse,
}

impl ThreadPulse {
    /// The heart of the thread that writes the log.
    pub fn of_log() -> ThreadPulse {
        ThreadPulse::take(&HEARTS, Part::Log)
    }

    /// The heart of the thread that seals.
    pub fn of_store() -> ThreadPulse {
        ThreadPulse::take(&HEARTS, Part::Store)
    }

    fn take(hearts: &'static [Heart], part: Part) -> ThreadPulse {
        let pulse = Pulse::take(hearts, part);
        OWN.set(pulse.0);
        ThreadPulse { _pulse: pulse }
    }
}

impl Drop for ThreadPulse {
    fn drop(&mut self) {
        OWN.set(None);
    }
}

/// The heart of the calling thread, if it has one.
pub fn own() -> Own {
    Own(OWN.get())
}

/// A step of the calling thread. Does nothing on a thread without a heart.
pub fn beat() {
    own().beat();
}

/// Runs a wait that has a deadline of its own.
pub fn during_bounded_wait<T>(wait: impl FnOnce() -> T) -> T {
    let Some(heart) = OWN.get() else {
        return wait();
    };
    heart.bounded_waits.fetch_add(1, Ordering::Relaxed);
    let done = wait();
    heart.bounded_waits.fetch_sub(1, Ordering::Relaxed);
    heart.beat();
    done
}

/// Called before each use of a file: it is a step, and no lock is held for which others wait.
#[track_caller]
pub fn before_io() {
    crate::sync::before_io();
    beat();
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn steps_count_for_the_heart_of_their_thread_until_it_ends() {
        static OF_TEST: [Heart; 2] = [const { Heart::none() }; 2];
        beat();
        let pulse = ThreadPulse::take(&OF_TEST, Part::Store);
        let first = || seen(&OF_TEST).next().unwrap();
        let before = first();
        assert!(before.name.contains("emberline-store"));
        thread::spawn(beat).join().unwrap();
        assert_eq!(first(), before, "another thread's step");
        let own = own();
        thread::spawn(move || own.beat()).join().unwrap();
        before_io();
        assert_eq!(first().beats, before.beats + 2);
        during_bounded_wait(|| assert!(first().is_in_bounded_wait));
        assert!(!first().is_in_bounded_wait && first().beats == before.beats + 3);
        drop(pulse);
        beat();
        assert_eq!(seen(&OF_TEST).count(), 0);
    }

    #[test]
    fn hearts_without_a_place_are_not_watched() {
        static OF_TEST: [Heart; 2] = [const { Heart::none() }; 2];
        let pulses = [(); 3].map(|()| Pulse::take(&OF_TEST, Part::Runtime));
        assert_eq!(seen(&OF_TEST).count(), 2);
        pulses.iter().for_each(Pulse::beat);
        assert!(pulses[2].0.is_none());
        drop(pulses);
        assert_eq!(seen(&OF_TEST).count(), 0);
    }
}
