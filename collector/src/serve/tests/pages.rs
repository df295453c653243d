//! Open pages: they are told when there is something new, and never keep agents waiting.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use axum::extract::Query;
use profiler_core::State;
use profiler_core::wire::v1::agent_message::Kind;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::super::answer;
use super::super::http::Reader;
use super::super::router;
use super::client::{Client, get};
use super::{attached, serve, serve_full};
use crate::clock::Clock;
use crate::collector::{Collector, Settings};
use crate::limits::{PAGES_MAX, QUERIES_MAX, QUERIES_WAITING_MAX};
use crate::testing::{TestWorker, at};

/// A page that listens.
struct Page(BufReader<TcpStream>);

impl Page {
    async fn open(address: SocketAddr) -> Page {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let ask = format!("GET /api/v1/updates HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        Page(BufReader::new(stream))
    }

    /// The rest of the next line that begins so; `None` if the stream ends before.
    async fn line(&mut self, start: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.unwrap() == 0 {
                return None;
            }
            if let Some(rest) = line.strip_prefix(start) {
                return Some(rest.trim().to_owned());
            }
        }
    }
}

#[tokio::test]
async fn a_page_hears_of_what_is_new_and_of_the_end() {
    let running = serve().await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let mut page = Page::open(running.address).await;
    assert_eq!(page.line("HTTP/1.1 ").await.unwrap(), "200 OK");
    assert_eq!(page.line("content-type: ").await.unwrap(), "text/event-stream");
    // Where it is may be told before and after the first flush was noted.
    let now_ns = at(60).unix_ns();
    let news = |to: i64, flushes: u64| {
        let data_to_ns = at(to).unix_ns();
        format!(
            "{{\"now_ns\":{now_ns},\"data_to_ns\":{data_to_ns},\"flushes\":{flushes},\"ingest_stopped\":null}}"
        )
    };
    while page.line("data: ").await.unwrap() != news(31, 1) {}
    for second in 31..40 {
        worker.count("load;main", State::Cpu, 1);
        let flush = worker.flush(second, vec![]);
        client.ask(Kind::Flush(flush)).await;
    }
    // However many there are, a page hears of them once a beat: of the newest at the latest then.
    let mut heard = 1;
    while page.line("data: ").await.unwrap() != news(40, 10) {
        heard += 1;
    }
    assert!(heard < 9, "{heard}");
    running.stop.send(()).unwrap();
    assert_eq!(page.line("data: ").await, None);
    running.served.await.unwrap().unwrap();
}

/// Neither samples nor their absence say it.
#[tokio::test]
async fn a_page_hears_why_nothing_is_taken_in() {
    let (running, _folder) = serve_full().await;
    let mut page = Page::open(running.address).await;
    let reason = loop {
        let news: Value = serde_json::from_str(&page.line("data: ").await.unwrap()).unwrap();
        if let Some(reason) = news["ingest_stopped"].as_str() {
            break reason.to_owned();
        }
    };
    assert!(reason.starts_with("the disk is full"), "{reason}");
}

#[tokio::test]
async fn only_so_many_pages_are_told() {
    let running = serve().await;
    let mut pages = Vec::new();
    for _ in 0..PAGES_MAX {
        let mut page = Page::open(running.address).await;
        assert_eq!(page.line("HTTP/1.1 ").await.unwrap(), "200 OK");
        pages.push(page);
    }
    let mut more = Page::open(running.address).await;
    assert_eq!(more.line("HTTP/1.1 ").await.unwrap(), "503 Service Unavailable");
}

/// Questions that are being answered, and the most there ever were.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[tokio::test]
async fn of_a_hundred_questions_of_fifty_pages_few_are_answered_at_once() {
    let collector = Arc::new(Collector::new(Settings::default()));
    let reader = Reader::new(collector);
    // Nobody gets a turn before all have asked.
    let permits =
        reader.query_permits.clone().acquire_many_owned(QUERIES_MAX as u32).await.unwrap();
    let questions = (0..100).map(|_| {
        let reader = reader.clone();
        tokio::spawn(async move {
            let answer = reader.answer(Ok(Query(Vec::new())), |_| {
                MOST.fetch_max(UNDER_WAY.fetch_add(1, SeqCst) + 1, SeqCst);
                // Lets others begin, if they may.
                std::thread::yield_now();
                UNDER_WAY.fetch_sub(1, SeqCst);
                answer::json(&())
            });
            answer.await.is_ok()
        })
    });
    let questions: Vec<_> = questions.collect();
    // Those that find no place are turned away at once, all others wait.
    let places = QUERIES_MAX + QUERIES_WAITING_MAX;
    while questions.iter().filter(|question| question.is_finished()).count() < 100 - places {
        tokio::task::yield_now().await;
    }
    drop(permits);
    let mut answered = 0;
    for question in questions {
        answered += usize::from(question.await.unwrap());
    }
    assert_eq!(answered, places);
    assert!((1..=QUERIES_MAX).contains(&MOST.load(SeqCst)), "{MOST:?}");
}

/// Fifty pages ask for profiles, none gets a turn, and an agent's flushes are acknowledged all the same:
/// what is counted is who waits, not how long.
#[tokio::test]
async fn fifty_pages_that_wait_for_their_turns_keep_no_agent_waiting() {
    let clock = Clock::from_fn(|| at(60));
    let reader = Reader::new(Arc::new(Collector::new(Settings { clock, ..Settings::default() })));
    let (_stop, stopping) = watch::channel(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = router(reader.clone(), &stopping);
    let served = tokio::spawn(async move { axum::serve(listener, routes).await });
    let permits =
        reader.query_permits.clone().acquire_many_owned(QUERIES_MAX as u32).await.unwrap();
    let ask = || tokio::spawn(get(address, "/api/v1/profile?from=1000000"));
    let pages: Vec<_> = (0..50).map(|_| ask()).collect();
    let free = QUERIES_MAX + QUERIES_WAITING_MAX - pages.len();
    while reader.queue_slots.available_permits() > free {
        tokio::task::yield_now().await;
    }
    let mut worker = TestWorker::new("w", 1);
    let mut client = Client::attach(address, worker.hello()).await;
    for seq in 1..=10 {
        worker.count("load;main", State::Cpu, 1);
        let flush = worker.flush(29 + seq, vec![]);
        if let Some(dictionary) = worker.dictionary() {
            client.tell(Kind::Dictionary(dictionary)).await;
        }
        assert_eq!(client.ask(Kind::Flush(flush)).await, format!("ack {seq}"));
    }
    assert_eq!(reader.queue_slots.available_permits(), free);
    assert!(pages.iter().all(|page| !page.is_finished()));
    drop(permits);
    for page in pages {
        let answer = page.await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.body.contains(r#""total_ns":10}"#), "{}", answer.body);
    }
    served.abort();
}
