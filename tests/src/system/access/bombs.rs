//! Decompression bombs through each inlet for foreign profilers: a status in the form of the protocol, bounded
//! memory, and ingest goes on.

use std::fs;
use std::thread;
use std::time::Duration;

use flate2::{Compress, Compression, FlushCompress};
use h2::client::SendRequest;
use prost::Message;
use serde_json::Value;
use ureq::http::HeaderMap;

use crate::harness::{Collector, Worker, number, wait_for};

/// Compressed bytes of a bomb. Decompressed, it has 2 GB.
const BOMB_BYTES: usize = 2 << 20;

/// Senders of each kind of bomb at once, and bombs of each.
const SENDERS: usize = 3;
const ROUNDS: usize = 2;

/// How much the collector may grow: less than a fifth of one bomb. It grows by 160 to 245 MB.
const GROWTH_BYTES_MAX: u64 = 384 << 20;

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(90);

const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// A stream of gzip that goes on with zeros, without an end.
fn bomb() -> Vec<u8> {
    let mut zeros = Vec::with_capacity(64 << 10);
    let mut compress = Compress::new(Compression::best(), false);
    // After a full flush nothing refers to what is before it, so the bytes can be repeated.
    compress
        .compress_vec(&vec![0; 1 << 20], &mut zeros, FlushCompress::Full)
        .unwrap();
    assert_eq!(compress.total_in(), 1 << 20);
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    [&head[..], &zeros.repeat(BOMB_BYTES / zeros.len())].concat()
}

/// `push.v1.PushRequest` with one profile, limited to the fields that this test needs.
#[derive(Clone, PartialEq, Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<PushedSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct PushedSeries {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<PushedSample>,
}

#[derive(Clone, PartialEq, Message)]
struct PushedSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

fn post(url: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(ANSWER_MAX))
        .build()
        .into();
    let mut request = agent.post(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, mut body) = request.send(body).unwrap().into_parts();
    let body = body.read_to_vec().unwrap();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
    }
}

/// The status and text of an answer of gRPC without a message.
async fn export(address: &str, message: &[u8]) -> (String, String) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client: SendRequest<_> = client.ready().await.unwrap();
    let request = http::Request::post(format!("http://{address}{EXPORT}"))
        .header("content-type", "application/grpc")
        .header("grpc-encoding", "gzip")
        .body(())
        .unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    body.send_data([&[1][..], &length, message].concat().into(), true)
        .unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let text = |name| response.headers()[name].to_str().unwrap().to_owned();
    (text("grpc-status"), text("grpc-message"))
}

/// The inlets, each with the kind of a bomb.
#[derive(Clone, Copy, Debug)]
enum Inlet {
    /// A profile that is compressed by itself.
    Ingest,
    /// A body that is compressed by HTTP.
    EncodedIngest,
    Push,
    EncodedPush,
    OtlpHttp,
    OtlpGrpc,
}

const INLETS: [Inlet; 6] = [
    Inlet::Ingest,
    Inlet::EncodedIngest,
    Inlet::Push,
    Inlet::EncodedPush,
    Inlet::OtlpHttp,
    Inlet::OtlpGrpc,
];

impl Inlet {
    /// Sends a bomb and checks the answer.
    fn check(self, address: &str, bomb: &[u8]) {
        let url = |path: &str| format!("http://{address}{path}");
        let gzip = ("content-encoding", "gzip");
        let ingest = url("/ingest?name=bomb&format=pprof");
        let push = url("/push.v1.PusherService/Push");
        let proto = ("content-type", "application/proto");
        match self {
            Inlet::Ingest => check_ingest(&post(&ingest, &[], bomb)),
            Inlet::EncodedIngest => check_ingest(&post(&ingest, &[gzip], bomb)),
            Inlet::Push => {
                let samples = vec![PushedSample {
                    raw_profile: bomb.to_vec(),
                }];
                let request = PushRequest {
                    series: vec![PushedSeries { samples }],
                };
                check_push(&post(&push, &[proto], &request.encode_to_vec()));
            }
            Inlet::EncodedPush => check_push(&post(&push, &[proto, gzip], bomb)),
            Inlet::OtlpHttp => {
                let protobuf = ("content-type", "application/x-protobuf");
                let answer = post(&url("/v1development/profiles"), &[protobuf, gzip], bomb);
                assert_eq!(answer.status, 413);
                assert_eq!(answer.headers["content-type"], "application/x-protobuf");
                let status = RpcStatus::decode(&*answer.body).unwrap();
                assert_eq!(status.code, 3, "{}", status.message);
                check_text(&status.message);
            }
            Inlet::OtlpGrpc => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let exported = runtime.unwrap().block_on(async {
                    tokio::time::timeout(ANSWER_MAX, export(address, bomb)).await
                });
                let (status, message) = exported.unwrap();
                assert_eq!(status, "3", "{message}");
                check_text(&message.replace("%20", " "));
            }
        }
    }
}

fn check_text(message: &str) {
    assert!(
        message.contains("too many bytes of content: at most"),
        "{message}"
    );
}

fn check_ingest(answer: &Answer) {
    assert_eq!(answer.status, 413);
    let error: Value = serde_json::from_slice(&answer.body).unwrap();
    check_text(error["error"].as_str().unwrap());
}

fn check_push(answer: &Answer) {
    assert_eq!(answer.status, 413);
    let error: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(error["code"], "invalid_argument", "{error}");
    check_text(error["message"].as_str().unwrap());
}

/// The largest memory of a process so far.
fn peak_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kilobytes: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kilobytes << 10
}

fn stored_ns(collector: &Collector) -> u64 {
    collector
        .epochs()
        .iter()
        .map(|epoch| number(&epoch["account"], "stored_ns"))
        .sum()
}

#[test]
fn bombs_are_rejected_in_each_protocol_within_bounded_memory_and_ingest_goes_on() {
    let collector = Collector::start();
    let worker = Worker::start("steady", "steady-1", &collector.url(), &[]);
    wait_for("the worker", || (stored_ns(&collector) > 0).then_some(()));
    let process = collector.process.id();
    let before_bytes = peak_bytes(process);
    let bomb = &bomb();
    let address = &*collector.address;
    thread::scope(|scope| {
        for inlet in INLETS.repeat(SENDERS) {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    inlet.check(address, bomb);
                }
            });
        }
    });
    let growth_bytes = peak_bytes(process).saturating_sub(before_bytes);
    assert!(
        growth_bytes < GROWTH_BYTES_MAX,
        "the collector grew by {growth_bytes} bytes"
    );

    let pushes = collector.json("/api/v1/workers")["pushes"].clone();
    let of_each = (SENDERS * ROUNDS) as u64;
    assert_eq!(
        (rejected(&pushes, "pyroscope"), rejected(&pushes, "otlp")),
        (4 * of_each, 2 * of_each),
        "{pushes}"
    );
    let after_ns = stored_ns(&collector);
    wait_for("more of the worker", || {
        (stored_ns(&collector) > after_ns).then_some(())
    });
    let good = post(
        &format!("{}/ingest?name=good", collector.url()),
        &[],
        b"main 7",
    );
    assert_eq!(good.status, 200);
    let report = worker.finish()["report"].clone();
    assert_eq!(
        number(&report, "accepted_ns"),
        number(&report, "stored_ns"),
        "{report}"
    );
}

fn rejected(pushes: &Value, source: &str) -> u64 {
    let counts = pushes
        .as_array()
        .unwrap()
        .iter()
        .find(|counts| counts["source"] == source);
    number(counts.unwrap(), "rejected")
}
