//! Stores in a bucket of a real S3 server: what an acknowledgment promises, who may write, and what is said
//! when something is wrong.

mod adoption;
mod clocks;
mod reader;

use std::env;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use simulation::crash::{Options, StoreTarget, run, store_arguments};
use simulation::proxy::{Fate, Proxy};
use simulation::s3::{AUTHORIZATION, BUCKET, Product, Server, environment};

use crate::harness::{Collector, Running, TEST_WORKER, emberline, number, output, wait_for};

/// Kills of the short form.
const KILLS: u32 = 12;

/// Sets another number of kills.
const KILLS_VARIABLE: &str = "BUCKET_KILLS";

fn place(prefix: &str) -> String {
    format!("s3://{BUCKET}/{prefix}")
}

/// Runs `emberline` with these arguments and the server's variables to its end.
fn emberline_with(environment: &[(String, String)], arguments: &[&str]) -> Output {
    let mut command = Command::new(emberline());
    command
        .args(arguments)
        .envs(environment.iter().cloned())
        .env("NO_COLOR", "1");
    output(command.stdin(Stdio::null()))
}

/// Runs `check` with a server of each product, at the same time, because most of a check waits. Products that
/// cannot be installed, or all if `emberline` has no client for them, are omitted, with a line that says why.
fn with_each_server(check: fn(&Server)) {
    if !has_client() {
        return;
    }
    thread::scope(|scope| {
        for product in Product::ALL {
            scope.spawn(move || {
                if let Some(server) = Server::start(product, build()).unwrap() {
                    check(&server);
                }
            });
        }
    });
}

/// The server that starts soonest, unless it cannot be installed.
pub(crate) fn server() -> Option<Server> {
    if !has_client() {
        return None;
    }
    Server::start(Product::Moto, build()).unwrap()
}

/// Whether [`with_each_server`] can start all.
pub(crate) fn has_servers() -> bool {
    has_client()
        && Product::ALL
            .iter()
            .all(|product| product.installed(build()).is_some())
}

fn has_client() -> bool {
    static PROBED: OnceLock<bool> = OnceLock::new();
    let has_client = *PROBED.get_or_init(|| {
        // A client rejects the endpoint at once.
        let endpoint = [("AWS_ENDPOINT".to_owned(), "none".to_owned())];
        let info = ["store", "info", "--store", "s3://a/b", "--name", "a"];
        !said(&emberline_with(&endpoint, &info)).contains("without the feature `s3`")
    });
    if !has_client {
        println!(
            "skipped: `cargo xtask test --only build` builds `emberline` with the feature `s3`"
        );
    }
    has_client
}

/// The directory of the built programs.
fn build() -> &'static Path {
    Path::new(TEST_WORKER).parent().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Number of lines of an error, without those of the log.
fn error_lines(text: &str) -> usize {
    text.lines()
        .skip_while(|line| !line.starts_with("error: "))
        .count()
}

/// Starts a collector in the bucket, which replaces a dead one after a moment.
fn start(server: &Server, prefix: &str) -> Collector {
    let mut command = Command::new(emberline());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command
        .args(store_arguments(&place(prefix), "c1"))
        .envs(server.environment());
    Collector::start_by(&mut command)
}

/// Each kill is the loss of the machine: its disk is gone. Meanwhile answers of the bucket are lost, requests
/// do not arrive, and the server is overloaded. `BUCKET_KILLS=300` makes it long.
#[test]
#[ignore = "long"]
fn no_acked_cycle_is_lost_or_counted_twice_when_machines_are_lost() {
    with_each_server(check_lost_machines);
}

fn check_lost_machines(server: &Server) {
    let proxy = Proxy::start(server.port).unwrap();
    proxy.lose_some(7);
    let store = StoreTarget {
        arguments: store_arguments(&place("lost"), "c1"),
        environment: environment(proxy.port),
    };
    let kills = env::var(KILLS_VARIABLE).map_or(KILLS, |kills| kills.parse().unwrap());
    let options = Options {
        store: Some(store),
        ..Options::new(&emberline(), kills, 2)
    };
    let report = run(&options).unwrap_or_else(|error| panic!("{error:?}"));
    println!("{report}");
    let faults = &proxy.faults;
    for (name, count) in [
        ("answers lost", &faults.lost_answers),
        ("requests lost", &faults.lost_requests),
        ("overloads", &faults.overloads),
    ] {
        let count = count.load(Ordering::Relaxed);
        println!("{count} {name}");
        assert!(count > 0, "no {name}: the run proves nothing");
    }
    let location = ["--store", &place("lost"), "--name", "c1"];
    for command in ["verify", "info", "compact", "verify"] {
        let arguments = [&["store", command][..], &location[..]].concat();
        let done = emberline_with(&server.environment(), &arguments);
        assert!(done.status.success(), "{command}: {}", said(&done));
    }
}

#[test]
#[ignore = "long"]
fn a_name_has_one_collector_and_a_paused_one_acknowledges_nothing_more() {
    with_each_server(check_names);
}

