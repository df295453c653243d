//! Real protocols over real sockets: a gRPC client and plain HTTP against a server on loopback, with a
//! clock that the tests set.

mod access;
mod agents;
mod built_before;
mod client;
mod grafana;
mod health;
mod limits;
mod metrics;
mod openapi;
mod origins;
mod pages;
mod peers;
mod profile_files;
mod pushes;
mod queries;
mod ranges;
mod readers;
mod sequences;
mod sessions;
mod sql;
mod stores;
mod sum_cluster;
mod telemetry;
mod views;

use std::sync::Weak;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use profiler_core::State;
use profiler_core::wire::v1::{self, agent_message, collector_message};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use tonic::Code;

use self::client::{Client, Malformed, get};
use super::*;
use base::limits::MEMORY_TABLES_BYTES_MAX;
use shares::Quota;
use state::testing::{TestWorker, at};

/// Deadline of every wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for `answer` until the deadline.
async fn in_time<T>(answer: impl Future<Output = T>) -> T {
    timeout(PATIENCE, answer)
        .await
        .expect("an answer within the deadline")
}

/// Polls until `is_so` or the deadline.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        yield_now().await;
    }
}

/// A served collector whose clock stands still unless moved.
struct Running {
    address: SocketAddr,
    /// Weak, because another collector may use its folder when this one has ended.
    collector: Weak<Collector>,
    now_ns: Arc<AtomicI64>,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), ServeError>>,
}

/// Serves with the clock at 60 s, without a grace period.
async fn serve() -> Running {
    serve_with(ServeOptions::default()).await
}

async fn serve_with(options: ServeOptions) -> Running {
    serve_limited(options, ConnectionLimits::of_process()).await
}

async fn serve_limited(options: ServeOptions, limits: ConnectionLimits) -> Running {
    serve_as_given(
        ServeOptions {
            grace: Duration::ZERO,
            ..options
        },
        limits,
    )
    .await
}

/// The same, with the grace period of the options.
async fn serve_as_given(options: ServeOptions, limits: ConnectionLimits) -> Running {
    let now_ns = Arc::new(AtomicI64::new(at(60).unix_ns()));
    let clock = {
        let now_ns = now_ns.clone();
        Clock::from_fn(move || {
            profiler_core::Timestamp::from_unix_ns(now_ns.load(Ordering::SeqCst))
        })
    };
    let options = ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        clock,
        ..options
    };
    let mut server = Server::bind(options).await.unwrap();
    server.connection_limits = limits;
    let address = server.local_addr().unwrap();
    let collector = Arc::downgrade(&server.collector);
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(async {
        let _ = stopped.await;
    }));
    Running {
        address,
        collector,
        now_ns,
        stop,
        served,
    }
}

impl Running {
    /// Stops it, and waits until its store is closed.
    async fn end(self) {
        self.stop.send(()).unwrap();
        in_time(self.served).await.unwrap().unwrap();
    }

