//! Workers, and how well each is sampled.

use api::{
    Clock, Disconnect, Epoch, Forward, IngestStatus, LossAccount, QuotaUse, Scrape, Store,
    WorkerEpochs, WorkersAnswer,
};
use flamegraph::text::{duration, printable};
use jiff::Timestamp;
use profiler_core::WorkerId;

use super::clocks::{ahead_note, store_clock_note};
use super::services::{service_notes, shown_names};
use super::settings::interval;
use super::{View, aggregated, counted, grouped, or_dash, percentage};
use crate::grid::Align::{Left, Right, Sentence};
use crate::grid::Grid;

/// Most notes about quotas.
const QUOTAS_NOTED_MAX: usize = 5;

/// Most notes about workers whose messages were rejected.
const REJECTIONS_NOTED_MAX: usize = 5;

/// Most notes about workers that are not sampled in full.
const MODES_NOTED_MAX: usize = 5;

/// Explains the columns.
const COLUMNS: [&str; 2] = [
    "TICKS: samples taken of those expected, and skipped (agent CPU limit)",
    "LOST: thread time and rows not stored; CLOCK: offset from the collector's",
];

/// Why flushes are not accepted, if so.
pub(crate) fn blocked_reason(ingest: &IngestStatus) -> Option<&str> {
    (!ingest.open).then(|| ingest.reason.as_deref().unwrap_or("unknown reason"))
}

fn ingest_note(ingest: &IngestStatus, now: &str) -> Option<String> {
    let reason = printable(blocked_reason(ingest)?);
    let since = ingest
        .since
        .as_deref()
        .map(|since| format!(" (for {})", elapsed(since, now)))
        .unwrap_or_default();
    Some(format!(
        "ingestion is stopped{since}: {reason}; agents keep their samples and retry, pushes are refused"
    ))
}

/// An identity that met a quota, and how often.
pub(crate) fn quota_note(met: &QuotaUse, now: &str) -> String {
    let QuotaUse {
        identity,
        quota,
        value,
        refused,
        delayed,
        last,
    } = met;
    let value = value.map(|value| format!("={value}")).unwrap_or_default();
    let mut counts = Vec::new();
    if *refused > 0 {
        counts.push(format!("{} refused", grouped(*refused)));
    }
    if *delayed > 0 {
        counts.push(format!("{} delayed", grouped(*delayed)));
    }
    let counts = counts.join(", ");
    let identity = printable(identity);
    let age = elapsed(last, now);
    format!("{identity} reached its quota {quota}{value}: {counts}, the last {age} ago")
}

/// Number of a worker's agents that are connected. More than one of them share the id by mistake.
pub(crate) fn connected_lives(worker: &WorkerEpochs) -> usize {
    worker.epochs.iter().filter(|epoch| epoch.connected).count()
}

/// Thread time that was lost, then lost rows of tasks and telemetry if there are any.
fn lost(account: &LossAccount) -> String {
    let parts = [
        account.lost_rejected_ns,
        account.lost_by_collector_ns,
        account.lost_queue_ns,
    ];
    let mut text = duration(parts.into_iter().fold(0, u64::saturating_add));
    for (count, noun) in [
        (account.lost_tasks, "task"),
        (account.lost_telemetry, "record"),
    ] {
        if count > 0 {
            text += &format!(", {}", counted(count, noun));
        }
    }
    text
}

