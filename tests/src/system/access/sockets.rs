//! The collector on a Unix socket.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Collector, Worker, number, run, wait_for};

fn serve(path: &Path) -> Collector {
    Collector::start_with(&["--listen", &listen(path)])
}

fn listen(path: &Path) -> String {
    format!("unix:{}", path.display())
}

#[test]
fn a_unix_socket_serves_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("emberline.sock");
    // Left by a process that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let collector = serve(&path);
    let mode = path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let url = listen(&path);
    assert_eq!(collector.address, url);

    let worker = Worker::start("steady", "steady", &url, &[]);
    wait_for("the first flushes", || {
        let answer = run(&["workers", "--format", "json", "--url", &url]);
        assert!(answer.status.success(), "{answer:?}");
        let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
        let epoch = &answer["workers"][0]["epochs"][0];
        (epoch["acked_seq"].as_u64() > Some(1)).then_some(())
    });
    let record = worker.finish();
    assert_eq!(number(&record["report"], "unacked_ns"), 0, "{record}");

    let second = run(&["serve", "--listen", &url]);
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(
        !second.status.success() && error.contains("is in use"),
        "{error}"
    );
    let answer = run(&["workers", "--url", &url]);
    assert!(
        answer.status.success(),
        "the first collector goes on: {answer:?}"
    );
}

#[test]
fn only_a_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "notes").unwrap();
    let answer = run(&["serve", "--listen", &listen(&path)]);
    let error = String::from_utf8_lossy(&answer.stderr);
    assert!(
        !answer.status.success() && error.contains("the file is not a socket"),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"notes");
    let answer = run(&["serve", "--listen", "unix:relative"]);
    assert_eq!(answer.status.code(), Some(2));
}
