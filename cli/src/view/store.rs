//! A store on disk.

use collector::Adoption;
use collector::store::{CompactionReport, FilesInfo, Problem, StoreInfo, Verification};
use flamegraph::text::printable;
use jiff::Timestamp;

use super::{digits, grouped};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

pub(crate) fn info(info: &StoreInfo) -> String {
    let mut text = format!(
        "format {}, version {} of {}\n",
        info.format,
        info.version,
        time(info.made_at_ns.div_euclid(1_000_000_000))
    );
    for (what, files) in [("log", &info.wal), ("quarantine", &info.quarantine)] {
        let FilesInfo { files, bytes, .. } = files;
        text.push_str(&format!(
            "{what}: {} files, {} bytes\n",
            grouped(*files),
            grouped(*bytes)
        ));
    }
    let lost = info
        .lost
        .iter()
        .map(|lost| format!("lost: {}\n", problem(lost)));
    text.extend(lost);
    text.extend(
        info.reports
            .iter()
            .map(|report| format!("corrupt: {}\n", printable(report))),
    );
    let mut grid = Grid::new(&[
        ("TABLE", Left),
        ("FILES", Right),
        ("ROWS", Right),
        ("BYTES", Right),
        ("BYTES/ROW", Right),
        ("FROM", Left),
        ("TO", Left),
    ]);
    for table in &info.tables {
        grid.push([
            table.table.clone(),
            grouped(table.files),
            grouped(table.rows),
            grouped(table.bytes),
            digits(table.bytes as f64 / table.rows.max(1) as f64),
            time_or_empty(table.span_s.map(|span| span.0)),
            time_or_empty(table.span_s.map(|span| span.1)),
        ]);
    }
    text + "\n" + &grid.text()
}

fn time_or_empty(second: Option<u32>) -> String {
    second.map_or(String::new(), |second| time(second.into()))
}

pub(crate) fn verified(verified: &Verification) -> String {
    let mut grid = Grid::new(&[("TABLE", Left), ("ROWS", Right), ("SUM", Right)]);
    for table in &verified.tables {
        grid.push([
            table.table.clone(),
            grouped(table.rows),
            table.sum.to_string(),
        ]);
    }
    let files = grouped(verified.files);
    let bytes = grouped(verified.bytes);
    let end = match (verified.problems.len(), verified.lost.len()) {
        (0, 0) => "; no problems found",
        (0, _) => "; no further problems found",
        _ => "",
    };
    let lost = verified
        .lost
        .iter()
        .map(|lost| format!("lost: {}\n", problem(lost)));
    format!(
        "{}\n{}read {files} files, {bytes} bytes{end}\n",
        grid.text(),
        lost.collect::<String>()
    )
}

pub(crate) fn compacted(compacted: &CompactionReport) -> String {
    format!(
        "merged {} files ({} bytes) into {} ({} bytes)\n",
        grouped(compacted.files_before),
        grouped(compacted.bytes_before),
        grouped(compacted.files_after),
        grouped(compacted.bytes_after)
    )
}

pub(crate) fn adoption(adoption: &Adoption) -> String {
    let lost = adoption
        .lost
        .iter()
        .map(|lost| format!("lost: {}\n", problem(lost)));
    format!(
        "sealed {} records of {} log files ({} bytes); {} lives of workers\n\
         {} files of tables ({} bytes) are {} now ({} bytes)\n{}",
        grouped(adoption.records),
        grouped(adoption.log_files),
        grouped(adoption.log_bytes),
        grouped(adoption.sessions),
        grouped(adoption.files_before),
        grouped(adoption.bytes_before),
        grouped(adoption.files_after),
        grouped(adoption.bytes_after),
        lost.collect::<String>()
    )
}

pub(crate) fn problem(problem: &Problem) -> String {
    format!(
        "{}: {}",
        printable(&problem.name),
        printable(&problem.reason)
    )
}

fn time(second: i64) -> String {
    let time = Timestamp::from_second(second);
    time.map_or_else(
        |_| second.to_string(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}
