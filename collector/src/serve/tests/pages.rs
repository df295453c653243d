//! Open pages: they are notified of new data, and never delay agents.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use axum::extract::Query;
use profiler_core::State;
use profiler_core::wire::v1::agent_message::Kind;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::super::answer;
use super::super::reader::{Pairs, QUEUE_SLOTS, Reader};
use super::super::router;
use super::client::{Client, get};
use super::{PATIENCE, attached, in_time, serve, serve_full, wait_until};
use base::clock::Clock;
use base::limits::{PAGES_MAX, QUERIES_MAX};
use front::auth::{TokenSource, Tokens};
use front::error::ErrorAnswer;
use front::gate::Gate;
use front::origin::PublicNames;
use query::Asking;
use shares::{Account, Turn};
use state::testing::{TestWorker, account, at};
use state::{Collector, Settings};

/// A page that listens for updates.
struct Page(BufReader<TcpStream>);

impl Page {
    async fn open(address: SocketAddr) -> Page {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let ask = format!("GET /api/v1/updates HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        Page(BufReader::new(stream))
    }

    /// The rest of the next line with this start; `None` if the stream ends before.
    async fn line(&mut self, start: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if in_time(self.0.read_line(&mut line)).await.unwrap() == 0 {
                return None;
            }
            if let Some(rest) = line.strip_prefix(start) {
                return Some(rest.trim().to_owned());
            }
        }
    }
}

#[tokio::test]
async fn a_page_is_notified_of_new_data_and_of_the_end() {
    let running = serve().await;
    let (mut worker, mut client) = attached(&running, "w").await;
    let mut page = Page::open(running.address).await;
    assert_eq!(page.line("HTTP/1.1 ").await.unwrap(), "200 OK");
    assert_eq!(
        page.line("content-type: ").await.unwrap(),
        "text/event-stream"
    );
    // The page may connect before or after the first flush is counted.
    let now_ns = at(60).unix_ns();
    let update = |to: i64, flushes: u64| {
        let data_to_ns = at(to).unix_ns();
        format!(
            "{{\"now_ns\":{now_ns},\"data_to_ns\":{data_to_ns},\"flushes\":{flushes},\"ingest_stopped\":null}}"
        )
    };
    while page.line("data: ").await.unwrap() != update(31, 1) {}
    for second in 31..40 {
        worker.count("load;main", State::Cpu, 1);
        let flush = worker.flush(second, vec![]);
        client.ask(Kind::Flush(flush)).await;
    }
    // However many flushes there are, a page gets at most one update per interval.
    let mut updates = 1;
    while page.line("data: ").await.unwrap() != update(40, 10) {
        updates += 1;
    }
    assert!(updates < 9, "{updates}");
    running.stop.send(()).unwrap();
    assert_eq!(page.line("data: ").await, None);
    running.served.await.unwrap().unwrap();
}

/// The newest update is that of the last flush. Its time is that of the message.
#[tokio::test]
async fn a_page_of_an_idle_collector_gets_its_present_time() {
    let running = serve().await;
    let _attached = attached(&running, "w").await;
    for now_s in [60, 337, 3_600] {
        running.now_ns.store(at(now_s).unix_ns(), SeqCst);
        let mut page = Page::open(running.address).await;
        let update: Value = serde_json::from_str(&page.line("data: ").await.unwrap()).unwrap();
        assert_eq!(update["now_ns"], at(now_s).unix_ns());
    }
}

#[tokio::test]
async fn a_page_is_notified_why_ingestion_stopped() {
    let (running, _folder) = serve_full().await;
    let mut page = Page::open(running.address).await;
    let reason = loop {
        let update: Value = serde_json::from_str(&page.line("data: ").await.unwrap()).unwrap();
        if let Some(reason) = update["ingest_stopped"].as_str() {
            break reason.to_owned();
        }
    };
    assert!(reason.starts_with("the disk is full"), "{reason}");
}

#[tokio::test]
async fn pages_beyond_the_limit_are_rejected() {
    let running = serve().await;
    let mut pages = Vec::new();
    for _ in 0..PAGES_MAX {
        let mut page = Page::open(running.address).await;
        assert_eq!(page.line("HTTP/1.1 ").await.unwrap(), "200 OK");
        pages.push(page);
    }
    let mut more = Page::open(running.address).await;
    assert_eq!(
        more.line("HTTP/1.1 ").await.unwrap(),
        "429 Too Many Requests"
    );
}

/// Every turn for queries, of other identities than the test's.
async fn all_turns(reader: &Reader) -> Vec<Turn> {
    let mut turns = Vec::new();
    for number in 0..=QUERIES_MAX {
        let account = Account::of_test(2 + number as u8);
        turns.push(in_time(reader.query_turns.take(&account)).await);
    }
    turns
}

/// Running queries, and the most at any time.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[tokio::test]
async fn few_of_many_queries_run_at_once() {
    let collector = Arc::new(Collector::new(Settings::default()));
    let reader = Reader::new(collector);
    // No query runs before all are queued.
    let turns = all_turns(&reader).await;
    let queries: Vec<_> = (0..QUEUE_SLOTS + 25)
        .map(|_| {
            let reader = reader.clone();
            tokio::spawn(async move {
                let pairs = Pairs {
                    pairs: Ok(Query(Vec::new())),
                    account: account(),
                };
                let answer = reader.answer(pairs, |_| {
                    MOST.fetch_max(RUNNING.fetch_add(1, SeqCst) + 1, SeqCst);
                    // Lets others start, if they may.
                    std::thread::yield_now();
                    RUNNING.fetch_sub(1, SeqCst);
                    answer::json(&())
                });
                answer.await.is_ok()
            })
        })
        .collect();
    // Those that find no slot are rejected at once; all others wait.
    let rejected = || queries.iter().filter(|query| query.is_finished()).count();
    wait_until("the rejected queries", || rejected() >= 25).await;
    drop(turns);
    let mut answered = 0;
    for query in queries {
        answered += usize::from(query.await.unwrap());
    }
    assert_eq!(answered, QUEUE_SLOTS);
    assert!((1..=QUERIES_MAX).contains(&MOST.load(SeqCst)), "{MOST:?}");
}

