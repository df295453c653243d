//! Readers that go away, over real sockets.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use query::{Asking, QueryError};
use state::{Collector, Settings};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the query below reports its start and its end.
static REPORTS: Mutex<Option<Sender<&'static str>>> = Mutex::new(None);

fn report(word: &'static str) {
    let reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    reports.as_ref().unwrap().send(word).unwrap();
}

/// A query that runs until it is cancelled, like the scan of a large table. Without a cancellation it
/// ends by itself after the test has failed.
fn endless(asking: &Asking<'_>) -> Result<Response, ErrorAnswer> {
    report("started");
    let begin = std::time::Instant::now();
    loop {
        match asking.cancel.check() {
            Err(error) => {
                report("cancelled");
                return Err(error.into());
            }
            Ok(()) if begin.elapsed() > PATIENCE => return Err(ErrorAnswer::busy()),
            Ok(()) => std::thread::yield_now(),
        }
    }
}

async fn ask(State(reader): State<Reader>, pairs: Pairs) -> Result<Response, ErrorAnswer> {
    reader.answer(pairs, endless).await
}

/// The next report, awaited without blocking a thread of the runtime.
async fn next_report(words: Receiver<&'static str>) -> (&'static str, Receiver<&'static str>) {
    let next = tokio::task::spawn_blocking(move || (words.recv_timeout(PATIENCE).unwrap(), words));
    next.await.unwrap()
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_its_query_and_releases_its_permit() {
    let (sender, mut words) = channel();
    *REPORTS.lock().unwrap() = Some(sender);
    let collector = Arc::new(Collector::new(Settings::default()));
    let reader = Reader::new(collector.clone());
    let turns = reader.query_turns.clone();
    let routes = Router::new()
        .route("/endless", get(ask))
        .with_state(reader.clone())
        .merge(routes_of(reader, Router::new(), Router::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move { axum::serve(listener, routes).await });
    // One after another, more often than there are permits.
    for _ in 0..=QUERIES_MAX {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let word;
        (word, words) = next_report(words).await;
        assert_eq!((word, turns.taken()), ("started", 1));
        drop(stream);
        let word;
        (word, words) = next_report(words).await;
        assert_eq!(word, "cancelled");
        // The permit is released when the work returns, a moment after its report.
        let free = async {
            while turns.taken() > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, free).await.unwrap();
    }
    // Later queries are answered.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /api/v1/tasks HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    served.abort();
}

#[test]
fn a_cancelled_query_is_an_internal_error() {
    let answer = ErrorAnswer::from(QueryError::Cancelled).into_response();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
}
