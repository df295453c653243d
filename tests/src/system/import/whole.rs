//! An import is stored whole or not at all: a refused one leaves nothing, and of two at once one is stored.

use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Files, import, rejected, stacks, sum, text};
use crate::harness::{Collector, emberline, output};

const SECOND: &str = "has the profile \"";

/// The text of `perf script` of one busy thread, 100 samples a second.
fn perf(function: &str, seconds: u32) -> String {
    let sample = |tick: u32| {
        let [second, hundredth] = [tick / 100, tick % 100];
        format!(
            "app 5/6 [000] {second}.{hundredth:02}0000: 10000000 cpu-clock:\n\t1f {function}+0x1 (/opt/app)\n\n"
        )
    };
    (0..100 * seconds).map(sample).collect()
}

/// That many seconds ago, as seconds since 1970.
fn ago(seconds: u64) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    (since.as_secs() - seconds).to_string()
}

#[test]
fn a_refused_import_is_refused_again_and_leaves_nothing() {
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let good = files.write("good.txt", "main;f 50\n");
    let second = files.write("second.txt", "main;f 5\n");
    let time = ago(600);
    let place = ["--run", "r1", "--time", &time];
    import(&url, &[&[&*good], &place[..]].concat());
    for _ in 0..3 {
        let error = rejected(&url, &[&[&*second], &place[..]].concat());
        assert!(error.contains(SECOND), "{error}");
    }
    assert_eq!(sum(&stacks(&collector, "run=r1")), 500_000_000);
    for (path, rows) in [("/api/v1/tasks?run=r1", "tasks"), ("/api/v1/runs", "runs")] {
        let found = collector.json(path);
        assert_eq!(found[rows].as_array().unwrap().len(), 1, "{found}");
    }
}

/// Its first seconds do not overlap with the profile that is there.
#[test]
fn no_second_of_a_refused_import_is_added_to_another_profile() {
    let files = Files::new();
    let data = files.path("data");
    let mut collector = Collector::start_with_data("127.0.0.1:0", &data);
    let url = collector.url();
    let first = files.write("first.txt", perf("first", 2));
    let second = files.write("second.txt", perf("second", 12));
    let [inner, outer] = [600, 605].map(ago);
    import(&url, &[&first, "--run", "mp", "--time", &inner]);
    let error = rejected(&url, &[&second, "--run", "mp", "--time", &outer]);
    assert!(error.contains(SECOND), "{error}");
    for _ in 0..2 {
        let found = stacks(&collector, "worker=import:mp&from=-1h&to=now");
        assert_eq!(found, "imported;first 2000000000\n");
        collector.process.kill();
        collector = Collector::start_with_data("127.0.0.1:0", &data);
    }
}

#[test]
fn of_two_imports_at_once_to_one_time_one_is_stored() {
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let paths = ["left", "right"].map(|name| files.write(name, perf(name, 12)));
    for round in 0..3 {
        let time = ago(600);
        let run = format!("race-{round}");
        let start = |path: &String| {
            let mut command = Command::new(emberline());
            command.args([
                "import", path, "--url", &url, "--run", &run, "--time", &time,
            ]);
            let piped = command.stdin(Stdio::null()).stdout(Stdio::null());
            piped.stderr(Stdio::null()).spawn().unwrap()
        };
        let mut processes = [start(&paths[0]), start(&paths[1])];
        let ends = processes.each_mut().map(|process| process.wait().unwrap());
        let stored = ends.iter().filter(|status| status.success()).count();
        let found = stacks(&collector, &format!("worker=import:{run}&from=-1h&to=now"));
        assert_eq!((stored, sum(&found)), (1, 12_000_000_000), "{found}");
    }
}

/// Both are the same import, so both succeed, and it counts once.
#[test]
fn two_equal_imports_at_once_are_stored_once() {
    let files = Files::new();
    let collector = Collector::start();
    let url = collector.url();
    let path = files.write("same.txt", perf("same", 12));
    let time = ago(600);
    let arguments = [
        "import", &path, "--url", &url, "--run", "same", "--time", &time,
    ];
    std::thread::scope(|scope| {
        let run = || {
            output(
                Command::new(emberline())
                    .args(arguments)
                    .stdin(Stdio::null()),
            )
        };
        let runs = [scope.spawn(run), scope.spawn(run)];
        for done in runs.map(|run| run.join().unwrap()) {
            assert!(done.status.success(), "{}", text(&done.stderr));
        }
    });
    assert_eq!(sum(&stacks(&collector, "run=same")), 12_000_000_000);
}