impl View for WorkersAnswer {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::from_iter(ingest_note(&self.ingest, &self.now));
        let quotas = self.quotas.iter().take(QUOTAS_NOTED_MAX);
        notes.extend(quotas.map(|quota| quota_note(quota, &self.now)));
        let more = self.quotas.len().saturating_sub(QUOTAS_NOTED_MAX);
        if more > 0 {
            notes.push(format!(
                "{} were met; see --format json",
                counted(more as u64, "more quota")
            ));
        }
        notes.extend(service_notes(&self.services, &self.now));
        notes.extend(self.scrapes.iter().filter_map(scrape_note));
        notes.extend(self.forwards.iter().filter_map(forward_note));
        notes.extend(stores_note(&self.stores));
        notes.extend(self.stores.iter().filter_map(store_note));
        notes.extend(self.stores.iter().filter_map(store_clock_note));
        notes.extend(ahead_note(self));
        if self.workers.is_empty() {
            notes.push("no worker has reported yet".to_owned());
            return notes;
        }
        for worker in self
            .workers
            .iter()
            .filter(|worker| connected_lives(worker) > 1)
        {
            let id = printable(&worker.worker);
            let lives = connected_lives(worker);
            notes.push(format!(
                "{lives} agents with the id {id} are connected: their time is summed as one worker's"
            ));
        }
        if self.omitted > 0 {
            let more = counted(self.omitted, "more worker");
            notes.push(format!(
                "{more} are not listed; of all, {} need attention, and these come first",
                grouped(self.counts.need_attention)
            ));
        }
        notes.extend(COLUMNS.map(str::to_owned));
        notes.extend(lost_workers(self).map(|end| end.note(&self.now)));
        notes.extend(rejection_notes(self));
        notes.extend(mode_notes(self));
        let epochs = self.workers.iter().flat_map(|worker| &worker.epochs);
        let tasks = epochs.map(|epoch| epoch.account.aggregated_tasks);
        notes.extend(aggregated(tasks.fold(0, u64::saturating_add)));
        notes
    }

    /// A row for each life of a worker.
    fn text(&self) -> String {
        let names = shown_names(&self.workers);
        let worker = if names.is_empty() { Left } else { Sentence };
        let mut grid = Grid::new(&[
            ("WORKER", worker),
            ("STATE", Left),
            ("LAST SEEN", Right),
            ("INTERVAL", Right),
            ("RUNNING", Right),
            ("TICKS", Right),
            ("LOST", Right),
            ("PID", Right),
            ("HOST", Left),
            ("MODE", Left),
            ("CLOCK", Right),
            ("LABELS", Left),
        ]);
        let mut workers: Vec<&WorkerEpochs> = self.workers.iter().collect();
        if self.omitted == 0 {
            workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        }
        for worker in workers {
            let name = names.get(worker.worker.as_str()).unwrap_or(&worker.worker);
            for epoch in &worker.epochs {
                grid.push(cells(name, epoch, &self.now));
            }
        }
        grid.text()
    }
}

/// Why a scraped service has no profile.
fn scrape_note(scrape: &Scrape) -> Option<String> {
    let Scrape {
        name, url, failure, ..
    } = scrape;
    let failure = printable(failure.as_deref()?);
    let [name, url] = [name, url].map(|text| printable(text));
    Some(format!("{name}: no profile from {url}: {failure}"))
}

/// The collectors for which the server answers, if it is none itself.
fn stores_note(stores: &[Store]) -> Option<String> {
    let names: Vec<_> = stores.iter().map(|store| printable(&store.name)).collect();
    let count = counted(names.len() as u64, "collector");
    (!names.is_empty()).then(|| format!("answers for {count}: {}", names.join(", ")))
}

/// Why answers lack a part of a collector's data.
pub(crate) fn store_note(store: &Store) -> Option<String> {
    let reason = store.incomplete.as_ref()?;
    let [name, reason] = [&store.name, reason].map(|text| printable(text));
    Some(format!("answers are incomplete: {name}: {reason}"))
}

/// Why a server does not receive everything that is forwarded.
pub(crate) fn forward_note(forward: &Forward) -> Option<String> {
    let Forward {
        url,
        waiting,
        lost_queue,
        lost_rejected,
        failure,
        ..
    } = forward;
    let lost = lost_queue.saturating_add(*lost_rejected);
    if failure.is_none() && lost == 0 {
        return None;
    }
    let amount = |amount: u64| match &*forward.unit {
        "tasks" => counted(amount, "task"),
        _ => format!("{} of thread time", duration(amount)),
    };
    let mut note = format!("{}: ", printable(url));
    match failure {
        Some(failure) => {
            note += &format!(
                "forwarding fails: {}; {} wait",
                printable(failure),
                amount(*waiting)
            );
        }
        None => note += "forwarding works",
    }
    if lost > 0 {
        note += &format!("; {} lost", amount(lost));
    }
    Some(note)
}

