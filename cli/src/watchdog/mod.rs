//! The watchdog of `emberline serve`: what hangs ends, so that a service manager starts it again.
//!
//! It is a thread of its own, which takes no lock that others hold and needs no runtime. It looks at the collector's
//! [heartbeats](collector::heartbeats), and at whether a signal asked for a stop.

mod processors;
mod stacks;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use collector::Heartbeat;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::exit;

use self::processors::Processors;
use crate::signals::INTERRUPTED;

/// Name of the thread.
const THREAD_NAME: &str = "emberline-watch";

/// The exit code after a hang: `EX_SOFTWARE` of sysexits.h.
const HUNG_CODE: i32 = 70;

/// The exit code of a stop that was cut off.
const CUT_OFF_CODE: i32 = 71;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a stop may take. An orderly one takes 10 s at most, and [`STOP_REPORT_MAX`] may follow.
const STOP_MAX: Duration = Duration::from_secs(11);

/// How long the report of a hang may take: the disk or the pipe behind the log may be what hangs.
const REPORT_MAX: Duration = Duration::from_secs(15);

/// The same at a stop, which is waited for.
const STOP_REPORT_MAX: Duration = Duration::from_secs(3);

/// A part without a step for that long is named when a stop is cut off.
const SUSPICIOUS_AFTER: Duration = Duration::from_secs(3);

/// Starts the watchdog. A part of the collector may be without a step for `limit`; `None`: forever.
pub(crate) fn start(limit: Option<Duration>) -> io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends the process at once, whatever hangs.
        flag::register_conditional_shutdown(signal, INTERRUPTED, stop.clone())?;
        flag::register(signal, stop.clone())?;
    }
    thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .spawn(move || watch(limit, &stop))
        .map(drop)
}

fn watch(limit: Option<Duration>, stop: &AtomicBool) {
    let mut hearts = Hearts::default();
    let mut processors = Processors::default();
    let mut stop_at = None;
    loop {
        thread::sleep(LOOK_EVERY);
        hearts.look(collector::heartbeats(), || processors.look());
        let stopped = limit.map_or_else(Vec::new, |limit| hearts.without_step(limit));
        if !stopped.is_empty() {
            end(
                HUNG_CODE,
                format!("a hang: {}", stopped.join("; ")),
                REPORT_MAX,
            );
        }
        if stop.load(Ordering::Relaxed) {
            let begun = *stop_at.get_or_insert_with(Instant::now);
            if begun.elapsed() >= STOP_MAX {
                let stopped = hearts.without_step(SUSPICIOUS_AFTER);
                let hung = if stopped.is_empty() {
                    "unknown".to_owned()
                } else {
                    stopped.join("; ")
                };
                let reason =
                    format!("the stop took over {STOP_MAX:?} and is cut off; what hangs: {hung}");
                end(CUT_OFF_CODE, reason, STOP_REPORT_MAX);
            }
        }
    }
}

/// The collector's heartbeats over time.
///
/// Counts looks instead of time: after the process or the whole machine was stopped for an hour, each heart
/// has had one look without a step. Looks at which a thread waits for a processor count a tenth: what has no
/// step may depend on that thread, and a hang must end on a busy machine too.
#[derive(Debug, Default)]
struct Hearts(BTreeMap<usize, Still>);

#[derive(Debug)]
struct Still {
    heart: Heartbeat,
    /// Looks since the last step, in tenths.
    tenths: u32,
}

impl Hearts {
    /// `waits_for_processor` is called only if a part has had no step since the last look.
    fn look(
        &mut self,
        hearts: impl Iterator<Item = Heartbeat>,
        waits_for_processor: impl FnOnce() -> bool,
    ) {
        let before = std::mem::take(&mut self.0);
        let hearts: Vec<Heartbeat> = hearts.collect();
        let still_tenths = |heart: &Heartbeat| {
            let known = before.get(&heart.place)?;
            (known.heart == *heart && !heart.is_in_bounded_wait).then_some(known.tenths)
        };
        let is_any_still = hearts.iter().any(|heart| still_tenths(heart).is_some());
        let weight = if is_any_still && waits_for_processor() {
            1
        } else {
            10
        };
        for heart in hearts {
            let tenths = still_tenths(&heart).map_or(0, |tenths| tenths + weight);
            self.0.insert(heart.place, Still { heart, tenths });
        }
    }