    async fn json(&self, path: &str) -> Value {
        let answer = get(self.address, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let body = serde_json::from_str(&answer.body).unwrap();
        limits::bodies::check(path, &body);
        body
    }

    /// Polls until the answer is as expected: the system takes a while to report a closed connection.
    async fn until(&self, path: &str, pointer: &str, expected: Value) {
        let start = Instant::now();
        loop {
            let answer = self.json(path).await;
            if answer.pointer(pointer) == Some(&expected) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{pointer} of {answer:#}");
        }
    }
}

/// A collector whose disk is full from the start, and its folder.
async fn serve_full() -> (Running, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        disk_reserve_bytes: u64::MAX,
        ..Limits::default()
    };
    let data = Some(folder.path().to_owned());
    (
        serve_with(ServeOptions {
            data,
            limits,
            ..ServeOptions::default()
        })
        .await,
        folder,
    )
}

#[tokio::test]
async fn stopped_ingestion_is_answered_and_recorded_as_an_event() {
    let (running, folder) = serve_full().await;
    let hello = agent_message::Kind::Hello(TestWorker::new("w", 1).hello());
    let hello = v1::AgentMessage { kind: Some(hello) };
    let status = Client::refused(running.address, vec![hello]).await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let ingest = &running.json("/api/v1/workers").await["ingest"];
    assert_eq!(
        (
            &ingest["open"],
            &ingest["cause"],
            &ingest["since"],
            &ingest["needed_bytes"]
        ),
        (
            &json!(false),
            &json!("disk_full"),
            &json!("1970-01-12T13:47:40.000000000Z"),
            &json!(u64::MAX)
        )
    );
    let free = ingest["free_bytes"].as_u64();
    let disk = ingest["disk_bytes"].as_u64();
    assert!(free.is_some() && free <= disk, "{ingest}");
    let shown = folder.path().display().to_string();
    let reason = ingest["reason"].as_str().unwrap();
    assert_eq!(ingest["folder"], *shown);
    assert!(
        reason.contains(" needed in ") && reason.ends_with(&*shown),
        "{reason}"
    );
    let events = running
        .json("/api/v1/events/recent?kind=ingest_stopped")
        .await;
    let event = &events["events"][0]["data"];
    assert_eq!(
        (&event["open"], &event["cause"]),
        (&json!(false), &json!("disk_full"))
    );
    assert_eq!(events["events"].as_array().map(Vec::len), Some(1));

    let open = &serve().await.json("/api/v1/workers").await["ingest"];
    assert_eq!(
        (&open["open"], &open["cause"]),
        (&json!(true), &Value::Null)
    );
}

/// A worker with a stack and a running task, attached; its first flush is stored.
async fn attached(running: &Running, id: &str) -> (TestWorker, Client) {
    let mut worker = TestWorker::new(id, 1);
    let mut client = Client::attach(running.address, worker.hello()).await;
    worker.count("load;main;parse:3", State::Cpu, 5);
    worker.count("load;main;parse:4", State::Network, 2);
    worker.count("[agent];sampler", State::Cpu, 1);
    let tasks = vec![
        worker.task(1, "load", (10, Some(12))),
        worker.task(2, "load", (20, None)),
    ];
    let flush = worker.flush(30, tasks);
    client
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 1");
    (worker, client)
}

/// Parameters that select all data.
const ALL: &str = "from=1000000&to=now";

#[tokio::test]
async fn hello_is_answered_by_welcome_and_flushes_in_order() {
    let running = serve().await;
    let mut worker = TestWorker::new("w", 1);
    let mut client = Client::attach(running.address, worker.hello()).await;
    let receipt = v1::Receipt {
        agent_sent_at_ns: 77,
        received_at_ns: at(60).unix_ns(),
        sent_at_ns: at(60).unix_ns(),
    };
    let welcome = v1::Welcome {
        strings: 1,
        nodes: 1,
        receipt: Some(receipt),
        ..Default::default()
    };
    assert_eq!(client.welcome, welcome);

    worker.count("load;main", State::Cpu, 5);
    let first = worker.flush(30, vec![]);
    client
        .send(agent_message::Kind::Dictionary(
            worker.dictionary().unwrap(),
        ))
        .await;
    client.send(agent_message::Kind::Flush(first.clone())).await;
    let answer = client.receive().await.unwrap();
    let receipt = v1::Receipt {
        agent_sent_at_ns: 78,
        ..receipt
    };
    let ack = v1::Ack {
        seq: 1,
        receipt: Some(receipt),
    };
    assert_eq!(answer, collector_message::Kind::Ack(ack));

    assert_eq!(client.ask(agent_message::Kind::Flush(first)).await, "ack 1");
    worker.count("load;main", State::Cpu, 4);
    let mut wrong = worker.flush(31, vec![]);
    wrong.cycle.as_mut().unwrap().stop_ns = wrong.cycle.as_ref().unwrap().start_ns - 1;
    let refused = "refused 2: the cycle's stop - start is -1; it must be above 0";
    assert_eq!(client.ask(agent_message::Kind::Flush(wrong)).await, refused);
    worker.note_refused(4);
    let gap = v1::Dictionary {
        string_base: 99,
        ..Default::default()
    };
    let refused = "refused 0: the dictionary's strings start at 99, but the receiver holds only 4";
    assert_eq!(
        client.ask(agent_message::Kind::Dictionary(gap)).await,
        refused
    );
    worker.count("load;main", State::Cpu, 2);
    let third = worker.flush(32, vec![]);
    assert_eq!(client.ask(agent_message::Kind::Flush(third)).await, "ack 3");

    // The Welcome of a new stream has the marks of the collector.
    drop(client);
    let client = Client::attach(running.address, worker.hello()).await;
    let v1::Welcome {
        acked_seq,
        stored_ns,
        strings,
        frames,
        nodes,
        ..
    } = client.welcome;
    assert_eq!(
        (acked_seq, stored_ns, strings, frames, nodes),
        (3, 7, 4, 2, 3)
    );
    let workers = running.json("/api/v1/workers").await;
    let epoch = &workers["workers"][0]["epochs"][0];
    let expected = json!({
        "accepted_ns": 11, "stored_ns": 7, "lost_rejected_ns": 4, "lost_by_collector_ns": 0,
        "lost_queue_ns": 0, "lost_unseen_ns": 0, "lost_tasks": 0, "lost_telemetry": 0, "aggregated_tasks": 0,
        "unaccounted_ns": 0, "balanced": true,
    });
    assert_eq!(epoch["account"], expected);
    assert_eq!(
        (&epoch["rejected"], &epoch["acked_seq"]),
        (&json!(2), &json!(3))
    );
}

#[tokio::test]
async fn a_stream_that_violates_the_protocol_ends_with_a_reason_and_affects_no_other() {
    let running = serve().await;
    let (mut worker, mut other) = attached(&running, "other").await;
    let address = running.address;
    let hello = || TestWorker::new("w", 1).hello();
    let reason = "the agent speaks protocol 9; this collector speaks protocol 1 only";
    let wrong = hello_message(v1::Hello {
        protocol: 9,
        ..hello()
    });
    check_refused(address, vec![wrong], Code::InvalidArgument, reason).await;
    let reason = "the worker's id has 0 bytes; it must have 1 to 256";
    let wrong = hello_message(v1::Hello {
        worker: String::new(),
        ..hello()
    });
    check_refused(address, vec![wrong], Code::InvalidArgument, reason).await;
    let reason = "the first message of a stream must be Hello";
    let goodbye = message(agent_message::Kind::Goodbye(v1::Goodbye::default()));
    check_refused(address, vec![goodbye], Code::InvalidArgument, reason).await;
    let reason = "Hello may come only once in a stream";
    check_refused(
        address,
        vec![hello_message(hello()), hello_message(hello())],
        Code::InvalidArgument,
        reason,
    )
    .await;
    let reason = "unknown kind of message";
    check_refused(
        address,
        vec![hello_message(hello()), v1::AgentMessage { kind: None }],
        Code::InvalidArgument,
        reason,
    )
    .await;

    let strings = vec!["x".repeat(4_000); 1_100];
    let large = v1::Dictionary {
        string_base: 1,
        strings,
        ..Default::default()
    };
    let large = message(agent_message::Kind::Dictionary(large));
    let reason = "a message has 4403307 bytes; at most 4194304 are allowed";
    check_refused(
        address,
        vec![hello_message(hello()), large],
        Code::OutOfRange,
        reason,
    )
    .await;
    let status = client::attach(address, vec![Malformed { hello: 5 }])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status:?}");
    assert!(status.message().contains("invalid wire type"), "{status:?}");

