//! Peers that take memory and do not go on, against the real program: its memory stays bounded, honest
//! agents lose nothing, and honest readers are answered.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use h2::client::{ResponseFuture, SendRequest};
use profiler_core::limits::MESSAGE_BYTES_MAX;
use profiler_core::wire::FlushDeltaCodec;
use profiler_core::wire::v1::{self, agent_message::Kind};
use prost::Message as _;
use prost::bytes::Bytes;
use simulation::collisions::colliding_names;
use simulation::stranger::hello;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::harness::{Collector, Worker, alone, number, wait_for};

/// Most memory that the collector may ever have had.
const MEMORY_MAX: u64 = 512 << 20;

/// Streams with the first part of a large message: 1.2 GB together.
const HALF_MESSAGES: usize = 400;
const HALF_BYTES: usize = 3 << 20;
const STREAMS_A_CONNECTION: usize = 60;

/// Rows that a greedy reader asks for, in as many flushes as they need.
const ROWS: usize = 100_000;
const ROWS_A_FLUSH: usize = 20_000;
const KEY_BYTES: usize = 150;

/// Readers that do not read their answers: each has more than 60 MB.
const GREEDY_READERS: usize = 16;

/// Streams of flushes with as many rows as the collector accepts, which take 25 MB each when they are decoded.
const LARGE_STREAMS: usize = 40;
const LARGE_ROUNDS: usize = 1;
const FLUSH_ROWS: usize = 1 << 16;

/// Names of one dictionary that collide in a table whose hash has no key.
const COLLIDING_NAMES: usize = 100_000;

/// Longest time to store them: a fifth of what it took then, and a hundred times what it takes.
const COLLIDING_MAX: Duration = Duration::from_secs(30);

/// Short streams, each of a worker of its own.
const SHORT_STREAMS: usize = 1_000;

/// Two kinds of lines for each stream, of which 50 are written at once and one each five seconds.
const LOG_LINES_MAX: usize = 200;

/// Longest wait for an attack to be over.
const ATTACK_MAX: Duration = Duration::from_secs(90);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn connection(address: &str) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A stream of an agent.
struct AgentStream {
    /// Not awaited before the first message: the collector answers then.
    response: ResponseFuture,
    messages: h2::SendStream<Bytes>,
}

async fn stream(client: &SendRequest<Bytes>, address: &str) -> Result<AgentStream, h2::Error> {
    let request = http::Request::post(format!("http://{address}/emberline.v1.Ingest/Attach"))
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (response, messages) = client.clone().ready().await?.send_request(request, false)?;
    Ok(AgentStream { response, messages })
}

impl AgentStream {
    /// Sends bytes as the collector makes room for them; an error if it ends the stream.
    async fn send(&mut self, mut bytes: Bytes) -> Result<(), h2::Error> {
        while !bytes.is_empty() {
            self.messages.reserve_capacity(bytes.len());
            let room = std::future::poll_fn(|context| self.messages.poll_capacity(context)).await;
            let Some(room) = room else {
                return Err(h2::Reason::CANCEL.into());
            };
            let length = room?.min(bytes.len());
            self.messages.send_data(bytes.split_to(length), false)?;
        }
        Ok(())
    }
}

fn framed(kind: Kind) -> Bytes {
    let body = v1::AgentMessage { kind: Some(kind) }.encode_to_vec();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &body].concat().into()
}

/// Sends all messages, and returns the number of answers once so many have come or the stream has ended.
async fn answered(mut stream: AgentStream, messages: Vec<Bytes>, answers_max: usize) -> usize {
    for message in messages {
        if stream.send(message).await.is_err() {
            return 0;
        }
    }
    let Ok(response) = stream.response.await else {
        return 0;
    };
    let mut body = response.into_body();
    let mut received = Vec::new();
    let mut answers = 0;
    while answers < answers_max
        && let Some(Ok(data)) = body.data().await
    {
        let _ = body.flow_control().release_capacity(data.len());
        received.extend_from_slice(&data);
        while let Some([_, length @ ..]) = received.first_chunk::<5>()
            && let end = 5 + u32::from_be_bytes(*length) as usize
            && received.len() >= end
        {
            received.drain(..end);
            answers += 1;
        }
    }
    answers
}

