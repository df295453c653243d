//! SIGTERM: the collector stops within 10 s, whatever its clients do, and everything that it acknowledged is
//! there after a restart.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::{Collector, RESTARTABLE, Worker, alone, number, wait_for};

/// Longest time of a stop, as `docs/DEPLOY.md` promises.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Longest wait for bytes of the collector.
const READ_MAX: Duration = Duration::from_secs(60);

/// Answers that one reader asks for and never reads: more than the buffers of both sockets hold.
const UNREAD_ANSWERS: usize = 2_000;

fn connect(collector: &Collector) -> TcpStream {
    let stream = TcpStream::connect(&collector.address).unwrap();
    stream.set_read_timeout(Some(READ_MAX)).unwrap();
    stream.set_write_timeout(Some(READ_MAX)).unwrap();
    stream
}

fn head(collector: &Collector, request: &str, more: &str) -> Vec<u8> {
    format!(
        "{request} HTTP/1.1\r\nhost: {}\r\n{more}\r\n",
        collector.address
    )
    .into_bytes()
}

/// Opens a stream of server-sent events and reads the head of its answer.
fn events(collector: &Collector, path: &str) -> BufReader<TcpStream> {
    let mut stream = connect(collector);
    stream
        .write_all(&head(collector, &format!("GET {path}"), ""))
        .unwrap();
    let mut reader = BufReader::new(stream);
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut answer).unwrap() > 0, "{answer}");
    }
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("content-type: text/event-stream"),
        "{answer}"
    );
    reader
}

/// Asks for the page's script again and again, and reads nothing.
fn reader_that_stalls(collector: &Collector) -> TcpStream {
    let (status, document) = collector.get("/");
    assert_eq!(status, 200);
    let script = document
        .split("src=\"./")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let request = head(collector, &format!("GET /{}", script.unwrap()), "");
    let mut stream = connect(collector);
    let mut sender = stream.try_clone().unwrap();
    // The collector stops reading requests too.
    std::thread::spawn(move || sender.write_all(&request.repeat(UNREAD_ANSWERS)));
    // It answers.
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    stream
}

/// Sends the head of a push and a part of its body.
fn push_that_stalls(collector: &Collector) -> TcpStream {
    let mut stream = connect(collector);
    let head = head(
        collector,
        "POST /ingest?name=stalled",
        "content-length: 1000\r\n",
    );
    stream
        .write_all(&[&head[..], b"main;work 1"].concat())
        .unwrap();
    stream
}

fn stored_ns(collector: &Collector) -> u64 {
    collector
        .epochs()
        .iter()
        .map(|epoch| number(&epoch["account"], "stored_ns"))
        .sum()
}

fn found_ns(collector: &Collector, filter: &str) -> u64 {
    let profile = collector.json(&format!("/api/v1/profile?from=-1h&threads=all{filter}"));
    number(&profile["totals"], "total_ns")
}

#[test]
fn a_stop_takes_at_most_ten_seconds_and_loses_nothing_that_was_acknowledged() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // A receiver whose system accepts connections, and that never answers.
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let forward = format!("http://{}", receiver.local_addr().unwrap());
    let data = folder.path().to_str().unwrap();
    let options = [
        "--data",
        data,
        "--forward",
        &forward,
        "--forward-every",
        "300ms",
    ];
    let mut collector = Collector::start_with(&[&["--listen", RESTARTABLE], &options[..]].concat());
    let worker = Worker::start("steady", "steady-1", &collector.url(), &[]);
    wait_for("the worker", || (stored_ns(&collector) > 0).then_some(()));
    let followers = ["/api/v1/updates", "/api/v1/events"].map(|path| events(&collector, path));
    let _stalled = [reader_that_stalls(&collector), push_that_stalls(&collector)];
    wait_for("a message that waits for the receiver", || {
        let forward = collector.json("/api/v1/workers")["forwards"][0].clone();
        (number(&forward, "waiting") > 0).then_some(())
    });
    let pushed = ureq::post(format!("{}/ingest?name=pushed", collector.url())).send("main 7");
    assert_eq!(pushed.unwrap().status(), 200);
    let acknowledged_ns = stored_ns(&collector);

    let begin = Instant::now();
    collector.process.signal(Signal::SIGTERM);
    let status = collector.process.wait();
    let taken = begin.elapsed();
    assert_eq!(status.code(), Some(0), "{}", collector.log());
    assert!(
        taken < STOP_MAX,
        "the stop took {taken:?}:\n{}",
        collector.log()
    );
    // The clients did hold it up.
    let log = wait_for("the last line", || {
        let log = collector.log();
        log.contains("not forwarded before the stop").then_some(log)
    });
    assert!(log.contains("connections were still open"), "{log}");
    for mut follower in followers {
        // An error would be a connection that was cut instead of closed.
        follower.read_to_string(&mut String::new()).unwrap();
    }

    let collector = Collector::start_with_data(&collector.address, folder.path());
    let kept_ns = stored_ns(&collector);
    assert!(
        kept_ns >= acknowledged_ns,
        "{acknowledged_ns} ns were stored, {kept_ns} ns were kept"
    );
    assert_eq!(
        found_ns(&collector, "&label=service_name=pushed"),
        70_000_000
    );
    wait_for("more of the worker", || {
        (stored_ns(&collector) > kept_ns).then_some(())
    });
    let report = worker.finish()["report"].clone();
    assert_eq!(
        number(&report, "accepted_ns"),
        number(&report, "stored_ns"),
        "{report}"
    );
    assert_eq!(number(&report, "lost_by_collector_ns"), 0, "{report}");
    assert_eq!(found_ns(&collector, ""), stored_ns(&collector));
}
