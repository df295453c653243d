//! Workers, and how well each is sampled.

use api::{Clock, Epoch, IngestStatus, LossAccount, WorkersAnswer};
use flamegraph::text::{duration, printable};
use jiff::Timestamp;

use super::settings::interval;
use super::{View, aggregated, counted, or_dash, percentage};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// Explains the columns.
const COLUMNS: &str = "TICKS: samples taken of those expected, and skipped (agent CPU limit); LOST: thread \
                       time and rows that were not stored; CLOCK: offset from the collector's";

/// Why flushes are not accepted, if so.
pub(crate) fn blocked_reason(ingest: &IngestStatus) -> Option<&str> {
    (!ingest.open).then(|| ingest.reason.as_deref().unwrap_or("unknown reason"))
}

fn ingest_note(ingest: &IngestStatus, now: &str) -> Option<String> {
    let reason = printable(blocked_reason(ingest)?);
    let since = ingest.since.as_deref().map(|since| format!(" (for {})", elapsed(since, now)));
    let since = since.unwrap_or_default();
    Some(format!("ingestion is stopped{since}: {reason}; agents keep their samples and retry"))
}

/// Thread time that was lost, then lost rows of tasks and telemetry if there are any.
fn lost(account: &LossAccount) -> String {
    let parts = [account.lost_refused_ns, account.lost_by_collector_ns, account.lost_queue_ns];
    let mut text = duration(parts.into_iter().fold(0, u64::saturating_add));
    for (count, noun) in [(account.lost_tasks, "task"), (account.lost_telemetry, "record")] {
        if count > 0 {
            text += &format!(", {}", counted(count, noun));
        }
    }
    text
}

impl View for WorkersAnswer {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::from_iter(ingest_note(&self.ingest, &self.now));
        if self.workers.is_empty() {
            notes.push("no worker has reported yet".to_owned());
            return notes;
        }
        notes.push(COLUMNS.to_owned());
        let epochs = self.workers.iter().flat_map(|worker| &worker.epochs);
        let tasks = epochs.map(|epoch| epoch.account.aggregated_tasks);
        notes.extend(aggregated(tasks.fold(0, u64::saturating_add)));
        notes
    }

    /// A row for each life of a worker.
    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            ("WORKER", Left),
            ("STATE", Left),
            ("LAST SEEN", Right),
            ("INTERVAL", Right),
            ("TICKS", Right),
            ("LOST", Right),
            ("CLOCK", Right),
            ("RUNNING", Right),
            ("PID", Right),
            ("HOST", Left),
            ("LABELS", Left),
            ("MODE", Left),
        ]);
        for worker in &self.workers {
            for epoch in &worker.epochs {
                grid.push(cells(&worker.worker, epoch, &self.now));
            }
        }
        grid.text()
    }
}

fn cells(worker: &str, epoch: &Epoch, now: &str) -> [String; 12] {
    let labels = epoch.labels.iter().map(|(name, value)| format!("{name}={value}"));
    [
        worker.to_owned(),
        epoch.state.to_string(),
        elapsed(&epoch.last_seen, now),
        interval(Some(epoch.enabled), Some(epoch.interval_ns)),
        ticks(epoch),
        lost(&epoch.account),
        or_dash(epoch.clock, clock),
        epoch.running_tasks.to_string(),
        epoch.pid.to_string(),
        epoch.host.clone(),
        labels.collect::<Vec<_>>().join(" "),
        or_dash(epoch.sampler_mode.as_ref(), String::clone),
    ]
}

/// The share of the expected ticks that were taken, and of those skipped if there are any.
fn ticks(epoch: &Epoch) -> String {
    let share = |part| percentage(part, epoch.ticks_expected);
    match (epoch.ticks_expected, epoch.ticks_throttled) {
        (0, _) => "-".to_owned(),
        (_, 0) => share(epoch.ticks),
        (_, throttled) => format!("{}, {} skipped", share(epoch.ticks), share(throttled)),
    }
}

