//! The thread and its end, against addresses where no collector answers. That samples arrive is
//! shown by the whole-system tests, over a real collector.

use std::io::Read;
use std::net::TcpListener;

use profiler_core::{Delta, NodeId, Settings, State, StateSet, Ticks, TimeRange, Weight};

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

fn start(url: &str, labels: usize) -> Result<Shipper, ShipError> {
    let options = ShipOptions {
        url: url.to_owned(),
        worker: "worker-1".to_owned(),
        labels: vec![("zone".to_owned(), "a".to_owned()); labels],
        epoch: 7,
        host: "host".to_owned(),
        pid: 1,
        control: Arc::new(Control::new(Settings {
            interval_ns: 10_000_000,
            enabled: true,
            states: StateSet::ALL,
        })),
        started_at: Timestamp::from_unix_ns(5),
        limits: Limits::default(),
    };
    Shipper::start(options, Arc::new(Mutex::new(Tables::new())), Arc::new(StoppedClock))
}

fn cycle() -> Batch {
    let at = Timestamp::from_unix_ns;
    let range = TimeRange::new(at(0), at(9)).unwrap();
    let span = Span { range, quantum_ns: 10, ticks: Ticks::default() };
    let delta = [(NodeId(1), Weight::of(State::Cpu, 30))].into_iter().collect();
    let samples = Batch::of_samples(span, delta, Delta::default());
    Batch { lost_tasks: 2, lost_telemetry: 3, lost_queue_ns: 4, ..samples }
}

fn check_url(url: &str, expected: Option<&str>) {
    let refused = match parse_url(url) {
        Ok(_) => None,
        Err(ShipError::Url { reason, .. }) => Some(reason),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(refused.as_deref(), expected, "{url}");
}

#[test]
fn urls_that_the_agent_cannot_use_are_rejected() {
    check_url("http://127.0.0.1:4747", None);
    check_url("http://collector.example/prefix", None);
    check_url("http://[::1]:4747", None);
    check_url("https://127.0.0.1:4747", Some("this agent does not support TLS"));
    check_url("127.0.0.1:4747", Some("it does not start with http://"));
    check_url("http://a b", Some("invalid uri character"));
    check_url("collector:4747", Some("it does not start with http://"));
    check_url("unix:///tmp/socket", Some("invalid format"));
    check_url("ftp://collector:4747", Some("it does not start with http://"));
    check_url("http://me:secret@collector:4747", Some("it contains credentials"));
    check_url("", Some("empty string"));
}

#[test]
fn too_many_labels_are_rejected() {
    let text = start(NOBODY, LABELS_MAX + 1).unwrap_err().to_string();
    assert_eq!(text, "65 labels for one worker; at most 64 are allowed");
}

/// What the report says of one cycle that went nowhere.
fn check_unacked(report: ShipReport) {
    let expected = OutboxAccount {
        accepted_ns: 34,
        unacked_ns: 30,
        lost_queue_ns: 4,
        lost_tasks: 2,
        lost_telemetry: 3,
        ..OutboxAccount::default()
    };
    assert_eq!(report.account, expected);
    assert_eq!((report.epoch, report.connected, report.connects), (7, false, 0));
    assert_ne!(report.thread_id, 0);
}

#[test]
fn finishing_without_a_collector_counts_unacked_weight() {
    let shipper = start(NOBODY, 1).unwrap();
    shipper.push(cycle());
    check_unacked(shipper.finish(Duration::from_millis(200)));
}

/// Were the thread to wait for its deadline, this test would take an hour.
#[test]
fn finishing_with_an_empty_outbox_takes_one_attempt() {
    let shipper = start(NOBODY, 1).unwrap();
    let shared = Arc::downgrade(&shipper.shared);
    assert_eq!(shipper.finish(FINISH_MAX).account, OutboxAccount::default());
    assert_eq!(shared.strong_count(), 0, "the thread is gone, with all that it held");
}

#[test]
fn a_silent_peer_does_not_delay_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let shipper = start(&format!("http://{}", listener.local_addr().unwrap()), 1).unwrap();
    // The first bytes are there, so the attempt is under way.
    let (mut peer, _) = listener.accept().unwrap();
    peer.read_exact(&mut [0; 24]).unwrap();
    shipper.push(cycle());
    shipper.request_finish(Instant::now());
    assert_eq!(shipper.ended.recv(), Err(mpsc::RecvError));
    check_unacked(shipper.report());
}

#[test]
fn dropping_a_shipper_ends_its_thread() {
    let Shipper { ended, .. } = start(NOBODY, 0).unwrap();
    assert_eq!(ended.recv(), Err(mpsc::RecvError));
}
