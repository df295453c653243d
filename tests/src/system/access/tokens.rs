//! Tokens from their creation to their end, with the real programs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Collector, Worker, emberline, number, output, wait_for};

/// Runs `emberline`, with this token file if there is one.
fn run(token: Option<&Path>, arguments: &[&str]) -> Output {
    let mut command = Command::new(emberline());
    command
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
        .env_remove("EMBERLINE_TOKEN")
        .env_remove("EMBERLINE_TOKEN_FILE");
    if let Some(token) = token {
        command.env("EMBERLINE_TOKEN_FILE", token);
    }
    output(&mut command)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A data folder, and the folder of its tokens.
struct Folders {
    directory: TempDir,
    data: String,
}

impl Folders {
    fn new() -> Folders {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data").to_str().unwrap().to_owned();
        Folders { directory, data }
    }

    /// Creates a token in a file of this name and returns its id.
    fn token(&self, name: &str, arguments: &[&str]) -> String {
        let file = self.directory.path().join(name);
        let place = [
            "--data",
            &self.data,
            "-o",
            file.to_str().unwrap(),
            "--format",
            "json",
        ];
        let created = run(None, &[&["token", "new"], arguments, &place].concat());
        assert!(created.status.success(), "{}", text(&created.stderr));
        let row: Value = serde_json::from_slice(&created.stdout).unwrap();
        assert_eq!(
            row.get("token"),
            None,
            "the secret is in the file only: {row}"
        );
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        row["id"].as_str().unwrap().to_owned()
    }
}

#[test]
fn tokens_are_created_used_listed_and_revoked() {
    let folders = Folders::new();
    let path = |name: &str| folders.directory.path().join(name);
    let operator = folders.token("operator", &["--role", "operator", "--note", "Ada"]);
    folders.token("reader", &["--role", "reader"]);
    folders.token(
        "agent",
        &["--role", "agent", "--worker", "w-*", "--expires", "30d"],
    );
    let collector = Collector::start_with_data("127.0.0.1:0", Path::new(&folders.data));
    let url = collector.url();
    let workers = ["workers", "--url", &url, "--format", "json"];

    let refused = run(None, &workers);
    assert_eq!(refused.status.code(), Some(2));
    let refusal = text(&refused.stderr);
    assert!(
        refusal.contains("needs a token; pass one in EMBERLINE_TOKEN"),
        "{refusal}"
    );
    assert!(
        refusal.contains("emberline token new --role reader"),
        "{refusal}"
    );
    assert_eq!(collector.get("/livez").0, 200);
    let doctor = text(&run(None, &["doctor", "--url", &url]).stdout);
    assert!(doctor.contains("this collector needs a token"), "{doctor}");
    assert!(run(Some(&path("reader")), &workers).status.success());

    let start = ["run", "start", "nightly", "--url", &url];
    let forbidden = run(Some(&path("reader")), &start);
    assert!(text(&forbidden.stderr).contains("it needs role operator"));
    assert!(run(Some(&path("operator")), &start).status.success());

    // Its file appears only after the agent has started.
    let worker = Worker::start_with_token("steady", "w-1", &url, &path("late"));
    folders.token("late", &["--role", "agent", "--worker", "w-*"]);
    wait_for("the worker", || {
        let listed = run(Some(&path("reader")), &workers);
        let listed: Value = serde_json::from_slice(&listed.stdout).ok()?;
        (listed["workers"][0]["worker"] == "w-1").then_some(())
    });
    let report = &worker.finish()["report"];
    assert_eq!(
        number(report, "accepted_ns"),
        number(report, "stored_ns"),
        "{report}"
    );

    let list = run(None, &["token", "list", "--data", &folders.data]);
    let list = text(&list.stdout);
    assert_eq!(list.lines().count(), 5, "{list}");
    assert!(
        list.contains(&format!("{operator}  operator")) && list.contains("Ada"),
        "{list}"
    );
    let stored = std::fs::read_to_string(Path::new(&folders.data).join("tokens.json")).unwrap();
    let secret = std::fs::read_to_string(path("operator"))
        .unwrap()
        .trim()
        .rsplit('_')
        .next()
        .unwrap()
        .to_owned();
    assert!(!stored.contains(&secret) && !list.contains(&secret));
    assert!(!collector.log().contains(&secret));

    let revoked = run(
        None,
        &["token", "revoke", &operator, "--data", &folders.data],
    );
    assert!(revoked.status.success(), "{}", text(&revoked.stderr));
    wait_for("the revocation", || {
        (!run(Some(&path("operator")), &workers).status.success()).then_some(())
    });
    let unknown = run(
        None,
        &["token", "revoke", &operator, "--data", &folders.data],
    );
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("run: emberline token list"));
}
