//! Who has reported, and how well they are seen.

use std::collections::BTreeMap;

use flamegraph::text::{duration, percent, printable};
use jiff::Timestamp;
use serde::Deserialize;

use super::grouped;
use super::settings::every;
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// All workers, each with its lives.
#[derive(Deserialize, Debug)]
pub(crate) struct Workers {
    now: String,
    ingest: Option<IngestStatus>,
    workers: Vec<Worker>,
}

/// Whether the collector takes anything in.
#[derive(Deserialize, Debug)]
pub(crate) struct IngestStatus {
    open: bool,
    reason: Option<String>,
    since: Option<String>,
}

impl IngestStatus {
    /// Why it does not, if so.
    pub(crate) fn reason(&self) -> Option<&str> {
        (!self.open).then_some(self.reason.as_deref().unwrap_or("it does not say why"))
    }

    fn note(&self, now: &str) -> Option<String> {
        let reason = printable(self.reason()?);
        let since = self.since.as_deref().map(|since| format!(" since {}", ago(since, now)));
        let since = since.unwrap_or_default();
        Some(format!(
            "the collector takes nothing in{since}: {reason}; agents keep what they sample and try \
             again"
        ))
    }
}

#[derive(Deserialize, Debug)]
struct Worker {
    worker: String,
    epochs: Vec<Epoch>,
}

#[derive(Deserialize, Debug)]
struct Epoch {
    labels: BTreeMap<String, String>,
    host: String,
    pid: u32,
    // Not known of some that are gone.
    sampler_mode: Option<String>,
    interval_ns: u64,
    // Not said by collectors before they could be changed.
    enabled: Option<bool>,
    state: String,
    last_seen: String,
    clock: Option<Clock>,
    ticks: u64,
    ticks_expected: u64,
    #[serde(default)]
    ticks_throttled: u64,
    account: Account,
    running_tasks: u64,
}

#[derive(Deserialize, Debug)]
struct Clock {
    offset_ns: i64,
    error_ns: u64,
}

#[derive(Deserialize, Debug)]
struct Account {
    lost_refused_ns: u64,
    lost_by_collector_ns: u64,
    lost_queue_ns: u64,
    lost_tasks: u64,
    lost_telemetry: u64,
    aggregated_tasks: u64,
}

impl Account {
    /// Thread time that was lost; rows of tasks and other records if any were.
    fn lost(&self) -> String {
        let lost_ns = [self.lost_refused_ns, self.lost_by_collector_ns, self.lost_queue_ns];
        let mut lost = duration(lost_ns.into_iter().fold(0, u64::saturating_add));
        for (count, what) in [(self.lost_tasks, "task"), (self.lost_telemetry, "record")] {
            match count {
                0 => {}
                1 => lost += &format!(", 1 {what}"),
                _ => lost += &format!(", {} {what}s", grouped(count)),
            }
        }
        lost
    }
}

impl Workers {
    /// A row for each life of a worker.
    pub(crate) fn table(&self) -> String {
        let mut grid = Grid::new(&[
            ("WORKER", Left),
            ("STATE", Left),
            ("SEEN", Right),
            ("EVERY", Right),
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
                grid.push(epoch.cells(&worker.worker, &self.now));
            }
        }
        grid.text()
    }

    /// That nothing is taken in; what the columns mean, or that there is no row; and how many tasks came without rows.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            self.ingest.iter().filter_map(|ingest| ingest.note(&self.now)).collect();
        if self.workers.is_empty() {
            notes.push("no worker has reported yet".to_owned());
            return notes;
        }
        let epochs = self.workers.iter().flat_map(|worker| &worker.epochs);
        let aggregated =
            epochs.map(|epoch| epoch.account.aggregated_tasks).fold(0, u64::saturating_add);
        notes.push(COLUMNS.to_owned());
        if aggregated > 0 {
            let many = grouped(aggregated);
            notes.push(format!(
                "{many} tasks were more than their worker sends rows of, and are in sums only"
            ));
        }
        notes
    }
}

/// What the columns mean.
const COLUMNS: &str = "SEEN: time since it last reported; EVERY: time between two samples; TICKS: samples made of \
         those due, and those that the agent saved by its limit on its own cost; LOST: thread time \
         and rows that were not stored; CLOCK: its offset from the collector's";

impl Epoch {
    /// The share of the ticks that were made, and of those left out on purpose if any were.
    fn ticks(&self) -> String {
        let share = |part| format!("{:.1} %", percent(part, self.ticks_expected));
        match (self.ticks_expected, self.ticks_throttled) {
            (0, _) => "-".to_owned(),
            (_, 0) => share(self.ticks),
            (_, saved) => format!("{}, {} saved", share(self.ticks), share(saved)),
        }
    }

