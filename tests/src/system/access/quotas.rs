//! Quotas and the audit log, with the real programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Collector, Worker, emberline, number, output, wait_for};

/// A collector with tokens, in a folder of its own.
struct Guarded {
    collector: Collector,
    directory: TempDir,
    data: String,
}

impl Guarded {
    /// Starts it with an operator's token, in the file `operator`.
    fn start(arguments: &[&str]) -> Guarded {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data").to_str().unwrap().to_owned();
        create_token(directory.path(), &data, "operator", &["--role", "operator"]);
        let place = ["--listen", "127.0.0.1:0", "--data", &data];
        let collector = Collector::start_with(&[&place, arguments].concat());
        Guarded {
            collector,
            directory,
            data,
        }
    }

    fn token(&self, name: &str, arguments: &[&str]) -> String {
        create_token(self.directory.path(), &self.data, name, arguments)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a command with the URL of the collector and a token.
    fn run(&self, token: &str, arguments: &[&str]) -> Output {
        let url = self.collector.url();
        let mut command = Command::new(emberline());
        command
            .args(arguments)
            .args(["--url", &url])
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
            .env_remove("EMBERLINE_TOKEN")
            .env("EMBERLINE_TOKEN_FILE", self.path(token));
        output(&mut command)
    }

    fn workers(&self) -> Value {
        let listed = self.run("operator", &["workers", "--format", "json"]);
        assert!(listed.status.success(), "{}", text(&listed.stderr));
        serde_json::from_slice(&listed.stdout).unwrap()
    }

    fn until_connected(&self, worker: &str) {
        wait_for(worker, || {
            self.workers()["workers"]
                .as_array()
                .unwrap()
                .iter()
                .any(|each: &Value| {
                    each["worker"] == worker && each["epochs"][0]["connected"] == Value::Bool(true)
                })
                .then_some(())
        });
    }

    /// The lines of the audit log with this text, once there is one.
    fn audited(&self, what: &str) -> String {
        wait_for(what, || {
            let log = self.collector.log();
            let lines: Vec<&str> = log
                .lines()
                .filter(|line: &&str| line.contains(" audit: ") && line.contains(what))
                .collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        })
    }
}

/// Creates a token in a file of this name and returns its id.
fn create_token(directory: &Path, data: &str, name: &str, arguments: &[&str]) -> String {
    let file = directory.join(name);
    let place = [
        "--data",
        data,
        "-o",
        file.to_str().unwrap(),
        "--format",
        "json",
    ];
    let created = output(
        Command::new(emberline())
            .args(["token", "new"])
            .args(arguments)
            .args(place),
    );
    assert!(created.status.success(), "{}", text(&created.stderr));
    let row: Value = serde_json::from_slice(&created.stdout).unwrap();
    row["id"].as_str().unwrap().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// An agent past its token's quota waits, loses nothing, and is shown to people.
#[test]
fn an_agent_past_its_quota_waits_without_loss_and_is_shown() {
    let guarded = Guarded::start(&[]);
    let id = guarded.token("agents", &["--role", "agent", "--quota", "sessions=1"]);
    let url = guarded.collector.url();
    let first = Worker::start_with_token("steady", "w-1", &url, &guarded.path("agents"));
    guarded.until_connected("w-1");
    let second = Worker::start_with_token("steady", "w-2", &url, &guarded.path("agents"));
    let met = wait_for("a refusal", || {
        let quotas = guarded.workers()["quotas"].clone();
        quotas.as_array().unwrap().first().cloned()
    });
    assert_eq!(met["identity"], format!("token {id}"), "{met}");
    assert_eq!(
        (&met["quota"], &met["value"]),
        (&"sessions".into(), &1.into()),
        "{met}"
    );
    assert!(number(&met, "refused") > 0, "{met}");
    let note = format!("token {id} reached its quota sessions=1: ");
    let shown = guarded.run("operator", &["workers"]);
    let shown = text(&shown.stdout) + &text(&shown.stderr);
    assert!(shown.contains(&note), "{shown}");
    let doctor = guarded.run("operator", &["doctor"]);
    assert!(
        text(&doctor.stdout).contains(&note),
        "{}",
        text(&doctor.stdout)
    );
    let line = guarded.audited("quota reached");
    assert!(
        line.contains(&format!("identity=\"token {id}\" quota=\"sessions\"")),
        "{line}"
    );
    assert!(!guarded.workers().to_string().contains("w-2"));

    first.finish();
    guarded.until_connected("w-2");
    let report = &second.finish()["report"];
    assert_eq!(
        number(report, "accepted_ns"),
        number(report, "stored_ns"),
        "{report}"
    );
    let [accepted_ns, lost_ns] = [
        number(report, "accepted_ns"),
        number(report, "lost_queue_ns"),
    ];
    assert!(accepted_ns > 0 && lost_ns == 0, "{report}");
}

/// Each audited action has a line with who did it, and texts from outside are escaped and bounded.
#[test]
fn actions_are_audited_with_who_did_them() {
    let guarded = Guarded::start(&[]);
    let reader = guarded.token("reader", &["--role", "reader"]);
    let added = guarded.audited(&format!("added=\"{reader}\""));
    assert!(added.contains("tokens reloaded tokens=2"), "{added}");
    let operator = std::fs::read_to_string(guarded.path("operator"))
        .unwrap()
        .split('_')
        .nth(1)
        .unwrap()
        .to_owned();
    let who = format!("who=\"token {operator}\"");

    let name = format!("a\u{202e}\n{}", "n".repeat(300));
    assert!(
        guarded
            .run("operator", &["run", "start", &name])
            .status
            .success()
    );
    let started = guarded.audited("run started");
    assert!(
        started.contains(&who) && started.contains(r#"name="a\u{202e}\nnnn"#),
        "{started}"
    );
    assert!(
        !started.contains(&"n".repeat(200)) && started.len() < 600,
        "{started}"
    );
    assert!(
        guarded
            .run("operator", &["run", "stop", &name])
            .status
            .success()
    );
    assert!(guarded.audited("run stopped").contains(&who));

    guarded.token("agents", &["--role", "agent"]);
    let url = guarded.collector.url();
    let worker = Worker::start_with_token("steady", "w-1", &url, &guarded.path("agents"));
    guarded.until_connected("w-1");
    let set = guarded.run("operator", &["workers", "set", "w-1", "--interval", "20ms"]);
    assert!(set.status.success(), "{}", text(&set.stderr));
    let set = guarded.audited("settings changed");
    assert!(
        set.contains(&who) && set.contains("workers=\"w-1\" old=\"on, 10 ms, states"),
        "{set}"
    );
    assert!(set.contains("new=\"20 ms\""), "{set}");
    assert!(guarded.run("operator", &["thread-dump"]).status.success());
    let dump = guarded.audited("thread dump");
    assert!(
        dump.contains(&who) && dump.contains("workers=\"all\""),
        "{dump}"
    );
    worker.finish();

    assert!(!guarded.run("reader", &["thread-dump"]).status.success());
    let rejected = guarded.audited("needs role operator");
    let peer = format!("peer=\"token {reader}\"");
    assert!(
        rejected.contains(&peer) && rejected.contains("path=\"/api/v1/thread-dump\""),
        "{rejected}"
    );

    let narrow = guarded.token("narrow", &["--role", "agent", "--worker", "web-*"]);
    guarded.audited(&format!("added=\"{narrow}\""));
    let profile = guarded.path("p.collapsed");
    std::fs::write(&profile, "main;work 5\n").unwrap();
    let import = ["import", profile.to_str().unwrap()];
    assert!(!guarded.run("narrow", &import).status.success());
    let foreign = guarded.audited("may not report as import:p");
    assert!(
        foreign.contains("request rejected")
            && foreign.contains(&format!("peer=\"token {narrow}\""))
            && foreign.contains("path=\"/emberline.v1.Ingest/Attach\""),
        "{foreign}"
    );
    let revoke = ["token", "revoke", &reader, "--data", &guarded.data];
    assert!(
        output(Command::new(emberline()).args(revoke))
            .status
            .success()
    );
    guarded.audited(&format!("revoked=\"{reader}\""));
}