fn clock(clock: Clock) -> String {
    let sign = if clock.offset_ns < 0 { "-" } else { "+" };
    let offset = duration(clock.offset_ns.unsigned_abs());
    format!("{sign}{offset} ±{}", duration(clock.error_ns))
}

/// Time from `then` to `now`, both in RFC 3339.
fn elapsed(then: &str, now: &str) -> String {
    let parse = |text: &str| text.parse::<Timestamp>().map(Timestamp::as_nanosecond);
    match (parse(then), parse(now)) {
        (Ok(then), Ok(now)) => duration(u64::try_from(now - then).unwrap_or(0)),
        _ => then.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use api::WorkerEpochs;
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_life_of_a_worker_has_a_row() {
        let labels = [("role", "qr"), ("x", "\u{1b}]0;")];
        let epoch = |state: &'static str, clock, lost_tasks: u64| Epoch {
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            host: "h".to_owned(),
            pid: 17,
            sampler_mode: (state != "gone").then(|| "signals".to_owned()),
            interval_ns: 10_000_000,
            enabled: state != "gone",
            state: state.into(),
            last_seen: "2026-01-31T12:00:00Z".to_owned(),
            clock,
            ticks: 997,
            ticks_expected: 1_000,
            ticks_throttled: lost_tasks / 7 * 2,
            account: LossAccount {
                lost_by_collector_ns: 2_000_000,
                lost_tasks,
                lost_telemetry: lost_tasks / 7,
                aggregated_tasks: lost_tasks * 1_000,
                ..LossAccount::default()
            },
            running_tasks: 3,
            ..Epoch::default()
        };
        let clock = Clock { offset_ns: -1_500_000, error_ns: 40_000 };
        let worker = WorkerEpochs {
            worker: "worker-0".to_owned(),
            epochs: vec![epoch("gone", None, 0), epoch("connected", Some(clock), 7)],
        };
        let answer = WorkersAnswer {
            now: "2026-01-31T12:00:00.5Z".to_owned(),
            ingest: IngestStatus { open: true, ..IngestStatus::default() },
            workers: vec![worker],
            ..WorkersAnswer::default()
        };
        expect![[r#"
            WORKER    STATE      LAST SEEN  INTERVAL                TICKS                        LOST              CLOCK  RUNNING  PID  HOST  LABELS               MODE
            worker-0  gone          500 ms       off                99.7%                     2.00 ms                  -        3   17  h     role=qr x=\u{1b}]0;  -
            worker-0  connected     500 ms   10.0 ms  99.7%, 0.2% skipped  2.00 ms, 7 tasks, 1 record  -1.50 ms ±40.0 µs        3   17  h     role=qr x=\u{1b}]0;  signals
        "#]]
        .assert_eq(&answer.text());
        assert_eq!(answer.notes(), [COLUMNS, "7,000 tasks have no row: they are in totals only"]);
    }

    #[test]
    fn stopped_ingestion_is_the_first_note() {
        let check = |ingest: IngestStatus, expected: &[&str]| {
            let now = "2026-01-31T12:00:12Z".to_owned();
            assert_eq!(WorkersAnswer { now, ingest, ..WorkersAnswer::default() }.notes(), expected);
        };
        let nobody = "no worker has reported yet";
        check(IngestStatus { open: true, ..IngestStatus::default() }, &[nobody]);
        let reason = "the disk is full: 12 MiB free of 64 MiB, 32 MiB needed in /d\u{1b}";
        let note = "ingestion is stopped (for 12.0 s): the disk is full: 12 MiB free of 64 MiB, \
                    32 MiB needed in /d\\u{1b}; agents keep their samples and retry";
        let stopped = IngestStatus {
            open: false,
            reason: Some(reason.to_owned()),
            since: Some("2026-01-31T12:00:00Z".to_owned()),
            ..IngestStatus::default()
        };
        check(stopped, &[note, nobody]);
    }
}
