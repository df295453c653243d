//! Long queries keep no short one waiting, of whom ever they are. The tests count queries and their attempts, not time.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use axum::extract::Query;
use axum::response::Response;
use tokio::task::JoinHandle;

use crate::serve::answer;
use crate::serve::long_query::ShortMax;
use crate::serve::reader::{Pairs, Reader};
use crate::serve::tests::{PATIENCE, in_time, wait_until};
use base::limits::LONG_QUERIES_MAX;
use front::error::ErrorAnswer;
use query::Asking;
use shares::Account;
use state::{Collector, Settings};

/// A reader for which every query is long at its first look.
fn reader(short_max: ShortMax) -> Reader {
    let reader = Reader::new(Arc::new(Collector::new(Settings::default())));
    Reader {
        short_max,
        ..reader
    }
}

const NOTHING: ShortMax = ShortMax {
    cpu: Duration::ZERO,
    time: Duration::ZERO,
};
const ANYTHING: ShortMax = ShortMax {
    cpu: Duration::MAX,
    time: Duration::MAX,
};

/// A query whose answer is read at once: an unread one keeps its turn.
type Asked = JoinHandle<Result<(), ErrorAnswer>>;

/// Queries that scan until they are let go.
#[derive(Clone, Default)]
struct Scans {
    let_go: Arc<AtomicUsize>,
    attempts: Arc<AtomicUsize>,
}

impl Scans {
    fn ask(&self, reader: &Reader, account: &Arc<Account>) -> Asked {
        let Scans { let_go, attempts } = self.clone();
        ask(reader, account, move |asking| {
            attempts.fetch_add(1, SeqCst);
            let begin = Instant::now();
            while let_go.load(SeqCst) == 0 {
                asking.cancel.check()?;
                assert!(begin.elapsed() < PATIENCE, "nobody let it go");
                std::thread::yield_now();
            }
            answer::json(&"scanned")
        })
    }
}

fn ask(
    reader: &Reader,
    account: &Arc<Account>,
    answer: impl Fn(&Asking<'_>) -> Result<Response, ErrorAnswer> + Send + Sync + 'static,
) -> Asked {
    let pairs = Pairs {
        pairs: Ok(Query(Vec::new())),
        account: account.clone(),
    };
    let reader = reader.clone();
    tokio::spawn(async move { reader.answer(pairs, answer).await.map(drop) })
}

async fn check_small_ones_are_answered(long: usize, own_small: usize, accounts: [u8; 2]) {
    let reader = reader(NOTHING);
    let [greedy, honest] = accounts.map(Account::of_test);
    let scans = Scans::default();
    let asked: Vec<Asked> = (0..long).map(|_| scans.ask(&reader, &greedy)).collect();
    wait_until("each long query to be tried", || {
        scans.attempts.load(SeqCst) == long && reader.query_turns.taken() == 0
    })
    .await;
    assert_eq!(reader.long_query_turns.taken(), LONG_QUERIES_MAX);
    for _ in 0..own_small {
        let small = ask(&reader, &honest, |_| answer::json(&"small"));
        assert!(in_time(small).await.unwrap().is_ok());
    }
    // All small ones were answered before any long one.
    assert!(asked.iter().all(|asked| !asked.is_finished()));
    scans.let_go.store(1, SeqCst);
    for asked in asked {
        assert!(in_time(asked).await.unwrap().is_ok());
    }
    // One got a turn at once, and each of the others began again in its turn.
    assert_eq!(scans.attempts.load(SeqCst), 2 * long - LONG_QUERIES_MAX);
    assert_eq!(
        (reader.query_turns.taken(), reader.long_query_turns.taken()),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_queries_are_answered_beside_long_ones_of_the_same_identity() {
    for long in [1, 2, 4, 10] {
        check_small_ones_are_answered(long, 20, [1, 1]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_queries_are_answered_beside_long_ones_of_another_identity() {
    for long in [1, 2, 4, 10] {
        check_small_ones_are_answered(long, 20, [1, 2]).await;
    }
}

/// Without the limit, two long queries have both turns: the tests above can fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_limit_long_queries_would_keep_all_turns() {
    let reader = reader(ANYTHING);
    let greedy = Account::of_test(1);
    let scans = Scans::default();
    let asked: Vec<Asked> = (0..2).map(|_| scans.ask(&reader, &greedy)).collect();
    wait_until("both", || scans.attempts.load(SeqCst) == 2).await;
    assert!(reader.query_turns.try_take(&greedy).is_none());
    scans.let_go.store(1, SeqCst);
    for asked in asked {
        assert!(in_time(asked).await.unwrap().is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_identity_has_a_turn_of_long_queries_too() {
    let reader = reader(NOTHING);
    let [first, second] = [1, 2].map(Account::of_test);
    let scans = Scans::default();
    let asked = [&first, &first, &second].map(|account| scans.ask(&reader, account));
    wait_until("a long query of each", || {
        reader.long_query_turns.taken() == 2
    })
    .await;
    scans.let_go.store(1, SeqCst);
    for asked in asked {
        assert!(in_time(asked).await.unwrap().is_ok());
    }
}

/// Also one that waits to begin again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_query_whose_reader_leaves_frees_its_turn() {
    let reader = reader(NOTHING);
    let account = Account::of_test(1);
    let scans = Scans::default();
    let asked: Vec<Asked> = (0..3).map(|_| scans.ask(&reader, &account)).collect();
    wait_until("the attempts", || scans.attempts.load(SeqCst) == 3).await;
    asked.iter().for_each(|asked| asked.abort());
    wait_until("the turns", || {
        reader.query_turns.taken() == 0 && reader.long_query_turns.taken() == 0
    })
    .await;
}
