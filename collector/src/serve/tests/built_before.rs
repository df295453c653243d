//! An agent that was built before this collector: its connection as it was recorded, byte by byte. The store's and
//! the log's golden files are with their tests.

use profiler_core::Timestamp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// Bytes that an agent with protocol 1 sent in 9 s, with 141 tasks of each of two names.
const CONNECTION: &[u8] = include_bytes!("golden/agent-protocol-1.tcp");
/// The first line of HTTP/2. The server's settings must arrive before the acknowledgement that follows.
const PREFACE_BYTES: usize = 24;
/// A minute after the agent started: 2026-11-29T05:01:15Z.
const REPLAYED_S: i64 = 1_795_928_475;

/// As the collector of that time counted them.
const ACCEPTED_NS: u64 = 40_548_000_000;
const TASKS: u64 = 141;
const DURATIONS_NS: [(&str, u64); 2] = [("slows", 4_922_655_310), ("stays", 3_185_028_471)];

#[tokio::test]
async fn an_agent_with_protocol_1_is_stored_exactly() {
    let running = serve().await;
    let now = Timestamp::from_unix_ns(REPLAYED_S * 1_000_000_000);
    running.now_ns.store(now.unix_ns(), Ordering::SeqCst);
    let (preface, messages) = CONNECTION.split_at(PREFACE_BYTES);
    let mut agent = TcpStream::connect(running.address).await.unwrap();
    agent.write_all(preface).await.unwrap();
    let mut settings = [0; 9];
    in_time(agent.read_exact(&mut settings)).await.unwrap();
    agent.write_all(messages).await.unwrap();

    running
        .until(
            "/api/v1/workers",
            "/workers/0/epochs/0/state",
            json!("gone"),
        )
        .await;
    let workers = running.json("/api/v1/workers").await;
    let epoch = &workers["workers"][0]["epochs"][0];
    assert_eq!(epoch["account"]["accepted_ns"], ACCEPTED_NS, "{epoch:#}");
    assert_eq!(epoch["account"]["stored_ns"], ACCEPTED_NS, "{epoch:#}");
    assert_eq!(epoch["disconnect"]["reason"], "clean", "{epoch:#}");

    let summary = running.json("/api/v1/tasks?summary=true").await;
    let names = summary["names"].as_array().unwrap();
    assert_eq!(names.len(), DURATIONS_NS.len(), "{summary:#}");
    for (name, (expected_name, expected_ns)) in names.iter().zip(DURATIONS_NS) {
        assert_eq!(name["name"], expected_name);
        assert_eq!(name["outcomes"]["ok"], TASKS, "{name:#}");
        assert_eq!(name["durations"]["total_ns"], expected_ns, "{name:#}");
    }
    let profile = running
        .json("/api/v1/profile?state=all&threads=all&outside=shown")
        .await;
    assert_eq!(
        profile["totals"]["total_ns"], ACCEPTED_NS,
        "{}",
        profile["totals"]
    );
    running.end().await;
}
