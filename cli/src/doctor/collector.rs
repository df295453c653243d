//! Whether a collector answers, and whether its workers are sampled in full.

use serde::Deserialize;

use super::Finding;
use crate::client::{Client, ClientError, Query};
use crate::view::workers::IngestStatus;

/// Longest list of workers in one finding.
const WORKERS_NAMED_MAX: usize = 5;

#[derive(Deserialize)]
struct Workers {
    ingest: Option<IngestStatus>,
    workers: Vec<Worker>,
}

#[derive(Deserialize)]
struct Worker {
    worker: String,
    epochs: Vec<Epoch>,
}

#[derive(Deserialize)]
struct Epoch {
    connected: bool,
    sampler_mode: Option<String>,
}

/// Asks the collector at `url`.
///
/// # Errors
/// If `url` is no address: that was typed wrongly. A collector that does not answer is a finding.
pub(crate) fn examine(url: &str) -> Result<Vec<Finding>, ClientError> {
    match Client::new(url)?.get_json::<Workers>("workers", &Query::default()) {
        Ok(workers) => Ok(fleet(url, &workers)),
        Err(error @ ClientError::Url { .. }) => Err(error),
        Err(ClientError::Unreachable { source, .. }) => Ok(vec![Finding::bad(
            "collector",
            format!("nothing answers at {url}: {source}"),
            "start one with `emberline serve`, or name another with --url or EMBERLINE_URL; agents \
             keep what they sample until it is there",
        )]),
        Err(error) => Ok(vec![Finding::bad(
            "collector",
            error.to_string(),
            "check that --url names a collector of this version",
        )]),
    }
}

fn fleet(url: &str, fleet: &Workers) -> Vec<Finding> {
    let connected: Vec<(&str, &str)> = fleet
        .workers
        .iter()
        .flat_map(|worker| worker.epochs.iter().map(|epoch| (&*worker.worker, epoch)))
        .filter(|(_, epoch)| epoch.connected)
        .map(|(worker, epoch)| (worker, epoch.sampler_mode.as_deref().unwrap_or_default()))
        .collect();
    let count = connected.len();
    let stopped = fleet.ingest.as_ref().and_then(IngestStatus::reason);
    let mut findings = vec![match stopped {
        None => Finding::ok("collector", format!("answers at {url}")),
        Some(reason) => Finding::bad(
            "collector",
            format!("answers at {url}, but takes nothing in: {reason}"),
            "mend that: it takes in again by itself then; until then agents keep what they sample \
             and try again",
        ),
    }];
    if count == 0 {
        let advice = match stopped {
            Some(_) => "agents are turned away; they come by themselves when it takes in again",
            None => "start the agent in a worker, with this collector's address in EMBERLINE_URL",
        };
        findings.push(Finding::warn("workers", "none is connected", advice));
        return findings;
    }
    let is_off = |mode: &str| mode.starts_with("off");
    let is_part = |mode: &str| mode.contains(" threads only");
    let off = named(&connected, is_off);
    let part = named(&connected, is_part);
    let advice = "the reason says what the system refuses: run `emberline doctor` as that worker";
    if let Some(off) = &off {
        findings.push(Finding::bad("workers", format!("not sampled: {off}"), advice));
    }
    if let Some(part) = &part {
        findings.push(Finding::warn("workers", format!("sampled in part: {part}"), advice));
    }
    if off.is_none() && part.is_none() {
        findings.push(Finding::ok("workers", format!("{count} connected, sampled in full")));
    }
    findings
}

/// The workers in such a mode, with the mode; `None` if there is none.
fn named(connected: &[(&str, &str)], is_such: impl Fn(&str) -> bool) -> Option<String> {
    let such: Vec<_> = connected.iter().filter(|(_, mode)| is_such(mode)).collect();
    let first = such.iter().take(WORKERS_NAMED_MAX);
    let mut text =
        first.map(|(worker, mode)| format!("{worker} ({mode})")).collect::<Vec<_>>().join(", ");
    if such.len() > WORKERS_NAMED_MAX {
        text += &format!(" and {} more", such.len() - WORKERS_NAMED_MAX);
    }
    (!such.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;
    use crate::doctor::Report;

    fn check(modes: &[(&str, bool, &str)], expected: Expect) {
        check_with(modes, json!({"open": true}), expected);
    }

    fn check_with(modes: &[(&str, bool, &str)], ingest: serde_json::Value, expected: Expect) {
        let workers: Vec<_> = modes
            .iter()
            .map(|(worker, connected, mode)| {
                json!({"worker": worker,
                    "epochs": [{"connected": connected, "sampler_mode": mode}]})
            })
            .collect();
        let workers =
            serde_json::from_value(json!({ "ingest": ingest, "workers": workers })).unwrap();
        let findings = fleet("http://c:1", &workers);
        expected.assert_eq(&Report { subject: "fleet".into(), findings }.text());
    }

    #[test]
    fn workers_that_are_not_sampled_in_full_are_named() {
        check(
            &[("w-1", true, "full"), ("w-2", false, "off: x")],
            expect![[r#"
                fleet
                ok    collector          answers at http://c:1
                ok    workers            1 connected, sampled in full
            "#]],
        );
        check(
            &[
                ("w-1", true, "full"),
                ("w-2", true, "off: no /proc"),
                ("w-3", true, "running threads only, blocked ones without stacks: refused"),
            ],
            expect![[r#"
                fleet
                ok    collector          answers at http://c:1
                bad   workers            not sampled: w-2 (off: no /proc)
                                         → the reason says what the system refuses: run `emberline doctor` as that worker
                warn  workers            sampled in part: w-3 (running threads only, blocked ones without stacks: refused)
                                         → the reason says what the system refuses: run `emberline doctor` as that worker
            "#]],
        );
        check(
            &[],
            expect![[r#"
                fleet
                ok    collector          answers at http://c:1
                warn  workers            none is connected
                                         → start the agent in a worker, with this collector's address in EMBERLINE_URL
            "#]],
        );
    }

    #[test]
    fn a_collector_that_takes_nothing_in_says_why() {
        let reason = "the disk is full: 0 B free of 64 MiB, 32 MiB needed in /d";
        let ingest = || json!({"open": false, "reason": reason});
        check_with(
            &[("w-1", false, "off: x")],
            ingest(),
            expect![[r#"
                fleet
                bad   collector          answers at http://c:1, but takes nothing in: the disk is full: 0 B free of 64 MiB, 32 MiB needed in /d
                                         → mend that: it takes in again by itself then; until then agents keep what they sample and try again
                warn  workers            none is connected
                                         → agents are turned away; they come by themselves when it takes in again
            "#]],
        );
        check_with(
            &[("w-1", true, "full")],
            ingest(),
            expect![[r#"
                fleet
                bad   collector          answers at http://c:1, but takes nothing in: the disk is full: 0 B free of 64 MiB, 32 MiB needed in /d
                                         → mend that: it takes in again by itself then; until then agents keep what they sample and try again
                ok    workers            1 connected, sampled in full
            "#]],
        );
    }
}
