//! Faults of collectors with stores in a bucket, and of their networks, while workers move between them. `cargo
//! xtask chaos --rounds 1000` is the long form.

use simulation::chaos::{Options, run};

use crate::harness::{TEST_WORKER, alone, emberline};
use crate::stores::bucket::has_servers;

/// One group has moto and acknowledges what is in the bucket; the other one has SeaweedFS and acknowledges what is
/// on its disk.
#[test]
#[ignore = "long"]
fn no_acked_cycle_is_lost_or_counted_twice_in_chaos() {
    let _alone = alone();
    if !has_servers() {
        return;
    }
    let options = Options {
        program: emberline(),
        worker: TEST_WORKER.into(),
        rounds: 10,
        rounds_per_group: 5,
        groups: 2,
        seed: 6,
        longest_s: 6.0,
        tell: |_| {},
    };
    let report = run(&options).unwrap_or_else(|error| panic!("{error:?}"));
    println!("{report}");
}
