//! The collector as a service of an operating system.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{Collector, TEST_WORKER, Worker, emberline, run, wait_for};

/// Longest wait for a message of the collector.
const MESSAGE_MAX: Duration = Duration::from_secs(30);

/// The manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(MESSAGE_MAX)).unwrap();
        Manager { socket, folder }
    }

    fn start(&self) -> Collector {
        let mut command = Command::new(emberline());
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command.env("WATCHDOG_USEC", "200000");
        Collector::start_by(&mut command)
    }

    /// Waits for a message with this line, and returns the message.
    fn expect(&self, line: &str) -> String {
        let mut message = [0; 1_024];
        loop {
            let length = self.socket.recv(&mut message).unwrap();
            let text = str::from_utf8(&message[..length]).unwrap();
            if text.lines().any(|found| found == line) {
                return text.to_owned();
            }
        }
    }
}

#[test]
fn systemd_hears_of_readiness_life_reloading_and_the_stop() {
    let manager = Manager::new();
    let mut collector = manager.start();
    let message = manager.expect("READY=1");
    let status = format!("STATUS=collector on {}", collector.url());
    assert!(message.lines().any(|line| line == status), "{message}");
    manager.expect("WATCHDOG=1");
    manager.expect("WATCHDOG=1");
    collector.process.signal(Signal::SIGHUP);
    let message = manager.expect("RELOADING=1");
    assert!(message.contains("MONOTONIC_USEC="), "{message}");
    manager.expect("READY=1");
    collector.process.signal(Signal::SIGTERM);
    manager.expect("STOPPING=1");
    assert!(collector.process.wait().success());
}

#[test]
fn a_log_in_json_has_an_object_in_each_line() {
    let mut collector = Collector::start_with(&["--listen", "127.0.0.1:0", "--log-format", "json"]);
    collector.process.signal(Signal::SIGTERM);
    assert!(collector.process.wait().success());
    let log = wait_for("the last line", || {
        let log = collector.log();
        log.contains("stopping; a second").then_some(log)
    });
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(event[field].is_string(), "{field} in {line}");
        }
    }
}

#[test]
fn a_file_and_variables_configure_the_collector() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serve.toml");
    let data = folder.path().join("data");
    let text = format!("listen = \"127.0.0.1:0\"\ndata = {data:?}\nretention-size = \"5GB\"\n");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let configured = || {
        let mut command = Command::new(emberline());
        command.arg("serve").env("EMBERLINE_SERVE_CONFIG", file);
        command
    };
    let collector = Collector::start_by(&mut configured());
    assert!(
        data.read_dir().unwrap().count() > 0,
        "the store is in the folder of the file"
    );
    drop(collector);

    let shown = configured()
        .args(["--print-config", "--retention-size", "7GB"])
        .output()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success(), "{text}");
    assert!(
        text.contains("retention-size = \"7GB\"  # command line\n"),
        "{text}"
    );
    assert!(
        text.contains(&format!("listen = \"127.0.0.1:0\"  # {file}:1\n")),
        "{text}"
    );

    std::fs::write(file, "\nlisten = \"nowhere\"\n").unwrap();
    let failed = run(&["serve", "--config", file]);
    let error = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(2), "{error}");
    assert!(error.contains("invalid value 'nowhere'"), "{error}");
    assert!(
        error.ends_with(&format!("--listen is set in {file}:2\n")),
        "{error}"
    );
}

#[test]
fn labels_of_the_environment_are_shown_with_the_worker() {
    let collector = Collector::start();
    let mut command = Command::new(TEST_WORKER);
    command.args(["steady", "labeled", &collector.url()]);
    let refused = command.env("EMBERLINE_LABELS", "node").output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && error.contains("EMBERLINE_LABELS"),
        "{error}"
    );

    let worker = Worker::start_by(command.env("EMBERLINE_LABELS", "node=n1, zone=eu"));
    let epoch = wait_for("the worker", || collector.epochs().pop());
    worker.finish();
    // The program sets `mode` itself.
    let expected = serde_json::json!({"mode": "steady", "node": "n1", "zone": "eu"});
    assert_eq!(epoch["labels"], expected);
}