/// Whether the honest reader below was answered.
static HONEST_ANSWERED: AtomicBool = AtomicBool::new(false);

type Answerer = fn(&Asking<'_>) -> Result<axum::response::Response, ErrorAnswer>;

/// Seventy readers of one identity took both turns and the queue behind them.
#[tokio::test]
async fn a_reader_waits_for_one_query_of_a_greedy_identity_and_not_for_all() {
    let reader = Reader::new(Arc::new(Collector::new(Settings::default())));
    let [greedy, honest] = [2, 3].map(Account::of_test);
    let turns = all_turns(&reader).await;
    let ask = |account: &Arc<Account>, answerer: Answerer| {
        let reader = reader.clone();
        let pairs = Pairs {
            pairs: Ok(Query(Vec::new())),
            account: account.clone(),
        };
        tokio::spawn(async move { reader.answer(pairs, answerer).await.is_ok() })
    };
    let free = reader.queue_slots.available_permits();
    let are_waiting = |count| {
        let reader = reader.clone();
        move || reader.queue_slots.available_permits() == free - count
    };
    // Each keeps its turn until the honest reader is answered.
    let wait: Answerer = |_| {
        let begin = Instant::now();
        while !HONEST_ANSWERED.load(SeqCst) {
            if begin.elapsed() > PATIENCE {
                return Err(ErrorAnswer::busy());
            }
            std::thread::yield_now();
        }
        answer::json(&())
    };
    let greedy: Vec<_> = (0..60).map(|_| ask(&greedy, wait)).collect();
    wait_until("the greedy queries", are_waiting(60)).await;
    let honest = ask(&honest, |_| {
        HONEST_ANSWERED.store(true, SeqCst);
        answer::json(&())
    });
    wait_until("the honest query", are_waiting(61)).await;
    drop(turns);
    assert!(honest.await.unwrap());
    for query in greedy {
        assert!(query.await.unwrap());
    }
}

/// Fifty pages wait for profiles while an agent's flushes are acknowledged. The test counts waiting
/// pages, not time.
#[tokio::test]
async fn fifty_waiting_pages_delay_no_agent() {
    let clock = Clock::from_fn(|| at(60));
    let reader = Reader::new(Arc::new(Collector::new(Settings {
        clock,
        ..Settings::default()
    })));
    let (_stop, stopping) = watch::channel(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tokens = Tokens::open(TokenSource::None).unwrap();
    let gate = Gate::new(Arc::new(tokens), Clock::default());
    let routes = router(
        reader.clone(),
        PublicNames::default(),
        gate,
        "task",
        &stopping,
    );
    let served = tokio::spawn(async move { axum::serve(listener, routes).await });
    let turns = all_turns(&reader).await;
    let ask = || tokio::spawn(get(address, "/api/v1/profile?from=1000000"));
    let pages: Vec<_> = (0..50).map(|_| ask()).collect();
    let free = QUEUE_SLOTS - pages.len();
    wait_until("the waiting pages", || {
        reader.queue_slots.available_permits() <= free
    })
    .await;
    let mut worker = TestWorker::new("w", 1);
    let mut client = Client::attach(address, worker.hello()).await;
    for seq in 1..=10 {
        worker.count("load;main", State::Cpu, 1);
        let flush = worker.flush(29 + seq, vec![]);
        if let Some(dictionary) = worker.dictionary() {
            client.send(Kind::Dictionary(dictionary)).await;
        }
        assert_eq!(client.ask(Kind::Flush(flush)).await, format!("ack {seq}"));
    }
    assert_eq!(reader.queue_slots.available_permits(), free);
    assert!(pages.iter().all(|page| !page.is_finished()));
    drop(turns);
    for page in pages {
        let answer = page.await.unwrap();
        assert_eq!(answer.status, 200);
        assert!(answer.body.contains(r#""total_ns":10}"#), "{}", answer.body);
    }
    served.abort();
}

/// The whole answer to a request with this `accept` header.
async fn answer_to(address: SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let ask = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    in_time(stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn an_unknown_address_is_a_document_for_browsers_and_json_for_programs() {
    let running = serve().await;
    let browser = "text/html,application/xhtml+xml,*/*;q=0.8";
    for (path, home) in [
        ("/nope", "./"),
        ("/profile/", "./../"),
        ("/a/b/%3Cb%3E", "./../../"),
    ] {
        let answer = answer_to(running.address, path, browser).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert!(answer.contains("content-type: text/html"), "{answer}");
        assert!(
            answer.contains("content-security-policy: default-src 'none'"),
            "{answer}"
        );
        assert!(answer.contains(&format!("<a href=\"{home}\">")), "{answer}");
        let answer = answer_to(running.address, path, "*/*").await;
        assert!(answer.contains("no such path"), "{answer}");
    }
    let answer = answer_to(running.address, "/api/v1/nope", browser).await;
    assert!(
        answer.contains("application/json") && answer.contains("no such path"),
        "{answer}"
    );
    let icon = answer_to(running.address, "/favicon.ico", "image/*").await;
    assert!(
        icon.starts_with("HTTP/1.1 200 ") && icon.contains("image/png"),
        "{}",
        icon.len()
    );
}
