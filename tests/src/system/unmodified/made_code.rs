//! Code that a runtime makes while the program runs has names, and the callers that lead to the thread's root.

use super::*;
use crate::harness::try_output;

const SCRIPT: &str = "
function hottest(rounds) {
    let sum = 0;
    for (let round = 0; round < rounds; round++) sum += Math.sqrt(round % 7 + sum % 3);
    return sum;
}
const until = process.cpuUsage().user + 1500000;
while (process.cpuUsage().user < until) hottest(100000);
console.log('done');
";

#[test]
fn functions_of_javascript_have_names_and_callers() {
    if try_output(Command::new("node").arg("--version")).is_err() {
        println!("skipped: no node: apt-get install nodejs");
        return;
    }
    let collector = Collector::start();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.js");
    fs::write(&script, SCRIPT).unwrap();
    let mut command = under_emberline(&collector.url(), &[]);
    // V8 writes a log into the present folder.
    command.current_dir(folder.path());
    let done = output(command.args(["node", "--perf-basic-prof"]).arg(&script));
    assert_eq!(
        (&*done.stdout, done.status.code()),
        (&b"done\n"[..], Some(0)),
        "{done:?}"
    );
    let (worker, epoch) = &ended_workers(&collector, "node", 1)[0];
    let _ = fs::remove_file(format!("/tmp/perf-{}.map", epoch["pid"]));
    let text = collapsed(&collector, worker);
    let named: Vec<_> = text
        .lines()
        .filter(|line| line.contains(";hottest"))
        .collect();
    assert!(!named.is_empty(), "{text}");
    for line in named {
        assert!(line.contains(";node::Start"), "{line}");
    }
}