    /// The parts that had no step for that long, for people.
    fn without_step(&self, limit: Duration) -> Vec<String> {
        let stopped = self.0.values().filter(|still| still_time(still) >= limit);
        stopped
            .map(|still: &Still| {
                format!("{} (no step for {:?})", still.heart.name, still_time(still))
            })
            .collect()
    }
}

fn still_time(still: &Still) -> Duration {
    LOOK_EVERY * still.tenths / 10
}

/// Reports what hangs, with the stacks of all threads, and ends the process.
fn end(code: i32, reason: String, report_max: Duration) -> ! {
    let (sender, written) = mpsc::channel();
    // Apart, because the log may be what hangs.
    let report = move || {
        tracing::error!(code, "{reason}");
        stacks::threads()
            .iter()
            .for_each(|line| tracing::error!("{line}"));
        stacks::stacks()
            .iter()
            .for_each(|line| tracing::error!("{line}"));
        // The watchdog may have given up.
        let _ = sender.send(());
    };
    if thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .spawn(report)
        .is_ok()
    {
        let _ = written.recv_timeout(report_max);
    }
    // Without the functions that are to run at an orderly end: they may hang too.
    exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heart(place: usize, beats: u64) -> Heartbeat {
        Heartbeat {
            place,
            name: "a thread",
            beats,
            is_in_bounded_wait: false,
        }
    }

    fn looks(hearts: &mut Hearts, count: u32, seen: &[Heartbeat]) {
        (0..count).for_each(|_| hearts.look(seen.iter().copied(), || false));
    }

    #[test]
    fn a_heart_without_a_step_for_the_limit_is_named() {
        let limit = 4 * LOOK_EVERY;
        let mut hearts = Hearts::default();
        looks(&mut hearts, 4, &[heart(0, 7), heart(1, 7)]);
        assert!(
            hearts.without_step(limit).is_empty(),
            "the first look is none"
        );
        looks(&mut hearts, 1, &[heart(0, 8), heart(1, 7)]);
        assert_eq!(hearts.without_step(limit), ["a thread (no step for 2s)"]);
        looks(&mut hearts, 1, &[heart(0, 8), heart(1, 8)]);
        assert!(hearts.without_step(limit).is_empty(), "it goes on");
        assert!(hearts.without_step(Duration::ZERO).len() == 2);
    }

    #[test]
    fn time_in_which_a_thread_waits_for_a_processor_counts_a_tenth() {
        let limit = 2 * LOOK_EVERY;
        let mut hearts = Hearts::default();
        looks(&mut hearts, 2, &[heart(0, 7)]);
        (0..9).for_each(|_| hearts.look([heart(0, 7)].into_iter(), || true));
        assert!(hearts.without_step(limit).is_empty());
        hearts.look([heart(0, 7)].into_iter(), || true);
        assert_eq!(
            hearts.without_step(limit).len(),
            1,
            "a hang on a busy machine ends too"
        );
    }

    #[test]
    fn threads_are_looked_at_only_if_a_part_has_no_step() {
        let mut hearts = Hearts::default();
        hearts.look([heart(0, 7)].into_iter(), never);
        hearts.look([heart(0, 8)].into_iter(), never);
        let waits = Heartbeat {
            is_in_bounded_wait: true,
            ..heart(0, 8)
        };
        hearts.look([waits].into_iter(), never);
    }

    fn never() -> bool {
        unreachable!("all parts have steps")
    }

    #[test]
    fn waits_with_a_deadline_and_parts_that_ended_do_not_count() {
        let limit = 2 * LOOK_EVERY;
        let mut hearts = Hearts::default();
        let waits = Heartbeat {
            is_in_bounded_wait: true,
            ..heart(0, 1)
        };
        looks(&mut hearts, 9, &[waits, heart(1, 1)]);
        assert_eq!(hearts.without_step(limit).len(), 1);
        looks(&mut hearts, 1, &[waits]);
        assert!(hearts.without_step(limit).is_empty(), "the other one ended");
        looks(&mut hearts, 1, &[heart(0, 1), heart(1, 1)]);
        looks(&mut hearts, 2, &[heart(0, 1)]);
        assert_eq!(
            hearts.without_step(limit).len(),
            1,
            "its wait is over, and it does not go on"
        );
    }
}
