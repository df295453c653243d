//! Connections that send slowly or do not read.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::attack::RETRY_AFTER;
use super::http2::{STRANGER, connect};

/// How a slow connection begins, and whether it goes on byte by byte.
const KINDS: [(&[u8], bool); 4] = [
    (b"", false),
    (b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n", true),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
    (
        b"POST /api/v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 4000\r\n\r\n",
        false,
    ),
];

/// Time between two bytes of a slow header.
const BYTE_EVERY: Duration = Duration::from_secs(2);

/// Receive buffer of a reader that does not read.
const SMALL_BUFFER_BYTES: u32 = 4_096;

/// Keeps so many connections open that are idle, slow or half open; one that is closed is opened again.
/// Counts those that are open. Never returns.
pub(super) async fn slow(address: SocketAddr, count: usize, open: Arc<AtomicU64>) {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let (begin, goes_on) = KINDS[number % KINDS.len()];
        let open = open.clone();
        tasks.spawn(async move {
            loop {
                if let Ok(mut stream) = connect(STRANGER, address, None).await {
                    open.fetch_add(1, Relaxed);
                    send_slowly(&mut stream, begin, goes_on).await;
                    open.fetch_sub(1, Relaxed);
                }
                sleep(RETRY_AFTER).await;
            }
        });
        // As a stranger's machine would: not all in one moment.
        if number % 100 == 99 {
            sleep(Duration::from_millis(5)).await;
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Sends `begin`, and then a byte at times if it goes on, until the collector closes the connection.
async fn send_slowly(stream: &mut TcpStream, begin: &[u8], goes_on: bool) {
    let _ = stream.write_all(begin).await;
    let mut answer = [0; 256];
    loop {
        tokio::select! {
            read = stream.read(&mut answer) => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
            }
            () = sleep(BYTE_EVERY), if goes_on => {
                if stream.write_all(b"x").await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Asks so many times at once for a large answer, and reads none of it; asks again if the connection is
/// closed. Counts those that are open. Never returns.
pub(super) async fn greedy(address: SocketAddr, count: usize, path: &str, open: Arc<AtomicU64>) {
    let mut tasks = JoinSet::new();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    for _ in 0..count {
        let open = open.clone();
        let request = request.clone();
        tasks.spawn(async move {
            loop {
                if let Ok(mut stream) = connect(STRANGER, address, Some(SMALL_BUFFER_BYTES)).await {
                    open.fetch_add(1, Relaxed);
                    let _ = stream.write_all(request.as_bytes()).await;
                    // Errors arrive without reading.
                    let _ = stream.ready(tokio::io::Interest::ERROR).await;
                    open.fetch_sub(1, Relaxed);
                }
                sleep(RETRY_AFTER).await;
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// Asks again and again from each of these addresses at once. Never returns.
pub(super) async fn flood(
    address: SocketAddr,
    sources: impl Iterator<Item = Ipv4Addr>,
    path: &str,
    answered: Arc<AtomicU64>,
) {
    let mut tasks = JoinSet::new();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    for source in sources {
        let answered = answered.clone();
        let request = request.clone();
        tasks.spawn(async move {
            loop {
                let Ok(mut stream) = connect(source, address, None).await else {
                    sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let _ = stream.write_all(request.as_bytes()).await;
                let mut answer = Vec::new();
                if stream.read_to_end(&mut answer).await.is_ok() && !answer.is_empty() {
                    answered.fetch_add(1, Relaxed);
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}
