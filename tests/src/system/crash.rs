//! A real collector under `kill -9`, held to what a simulated fleet knows of its own. `cargo xtask
//! crash --cycles 5000` is the long form.

use simulation::crash::{Options, Tamper, run};

use crate::harness::{alone, emberline};

const KILLS: u32 = 300;

#[test]
fn no_acked_cycle_is_lost_or_counted_twice_however_the_collector_dies() {
    let _alone = alone();
    let report = run(&Options::new(&emberline(), KILLS, 1)).unwrap_or_else(|error| {
        panic!("{error:?}\n`cargo xtask crash --seed 1` does it again");
    });
    println!("{report}");
}

/// Shows that the oracle sees what it is there for: each fault in its record is as if the collector
/// had made the opposite one.
#[test]
fn the_oracle_finds_every_kind_of_fault() {
    let _alone = alone();
    for (tamper, expected) in [
        (Tamper::Lost, "are stored"),
        (Tamper::Twice, "are stored"),
        (Tamper::Moved, "profile?"),
        (Tamper::Earlier, "timeline?"),
        (Tamper::Task, "tasks?"),
    ] {
        let tamper = Some(tamper);
        let options = Options { recent: true, tamper, ..Options::new(&emberline(), 1, 2) };
        let error = format!("{:?}", run(&options).unwrap_err());
        assert!(error.contains("answers are wrong") && error.contains(expected), "{error}");
    }
}
