//! A kernel: its code is at addresses above 32 bits, and a program other than our agent sends them.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profiler_core::limits::MESSAGE_BYTES_TARGET;
use profiler_core::wire::v1::{AgentMessage, CollectorMessage, agent_message, collector_message};
use profiler_core::wire::{FlushDeltaCodec, Marks, PROTOCOL, dictionary_since, encode_cycle, v1};
use profiler_core::{CallTrie, Frame, FrameKind, State, SymbolTable, TimeRange, Timestamp};
use prost::Message as _;
use serde_json::Value;

use super::{symbols, text, upload};
use crate::harness::{Collector, output, wait_for};

/// Where the kernel's code begins.
const START: u64 = 0xffff_ffff_8100_0000;
const SOURCE: &str = "
static inline __attribute__((always_inline)) long twice(long a) { return a * 2 ^ a >> 3; }
__attribute__((noinline)) long sum(const long *values, long count) {
    long total = 0;
    for (long i = 0; i < count; i++) total += twice(values[i]);
    return total;
}
long start(long count) {
    long values[] = { count, count + 1 };
    return sum(values, 2);
}
";
/// Longest wait for the answer to a flush.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const ATTACH: &str = "/emberline.v1.Ingest/Attach";
const WORKER: &str = "kernel-1";
const SECOND_NS: i64 = 1_000_000_000;

fn compile(folder: &Path) -> PathBuf {
    fs::write(folder.join("kernel.c"), SOURCE).unwrap();
    let segment = format!("-Wl,-Ttext-segment={START:#x}");
    let done = output(
        Command::new("cc")
            .args([
                "-O2",
                "-g",
                "-fno-pie",
                "-no-pie",
                "-mcmodel=kernel",
                "-static",
                "-nostdlib",
            ])
            .args([
                "-Wl,-estart",
                "-Wl,--build-id",
                &segment,
                "kernel.c",
                "-o",
                "vmlinux",
            ])
            .current_dir(folder),
    );
    assert!(done.status.success(), "{}", text(&done.stderr));
    folder.join("vmlinux")
}

/// The addresses of a function.
fn addresses(program: &Path, function: &str) -> Range<u64> {
    let listed = text(&output(Command::new("nm").arg("-S").arg(program)).stdout);
    let line = listed
        .lines()
        .find(|line: &&str| line.split(' ').next_back() == Some(function))
        .unwrap();
    let mut numbers = line.split(' ').map(|field| u64::from_str_radix(field, 16));
    let mut next = || numbers.next().unwrap().unwrap();
    let start = next();
    start..start + next()
}

/// The messages of an agent that found a task in the kernel at each of these addresses.
fn messages(build_id: &str, addresses: Range<u64>) -> Vec<agent_message::Kind> {
    let mut symbols = SymbolTable::new();
    let mut trie = CallTrie::new(10_000);
    for offset in addresses {
        let code = Frame {
            kind: FrameKind::Unresolved,
            module: "vmlinux",
            build_id,
            offset,
            ..Frame::function("", "", 0)
        };
        let path = [Frame::task("call"), code].map(|frame| symbols.intern(&frame));
        let node = trie.insert_path(path.to_vec()).unwrap();
        trie.add(node, State::Cpu, 10_000_000);
    }
    let dictionary =
        dictionary_since(&symbols, &trie, &mut Marks::default(), MESSAGE_BYTES_TARGET).unwrap();
    let delta = trie.take_delta();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_ns = i64::try_from(now.as_nanos()).unwrap();
    let start_ns = (now_ns / SECOND_NS - 2) * SECOND_NS;
    let second = [start_ns, start_ns + SECOND_NS].map(Timestamp::from_unix_ns);
    let range = TimeRange::new(second[0], second[1]).unwrap();
    let account = v1::LossAccount {
        accepted_ns: delta.total().total_ns(),
        ..Default::default()
    };
    let mut flush = v1::Flush {
        seq: 1,
        sent_at_ns: now_ns,
        clock: Some(v1::Clock {
            offset_ns: 0,
            error_ns: 5,
        }),
        cycle: Some(v1::Cycle {
            ticks: 100,
            ticks_expected: 100,
            ..encode_cycle(&delta, range, 1)
        }),
        account: Some(account),
        ..v1::Flush::default()
    };
    FlushDeltaCodec::default().encode(&mut flush);
    let hello = v1::Hello {
        protocol: PROTOCOL,
        worker: WORKER.into(),
        epoch: 1,
        host: "host-1".into(),
        pid: 1,
        agent_version: "kernel".into(),
        sampler_mode: "kernel".into(),
        interval_ns: 10_000_000,
        started_at_ns: start_ns,
        sent_at_ns: now_ns,
        ..v1::Hello::default()
    };
    use agent_message::Kind;
    vec![
        Kind::Hello(hello),
        Kind::Dictionary(dictionary),
        Kind::Flush(flush),
    ]
}

