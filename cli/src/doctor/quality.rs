//! Findings on the data quality of connected workers: silence, losses, skipped samples; and failed tasks.

use api::{Epoch, LossAccount, TasksAnswer, WorkersAnswer};
use flamegraph::text::{counted, duration, percentage};

use super::Finding;
use super::collector::listed;
use crate::view::clocks::workers_ahead;
use crate::view::tasks::cause;
use crate::view::workers::{elapsed_ns, rejections};
use crate::zone;

/// Agents flush each second. The page calls one that is silent for longer late, too.
const LATE_NS: u64 = 5_000_000_000;

/// A larger share of skipped samples makes stacks coarse.
const THROTTLED_PERCENT_MAX: u64 = 25;

/// Before as many ticks are due, shares of them say nothing: an agent that reads its symbols skips some.
const TICKS_MIN: u64 = 3_000;

/// How far back failed tasks are looked for.
pub(super) const FAILED_FROM: &str = "-24h";

/// Outcomes of tasks that failed.
pub(super) const FAILED: [&str; 3] = ["failed", "panicked", "lost"];

/// The findings about what workers send.
pub(super) fn quality(fleet: &WorkersAnswer) -> impl Iterator<Item = Finding> {
    [
        late(fleet),
        losses(fleet),
        unseen(fleet),
        rejected(fleet),
        throttled(fleet),
        ahead(fleet),
    ]
    .into_iter()
    .flatten()
}

/// Connected workers that have been silent for seconds. Those that foreign profilers push are.
fn late(fleet: &WorkersAnswer) -> Option<Finding> {
    let late = newest(fleet).filter_map(|(worker, epoch)| {
        let is_pushed = epoch
            .sampler_mode
            .as_deref()
            .is_some_and(|mode| mode.starts_with("pushed "));
        let silent_ns = elapsed_ns(&epoch.last_seen, &fleet.now)?;
        let is_late = epoch.connected && !is_pushed && silent_ns > LATE_NS;
        is_late.then(|| format!("{worker} (process {}, {})", epoch.pid, duration(silent_ns)))
    });
    Some(Finding::warn(
        "workers",
        format!(
            "connected, but silent: {}",
            listed(&late.collect::<Vec<_>>())?
        ),
        "check whether the process is stopped or its machine is overloaded or unreachable",
    ))
}

/// The accounts of all processes, by worker.
fn accounts(fleet: &WorkersAnswer) -> impl Iterator<Item = (&str, &LossAccount)> {
    fleet.workers.iter().flat_map(|worker| {
        worker
            .epochs
            .iter()
            .map(|epoch| (&*worker.worker, &epoch.account))
    })
}

/// Workers of which samples or tasks were lost on their way.
fn losses(fleet: &WorkersAnswer) -> Option<Finding> {
    let lost = accounts(fleet).filter_map(|(worker, account)| {
        let causes = [
            (account.lost_rejected_ns, "rejected by the collector"),
            (
                account.lost_by_collector_ns,
                "lost by a collector after it acknowledged them",
            ),
            (
                account.lost_queue_ns.saturating_sub(account.lost_unseen_ns),
                "beyond the agent's queue",
            ),
        ];
        let lost = causes.iter().filter(|(lost_ns, _)| *lost_ns > 0);
        let mut parts: Vec<_> = lost
            .map(|(lost_ns, cause)| format!("{} {cause}", duration(*lost_ns)))
            .collect();
        if account.lost_tasks > 0 {
            parts.push(counted(account.lost_tasks, "task record"));
        }
        (!parts.is_empty()).then(|| format!("{worker} ({})", parts.join(", ")))
    });
    Some(Finding::warn(
        "data loss",
        listed(&lost.collect::<Vec<_>>())?,
        "check that the collector is reachable, has room on its disk and runs with --data",
    ))
}

/// Workers with time of threads that their samplers did not see.
fn unseen(fleet: &WorkersAnswer) -> Option<Finding> {
    let unseen = accounts(fleet)
        .filter(|(_, account)| account.lost_unseen_ns > 0)
        .map(|(worker, account)| format!("{worker} ({})", duration(account.lost_unseen_ns)));
    Some(Finding::warn(
        "thread time",
        format!(
            "not seen by the sampler: {}",
            listed(&unseen.collect::<Vec<_>>())?
        ),
        "begin a task in threads that live for milliseconds: their time is then exact; or give the worker \
         more processor time",
    ))
}

/// Workers of which the collector rejected messages.
fn rejected(fleet: &WorkersAnswer) -> Option<Finding> {
    let rejected: Vec<_> = rejections(fleet)
        .map(|(worker, text)| format!("{worker} ({text})"))
        .collect();
    Some(Finding::warn(
        "messages",
        listed(&rejected)?,
        "compare the versions of agent and collector, and read the collector's log",
    ))
}

/// Connected workers whose sampler skips samples to stay within its CPU limit.
fn throttled(fleet: &WorkersAnswer) -> Option<Finding> {
    let throttled = newest(fleet).filter_map(|(worker, epoch)| {
        let Epoch {
            ticks_throttled,
            ticks_expected,
            ..
        } = *epoch;
        let is_throttled = epoch.connected
            && ticks_expected > TICKS_MIN
            && ticks_throttled > ticks_expected / 100 * THROTTLED_PERCENT_MAX;
        is_throttled.then(|| format!("{worker} ({})", percentage(ticks_throttled, ticks_expected)))
    });
    Some(Finding::warn(
        "sampling",
        format!(
            "samples skipped by the agent's CPU limit: {}",
            listed(&throttled.collect::<Vec<_>>())?
        ),
        "times stay true, stacks are coarser: sample less often (`emberline workers set --all --interval \
         20ms`) or start the agents with a larger cpu_limit",
    ))
}

