//! Kinds of rounds, and how long faults last.

use std::time::Duration;

use crate::random::Random;

/// Kind of a round, by its fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Killed,
    Paused,
    ReplacedDead,
    ReplacedPaused,
    ReplacedCut,
    BucketCut,
    BucketOverloaded,
    BucketLossy,
    WorkerCut,
}

use Kind::{
    BucketCut, BucketLossy, BucketOverloaded, Killed, Paused, ReplacedCut, ReplacedDead,
    ReplacedPaused, WorkerCut,
};

/// Rounds of a collector that needs no disk; the frequent ones twice.
pub(super) const WITHOUT_DISK: &[Kind] = &[
    Killed,
    Killed,
    Paused,
    Paused,
    ReplacedDead,
    ReplacedPaused,
    ReplacedCut,
    BucketCut,
    BucketOverloaded,
    BucketLossy,
];

/// Rounds of a collector whose log is on its disk. The loss of the disk would lose data, as documented.
pub(super) const WITH_DISK: &[Kind] = &[
    Killed,
    Killed,
    Paused,
    Paused,
    BucketCut,
    BucketOverloaded,
    BucketLossy,
];

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Killed => "killed and restarted",
            Paused => "paused",
            ReplacedDead => "replaced elsewhere, dead",
            ReplacedPaused => "replaced elsewhere, paused",
            ReplacedCut => "replaced elsewhere, cut off from the bucket",
            BucketCut => "network to the bucket cut",
            BucketOverloaded => "bucket overloaded",
            BucketLossy => "answers of the bucket lost",
            WorkerCut => "network to a worker cut",
        }
    }

    /// Shortest and longest fault, in seconds.
    const fn seconds(self) -> (f64, f64) {
        match self {
            Killed => (0.0, 12.0),
            Paused => (1.0, 30.0),
            ReplacedDead | ReplacedPaused | ReplacedCut => (0.0, 8.0),
            BucketCut | BucketOverloaded | BucketLossy | WorkerCut => (1.0, 20.0),
        }
    }

    /// Draws how long the fault lasts. Short ones are more frequent: the mean is a third of the longest.
    pub(super) fn draw_length(self, random: &mut Random, longest_s: f64) -> Duration {
        let (least, most) = self.seconds();
        let share = random.fraction();
        Duration::from_secs_f64(least + (most.min(longest_s) - least).max(0.0) * share * share)
    }
}