/// Sends messages on a stream, and waits until the flush is stored.
async fn send(address: &str, messages: Vec<agent_message::Kind>) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post(format!("http://{address}{ATTACH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    for kind in messages {
        let message = AgentMessage { kind: Some(kind) }.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        body.send_data([&[0][..], &length, &message].concat().into(), false)
            .unwrap();
    }
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let mut answers = response.into_body();
    let mut received = Vec::new();
    loop {
        while let Some(kind) = next_message(&mut received) {
            match kind {
                collector_message::Kind::Ack(_) => return,
                collector_message::Kind::Refusal(refusal) => panic!("{refusal:?}"),
                _ => {}
            }
        }
        let data = answers.data().await;
        let Some(data) = data else {
            panic!("{:?}", answers.trailers().await)
        };
        received.extend_from_slice(&data.unwrap());
    }
}

/// Removes the first message, if it is complete.
fn next_message(received: &mut Vec<u8>) -> Option<collector_message::Kind> {
    let length = u32::from_be_bytes(*received.get(1..)?.first_chunk()?) as usize;
    let message = CollectorMessage::decode(received.get(5..)?.get(..length)?).unwrap();
    received.drain(..5 + length);
    message.kind
}

/// The functions at each address, with their lines.
fn functions(collector: &Collector) -> Value {
    collector.json(&format!("/api/v1/profile?from=-1h&worker={WORKER}&by=line"))
}

#[test]
fn the_symbols_of_a_kernel_are_uploaded_and_name_its_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = compile(folder.path());
    let sum = addresses(&kernel, "sum");
    assert!(sum.start > START && sum.end - sum.start > 8, "{sum:x?}");
    let collector = Collector::start_with_data("127.0.0.1:0", &folder.path().join("data"));
    let made = text(
        &super::run(&[
            "symbols",
            "reduce",
            "--output",
            folder.path().join("kernel.symbols").to_str().unwrap(),
            kernel.to_str().unwrap(),
        ])
        .stdout,
    );
    let build_id = made
        .split("build id ")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let messages = messages(build_id, sum.clone());
    runtime
        .block_on(async {
            tokio::time::timeout(ANSWER_MAX, send(&collector.address, messages)).await
        })
        .unwrap();

    let before = wait_for("the kernel's addresses", || {
        let (status, body) =
            collector.get(&format!("/api/v1/profile?from=-1h&worker={WORKER}&by=line"));
        let answer: Value = serde_json::from_str(&body).ok()?;
        (status == 200 && !answer["empty"].as_bool()?).then_some(answer)
    });
    let missing = &before["unnamed"]["modules"][0];
    assert_eq!(
        (&missing["module"], &missing["build_id"]),
        (&"vmlinux".into(), &build_id.into())
    );
    assert_eq!(
        unresolved_offsets(&before),
        sum.collect(),
        "addresses as they are in vmlinux"
    );

    assert!(upload(&collector, &kernel).contains(build_id));
    let list = text(&symbols(&collector, &["list"]).stdout);
    assert!(list.contains(&build_id[..8]), "{list}");
    let after = functions(&collector);
    assert_eq!(after["unnamed"]["total_ns"], 0, "{}", after["unnamed"]);
    let nodes = after["profile"]["nodes"].as_array().unwrap();
    let named: BTreeSet<_> = nodes
        .iter()
        .filter(|node| node["kind"] == "function")
        .map(|node| {
            assert!(
                node["file"].as_str().unwrap().ends_with("/kernel.c"),
                "{node}"
            );
            let name = node["name"].as_str().unwrap();
            (
                name,
                node["line"].as_u64().unwrap(),
                node["inlined"].as_bool().unwrap(),
            )
        })
        .collect();
    // The loop is on line 5, and what is inlined there on line 2.
    assert!(
        named.contains(&("sum", 5, false)) && named.contains(&("twice", 2, true)),
        "{named:?}"
    );
    assert!(
        named
            .iter()
            .all(|(name, ..)| ["sum", "twice"].contains(name)),
        "{named:?}"
    );
}

fn unresolved_offsets(answer: &Value) -> BTreeSet<u64> {
    let nodes = answer["profile"]["nodes"].as_array().unwrap().clone();
    let unresolved = nodes
        .into_iter()
        .filter(|node| node["kind"] == "unresolved");
    unresolved
        .map(|node| node["offset"].as_u64().unwrap())
        .collect::<BTreeSet<_>>()
}
