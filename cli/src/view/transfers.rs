//! Transfers between workers.

use api::{Bandwidth, LinkSums, TransferSummaryAnswer, TransfersAnswer};
use flamegraph::text::duration;

use super::{View, bytes, corrupt_files, grouped, moment_in_zone, or_dash, range, row_count};
use crate::grid::Align::{self, Count, Left, Right, Time};
use crate::grid::Grid;
use crate::zone::start_title;

const SUM_TITLES: [(&str, Align); 8] = [
    ("COUNT", Right),
    ("FAILED", Count),
    ("BYTES", Right),
    ("WIRE BYTES", Right),
    ("AVG/s", Right),
    ("P50/s", Right),
    ("P90/s", Right),
    ("P99/s", Right),
];

fn sum_cells(sums: &LinkSums) -> impl Iterator<Item = String> {
    let counts = [grouped(sums.count), grouped(sums.failed)];
    let sizes = [bytes(sums.bytes), bytes(sums.compressed_bytes)];
    let speed =
        |of: fn(&Bandwidth) -> u64| or_dash(sums.bandwidth.as_ref(), |known| bytes(of(known)));
    let speeds = [
        speed(|b| b.mean),
        speed(|b| b.p50),
        speed(|b| b.p90),
        speed(|b| b.p99),
    ];
    counts.into_iter().chain(sizes).chain(speeds)
}

impl View for TransferSummaryAnswer {
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("transfers that ended in {}", range(&self.range))];
        if self.links.is_empty() {
            notes.push("none; workers report them by `emberline_agent::transfer`".to_owned());
        }
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let names = [("WORKER", Left), ("DIRECTION", Left), ("PEER", Left)];
        let titles: Vec<_> = names.into_iter().chain(SUM_TITLES).collect();
        let mut by_link = Grid::new(&titles);
        for link in &self.links {
            let names = [
                link.worker.clone(),
                link.direction.to_string(),
                link.peer.clone(),
            ];
            by_link.push(names.into_iter().chain(sum_cells(&link.sums)));
        }
        let titles: Vec<_> = [("TYPE", Left)].into_iter().chain(SUM_TITLES).collect();
        let mut by_type = Grid::new(&titles);
        for of_type in &self.types {
            let name = Some(&of_type.type_name).filter(|name| !name.is_empty());
            by_type.push(
                [or_dash(name, String::clone)]
                    .into_iter()
                    .chain(sum_cells(&of_type.sums)),
            );
        }
        by_link.text() + "\n" + &by_type.text()
    }
}

impl View for TransfersAnswer {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let advice = "--limit shows more; totals without --rows";
        let shown = self.transfers.len();
        notes.extend(row_count(
            "transfers",
            shown,
            self.total,
            &self.range,
            advice,
        ));
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            (start_title(), Time),
            ("DURATION", Right),
            ("WORKER", Left),
            ("DIRECTION", Left),
            ("BYTES", Right),
            ("TYPE", Left),
            ("PEER", Left),
            ("SPEED/s", Right),
            ("OUTCOME", Left),
            ("WIRE BYTES", Right),
            ("KEYS", Left),
            ("CAUSE", Left),
        ]);
        for transfer in &self.transfers {
            let mut keys = transfer.keys.join(" ");
            if transfer.more_keys > 0 {
                keys += &format!(" and {} more", grouped(transfer.more_keys));
            }
            grid.push([
                moment_in_zone(&transfer.start),
                duration(transfer.duration_ns),
                transfer.worker.clone(),
                transfer.direction.to_string(),
                bytes(transfer.bytes),
                transfer.type_name.clone(),
                transfer.peer.clone(),
                or_dash(transfer.bandwidth, bytes),
                transfer.outcome.to_string(),
                or_dash(transfer.compressed_bytes, bytes),
                keys,
                transfer.cause.clone(),
            ]);
        }
        grid.text()
    }
}

#[cfg(test)]
mod tests {
    use api::{Link, Transfer, TransferType};
    use expect_test::expect;

    use super::*;
    use crate::view::tests::range_of_test;

    #[test]
    fn links_and_types_are_summed() {
        let link = Link {
            worker: "w-1".to_owned(),
            peer: "w-2".to_owned(),
            direction: "incoming".into(),
            sums: link_sums(),
        };
        let answer = TransferSummaryAnswer {
            range: range_of_test(),
            links: vec![link],
            types: vec![TransferType {
                type_name: String::new(),
                sums: link_sums(),
            }],
            ..TransferSummaryAnswer::default()
        };
        expect![[r#"
            WORKER  DIRECTION  PEER  COUNT  FAILED    BYTES  WIRE BYTES    AVG/s    P50/s  …
            w-1     incoming   w-2   1,200       1  5.00 MB     2.50 MB  1.00 MB  2.00 MB

            TYPE  COUNT  FAILED    BYTES  WIRE BYTES    AVG/s    P50/s    P90/s    P99/s
            -     1,200       1  5.00 MB     2.50 MB  1.00 MB  2.00 MB  3.00 MB  4.00 MB
        "#]]
        .assert_eq(&answer.text());
    }

    fn link_sums() -> LinkSums {
        LinkSums {
            count: 1_200,
            failed: 1,
            bytes: 5_000_000,
            compressed_bytes: 2_500_000,
            duration_ns: 10,
            bandwidth: Some(Bandwidth {
                mean: 1_000_000,
                p50: 2_000_000,
                p90: 3_000_000,
                p99: 4_000_000,
            }),
            durations: None,
        }
    }

    #[test]
    fn notes_count_the_rows_that_are_not_listed() {
        let transfer = Transfer {
            worker: "w-1".to_owned(),
            direction: "outgoing".into(),
            peer: "w-2".to_owned(),
            keys: vec!["x-1".to_owned(), "x-2".to_owned()],
            more_keys: 5,
            type_name: "Matrix".to_owned(),
            bytes: 800,
            start: "2026-01-31T12:00:00.5Z".to_owned(),
            duration_ns: 1_000_000,
            bandwidth: Some(800_000),
            outcome: "failed".into(),
            cause: "broken \u{1b}pipe".to_owned(),
            ..Transfer::default()
        };
        let answer = TransfersAnswer {
            range: range_of_test(),
            total: 7,
            truncated: true,
            transfers: vec![transfer],
            ..TransfersAnswer::default()
        };
        expect![[r#"
            START (UTC)              DURATION  WORKER  DIRECTION  BYTES  TYPE    PEER  …
            2026-01-31 12:00:00.500   1.00 ms  w-1     outgoing   800 B  Matrix  w-2
        "#]]
        .assert_eq(&answer.text());
        let notes = ["the latest 1 of 7 transfers; --limit shows more; totals without --rows"];
        assert_eq!(answer.notes(), notes);
    }
}