    fn cells(&self, worker: &str, now: &str) -> [String; 12] {
        let labels: Vec<String> =
            self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        [
            worker.to_owned(),
            self.state.clone(),
            ago(&self.last_seen, now),
            every(self.enabled, Some(self.interval_ns)),
            self.ticks(),
            self.account.lost(),
            self.clock.as_ref().map_or("-".to_owned(), Clock::text),
            self.running_tasks.to_string(),
            self.pid.to_string(),
            self.host.clone(),
            labels.join(" "),
            self.sampler_mode.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }
}

impl Clock {
    fn text(&self) -> String {
        let sign = if self.offset_ns < 0 { "-" } else { "+" };
        let offset = duration(self.offset_ns.unsigned_abs());
        format!("{sign}{offset} ±{}", duration(self.error_ns))
    }
}

/// Time from `then` to `now`, both in RFC 3339.
fn ago(then: &str, now: &str) -> String {
    let parse = |text: &str| text.parse::<Timestamp>().map(Timestamp::as_nanosecond);
    match (parse(then), parse(now)) {
        (Ok(then), Ok(now)) => duration(u64::try_from(now - then).unwrap_or(0)),
        _ => then.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_life_has_a_row() {
        let epoch = |state: &str, clock: serde_json::Value, lost_tasks: u64| {
            let lost_telemetry = lost_tasks / 7;
            json!({"epoch": "0a", "labels": {"role": "qr", "x": "\u{1b}]0;"}, "host": "h", "pid": 17,
                "agent_version": "0.1.0", "interval_ns": 10_000_000,
                "sampler_mode": (state != "gone").then_some("signals"),
                "enabled": state != "gone", "state": state, "connected": true,
                "last_seen": "2026-01-31T12:00:00Z", "clock": clock, "ticks": 997,
                "ticks_expected": 1_000, "ticks_throttled": lost_tasks / 7 * 2, "running_tasks": 3,
                "account": {"accepted_ns": 9, "stored_ns": 9, "lost_refused_ns": 0,
                    "lost_by_collector_ns": 2_000_000, "lost_queue_ns": 0, "lost_tasks": lost_tasks,
                    "lost_telemetry": lost_telemetry, "aggregated_tasks": lost_tasks * 1_000}})
        };
        let workers: Workers = serde_json::from_value(json!({
            "now": "2026-01-31T12:00:00.5Z", "now_ns": 1,
            "workers": [{"worker": "worker-0", "epochs": [
                epoch("gone", json!(null), 0),
                epoch("connected", json!({"offset_ns": -1_500_000, "error_ns": 40_000}), 7),
            ]}],
            "retained": {}
        }))
        .unwrap();
        expect![[r#"
            WORKER    STATE        SEEN    EVERY                TICKS                        LOST              CLOCK  RUNNING  PID  HOST  LABELS               MODE
            worker-0  gone       500 ms      off               99.7 %                     2.00 ms                  -        3   17  h     role=qr x=\u{1b}]0;  -
            worker-0  connected  500 ms  10.0 ms  99.7 %, 0.2 % saved  2.00 ms, 7 tasks, 1 record  -1.50 ms ±40.0 µs        3   17  h     role=qr x=\u{1b}]0;  signals
        "#]]
        .assert_eq(&workers.table());
        let notes = workers.notes();
        let aggregated =
            "7,000 tasks were more than their worker sends rows of, and are in sums only";
        assert_eq!(notes[1..], [aggregated]);
    }

    #[test]
    fn that_nothing_is_taken_in_is_said_first() {
        let check = |ingest: serde_json::Value, expected: &[&str]| {
            let now = "2026-01-31T12:00:12Z";
            let workers = json!({"now": now, "ingest": ingest, "workers": []});
            let workers: Workers = serde_json::from_value(workers).unwrap();
            assert_eq!(workers.notes(), expected);
        };
        let nobody = "no worker has reported yet";
        check(json!(null), &[nobody]);
        check(json!({"open": true, "reason": null, "since": null}), &[nobody]);
        let reason = "the disk is full: 12 MiB free of 64 MiB, 32 MiB needed in /d\u{1b}";
        let said = "the collector takes nothing in since 12.0 s: the disk is full: 12 MiB free of 64 MiB, \
                    32 MiB needed in /d\\u{1b}; agents keep what they sample and try again";
        let since = "2026-01-31T12:00:00Z";
        check(json!({"open": false, "reason": reason, "since": since}), &[said, nobody]);
    }
}
