//! Files of sorts that exceed memory: nothing stays on the disk, however a query ends.

use super::*;

/// A query that sorts more than memory has room for.
const SORTING: &str =
    "SELECT value, repeat('x', 1000) FROM generate_series(1, 100000000) ORDER BY 2, 1 DESC";

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// Waits until a process has files of a sort in a folder. They have no names.
fn wait_for_sort(process: &str, folder: &Path) {
    wait_for("a file of the sort", || {
        let open = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let mut targets = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        targets.find(|target| target.starts_with(folder))
    });
    assert!(is_empty(folder), "a file of the sort has a name");
}

/// A query of this program, whose own temporary files are in `folder`.
fn sort(arguments: &[&str], folder: &Path) -> Child {
    let mut command = Command::new(emberline());
    command
        .args(["sql", "--format", "csv"])
        .args(arguments)
        .arg(SORTING)
        .env("TMPDIR", folder);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Whether a process has ended, also if nobody has waited for it.
pub(super) fn has_ended(process: &str) -> Option<()> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status
        .rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with('Z'))
        .then_some(())
}

#[test]
fn a_command_that_is_interrupted_or_killed_leaves_no_files() {
    let Some(golden) = golden() else { return };
    let spilled = golden.folder.path().join("spilled");
    fs::create_dir(&spilled).unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let mut command = sort(&["--data", golden.store.to_str().unwrap()], &spilled);
        let query = wait_for("the query's process", || children_of(command.id()).pop());
        wait_for_sort(&query, &spilled);
        kill(Pid::from_raw(command.id().cast_signed()), signal).unwrap();
        assert!(!command.wait().unwrap().success());
        wait_for("the end of the query", || has_ended(&query));
        assert!(is_empty(&spilled), "{signal}");
    }
}

#[test]
fn a_query_that_is_cancelled_or_whose_collector_is_killed_leaves_no_files() {
    let Some(golden) = golden() else { return };
    let folder = golden.folder.path();
    let spilled = folder.join("spilled");
    fs::create_dir(&spilled).unwrap();
    let data = folder.join("data");
    let serve = || {
        let mut command = Command::new(emberline());
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            data.to_str().unwrap(),
        ]);
        Collector::start_by(command.env("TMPDIR", &spilled))
    };
    let mut collector = serve();
    for is_collector_killed in [false, true] {
        let mut reader = sort(&["--url", &collector.url()], folder);
        // The process of the query before may still be waited for by the collector.
        let query = wait_for("the query's process", || {
            children(&collector)
                .into_iter()
                .find(|query: &String| has_ended(query).is_none())
        });
        wait_for_sort(&query, &spilled);
        if is_collector_killed {
            collector.process.kill();
        } else {
            reader.kill().unwrap();
        }
        reader.wait().unwrap();
        wait_for("the end of the query", || has_ended(&query));
        assert!(is_empty(&spilled));
    }
    let collector = serve();
    assert_eq!(rows(&["--url", &collector.url()], "SELECT 1"), [json!([1])]);
    assert!(is_empty(&spilled));
}
