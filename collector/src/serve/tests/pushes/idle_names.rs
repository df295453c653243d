//! Names and stacks that nothing uses any more leave memory, and come back for queries.

use std::collections::BTreeMap;

use super::*;
use base::limits::{Limits, PUSHED_IDLE_MAX, nanoseconds};
use base::sync::read;

/// Series that push in each hour.
const SERIES_AN_HOUR: i64 = 10;

/// Stacks of each of them, below one function.
const STACKS: usize = 50;

/// Sizes of the tree in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TreeMemory {
    nodes: u32,
    frames: usize,
    strings: usize,
    symbol_bytes: usize,
}

impl TreeMemory {
    fn by(running: &Running) -> TreeMemory {
        let collector = running.collector.upgrade().unwrap();
        let tree = read(&collector.state.tree);
        TreeMemory {
            nodes: tree.held_count(),
            frames: tree.symbols.held_frame_count(),
            strings: tree.symbols.held_strings(),
            symbol_bytes: tree.symbol_bytes(),
        }
    }

    fn max(self, other: TreeMemory) -> TreeMemory {
        TreeMemory {
            nodes: self.nodes.max(other.nodes),
            frames: self.frames.max(other.frames),
            strings: self.strings.max(other.strings),
            symbol_bytes: self.symbol_bytes.max(other.symbol_bytes),
        }
    }
}

/// The stacks of a program that runs in one hour only.
fn program(hour: i64) -> String {
    (0..STACKS)
        .map(|number| {
            format!("main-{hour:02};package-{hour:02};function-{hour:02}-{number:02} 1\n")
        })
        .collect()
}

fn served() -> ServeOptions {
    let limits = Limits {
        sessions_max: 3 * SERIES_AN_HOUR as usize,
        idle_nodes_min: 100,
        ..Limits::default()
    };
    ServeOptions {
        limits,
        ..ServeOptions::default()
    }
}

impl Running {
    fn set_time(&self, now_ns: i64) {
        self.now_ns.store(now_ns, Ordering::SeqCst);
    }

    /// Pushes of the series of an hour, their end, and a sealing.
    async fn run_hour(&self, hour: i64, body: &str) {
        let now_ns = at(60 + 3_600 * hour).unix_ns();
        self.set_time(now_ns);
        let until = now_ns / 1_000_000_000 - 10;
        let times = format!("from={}&until={until}", until - 10);
        for instance in 0..SERIES_AN_HOUR {
            let query = format!("name=shop%7Binstance%3Di-{hour}-{instance}%7D&{times}");
            self.ingest(&query, &[], body.as_bytes()).await;
        }
        self.set_time(now_ns + nanoseconds(PUSHED_IDLE_MAX));
        let collector = self.collector.upgrade().unwrap();
        collector.sweep();
        collector.sealer.seal().unwrap();
    }

    /// The stacks of an hour, in units of a push of one series.
    async fn stacks_of(&self, hour: i64) -> BTreeMap<String, u64> {
        let from = at(3_600 * hour).unix_ns() / 1_000_000_000;
        let path = format!(
            "/api/v1/profile?format=collapsed&from={from}&to={}",
            from + 3_600
        );
        let answer = get(self.address, &path).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let rows = answer
            .body
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap());
        rows.map(|(stack, ns)| (stack.to_owned(), ns.parse::<u64>().unwrap() / 10_000_000))
            .collect()
    }
}

fn expected(hour: i64, weight: u64) -> BTreeMap<String, u64> {
    let program = program(hour);
    let stacks = program.lines().map(|line| line.rsplit_once(' ').unwrap().0);
    stacks
        .map(|stack| (format!("shop;{stack}"), weight))
        .collect()
}

#[tokio::test]
async fn a_day_of_programs_that_come_and_go_holds_no_more_than_some_hours() {
    let running = serve_with(served()).await;
    let mut by_hour = Vec::new();
    for hour in 0..24 {
        running.run_hour(hour, &program(hour)).await;
        by_hour.push(TreeMemory::by(&running));
    }
    let most = |hours: &[TreeMemory]| hours.iter().copied().reduce(TreeMemory::max).unwrap();
    let first = most(&by_hour[..8]);
    assert!(first.nodes < 5 * 55, "{by_hour:#?}");
    assert_eq!(most(&by_hour[8..16]), first, "{by_hour:#?}");
    assert_eq!(most(&by_hour[16..]), first, "{by_hour:#?}");

    let weight = SERIES_AN_HOUR as u64;
    for hour in [0, 5, 23] {
        assert_eq!(running.stacks_of(hour).await, expected(hour, weight));
    }
    assert_eq!(running.stacks("").await.len(), 24 * STACKS);
    let all = TreeMemory::by(&running);
    assert!(all.nodes > 24 * 50, "{all:?}");
    let phases = running
        .json("/api/v1/timeline?group=phase&from=0&step=1d")
        .await;
    assert_eq!(phases["status"], Value::Null, "{phases}");

    // What a query has read back leaves again.
    for hour in 24..30 {
        running.run_hour(hour, &program(hour)).await;
    }
    let again = TreeMemory::by(&running);
    assert!(again.nodes <= first.nodes, "{again:?}, {first:?}");
}

/// A program that comes back has new ids for its stacks, and its time is one with that under the old ones.
#[tokio::test]
async fn a_program_that_comes_back_is_one_with_what_was_forgotten() {
    let running = serve_with(served()).await;
    for hour in 0..6 {
        running.run_hour(hour, &program(hour)).await;
    }
    let collector = running.collector.upgrade().unwrap();
    let has = |text: &str| {
        read(&collector.state.tree)
            .symbols
            .string_id(text)
            .is_some()
    };
    assert!(!has("function-00-07") && has("function-05-07"));
    running.run_hour(6, &program(0)).await;
    let weight = 2 * SERIES_AN_HOUR as u64;
    let all = running.stacks("&task=shop").await;
    assert_eq!(all.len(), 6 * STACKS);
    for (stack, weight) in expected(0, weight * 10_000_000) {
        assert!(
            all.contains(&format!("{stack} {weight}")),
            "{stack} in {all:#?}"
        );
    }
}
