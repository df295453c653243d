//! Slow work is done away from the threads that serve everybody, and suggestions for an
//! unknown name have a limit on their work.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, spawn};

use axum::http::Method;
use profiler_core::State;
use profiler_core::wire::v1::agent_message::Kind;

use crate::serve::access::ROUTES;
use crate::serve::tests::client::{Answer, Client, get, send};
use crate::serve::tests::{PATIENCE, attached, in_time, serve};
use base::sync::{lock, write};
use front::auth::Access;
use state::Collector;
use state::testing::TestWorker;

/// Threads of the server: more than its own tasks that take the locks below (two), and no more than those
/// and the requests of a route.
const THREADS: usize = 5;

/// Requests of a route at once.
const REQUESTS: usize = 6;

/// Other requests meanwhile.
const OTHERS: usize = 20;

/// Holds the locks of what a request about workers or runs reads, as a long computation would.
struct Computing {
    done: Sender<()>,
    /// The locks were held until the end, and not only until the deadline.
    holder: JoinHandle<bool>,
}

impl Computing {
    fn start(collector: Arc<Collector>) -> Computing {
        let (done, is_done) = channel();
        let (held, is_held) = channel();
        let holder = spawn(move || {
            let _registry = lock(&collector.state.registry);
            let _telemetry = write(&collector.state.telemetry);
            held.send(()).unwrap();
            is_done.recv_timeout(PATIENCE).is_ok()
        });
        is_held.recv().unwrap();
        Computing { done, holder }
    }

    /// Whether it had not ended by itself.
    fn end(self) -> bool {
        // Fails if it ended by itself.
        let _ = self.done.send(());
        self.holder.join().unwrap()
    }
}

const UNKNOWN: &str = "worker-2";

/// The body of a valid request about something unknown.
fn body_for(path: &str) -> String {
    match path {
        "/api/v1/runs/stop" => format!(r#"{{"name":"{UNKNOWN}"}}"#),
        "/api/v1/workers/settings" => r#"{"enabled":false}"#.to_owned(),
        _ => "{}".to_owned(),
    }
}

/// Routes whose answers are known here: an unknown name, with those that are nearest.
fn names_the_nearest(path: &str) -> bool {
    matches!(
        path,
        "/api/v1/workers/settings"
            | "/api/v1/thread-dump"
            | "/api/v1/profile"
            | "/api/v1/timeline"
            | "/api/v1/tasks"
            | "/api/v1/resources"
    )
}

/// The requests of each route wait for a lock here. On a thread of the server, nobody else would be
/// answered while they do.
#[tokio::test(flavor = "multi_thread", worker_threads = 5)]
async fn no_request_computes_on_a_thread_that_serves_others() {
    assert_eq!(
        tokio::runtime::Handle::current().metrics().num_workers(),
        THREADS
    );
    let running = serve().await;
    let (_, _client) = attached(&running, "worker-1").await;
    let mut waited = 0;
    for route in ROUTES {
        let is_for_people = matches!(route.access, Access::Reader | Access::Operator);
        // A worker's page and the methods of a service need a name.
        let path = route
            .path
            .replace("{name}", "x")
            .replace("{method}", "LabelNames");
        if !is_for_people || path == "/api/v1/runs" && route.method == Method::POST {
            continue;
        }
        let line = format!("{} {path}?worker={UNKNOWN}", route.method);
        let computing = Computing::start(running.collector.upgrade().unwrap());
        let requests: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let line = line.clone();
                let body = body_for(route.path);
                let address = running.address;
                tokio::spawn(async move { send(address, &line, "application/json", &body).await })
            })
            .collect();
        for _ in 0..OTHERS {
            assert_eq!(get(running.address, "/livez").await.status, 200, "{line}");
        }
        let is_waiting = requests.iter().all(|request| !request.is_finished());
        assert!(computing.end(), "others were served after {line} only");
        if names_the_nearest(route.path) {
            assert!(is_waiting, "{line} needs no lock");
            for request in requests {
                let Answer { status, body, .. } = in_time(request).await.unwrap();
                assert!(
                    status == 404 && body.contains("worker-1"),
                    "{line} {status} {body}"
                );
            }
            waited += 1;
        } else {
            // Streams of events do not end.
            requests.iter().for_each(|request| request.abort());
        }
    }
    assert_eq!(waited, 6);
}

/// Names of tasks, each with so many bytes. Comparing all of them with one of that length takes a minute.
const LONG_NAMES: usize = 10_000;
const NAME_BYTES: usize = 1_000;

/// Names in a message.
const NAMES_A_FLUSH: usize = 2_500;

/// Ten clients ask at once, and two queries are computed at a time.
#[tokio::test]
async fn an_unknown_name_among_thousands_of_long_ones_is_answered() {
    let running = serve().await;
    let mut worker = TestWorker::with_room("w", 1, 1 << 20);
    let mut client = Client::attach(running.address, worker.hello()).await;
    let filler = "n".repeat(NAME_BYTES - 5);
    for first in (0..LONG_NAMES).step_by(NAMES_A_FLUSH) {
        for number in first..first + NAMES_A_FLUSH {
            worker.count(&format!("{number:05}{filler};main"), State::Cpu, 1);
        }
        let flush = worker.flush(30, vec![]);
        let expected = format!("ack {}", flush.seq);
        while let Some(dictionary) = worker.dictionary() {
            client.send(Kind::Dictionary(dictionary)).await;
        }
        assert_eq!(client.ask(Kind::Flush(flush)).await, expected);
    }
    let unknown = format!("x{}", "n".repeat(NAME_BYTES - 1));
    let address = running.address;
    let queries: Vec<_> = (0..10)
        .map(|_| {
            let path = format!("/api/v1/profile?task={unknown}");
            tokio::spawn(async move { get(address, &path).await })
        })
        .collect();
    for query in queries {
        let answer = in_time(query).await.unwrap();
        assert_eq!(answer.status, 404, "{}", answer.body);
        assert!(answer.body.contains("no task is called"), "{}", answer.body);
    }
}
