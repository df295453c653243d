//! The program `emberline-sql`: where `emberline` finds it, and what happens without it.

use std::env;
use std::os::unix::process::ExitStatusExt as _;

use super::*;
use crate::harness::get;

const NAME: &str = "emberline-sql";

/// The program that `emberline` finds: next to it, or in `PATH`.
pub(super) fn path() -> Option<PathBuf> {
    let listed = env::var_os("PATH").unwrap_or_default();
    let listed: Vec<PathBuf> = env::split_paths(&listed)
        .map(|folder| folder.join(NAME))
        .collect();
    let next_to_it = emberline().with_file_name(NAME);
    [next_to_it]
        .into_iter()
        .chain(listed)
        .find(|file| file.is_file())
}

/// A copy of a program, which takes no space.
fn link(program: &Path, folder: &Path) -> PathBuf {
    let name = folder.join(program.file_name().unwrap());
    let program = program.canonicalize().unwrap();
    // Another file system has no links to it.
    fs::hard_link(&program, &name)
        .or_else(|_| fs::copy(&program, &name).map(drop))
        .unwrap();
    name
}

/// A command of this copy, which finds nothing in `PATH`.
fn alone(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PATH", "/nowhere")
        .env("NO_COLOR", "1");
    command.env_remove("EMBERLINE_URL").stdin(Stdio::null());
    command
}

#[test]
fn without_the_program_the_error_names_it_and_a_collector_still_answers_all_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let data = store.to_str().unwrap();
    drop(Collector::start_with_data("127.0.0.1:0", &store));
    let lonely = link(&emberline(), folder.path());
    for arguments in [
        &["sql", "--data", data, "SELECT 1"][..],
        &["profile", "--store", "file:///", "--scheduler", "a:1"],
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            data,
            "--scheduler",
            "a:1",
        ],
    ] {
        let done = output(&mut alone(&lonely, arguments));
        let text = said(&done);
        assert_eq!(done.status.code(), Some(2), "{text}");
        assert!(
            text.starts_with("error: this needs the program emberline-sql, which"),
            "{text}"
        );
        assert!(text.contains("cargo install --path sql"), "{text}");
        assert!(done.stdout.is_empty());
    }
    let mut serve = alone(
        &lonely,
        &["serve", "--listen", "127.0.0.1:0", "--data", data],
    );
    let collector = Collector::start_by(&mut serve);
    let url = collector.url();
    let done = output(&mut alone(&lonely, &["sql", "--url", &url, "SELECT 1"]));
    let text = said(&done);
    assert!(
        text.contains("the program emberline-sql is neither next to emberline"),
        "{text}"
    );
    assert_eq!(collector.json("/api/v1/session")["sql"], false);
    assert_eq!(get(&url, "/api/v1/workers").0, 200);
}

#[test]
fn a_query_to_a_collector_needs_no_program_and_one_to_a_store_finds_it_next_to_emberline() {
    let Some(golden) = golden() else { return };
    let url = golden.collector.url();
    assert_eq!(golden.collector.json("/api/v1/session")["sql"], true);
    let lonely = link(&emberline(), golden.folder.path());
    let arguments = ["sql", "--format", "csv", "SELECT 1 AS n"];
    let asked = output(&mut alone(
        &lonely,
        &[&arguments[..], &["--url", &url]].concat(),
    ));
    assert_eq!(
        String::from_utf8_lossy(&asked.stdout),
        "n\n1\n",
        "{}",
        said(&asked)
    );
    link(&path().unwrap(), golden.folder.path());
    let data = ["--data", golden.store.to_str().unwrap()];
    let asked = output(&mut alone(&lonely, &[&arguments[..], &data].concat()));
    assert_eq!(
        String::from_utf8_lossy(&asked.stdout),
        "n\n1\n",
        "{}",
        said(&asked)
    );
}

/// A query that runs until it is ended.
fn endless(golden: &Golden) -> Child {
    let mut command = Command::new(emberline());
    command.args(["sql", "--data", golden.store.to_str().unwrap()]);
    command.arg("SELECT count(*) FROM generate_series(1, 1000000000000000) WHERE value % 7 = 8");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_command_ends_with_its_program_and_the_program_with_the_reader_of_the_command() {
    let Some(golden) = golden() else { return };
    let command = endless(&golden);
    let program = wait_for("the program", || children_of(command.id()).pop());
    kill(Pid::from_raw(program.parse().unwrap()), Signal::SIGKILL).unwrap();
    let done = command.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(
        said(&done).contains("was killed (signal: 9"),
        "{}",
        said(&done)
    );

    let mut command = endless(&golden);
    let program = wait_for("the program", || children_of(command.id()).pop());
    drop(command.stdout.take());
    let status = command.wait().unwrap();
    assert!(
        status.success() && status.signal().is_none(),
        "as after `| head`: {status}"
    );
    wait_for("the end of the program", || spilled::has_ended(&program));
}
