//! Programs that know how long their threads did what.

use super::outside::{Target, attach_until_the_end, compiled_from, time_of};
use super::*;

/// Threads that start when others end, as those of a server with one for each request: their number stays the same.
const SLEEPERS: Known = Known {
    name: "turns",
    arguments: &["sleep", "700", "8"],
};
const BURNERS: Known = Known {
    name: "turns",
    arguments: &["burn", "300", "6"],
};
/// Many new threads that wait for one processor.
const CROWD: Known = Known {
    name: "crowd",
    arguments: &[],
};

/// A program of this folder that writes how long its threads did their work.
struct Known {
    name: &'static str,
    arguments: &'static [&'static str],
}

/// The collector's data about such a program.
struct Measured {
    collector: Collector,
    true_ns: u64,
}

impl Known {
    fn compiled(&self, folder: &Path) -> PathBuf {
        compiled_from(&format!("{}.c", self.name), folder, self.name, &[])
    }

    fn measured_inside(&self) -> Measured {
        let folder = tempfile::tempdir().unwrap();
        let collector = Collector::start();
        let mut command = under_emberline(&collector.url(), &[]);
        command.arg(self.compiled(folder.path()));
        let done = output(command.args(self.arguments));
        let written = String::from_utf8_lossy(&done.stdout);
        let true_ns = written.trim().parse().unwrap();
        ended_workers(&collector, self.name, 1);
        Measured { collector, true_ns }
    }

    fn measured_outside(&self) -> Measured {
        let folder = tempfile::tempdir().unwrap();
        let collector = Collector::start();
        let arguments = [self.arguments, &["at-signal"]].concat();
        let target = Target::start(&self.compiled(folder.path()), &arguments);
        let written = attach_until_the_end(&collector, target);
        let true_ns = written.trim().parse().unwrap();
        Measured { collector, true_ns }
    }
}

impl Measured {
    /// The part of the program's time that stacks with this function have in a state.
    fn share(&self, state: &str, function: &str) -> f64 {
        time_in(&self.collector, state, function) as f64 / self.true_ns as f64
    }
}

fn time_in(collector: &Collector, state: &str, function: &str) -> u64 {
    let (status, text) = collector.get(&format!("/api/v1/profile.collapsed?state={state}"));
    assert_eq!(status, 200, "{text}");
    time_of(&text, &[function])
}

/// Threads sleep for as long as they asked, and then wait for a processor on a busy machine.
fn check_sleeps(measured: &Measured) {
    const ASKED_NS: f64 = 8.0 * 0.7e9;
    let slept_ns = time_in(&measured.collector, "sleep", ";sleep_once;") as f64;
    let longest_ns = measured.true_ns as f64;
    assert!(slept_ns > 0.93 * ASKED_NS, "{slept_ns}");
    assert!(slept_ns < 1.05 * longest_ns, "{slept_ns} of {longest_ns}");
}

#[test]
fn sleeps_of_threads_that_follow_each_other_count() {
    let measured = SLEEPERS.measured_inside();
    check_sleeps(&measured);
    let (_, epoch) = &workers_of(&measured.collector, "turns")[0];
    let lost_ns = epoch["account"]["lost_unseen_ns"].as_u64().unwrap();
    let lost = lost_ns as f64 / measured.true_ns as f64;
    assert!(lost < 0.05, "{lost}");
}

#[test]
fn work_of_threads_that_follow_each_other_has_stacks() {
    let measured = BURNERS.measured_inside();
    let share = measured.share("cpu", ";burner");
    assert!((0.9..1.02).contains(&share), "{share}");
}

#[test]
fn sleeps_of_threads_that_follow_each_other_count_once_from_outside() {
    check_sleeps(&SLEEPERS.measured_outside());
}

#[test]
fn work_of_threads_that_follow_each_other_is_no_wait_from_outside() {
    let measured = BURNERS.measured_outside();
    let share = measured.share("cpu", ";burner");
    assert!((0.9..1.02).contains(&share), "{share}");
    let waits = measured.share("other", "[no stack: not sampled]");
    assert!(waits < 0.05, "{waits}");
}

/// They wait for nothing else. Their time is some hundred times that of the program.
#[test]
fn waits_of_new_threads_for_a_processor_are_no_other_waits() {
    for measured in [CROWD.measured_inside(), CROWD.measured_outside()] {
        let others = measured.share("other", "[no stack: not sampled]");
        assert!(others < 0.005, "{others}");
        let runnable = measured.share("runnable", "");
        assert!((0.9..1.1).contains(&runnable), "{runnable}");
    }
}

#[test]
fn a_stop_counts_at_no_function_that_the_thread_was_not_in() {
    const SECOND_NS: u64 = 1_000_000_000;
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from("stopped.c", folder.path(), "stopped", &[]);
    let collector = Collector::start();
    let done = output(under_emberline(&collector.url(), &[]).arg(program));
    assert!(done.status.success(), "{done:?}");
    ended_workers(&collector, "stopped", 2);
    for function in [";burner", ";wait4"] {
        let stopped_ns = time_in(&collector, "other", function);
        assert!(stopped_ns < SECOND_NS / 5, "{function} {stopped_ns}");
    }
    let stopped_ns = time_in(&collector, "other", "");
    // The sampler may have waited for a processor in the second before.
    assert!(stopped_ns > SECOND_NS, "{stopped_ns}");
}
