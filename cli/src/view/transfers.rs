//! What went from worker to worker.

use flamegraph::text::duration;
use serde::Deserialize;

use super::{Answered, Span, bytes, corrupt_files, grouped, moment};
use crate::grid::Align::{Count, Left, Right};
use crate::grid::Grid;

/// Sums by link and by type.
#[derive(Deserialize, Debug)]
pub(crate) struct Sums {
    range: Span,
    #[serde(default)]
    corrupt_files: Vec<String>,
    links: Vec<Link>,
    types: Vec<Type>,
}

#[derive(Deserialize, Debug)]
struct Link {
    worker: String,
    peer: String,
    direction: String,
    #[serde(flatten)]
    sum: Sum,
}

#[derive(Deserialize, Debug)]
struct Type {
    type_name: String,
    #[serde(flatten)]
    sum: Sum,
}

#[derive(Deserialize, Debug)]
struct Sum {
    count: u64,
    failed: u64,
    bytes: u64,
    compressed_bytes: u64,
    bandwidth: Option<Bandwidth>,
}

/// Bytes a second.
#[derive(Deserialize, Debug)]
struct Bandwidth {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
}

const SUM_TITLES: [(&str, crate::grid::Align); 8] = [
    ("COUNT", Right),
    ("ERRED", Count),
    ("BYTES", Right),
    ("ON THE LINK", Right),
    ("MEAN/s", Right),
    ("P50/s", Right),
    ("P90/s", Right),
    ("P99/s", Right),
];

impl Sum {
    fn cells(&self) -> impl Iterator<Item = String> {
        let counts = [grouped(self.count), grouped(self.failed)];
        let sizes = [self.bytes, self.compressed_bytes].map(bytes);
        let speed = |of: fn(&Bandwidth) -> f64| {
            self.bandwidth.as_ref().map_or("-".to_owned(), |known| bytes(of(known) as u64))
        };
        let speeds = [speed(|b| b.mean), speed(|b| b.p50), speed(|b| b.p90), speed(|b| b.p99)];
        counts.into_iter().chain(sizes).chain(speeds)
    }
}

impl Answered for Sums {
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("transfers that ended in {}", self.range)];
        if self.links.is_empty() {
            notes.push("none; workers tell of them by `emberline_agent::transfer`".to_owned());
        }
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let sums = SUM_TITLES.into_iter();
        let links = [("WORKER", Left), ("DIRECTION", Left), ("PEER", Left)];
        let mut by_link = Grid::new(&links.into_iter().chain(sums.clone()).collect::<Vec<_>>());
        for link in &self.links {
            let names = [link.worker.clone(), link.direction.clone(), link.peer.clone()];
            by_link.push(names.into_iter().chain(link.sum.cells()));
        }
        let mut by_type = Grid::new(&[("TYPE", Left)].into_iter().chain(sums).collect::<Vec<_>>());
        for of_type in &self.types {
            let name = Some(&of_type.type_name).filter(|name| !name.is_empty());
            let name = name.map_or("-", |name| name).to_owned();
            by_type.push([name].into_iter().chain(of_type.sum.cells()));
        }
        by_link.text() + "\n" + &by_type.text()
    }
}

/// Transfers one by one.
#[derive(Deserialize, Debug)]
pub(crate) struct Transfers {
    range: Span,
    total: u64,
    #[serde(default)]
    corrupt_files: Vec<String>,
    transfers: Vec<Transfer>,
}

#[derive(Deserialize, Debug)]
struct Transfer {
    worker: String,
    direction: String,
    peer: String,
    keys: Vec<String>,
    more_keys: u64,
    type_name: String,
    bytes: u64,
    compressed_bytes: Option<u64>,
    start: String,
    duration_ns: u64,
    bandwidth: Option<f64>,
    outcome: String,
    cause: String,
}