/// A note for each of the first connected workers that are not sampled in full, and one that counts the
/// others.
fn mode_notes(answer: &WorkersAnswer) -> Vec<String> {
    // Services that push profiles have no agent.
    let workers = answer
        .workers
        .iter()
        .filter(|worker: &&WorkerEpochs| WorkerId(worker.worker.as_str().into()).has_agent());
    let lives = workers.flat_map(|WorkerEpochs { worker, epochs }| {
        let connected = epochs.iter().filter(|epoch| epoch.state == "connected");
        connected.map(|epoch| (printable(worker), sampler(epoch, &answer.now)))
    });
    let mut limited = lives.filter(|(_, mode)| mode != "full" && mode != "-");
    let noted = limited.by_ref().take(MODES_NOTED_MAX);
    let mut notes: Vec<String> = noted
        .map(|(worker, mode)| format!("{worker}: sampling is {mode}"))
        .collect();
    let more = limited.count();
    if more > 0 {
        notes.push(format!(
            "{} are not sampled in full",
            counted(more as u64, "more worker")
        ));
    }
    notes
}

/// Rejected messages of each life of a worker that has any, and why the last one was.
pub(crate) fn rejections(answer: &WorkersAnswer) -> impl Iterator<Item = (&str, String)> {
    let lives = answer
        .workers
        .iter()
        .flat_map(|worker| worker.epochs.iter().map(|epoch| (&*worker.worker, epoch)));
    lives
        .filter(|(_, epoch)| epoch.rejected > 0)
        .map(|(worker, epoch)| {
            let count = counted(epoch.rejected, "message");
            let reason = epoch
                .last_rejection
                .as_deref()
                .unwrap_or("the reason is not known");
            (
                worker,
                format!("{count} rejected, the last: {}", printable(reason)),
            )
        })
}

/// A note for each of the first lives with rejected messages, and one that counts the others.
fn rejection_notes(answer: &WorkersAnswer) -> Vec<String> {
    let mut rejections = rejections(answer);
    let noted = rejections.by_ref().take(REJECTIONS_NOTED_MAX);
    let mut notes: Vec<String> = noted
        .map(|(worker, text)| format!("{}: {text}", printable(worker)))
        .collect();
    let more = rejections.count();
    if more > 0 {
        notes.push(format!(
            "messages of {} were rejected",
            counted(more as u64, "more worker")
        ));
    }
    notes
}

/// The life of a worker that ended without a clean disconnect.
pub(crate) struct LostWorker<'a> {
    pub(crate) worker: &'a str,
    pub(crate) epoch: &'a Epoch,
    pub(crate) disconnect: &'a Disconnect,
    /// Whether the worker has no newer life.
    pub(crate) is_newest: bool,
}

impl LostWorker<'_> {
    /// Describes the process, and when it was last seen.
    pub(crate) fn text(&self, now: &str) -> String {
        let worker = printable(self.worker);
        let Epoch {
            pid,
            host,
            last_seen,
            ..
        } = self.epoch;
        let host = printable(host);
        let seen = elapsed(last_seen, now);
        let state = state(self.epoch);
        format!("{worker} {state} (process {pid} on {host}, last seen {seen} ago)")
    }

    fn note(&self, now: &str) -> String {
        let Disconnect {
            cause, next_step, ..
        } = self.disconnect;
        let next_step = next_step.as_deref().unwrap_or_default();
        format!(
            "{}: {}; {}",
            self.text(now),
            printable(cause),
            printable(next_step)
        )
    }
}

/// The lives that ended without a clean disconnect. One of which nothing is known counts only if its
/// worker has no newer life.
pub(crate) fn lost_workers(answer: &WorkersAnswer) -> impl Iterator<Item = LostWorker<'_>> {
    answer
        .workers
        .iter()
        .flat_map(|WorkerEpochs { worker, epochs }| {
            epochs.iter().enumerate().filter_map(move |(place, epoch)| {
                let is_newest = place + 1 == epochs.len();
                let disconnect = epoch
                    .disconnect
                    .as_ref()
                    .filter(|_| epoch.state == "gone")?;
                let is_lost = match &*disconnect.reason {
                    "clean" => false,
                    "unknown" => is_newest,
                    _ => true,
                };
                is_lost.then_some(LostWorker {
                    worker,
                    epoch,
                    disconnect,
                    is_newest,
                })
            })
        })
}

/// Whether a life is connected, and how it ended if not.
fn state(epoch: &Epoch) -> &str {
    match &epoch.disconnect {
        Some(disconnect) if epoch.state == "gone" && disconnect.reason != "clean" => {
            match &*disconnect.reason {
                "unknown" => "missing",
                reason => reason,
            }
        }
        _ => &epoch.state,
    }
}

