//! Kills a real collector with `kill -9` and compares it with a simulated fleet's record. `cargo
//! xtask crash --cycles 5000` is the long form.

use simulation::crash::{Options, Tamper, run};

use crate::harness::{alone, emberline};

const KILLS: u32 = 300;

#[test]
#[ignore = "long"]
fn no_acked_cycle_is_lost_or_counted_twice_across_kills() {
    let _alone = alone();
    let report = run(&Options::new(&emberline(), KILLS, 1)).unwrap_or_else(|error| {
        panic!("{error:?}\n`cargo xtask crash --seed 1` does it again");
    });
    println!("{report}");
}

/// The oracle works: each fault in its record is as if the collector had made the opposite one.
#[test]
fn the_oracle_detects_every_kind_of_fault() {
    let _alone = alone();
    for (tamper, expected) in [
        (Tamper::Lost, "are stored"),
        (Tamper::Twice, "are stored"),
        (Tamper::Moved, "profile?"),
        (Tamper::Earlier, "timeline?"),
        (Tamper::Task, "tasks?"),
    ] {
        let tamper = Some(tamper);
        let options = Options {
            recent: true,
            tamper,
            ..Options::new(&emberline(), 1, 2)
        };
        let error = format!("{:?}", run(&options).unwrap_err());
        assert!(
            error.contains("wrong answers") && error.contains(expected),
            "{error}"
        );
    }
}