impl Answered for Transfers {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let shown = self.transfers.len() as u64;
        if self.total == 0 {
            notes.push(format!("no transfers of what was asked for in {}", self.range));
        }
        if self.total > shown {
            notes.push(format!(
                "the latest {} of {} transfers; --limit shows more, without --rows all in sum",
                grouped(shown),
                grouped(self.total)
            ));
        }
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            ("START (UTC)", Left),
            ("DURATION", Right),
            ("WORKER", Left),
            ("DIRECTION", Left),
            ("PEER", Left),
            ("BYTES", Right),
            ("ON THE LINK", Right),
            ("SPEED/s", Right),
            ("OUTCOME", Left),
            ("TYPE", Left),
            ("KEYS", Left),
            ("CAUSE", Left),
        ]);
        for transfer in &self.transfers {
            let mut keys = transfer.keys.join(" ");
            if transfer.more_keys > 0 {
                keys += &format!(" and {} more", grouped(transfer.more_keys));
            }
            grid.push([
                moment(&transfer.start).trim_end_matches(" UTC").to_owned(),
                duration(transfer.duration_ns),
                transfer.worker.clone(),
                transfer.direction.clone(),
                transfer.peer.clone(),
                bytes(transfer.bytes),
                transfer.compressed_bytes.map_or("-".to_owned(), bytes),
                transfer.bandwidth.map_or("-".to_owned(), |speed| bytes(speed as u64)),
                transfer.outcome.clone(),
                transfer.type_name.clone(),
                keys,
                transfer.cause.clone(),
            ]);
        }
        grid.text()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn links_and_types_are_summed() {
        let sum = json!({"worker": "w-1", "peer": "w-2", "direction": "incoming", "count": 1_200,
            "type_name": "", "failed": 1, "bytes": 5_000_000, "compressed_bytes": 2_500_000,
            "duration_ns": 10, "bandwidth": {"mean": 1e6, "p50": 2e6, "p90": 3e6, "p99": 4e6},
            "durations": null});
        let sums: Sums = serde_json::from_value(json!({
            "range": {"from": "2026-01-31T12:00:00Z", "to": "2026-01-31T12:00:02Z"},
            "corrupt_files": [], "links": [sum], "types": [sum]
        }))
        .unwrap();
        expect![[r#"
            WORKER  DIRECTION  PEER  COUNT  ERRED    BYTES  ON THE LINK   MEAN/s    P50/s    P90/s    P99/s
            w-1     incoming   w-2   1,200      1  5.00 MB      2.50 MB  1.00 MB  2.00 MB  3.00 MB  4.00 MB

            TYPE  COUNT  ERRED    BYTES  ON THE LINK   MEAN/s    P50/s    P90/s    P99/s
            -     1,200      1  5.00 MB      2.50 MB  1.00 MB  2.00 MB  3.00 MB  4.00 MB
        "#]]
        .assert_eq(&sums.text());
    }

    #[test]
    fn rows_say_what_is_missing() {
        let transfers: Transfers = serde_json::from_value(json!({
            "range": {"from": "2026-01-31T12:00:00Z", "to": "2026-01-31T12:00:02Z"},
            "total": 7, "truncated": true, "corrupt_files": [],
            "transfers": [{"worker": "w-1", "epoch": "0a", "id": 1, "direction": "outgoing",
                "peer": "w-2", "keys": ["x-1", "x-2"], "more_keys": 5, "type_name": "Matrix",
                "bytes": 800, "compressed_bytes": null, "start": "2026-01-31T12:00:00.5Z",
                "duration_ns": 1_000_000, "bandwidth": 800_000.0, "task_id": null, "thread_id": 3,
                "outcome": "failed", "cause": "broken \u{1b}pipe"}]
        }))
        .unwrap();
        expect![[r#"
            START (UTC)              DURATION  WORKER  DIRECTION  PEER  BYTES  SPEED/s  OUTCOME  TYPE    KEYS                CAUSE
            2026-01-31 12:00:00.500   1.00 ms  w-1     outgoing   w-2   800 B   800 kB  failed    Matrix  x-1 x-2 and 5 more  broken \u{1b}pipe
        "#]]
        .assert_eq(&transfers.text());
        let notes = ["the latest 1 of 7 transfers; --limit shows more, without --rows all in sum"];
        assert_eq!(transfers.notes(), notes);
    }
}
