//! Readers that go away, over real sockets.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::collector::Settings;
use crate::query::QueryError;

/// Nothing here takes as long; a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the question below says: that it is being answered, and how that ended.
static SAID: Mutex<Option<Sender<&'static str>>> = Mutex::new(None);

fn say(word: &'static str) {
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.as_ref().unwrap().send(word).unwrap();
}

/// A question that takes as long as its reader waits, as the scan of a large table would. One that
/// nobody calls off ends by itself, when the test has failed already.
fn endless(asking: &Asking<'_>) -> Result<Response, ErrorAnswer> {
    say("begun");
    let begin = std::time::Instant::now();
    loop {
        match asking.cancel.check() {
            Err(error) => {
                say("called off");
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

/// The next word, awaited without a thread of the runtime.
async fn hear(words: Receiver<&'static str>) -> (&'static str, Receiver<&'static str>) {
    let heard = tokio::task::spawn_blocking(move || (words.recv_timeout(PATIENCE).unwrap(), words));
    heard.await.unwrap()
}

#[tokio::test]
async fn a_reader_that_goes_away_calls_its_question_off_and_gives_its_turn_back() {
    let (sender, mut words) = channel();
    *SAID.lock().unwrap() = Some(sender);
    let collector = Arc::new(Collector::new(Settings::default()));
    let reader = Reader::new(collector.clone());
    let permits = reader.query_permits.clone();
    let routes = Router::new().route("/endless", get(ask)).with_state(reader.clone());
    let routes = routes.merge(routes_of(reader, Router::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move { axum::serve(listener, routes).await });
    // One after the other, more often than there are permits.
    for _ in 0..=QUERIES_MAX {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let word;
        (word, words) = hear(words).await;
        assert_eq!((word, permits.available_permits()), ("begun", QUERIES_MAX - 1));
        drop(stream);
        let word;
        (word, words) = hear(words).await;
        assert_eq!(word, "called off");
        // The turn is free once the work has ended, which is a moment after it said so.
        drop(timeout(PATIENCE, permits.acquire_many(QUERIES_MAX as u32)).await.unwrap().unwrap());
    }
    // Others are answered as before.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /api/v1/tasks HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    served.abort();
}

#[test]
fn a_question_that_was_called_off_is_no_fault_of_the_readers() {
    let answer = ErrorAnswer::from(QueryError::Cancelled).into_response();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
}
