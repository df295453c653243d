//! Whether a collector responds, and whether its workers are fully sampled.

use api::WorkersAnswer;

use super::Finding;
use crate::client::{Client, ClientError, Query};
use crate::view::workers::blocked_reason;

/// Longest list of workers in one finding.
const WORKERS_NAMED_MAX: usize = 5;

/// Checks the collector at `url`.
///
/// # Errors
/// If `url` is invalid. A collector that does not respond is a finding.
pub(crate) fn examine(url: &str) -> Result<Vec<Finding>, ClientError> {
    match Client::new(url)?.get_json::<WorkersAnswer>("workers", &Query::default()) {
        Ok(workers) => Ok(fleet(url, &workers)),
        Err(error @ ClientError::Url { .. }) => Err(error),
        Err(ClientError::Unreachable { source, .. }) => Ok(vec![Finding::bad(
            "collector",
            format!("no response from {url}: {source}"),
            "start one with `emberline serve`, or set --url or EMBERLINE_URL; agents keep their \
             samples until one responds",
        )]),
        Err(error) => Ok(vec![Finding::bad(
            "collector",
            error.to_string(),
            "check that --url is a collector of this version",
        )]),
    }
}

fn fleet(url: &str, fleet: &WorkersAnswer) -> Vec<Finding> {
    let connected: Vec<(&str, &str)> = fleet
        .workers
        .iter()
        .flat_map(|worker| worker.epochs.iter().map(|epoch| (&*worker.worker, epoch)))
        .filter(|(_, epoch)| epoch.connected)
        .map(|(worker, epoch)| (worker, epoch.sampler_mode.as_deref().unwrap_or_default()))
        .collect();
    let count = connected.len();
    let blocked = blocked_reason(&fleet.ingest);
    let mut findings = vec![match blocked {
        None => Finding::ok("collector", format!("responds at {url}")),
        Some(reason) => Finding::bad(
            "collector",
            format!("responds at {url}, but ingestion is stopped: {reason}"),
            "fix the cause: ingestion then resumes by itself; until then agents keep their samples and \
             retry",
        ),
    }];
    if count == 0 {
        let advice = match blocked {
            Some(_) => "agents are rejected; they reconnect by themselves when ingestion resumes",
            None => "start the agent in a worker, with the URL of this collector in EMBERLINE_URL",
        };
        findings.push(Finding::warn("workers", "none connected", advice));
        return findings;
    }
    let off = named(&connected, |mode| mode.starts_with("off"));
    let partial = named(&connected, |mode| mode.contains(" threads only"));
    let advice = "the reason names what the system refuses: run `emberline doctor` as that worker";
    if let Some(off) = &off {
        findings.push(Finding::bad("workers", format!("not sampled: {off}"), advice));
    }
    if let Some(partial) = &partial {
        findings.push(Finding::warn("workers", format!("partially sampled: {partial}"), advice));
    }
    if off.is_none() && partial.is_none() {
        findings.push(Finding::ok("workers", format!("{count} connected, fully sampled")));
    }
    findings
}

/// The workers whose mode matches, with their modes; `None` if there are none.
fn named(connected: &[(&str, &str)], matches: impl Fn(&str) -> bool) -> Option<String> {
    let matching: Vec<_> = connected.iter().filter(|(_, mode)| matches(mode)).collect();
    let first = matching.iter().take(WORKERS_NAMED_MAX);
    let mut text =
        first.map(|(worker, mode)| format!("{worker} ({mode})")).collect::<Vec<_>>().join(", ");
    if matching.len() > WORKERS_NAMED_MAX {
        text += &format!(" and {} more", matching.len() - WORKERS_NAMED_MAX);
    }
    (!matching.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::doctor::Report;
    use api::{Epoch, IngestStatus, WorkerEpochs};

    fn check(modes: &[(&str, bool, &str)], expected: Expect) {
        check_with(modes, IngestStatus { open: true, ..IngestStatus::default() }, expected);
    }

    fn check_with(modes: &[(&str, bool, &str)], ingest: IngestStatus, expected: Expect) {
        let worker = |(worker, connected, mode): &(&str, bool, &str)| WorkerEpochs {
            worker: (*worker).to_owned(),
            epochs: vec![Epoch {
                connected: *connected,
                sampler_mode: Some((*mode).to_owned()),
                ..Epoch::default()
            }],
        };
        let workers = modes.iter().map(worker).collect();
        let answer = WorkersAnswer { ingest, workers, ..WorkersAnswer::default() };
        let findings = fleet("http://c:1", &answer);
        expected.assert_eq(&Report { subject: "fleet".into(), findings }.text());
    }

    #[test]
    fn workers_that_are_not_fully_sampled_are_named() {
        check(
            &[("w-1", true, "full"), ("w-2", false, "off: x")],
            expect![[r#"
                fleet
                ok    collector          responds at http://c:1
                ok    workers            1 connected, fully sampled
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
                ok    collector          responds at http://c:1
                bad   workers            not sampled: w-2 (off: no /proc)
                                         → the reason names what the system refuses: run `emberline doctor` as that worker
                warn  workers            partially sampled: w-3 (running threads only, blocked ones without stacks: refused)
                                         → the reason names what the system refuses: run `emberline doctor` as that worker
            "#]],
        );
        check(
            &[],
            expect![[r#"
                fleet
                ok    collector          responds at http://c:1
                warn  workers            none connected
                                         → start the agent in a worker, with the URL of this collector in EMBERLINE_URL
            "#]],
        );
    }

    #[test]
    fn stopped_ingestion_is_bad() {
        let reason = "the disk is full: 0 B free of 64 MiB, 32 MiB needed in /d";
        let ingest = || IngestStatus { reason: Some(reason.to_owned()), ..IngestStatus::default() };
        check_with(
            &[("w-1", false, "off: x")],
            ingest(),
            expect![[r#"
                fleet
                bad   collector          responds at http://c:1, but ingestion is stopped: the disk is full: 0 B free of 64 MiB, 32 MiB needed in /d
                                         → fix the cause: ingestion then resumes by itself; until then agents keep their samples and retry
                warn  workers            none connected
                                         → agents are rejected; they reconnect by themselves when ingestion resumes
            "#]],
        );
        check_with(
            &[("w-1", true, "full")],
            ingest(),
            expect![[r#"
                fleet
                bad   collector          responds at http://c:1, but ingestion is stopped: the disk is full: 0 B free of 64 MiB, 32 MiB needed in /d
                                         → fix the cause: ingestion then resumes by itself; until then agents keep their samples and retry
                ok    workers            1 connected, fully sampled
            "#]],
        );
    }
}