fn peak_bytes(collector: &Collector) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", collector.process.id())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kilobytes: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kilobytes << 10
}

/// The honest agent's last stored flush; 0 before it is attached.
fn acked(collector: &Collector) -> u64 {
    let answer = collector.json("/api/v1/workers");
    let workers = answer["workers"].as_array().unwrap();
    let steady = workers.iter().find(|worker| worker["worker"] == "steady-1");
    steady.map_or(0, |steady| number(&steady["epochs"][0], "acked_seq"))
}

/// Starts a collector and an honest agent, of which some flushes are stored.
fn collector_and_agent() -> (Collector, Worker) {
    let collector = Collector::start();
    let worker = Worker::start("steady", "steady-1", &collector.url(), &[]);
    wait_for("the honest agent", || (acked(&collector) > 0).then_some(()));
    (collector, worker)
}

fn check_honest(collector: &Collector, worker: Worker) {
    let before = acked(collector);
    wait_for("more of the honest agent", || {
        (acked(collector) > before + 1).then_some(())
    });
    let peak = peak_bytes(collector);
    println!("{} MB at the peak", peak >> 20);
    assert!(peak <= MEMORY_MAX, "{peak} bytes at the peak");
    let report = worker.finish()["report"].clone();
    assert_eq!(
        number(&report, "accepted_ns"),
        number(&report, "stored_ns"),
        "{report}"
    );
}

/// A stream with the first part of a message, which stays open.
struct HalfMessage {
    _stream: AgentStream,
    /// Whether the collector took all of that part.
    is_taken: bool,
}

/// Sends the first part of a message, until all of it is taken or the collector ends the stream.
async fn send_half(mut stream: AgentStream, half: Bytes) -> HalfMessage {
    let is_taken = stream.send(half).await.is_ok();
    HalfMessage {
        _stream: stream,
        is_taken,
    }
}

/// 200 streams on two connections took 826 MB until they were silent for a minute.
#[test]
fn half_messages_take_bounded_memory_and_delay_no_agent() {
    let _alone = alone();
    let (collector, worker) = collector_and_agent();
    let length = u32::try_from(MESSAGE_BYTES_MAX).unwrap().to_be_bytes();
    let half: Bytes = [&[0], &length[..], &vec![0x0a; HALF_BYTES]].concat().into();
    let refused = runtime().block_on(async {
        let mut streams = JoinSet::new();
        for first in (0..HALF_MESSAGES).step_by(STREAMS_A_CONNECTION) {
            let client = connection(&collector.address).await;
            for _ in first..HALF_MESSAGES.min(first + STREAMS_A_CONNECTION) {
                let opened = stream(&client, &collector.address).await.unwrap();
                streams.spawn(send_half(opened, half.clone()));
            }
        }
        let all = async {
            let mut open = Vec::new();
            while let Some(sent) = streams.join_next().await {
                open.push(sent.unwrap());
            }
            open
        };
        let open = timeout(ATTACK_MAX, all)
            .await
            .expect("each stream is taken or refused");
        open.iter().filter(|half| !half.is_taken).count()
    });
    assert!(
        refused > HALF_MESSAGES / 4,
        "only {refused} of {HALF_MESSAGES} were refused"
    );
    check_honest(&collector, worker);
}

/// The first messages of a stranger's worker.
fn greeting(worker: String) -> [Bytes; 2] {
    let dictionary = v1::Dictionary {
        string_base: 1,
        strings: vec!["load".into()],
        node_base: 1,
        ..v1::Dictionary::default()
    };
    [
        framed(Kind::Hello(hello(worker))),
        framed(Kind::Dictionary(dictionary)),
    ]
}

