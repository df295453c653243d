//! The thread and its end, against addresses where no collector answers. That samples arrive is
//! shown by the whole-system tests, over a real collector.

use std::io::Read;
use std::net::TcpListener;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use profiler_core::{Delta, NodeId, Settings, State, StateSet, Ticks, TimeRange, Weight};

use super::target::Target;
use super::*;
use crate::batch::Span;

/// Nothing listens on this port, so an attempt fails at once.
const NOBODY: &str = "http://127.0.0.1:1";

struct StoppedClock;

impl AgentClock for StoppedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ns(5)
    }
}

fn start(url: &str, labels: usize) -> Result<Started, ShipError> {
    let options = ShipOptions {
        url: url.to_owned(),
        token: TokenSource::None,
        worker: "worker-1".to_owned(),
        labels: vec![("zone".to_owned(), "a".to_owned()); labels],
        key: SessionKey::new([7; 16]),
        host: "host".to_owned(),
        pid: 1,
        agent_version: env!("CARGO_PKG_VERSION"),
        control: Arc::new(Control::new(Settings {
            interval_ns: 10_000_000,
            enabled: true,
            states: StateSet::ALL,
        })),
        started_at: Timestamp::from_unix_ns(5),
        limits: Limits::default(),
        log: |event| event(),
        notice: false,
    };
    let tables = Arc::new(Mutex::new(Tables::default()));
    let Parts {
        shipper,
        queue,
        thread,
    } = prepare(options, tables, Arc::new(StoppedClock))?;
    let thread = thread::spawn(move || thread.run());
    Ok(Started {
        shipper,
        queue,
        thread,
    })
}

struct Started {
    shipper: Shipper,
    queue: BatchQueue,
    thread: JoinHandle<()>,
}

impl Started {
    fn finish(self, limit: Duration) -> ShipReport {
        self.shipper.request_finish(Instant::now() + limit, limit);
        drop(self.queue);
        self.thread.join().unwrap();
        self.shipper.report()
    }
}

fn cycle() -> Batch {
    let at = Timestamp::from_unix_ns;
    let range = TimeRange::new(at(0), at(9)).unwrap();
    let span = Span {
        range,
        quantum_ns: 10,
        ticks: Ticks::default(),
    };
    let delta = [(NodeId(1), Weight::of(State::Cpu, 30))]
        .into_iter()
        .collect();
    let samples = Batch::of_samples(span, delta, Delta::default());
    Batch {
        lost_tasks: 2,
        lost_telemetry: 3,
        lost_queue_ns: 4,
        ..samples
    }
}

fn check_url(url: &str, expected: Option<&str>) {
    assert_eq!(Target::parse(url).err().as_deref(), expected, "{url}");
}

#[test]
fn urls_that_the_agent_cannot_use_are_rejected() {
    check_url("http://127.0.0.1:4747", None);
    check_url("http://collector.example/prefix", None);
    check_url("http://[::1]:4747", None);
    check_url("unix:///tmp/socket", None);
    let built_without = "this agent was built without its feature `tls`";
    check_url(
        "https://127.0.0.1:4747",
        (!cfg!(feature = "tls")).then_some(built_without),
    );
    let scheme = "it does not start with http://, https:// or unix:/";
    check_url("127.0.0.1:4747", Some(scheme));
    check_url("http://a b", Some("invalid uri character"));
    check_url("collector:4747", Some(scheme));
    check_url("ftp://collector:4747", Some(scheme));
    check_url(
        "http://me:secret@collector:4747",
        Some("it contains credentials"),
    );
    check_url("", Some("empty string"));
}

#[test]
fn too_many_labels_are_rejected() {
    let text = start(NOBODY, LABELS_MAX + 1).err().unwrap().to_string();
    assert_eq!(text, "65 labels for one worker; at most 64 are allowed");
}

/// Checks the report of one cycle that reached no collector.
fn check_unacked(report: ShipReport) {
    let expected = ShipReport {
        epoch: SessionKey::new([7; 16]).epoch(),
        accepted_ns: 34,
        unacked_ns: 30,
        lost_queue_ns: 4,
        lost_tasks: 2,
        lost_telemetry: 3,
        ..ShipReport::default()
    };
    assert_eq!(report, expected);
}

#[test]
fn finishing_without_a_collector_counts_unacked_weight() {
    let started = start(NOBODY, 1).unwrap();
    started.queue.push(cycle());
    check_unacked(started.finish(Duration::from_millis(200)));
}

/// Were the thread to wait for its deadline, this test would take an hour.
#[test]
fn finishing_with_an_empty_outbox_takes_one_attempt() {
    let started = start(NOBODY, 1).unwrap();
    let shared = Arc::downgrade(&started.shipper.shared);
    let report = started.finish(Duration::from_secs(3_600));
    let epoch = SessionKey::new([7; 16]).epoch();
    assert_eq!(
        report,
        ShipReport {
            epoch,
            ..ShipReport::default()
        }
    );
    assert_eq!(
        shared.strong_count(),
        0,
        "the thread is gone, with all that it held"
    );
}

#[test]
fn a_silent_peer_does_not_delay_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let started = start(&format!("http://{}", listener.local_addr().unwrap()), 1).unwrap();
    // The first bytes are there, so the attempt is under way.
    let (mut peer, _) = listener.accept().unwrap();
    peer.read_exact(&mut [0; 24]).unwrap();
    started.queue.push(cycle());
    check_unacked(started.finish(Duration::ZERO));
}

/// The symbolizer may still be naming when the agent ends.
#[test]
fn the_end_does_not_wait_for_batches_that_are_late() {
    let started = start(NOBODY, 1).unwrap();
    let limit = Duration::from_millis(50);
    started
        .shipper
        .request_finish(Instant::now() + limit, limit);
    started.thread.join().unwrap();
    assert!(!started.shipper.shared.is_complete());
}

/// A peer that is no collector is named, and asked again.
#[test]
fn a_peer_that_is_no_collector_is_an_error_with_a_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let started = start(&format!("http://{}", listener.local_addr().unwrap()), 1).unwrap();
    for _ in 0..2 {
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut [0; 24]).unwrap();
        std::io::Write::write_all(&mut peer, b"HTTP/1.1 404 Not Found\r\n\r\n").unwrap();
    }
    let error = lock(&started.shipper.shared.last_error).clone();
    assert!(error.starts_with("connection lost: "), "{error}");
    drop(listener);
    assert_eq!(started.finish(Duration::from_secs(60)).connects, 0);
}