    worker.count("load;main;parse:3", State::Cpu, 5);
    let flush = worker.flush(31, vec![]);
    assert_eq!(other.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
    let profile = running.json(&format!("/api/v1/profile?{ALL}")).await;
    assert_eq!(profile["totals"]["total_ns"], 12);
}

async fn check_refused(
    address: SocketAddr,
    messages: Vec<v1::AgentMessage>,
    code: Code,
    reason: &str,
) {
    let status = Client::refused(address, messages).await;
    assert_eq!((status.code(), status.message()), (code, reason));
}

fn hello_message(hello: v1::Hello) -> v1::AgentMessage {
    message(agent_message::Kind::Hello(hello))
}

fn message(kind: agent_message::Kind) -> v1::AgentMessage {
    v1::AgentMessage { kind: Some(kind) }
}

/// Two bytes can claim a row of a task that takes 136 in memory, so messages with too many entries are
/// rejected before they are decoded.
#[tokio::test]
async fn a_message_with_too_many_entries_ends_its_stream_undecoded() {
    let running = serve().await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let tasks = vec![v1::Task::default(); profiler_core::limits::MESSAGE_ENTRIES_MAX + 1];
    let flush = v1::Flush {
        tasks,
        ..worker.flush(31, vec![])
    };
    client.send(agent_message::Kind::Flush(flush)).await;
    let status = client.status().await;
    assert_eq!(status.code(), Code::InvalidArgument);
    let reason = "the number of a message's entries is 262145; at most 262144 is allowed";
    assert_eq!(status.message(), reason);
    let mut again = Client::attach(running.address, worker.hello()).await;
    assert_eq!(again.welcome.acked_seq, 1);
    // The agent sends that number again.
    worker.seq = 1;
    worker.count("load;main;parse:3", State::Cpu, 5);
    let flush = worker.flush(32, vec![]);
    assert_eq!(again.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
}

#[tokio::test]
async fn running_tasks_of_a_disconnected_worker_are_lost() {
    let running = serve().await;
    for goodbye in [false, true] {
        let id = format!("w{goodbye}");
        let (mut worker, mut client) = attached(&running, &id).await;
        let tasks = format!("/api/v1/tasks?{ALL}&worker={id}");
        assert_eq!(running.json(&tasks).await["tasks"][0]["outcome"], "running");
        if goodbye {
            client
                .send(agent_message::Kind::Goodbye(v1::Goodbye::default()))
                .await;
            assert!(
                client.receive().await.is_none(),
                "a goodbye ends the stream without an error"
            );
        }
        drop(client);
        running
            .until(&tasks, "/tasks/0/outcome", json!("lost"))
            .await;
        let row = &running.json(&tasks).await["tasks"][0];
        assert_eq!(row["stop_ns"], at(60).unix_ns());
        running
            .until(
                "/api/v1/workers",
                "/workers/0/epochs/0/state",
                json!("gone"),
            )
            .await;

        // It reconnects and reports how the task ended.
        let mut client = Client::attach(running.address, worker.hello()).await;
        assert_eq!(running.json(&tasks).await["tasks"][0]["outcome"], "running");
        let end = vec![worker.task(2, "load", (20, Some(21)))];
        let flush = worker.flush(31, end);
        assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
        assert_eq!(running.json(&tasks).await["tasks"][0]["outcome"], "ok");
    }
}

#[tokio::test]
async fn a_second_stream_of_an_epoch_ends_the_first() {
    let running = serve().await;
    let (worker, mut first) = attached(&running, "w").await;
    let second = Client::attach(running.address, worker.hello()).await;
    let status = first.status().await;
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(
        status.message(),
        "another stream of the same worker and epoch took over"
    );
    assert_eq!(second.welcome.acked_seq, 1);
    let workers = running.json("/api/v1/workers").await;
    assert_eq!(workers["workers"][0]["epochs"][0]["state"], "connected");
}

#[tokio::test]
async fn stopping_ends_streams_and_idle_connections() {
    let running = serve().await;
    let (_, mut client) = attached(&running, "w").await;
    let idle = tokio::net::TcpStream::connect(running.address)
        .await
        .unwrap();
    running.stop.send(()).unwrap();
    let served = tokio::time::timeout(SHUTDOWN_MAX / 2, running.served).await;
    served
        .expect("it must not wait for idle connections")
        .unwrap()
        .unwrap();
    let status = client.status().await;
    assert_eq!(status.message(), "the collector is shutting down");
    drop(idle);
}

#[tokio::test]
async fn an_unavailable_address_is_named_with_alternatives() {
    let running = serve().await;
    let expected = format!(
        "{} is in use, perhaps by another collector; choose another address with `--listen`, such \
         as `--listen 127.0.0.1:0` for any free port",
        running.address
    );
    check_unavailable(running.address, &expected).await;
    for address in ["0.0.0.0:0", "[::]:0", "[::ffff:10.0.0.1]:0"] {
        let expected = format!(
            "{address} can be reached from other machines, so it needs TLS (--tls-cert and --tls-key; \
             run: emberline tls self-signed -o tls) and a token (run: emberline token new --role agent, with \
             --data or --tokens as here). Or listen on 127.0.0.1 and reach it through a tunnel (`ssh \
             -L`), or pass `--insecure-listen` if the network itself is trusted"
        );
        check_unavailable(address.parse().unwrap(), &expected).await;
    }
    let listen = "0.0.0.0:0".parse().unwrap();
    let options = ServeOptions {
        listen,
        insecure_listen: true,
        ..ServeOptions::default()
    };
    assert_ne!(
        Server::bind(options)
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port(),
        0
    );
}

async fn check_unavailable(listen: SocketAddr, expected: &str) {
    let options = ServeOptions {
        listen: listen.into(),
        ..ServeOptions::default()
    };
    assert_eq!(
        Server::bind(options).await.unwrap_err().to_string(),
        expected
    );
}

#[tokio::test]
async fn retention_is_as_requested_and_limited_to_memory_without_a_disk() {
    let directory = tempfile::tempdir().unwrap();
    let retention = Retention {
        seconds: hours(1),
        tasks: hours(2),
        rollups: hours(3),
        bytes_max: MEMORY_TABLES_BYTES_MAX * 2,
    };
    let bound = async |data, retention| {
        let listen = "127.0.0.1:0".parse().unwrap();
        let options = ServeOptions {
            listen,
            data,
            retention,
            ..ServeOptions::default()
        };
        Server::bind(options)
            .await
            .unwrap()
            .collector
            .sealer
            .retention()
    };
    assert_eq!(
        bound(Some(directory.path().join("data")), retention).await,
        retention
    );
    let in_memory = Retention {
        bytes_max: MEMORY_TABLES_BYTES_MAX,
        ..retention
    };
    assert_eq!(bound(None, retention).await, in_memory);
    let less = Retention {
        bytes_max: 1 << 20,
        ..retention
    };
    assert_eq!(bound(None, less).await, less);
}

fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3_600)
}

#[tokio::test]
async fn a_new_data_folder_and_its_log_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let running = serve_with(ServeOptions {
        data: Some(data.clone()),
        ..Default::default()
    })
    .await;
    assert_eq!(mode(&data), 0o700);
    let logs: Vec<_> = std::fs::read_dir(data.join("wal"))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(!logs.is_empty());
    assert!(
        logs.iter().all(|log| mode(&log.path()) == 0o600),
        "{logs:?}"
    );
    drop(running.stop);
}

fn mode(path: &std::path::Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().unwrap().permissions().mode() & 0o777
}