/// Workers whose clock is ahead: their newest data is missing from answers about the present.
fn ahead(fleet: &WorkersAnswer) -> Option<Finding> {
    let workers = listed(&workers_ahead(fleet))?;
    Some(Finding::warn(
        "clock",
        format!("ahead of the collector's: {workers}"),
        "set the clock of their machine (NTP): their data is that much too late in answers",
    ))
}

/// Whether tasks failed, and why the newest did.
pub(super) fn failed_tasks(answer: &TasksAnswer) -> Finding {
    let Some(newest) = answer.tasks.first() else {
        return Finding::ok("tasks", "none failed in the last 24 h");
    };
    let key = if newest.key.is_empty() {
        String::new()
    } else {
        format!(" ({})", newest.key)
    };
    let end = newest.stop.as_ref().unwrap_or(&newest.start);
    let at = end.parse().map_or_else(|_| end.clone(), zone::with_zone);
    let because = match &*cause(newest) {
        "" => String::new(),
        cause => format!(": {cause}"),
    };
    let found = format!(
        "{} failed in the last 24 h, the newest at {at}: {}{key} on {}{because}",
        counted(answer.total, "task"),
        newest.name,
        newest.worker
    );
    Finding::warn(
        "tasks",
        found,
        "`emberline tasks --failed --from -24h` lists them with their causes",
    )
}

/// The newest life of each worker.
fn newest(fleet: &WorkersAnswer) -> impl Iterator<Item = (&str, &Epoch)> {
    fleet
        .workers
        .iter()
        .filter_map(|worker| Some((&*worker.worker, worker.epochs.last()?)))
}

#[cfg(test)]
mod tests {
    use api::{Task, WorkerEpochs};
    use expect_test::expect;

    use super::*;
    use crate::doctor::Report;

    fn text(findings: impl IntoIterator<Item = Finding>) -> String {
        Report {
            subject: "fleet".into(),
            findings: findings.into_iter().collect(),
        }
        .text()
    }

    #[test]
    fn silence_losses_and_skipped_samples_are_named_with_what_to_do() {
        let account = LossAccount {
            lost_queue_ns: 2_500_000_000,
            lost_unseen_ns: 500_000_000,
            lost_tasks: 1,
            ..LossAccount::default()
        };
        let last_rejection = Some("the flush's clock is missing".to_owned());
        let lives = [
            ("healthy", connected_life()),
            (
                "hung",
                Epoch {
                    last_seen: "2026-01-31T11:59:40Z".to_owned(),
                    ..connected_life()
                },
            ),
            (
                "lossy",
                Epoch {
                    account,
                    ..connected_life()
                },
            ),
            (
                "old",
                Epoch {
                    rejected: 3,
                    last_rejection,
                    ..connected_life()
                },
            ),
            (
                "skewed",
                Epoch {
                    data_ahead_ns: 3_000_000_000_000,
                    ..connected_life()
                },
            ),
            (
                "slow",
                Epoch {
                    ticks_throttled: 3_000,
                    ..connected_life()
                },
            ),
        ];
        let workers = lives.map(|(worker, epoch)| WorkerEpochs {
            worker: worker.to_owned(),
            epochs: vec![epoch],
        });
        let answer = WorkersAnswer {
            now: "2026-01-31T12:00:00Z".to_owned(),
            workers: workers.into(),
            ..WorkersAnswer::default()
        };
        expect![[r#"
            fleet
            warn  workers            connected, but silent: hung (process 17, 20.0 s)
                                     → check whether the process is stopped or its machine
                                       is overloaded or unreachable
            warn  data loss          lossy (2.00 s beyond the agent's queue, 1 task record)
                                     → check that the collector is reachable, has room on
                                       its disk and runs with --data
            warn  thread time        not seen by the sampler: lossy (500 ms)
                                     → begin a task in threads that live for milliseconds:
                                       their time is then exact; or give the worker more
                                       processor time
            warn  messages           old (3 messages rejected, the last: the flush's clock
                                     is missing)
                                     → compare the versions of agent and collector, and read
                                       the collector's log
            warn  sampling           samples skipped by the agent's CPU limit: slow (30.0%)
                                     → times stay true, stacks are coarser: sample less
                                       often (`emberline workers set --all --interval 20ms`)
                                       or start the agents with a larger cpu_limit
            warn  clock              ahead of the collector's: skewed (50 min)
                                     → set the clock of their machine (NTP): their data is
                                       that much too late in answers
        "#]]
        .assert_eq(&text(quality(&answer)));
    }

    fn connected_life() -> Epoch {
        Epoch {
            connected: true,
            pid: 17,
            last_seen: "2026-01-31T11:59:59Z".to_owned(),
            ticks_expected: 10_000,
            ticks_throttled: 900,
            ..Epoch::default()
        }
    }

    #[test]
    fn failed_tasks_are_counted_with_the_newest_cause() {
        let task = Task {
            name: "load".to_owned(),
            key: "load-7".to_owned(),
            worker: "w-1".to_owned(),
            outcome: "lost".into(),
            start: "2026-01-31T12:00:00Z".to_owned(),
            ..Task::default()
        };
        let failed = TasksAnswer {
            total: 3,
            tasks: vec![task],
            ..TasksAnswer::default()
        };
        expect![[r#"
            fleet
            warn  tasks              3 tasks failed in the last 24 h, the newest at
                                     2026-01-31 12:00:00.000 UTC: load (load-7) on w-1: its
                                     worker ended or disconnected first
                                     → `emberline tasks --failed --from -24h` lists them
                                       with their causes
            ok    tasks              none failed in the last 24 h
        "#]]
        .assert_eq(&text([
            failed_tasks(&failed),
            failed_tasks(&TasksAnswer::default()),
        ]));
    }
}