/// So many flushes of ended tasks, which have so many rows each and a key of that length.
fn flushes(count: usize, rows: usize, key_bytes: usize) -> impl Iterator<Item = Bytes> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let now_ns = i64::try_from(now.as_nanos()).unwrap();
    let mut codec = FlushDeltaCodec::default();
    (0..count).map(move |round| {
        let task = |row: usize| v1::Task {
            id: (round * rows + row) as u64 + 1,
            name: 1,
            key: "k".repeat(key_bytes),
            start_ns: now_ns - 2_000_000,
            stop_ns: now_ns - 1_000_000,
            outcome: v1::Outcome::Ok.into(),
            ..v1::Task::default()
        };
        let mut flush = v1::Flush {
            seq: round as u64 + 1,
            sent_at_ns: now_ns,
            clock: Some(v1::Clock {
                offset_ns: 0,
                error_ns: 1_000,
            }),
            account: Some(v1::LossAccount::default()),
            tasks: (0..rows).map(task).collect(),
            ..v1::Flush::default()
        };
        codec.encode(&mut flush);
        framed(Kind::Flush(flush))
    })
}

const LIST: &str = "/api/v1/tasks?from=-1h&limit=100000";

/// A client that sent its query and has the first byte of the answer.
fn greedy_reader(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(ATTACK_MAX)).unwrap();
    let request = format!("GET {LIST} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(stream.peek(&mut [0]).unwrap(), 1, "no answer");
    stream
}

/// Bytes of an answer.
struct AnswerLength {
    /// By its head.
    announced: usize,
    received: usize,
}

impl AnswerLength {
    fn is_whole(&self) -> bool {
        self.received == self.announced
    }
}

fn read_answer(mut stream: TcpStream) -> AnswerLength {
    let mut answer = Vec::new();
    // An answer that broke off ends with an error or without the rest.
    let _ = stream.read_to_end(&mut answer);
    let head = answer
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .unwrap();
    let text = str::from_utf8(&answer[..head]).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    AnswerLength {
        announced: length.parse().unwrap(),
        received: answer.len() - head - 4,
    }
}

/// Eight readers that read nothing took 1.7 GB, for as long as they liked.
#[test]
#[ignore = "long"]
fn unread_answers_take_bounded_memory_and_give_way_to_honest_readers() {
    let _alone = alone();
    let (collector, worker) = collector_and_agent();
    let answers = runtime().block_on(async {
        let client = connection(&collector.address).await;
        let agent = stream(&client, &collector.address).await.unwrap();
        let count = ROWS / ROWS_A_FLUSH;
        let rows = flushes(count, ROWS_A_FLUSH, KEY_BYTES);
        let messages = greeting("many-tasks".into())
            .into_iter()
            .chain(rows)
            .collect();
        timeout(ATTACK_MAX, answered(agent, messages, count + 1))
            .await
            .unwrap()
    });
    assert_eq!(answers, ROWS / ROWS_A_FLUSH + 1);
    wait_for("all rows", || {
        let total = number(&collector.json("/api/v1/tasks?from=-1h&limit=1"), "total");
        (total >= ROWS as u64).then_some(())
    });
    let unread: Vec<TcpStream> = (0..GREEDY_READERS)
        .map(|_| greedy_reader(&collector.address))
        .collect();
    let honest = read_answer(greedy_reader(&collector.address));
    assert!(honest.is_whole(), "an honest reader's answer broke off");
    let broken = unread
        .into_iter()
        .map(read_answer)
        .filter(|answer| !answer.is_whole())
        .count();
    assert!(
        broken >= GREEDY_READERS / 2,
        "only {broken} unread answers broke off"
    );
    check_honest(&collector, worker);
}