fn check_names(server: &Server) {
    let first = start(server, "names");
    // It watches for many beats of the first one, which may be late on a busy machine.
    let second = emberline_with(
        &server.environment(),
        &[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--store",
            &place("names"),
            "--name",
            "c1",
            "--owner-watch",
            "15000ms",
        ],
    );
    let text = said(&second);
    assert!(!second.status.success(), "{text}");
    let owner = format!("process {}", first.process.id());
    assert!(
        text.contains(&owner) && text.contains("choose another `--name`"),
        "{text}"
    );
    assert_eq!(error_lines(&text), 1, "{text}");

    let url = format!("http://{}", first.address);
    let worker = Command::new(TEST_WORKER)
        .args(["steady", "w1", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _worker = Running::new(worker);
    let pid = Pid::from_raw(first.process.id().cast_signed());
    wait_for("an acknowledged flush", || {
        first
            .epochs()
            .iter()
            .any(|epoch| number(epoch, "acked_seq") > 0)
            .then_some(())
    });
    kill(pid, Signal::SIGSTOP).unwrap();
    let successor = start(server, "names");
    kill(pid, Signal::SIGCONT).unwrap();
    wait_for("the first collector to say what happened", || {
        first
            .log()
            .contains("another collector has taken this store over")
            .then_some(())
    });
    wait_for("the first collector to count as blocked", || {
        let ready = ureq::get(&format!("{url}/readyz"))
            .config()
            .http_status_as_error(false)
            .build()
            .call()
            .ok()?;
        let text = ready.into_body().read_to_string().ok()?;
        text.contains("log_failed").then_some(())
    });
    // The flushes that the first one acknowledged are in the store.
    let workers = ureq::get(&format!("http://{}/api/v1/workers", successor.address))
        .call()
        .unwrap();
    assert!(workers.into_body().read_to_string().unwrap().contains("w1"));
    assert!(
        !successor.log().contains("taken this store over"),
        "{}",
        successor.log()
    );
}

#[test]
#[ignore = "long"]
fn bad_input_is_named_in_one_line() {
    with_each_server(check_bad_input);
    let Some(strict) = Server::start_strict(build()).unwrap() else {
        return;
    };
    let c1 = ["--store", &place("bad"), "--name", "c1"];
    check_line(
        &strict.environment(),
        &c1,
        "rejects the credentials (InvalidAccessKeyId)",
    );
    check_line(&strict.environment(), &c1, "check AWS_ACCESS_KEY_ID");
    let nobody = error_of(&environment(1), &c1);
    assert!(
        nobody.contains("WARN") && nobody.contains("it is repeated for 10s"),
        "{nobody}"
    );
    assert!(
        nobody.contains("Connection refused (os error 111)"),
        "{nobody}"
    );
    assert!(nobody.contains("check AWS_ENDPOINT"), "{nobody}");
    assert_eq!(error_lines(&nobody), 1, "{nobody}");
    let endpoint = [("AWS_ENDPOINT".to_owned(), "127.0.0.1:9000".to_owned())];
    check_line(
        &endpoint,
        &c1,
        "invalid AWS_ENDPOINT \"127.0.0.1:9000\"; expected http://HOST:PORT",
    );
}

/// The error of a start.
fn error_of(environment: &[(String, String)], arguments: &[&str]) -> String {
    let listen = ["serve", "--listen", "127.0.0.1:0"];
    let done = emberline_with(environment, &[&listen[..], arguments].concat());
    assert!(!done.status.success());
    said(&done)
}

fn check_line(environment: &[(String, String)], arguments: &[&str], expected: &str) {
    let text = error_of(environment, arguments);
    assert!(text.contains(expected), "{arguments:?}: {text}");
    assert_eq!(error_lines(&text), 1, "{text}");
}

fn check_bad_input(server: &Server) {
    let foreign = ureq::put(&server.url(&format!("/{BUCKET}/photos/c1/cat.jpg")))
        .header("Authorization", AUTHORIZATION)
        .send("a cat");
    foreign.unwrap();
    let good = server.environment();
    let place = place("bad");
    let photos = format!("s3://{BUCKET}/photos");
    for (arguments, expected) in [
        (&["--store", &place][..], "--name <NAME>"),
        (
            &["--store", "profiles", "--name", "c1"],
            "expected s3://BUCKET/PREFIX or file:///FOLDER",
        ),
        (
            &["--store", &place, "--name", "a/b"],
            "a name has 1 to 64 letters",
        ),
        (&["--name", "c1"], "--store <URL>"),
    ] {
        let text = error_of(&good, arguments);
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    for (arguments, expected) in [
        (
            &["--store", &place, "--name", "c1", "--ack", "disk"][..],
            "add `--data DIR`",
        ),
        (
            &["--store", "s3://no-such-bucket/x", "--name", "c1"],
            "there is no such bucket",
        ),
        (
            &["--store", &photos, "--name", "c1"],
            "has other objects, such as cat.jpg",
        ),
    ] {
        check_line(&good, arguments, expected);
    }
    let proxy = Proxy::start(server.port).unwrap();
    proxy.set_fates(|| Fate::Unconditional);
    check_line(
        &environment(proxy.port),
        &["--store", &place, "--name", "c2"],
        "ignores `If-None-Match: *`",
    );
}