fn cells(worker: &str, epoch: &Epoch, now: &str) -> [String; 12] {
    let labels = epoch
        .labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    [
        worker.to_owned(),
        state(epoch).to_owned(),
        elapsed(&epoch.last_seen, now),
        interval(Some(epoch.enabled), Some(epoch.interval_ns)),
        epoch.running_tasks.to_string(),
        ticks(epoch),
        lost(&epoch.account),
        or_dash(Some(epoch.pid).filter(|pid| *pid > 0), |pid| {
            pid.to_string()
        }),
        or_dash(
            Some(&epoch.host).filter(|host| !host.is_empty()),
            String::clone,
        ),
        sampler(epoch, now),
        or_dash(epoch.clock, clock),
        labels.collect::<Vec<_>>().join(" "),
    ]
}

/// The sampler's mode, and the threads that it cannot sample while they run.
fn sampler(epoch: &Epoch, now: &str) -> String {
    let mode = or_dash(epoch.sampler_mode.as_ref(), String::clone);
    match &epoch.signal_blocked_since {
        None => mode,
        Some(since) => {
            let threads = epoch.signal_blocked_threads;
            let plural = if threads == 1 { "" } else { "s" };
            let length = elapsed(since, now);
            format!("{mode}; {threads} thread{plural} blocked the signal for {length}")
        }
    }
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
pub(super) fn elapsed(then: &str, now: &str) -> String {
    elapsed_ns(then, now).map_or_else(|| then.to_owned(), duration)
}

/// The time between two times, 0 if they are reversed; `None` if one of them is invalid.
pub(crate) fn elapsed_ns(then: &str, now: &str) -> Option<u64> {
    Some(u64::try_from(unix_ns(now)? - unix_ns(then)?).unwrap_or(0))
}

fn unix_ns(text: &str) -> Option<i128> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_nanosecond)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_life_of_a_worker_has_a_row() {
        let labels = [("role", "qr"), ("x", "\u{1b}]0;")];
        let epoch = |state: &'static str, clock, lost_tasks: u64| Epoch {
            labels: labels
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
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
        let clock = Clock {
            offset_ns: -1_500_000,
            error_ns: 40_000,
        };
        let worker = WorkerEpochs {
            worker: "worker-0".to_owned(),
            epochs: vec![epoch("gone", None, 0), epoch("connected", Some(clock), 7)],
        };
        let answer = WorkersAnswer {
            now: "2026-01-31T12:00:00.5Z".to_owned(),
            ingest: IngestStatus {
                open: true,
                ..IngestStatus::default()
            },
            workers: vec![worker],
            ..WorkersAnswer::default()
        };
        expect![[r#"
            WORKER    STATE      LAST SEEN  INTERVAL  RUNNING                 TICKS  …
            worker-0  gone          500 ms       off        3                 99.7%
            worker-0  connected     500 ms   10.0 ms        3  99.7%, 0.20% skipped
        "#]]
        .assert_eq(&answer.text());
        assert_eq!(answer.notes()[..2], COLUMNS);
        let expected = [
            "worker-0: sampling is signals",
            "7,000 tasks have no row: only totals of all workers, keys and types have them",
        ];
        assert_eq!(answer.notes()[2..], expected);
    }

    #[test]
    fn notes_name_duplicated_workers_and_count_those_that_are_not_listed() {
        let worker = WorkerEpochs {
            worker: "w\u{202e}".to_owned(),
            epochs: vec![life(true), life(false), life(true)],
        };
        let ingest = IngestStatus {
            open: true,
            ..IngestStatus::default()
        };
        let answer = WorkersAnswer {
            ingest,
            workers: vec![worker],
            omitted: 1_200,
            counts: api::WorkerCounts {
                need_attention: 1,
                ..Default::default()
            },
            ..WorkersAnswer::default()
        };
        let duplicated =
            "2 agents with the id w\\u{202e} are connected: their time is summed as one worker's";
        let more =
            "1,200 more workers are not listed; of all, 1 need attention, and these come first";
        assert_eq!(answer.notes()[..2], [duplicated, more]);
        assert_eq!(answer.notes()[2..], COLUMNS);
    }

    fn life(connected: bool) -> Epoch {
        Epoch {
            connected,
            ..Epoch::default()
        }
    }

    #[test]
    fn lives_that_ended_badly_are_notes_with_cause_and_next_step() {
        let crashed = ended_life("crashed", "gone");
        let note = "w crashed (process 17 on h, last seen 1 min ago): it was killed; look there";
        check_states_and_notes(vec![crashed.clone()], &["crashed"], &[note]);
        let states = ["crashed", "connected"];
        check_states_and_notes(vec![crashed, ended_life("", "connected")], &states, &[note]);
        check_states_and_notes(
            vec![ended_life("clean", "gone"), ended_life("crashed", "away")],
            &["gone", "away"],
            &[],
        );
        let states = ["missing", "connected"];
        check_states_and_notes(
            vec![ended_life("unknown", "gone"), ended_life("", "connected")],
            &states,
            &[],
        );
        let note = "w missing (process 17 on h, last seen 1 min ago): it was killed; look there";
        check_states_and_notes(vec![ended_life("unknown", "gone")], &["missing"], &[note]);
    }

    fn ended_life(reason: &'static str, state: &'static str) -> Epoch {
        Epoch {
            pid: 17,
            host: "h".to_owned(),
            state: state.into(),
            last_seen: "2026-01-31T11:59:00Z".to_owned(),
            disconnect: (state != "connected").then(|| Disconnect {
                reason: reason.into(),
                cause: "it was killed".into(),
                next_step: (reason != "clean").then(|| "look there".to_owned()),
                ..Disconnect::default()
            }),
            ..Epoch::default()
        }
    }

    fn check_states_and_notes(epochs: Vec<Epoch>, states: &[&str], expected: &[&str]) {
        assert_eq!(epochs.iter().map(state).collect::<Vec<_>>(), states);
        let answer = WorkersAnswer {
            now: "2026-01-31T12:00:00Z".to_owned(),
            ingest: IngestStatus {
                open: true,
                ..IngestStatus::default()
            },
            workers: vec![WorkerEpochs {
                worker: "w".to_owned(),
                epochs,
            }],
            ..WorkersAnswer::default()
        };
        assert_eq!(answer.notes()[COLUMNS.len()..], *expected);
    }

    #[test]
    fn quotas_that_were_met_are_noted() {
        let ingest = IngestStatus {
            open: true,
            ..IngestStatus::default()
        };
        let mut quotas = vec![
            quota_use("token 3f9a2c01", 1_200, 3),
            quota_use("\u{202e}", 0, 1),
        ];
        quotas.extend((0..5).map(|_| quota_use("token 3f9a2c02", 1, 0)));
        let now = "2026-01-31T12:00:12Z".to_owned();
        let answer = WorkersAnswer {
            now,
            ingest,
            quotas,
            ..WorkersAnswer::default()
        };
        let notes = answer.notes();
        assert_eq!(
            notes[..2],
            [
                "token 3f9a2c01 reached its quota sessions=100: 1,200 refused, 3 delayed, the last \
                 12.0 s ago",
                "\\u{202e} reached its quota sessions: 1 delayed, the last 12.0 s ago",
            ]
        );
        let nobody = "no worker has reported yet";
        assert_eq!(
            notes[5..],
            ["2 more quotas were met; see --format json", nobody]
        );
    }

    fn quota_use(identity: &str, refused: u64, delayed: u64) -> QuotaUse {
        QuotaUse {
            identity: identity.to_owned(),
            quota: "sessions".into(),
            value: (refused > 0).then_some(100),
            refused,
            delayed,
            last: "2026-01-31T12:00:00Z".to_owned(),
        }
    }

    #[test]
    fn stopped_ingestion_is_the_first_note() {
        let nobody = "no worker has reported yet";
        check_notes(
            IngestStatus {
                open: true,
                ..IngestStatus::default()
            },
            &[nobody],
        );
        let reason = "the disk is full: 12 MiB free of 64 MiB, 32 MiB needed in /d\u{1b}";
        let note = "ingestion is stopped (for 12.0 s): the disk is full: 12 MiB free of 64 MiB, \
                    32 MiB needed in /d\\u{1b}; agents keep their samples and retry, pushes are refused";
        let stopped = IngestStatus {
            open: false,
            reason: Some(reason.to_owned()),
            since: Some("2026-01-31T12:00:00Z".to_owned()),
            ..IngestStatus::default()
        };
        check_notes(stopped, &[note, nobody]);
    }

    fn check_notes(ingest: IngestStatus, expected: &[&str]) {
        let now = "2026-01-31T12:00:12Z".to_owned();
        assert_eq!(
            WorkersAnswer {
                now,
                ingest,
                ..WorkersAnswer::default()
            }
            .notes(),
            expected
        );
    }
}