/// 64 streams with one flush of 200,000 rows each took 3 GB, and honest agents were rejected.
#[test]
#[ignore = "long"]
fn large_flushes_take_bounded_memory_and_honest_agents_lose_nothing() {
    let _alone = alone();
    let (collector, worker) = collector_and_agent();
    let large: Vec<Bytes> = flushes(LARGE_ROUNDS, FLUSH_ROWS, 0).collect();
    let answers = runtime().block_on(async {
        let mut streams = JoinSet::new();
        for first in (0..LARGE_STREAMS).step_by(STREAMS_A_CONNECTION) {
            let client = connection(&collector.address).await;
            for number in first..LARGE_STREAMS.min(first + STREAMS_A_CONNECTION) {
                let opened = stream(&client, &collector.address).await.unwrap();
                let greeting = greeting(format!("large-{number}"));
                let messages = greeting.into_iter().chain(large.iter().cloned()).collect();
                // A Welcome and an answer for each flush.
                streams.spawn(answered(opened, messages, LARGE_ROUNDS + 1));
            }
        }
        let all = async {
            let mut answers = 0;
            while let Some(came) = streams.join_next().await {
                answers += came.unwrap();
            }
            answers
        };
        timeout(ATTACK_MAX, all)
            .await
            .expect("each flush is answered")
    });
    // At least one of two flushes is stored or rejected; the other streams end without an answer to it.
    assert!(answers >= LARGE_STREAMS * 3 / 2, "only {answers} answers");
    check_honest(&collector, worker);
}

/// Each stream of a stranger wrote 8 KB of log.
#[test]
fn strangers_cannot_fill_the_log() {
    let collector = Collector::start();
    let before = collector.log().lines().count();
    runtime().block_on(async {
        for number in 0..SHORT_STREAMS {
            let client = connection(&collector.address).await;
            let opened = stream(&client, &collector.address).await.unwrap();
            let greeting = greeting(format!("{number:05}\u{1b}[31m{}", "n".repeat(240))).to_vec();
            let welcomed = timeout(ATTACK_MAX, answered(opened, greeting, 1)).await;
            assert!(welcomed.unwrap() > 0);
        }
    });
    wait_for("the end of all streams", || {
        let metrics = collector.get("/metrics").1;
        metrics
            .contains("emberline_sessions{state=\"connected\"} 0")
            .then_some(())
    });
    let log = collector.log();
    let lines = log.lines().count() - before;
    assert!(
        (1..=LOG_LINES_MAX).contains(&lines),
        "{lines} lines:\n{log}"
    );
    assert!(!log.contains('\u{1b}'), "{log}");
}

/// One dictionary of 3.5 MB kept a collector busy for 148 s, in which nobody was answered.
#[test]
fn names_that_collide_are_stored_like_others() {
    let _alone = alone();
    let (collector, worker) = collector_and_agent();
    let dictionary = v1::Dictionary {
        string_base: 2,
        strings: colliding_names(COLLIDING_NAMES),
        node_base: 1,
        ..v1::Dictionary::default()
    };
    let names = [framed(Kind::Dictionary(dictionary))];
    let messages = greeting("colliding".into())
        .into_iter()
        .chain(names)
        .chain(flushes(1, 1, 0))
        .collect();
    let answers = runtime().block_on(async {
        let client = connection(&collector.address).await;
        let opened = stream(&client, &collector.address).await.unwrap();
        let answers = answered(opened, messages, 2);
        timeout(COLLIDING_MAX, answers)
            .await
            .expect("the flush after the names is answered")
    });
    assert_eq!(answers, 2);
    let stored = collector.json("/api/v1/workers?worker=colliding");
    let epoch = stored.pointer("/workers/0/epochs/0").unwrap();
    assert_eq!(
        (number(epoch, "acked_seq"), number(epoch, "rejected")),
        (1, 0),
        "{epoch}"
    );
    check_honest(&collector, worker);
}
