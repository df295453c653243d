//! Clients that push profiles as Pyroscope's do.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, ensure};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::attack::{ANSWER_MAX, RETRY_AFTER};
use super::http2::{STRANGER, connect};

/// Clients of each kind.
const PUSHERS_A_KIND: usize = 8;

/// Lines of equal stacks: as many as a body may have after decompression.
const LINES: usize = 2_700_000;

/// Lines of different names, whose body is nearly the largest.
const NAMES: usize = 1_500_000;

/// Largest body that a collector accepts.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Bodies of each kind. They are made before the attack, which takes seconds.
static BODIES: OnceLock<Vec<Bytes>> = OnceLock::new();

/// Makes the bodies.
pub(super) fn prepare() {
    match [lines(), names(), gzip(b"main;work 5\n")]
        .into_iter()
        .collect()
    {
        Ok(bodies) => drop(BODIES.set(bodies)),
        Err::<Vec<Bytes>, _>(error) => eprintln!("no bodies to push: {error}"),
    }
}

/// Pushes without end. Never returns.
pub(super) async fn push(address: SocketAddr, stored: Arc<AtomicU64>, refused: Arc<AtomicU64>) {
    let Some(bodies) = BODIES.get() else {
        return eprintln!("the attack did not begin: its bodies are not prepared");
    };
    let mut tasks = JoinSet::new();
    for number in 0..bodies.len() * PUSHERS_A_KIND {
        let body = bodies[number % bodies.len()].clone();
        let stored = stored.clone();
        let refused = refused.clone();
        tasks.spawn(async move {
            loop {
                let pushed = timeout(ANSWER_MAX, push_once(address, number, &body)).await;
                if matches!(pushed, Ok(Ok(true))) {
                    stored.fetch_add(1, Relaxed);
                } else {
                    refused.fetch_add(1, Relaxed);
                    sleep(RETRY_AFTER).await;
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// Whether the push is stored.
async fn push_once(address: SocketAddr, number: usize, body: &Bytes) -> Result<bool> {
    let mut stream = connect(STRANGER, address, None).await?;
    let head = format!(
        "POST /ingest?name=pushed-{number}&format=folded HTTP/1.1\r\nhost: {address}\r\n\
         content-encoding: gzip\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200 "))
}

/// 16 MB of lines in 24 KB.
fn lines() -> Result<Bytes> {
    gzip(&b"a;b 1\n".repeat(LINES))
}

fn names() -> Result<Bytes> {
    let mut text = Vec::new();
    for name in 0..NAMES {
        writeln!(text, "{name:x} 1")?;
    }
    let body = gzip(&text)?;
    ensure!(
        body.len() <= BODY_BYTES_MAX,
        "{} bytes are too many for a push",
        body.len()
    );
    Ok(body)
}

fn gzip(text: &[u8]) -> Result<Bytes> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text)?;
    Ok(gzip.finish()?.into())
}
