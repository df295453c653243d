//! Whether a collector responds, and whether its workers are fully sampled.

use api::{ProfileAnswer, TasksAnswer, WorkersAnswer};
use flamegraph::text::{percentage, printable};

use super::Finding;
use super::quality::{FAILED, FAILED_FROM, failed_tasks, quality};
use crate::client::{Client, ClientError, Query};
use crate::credentials;
use crate::view::clocks::store_clock_note;
use crate::view::workers::{
    blocked_reason, connected_lives, forward_note, lost_workers, quota_note, store_note,
};

/// Longest list of workers in one finding.
const WORKERS_NAMED_MAX: usize = 5;

/// Time in which functions without names are looked for.
const SYMBOLS_FROM: &str = "-15m";

/// Less time without names is no finding: code of the kernel and of libraries has some.
const UNNAMED_PERCENT_MAX: f64 = 5.0;

/// Advice for a token that is missing or rejected.
const TOKEN_HINT: &str = "get a token from the collector's operator, write it to a file of mode 600, and \
                          set EMBERLINE_TOKEN_FILE; agents keep their samples until theirs is accepted";

/// Checks the collector at `url`.
///
/// # Errors
/// If `url` is invalid. A collector that does not respond is a finding.
pub(crate) fn examine(url: &str) -> Result<Vec<Finding>, ClientError> {
    let token = match credentials::token(url) {
        Ok(token) => token,
        Err(error) => return Ok(vec![Finding::bad("token", error.to_string(), TOKEN_HINT)]),
    };
    let client = Client::with_token(url, token)?;
    let query = Query::default().with("sort", "attention");
    match client.get_json::<WorkersAnswer>("workers", &query) {
        Ok(workers) => {
            let mut findings = fleet(url, &workers);
            let query = Query::default().with("from", SYMBOLS_FROM);
            // A collector of an earlier version does not tell.
            if let Ok(profile) = client.get_json::<ProfileAnswer>("profile", &query) {
                findings.extend(symbols(&profile));
            }
            let query = Query::default()
                .with("from", FAILED_FROM)
                .with("limit", "1")
                .with_each("outcome", FAILED);
            if let Ok(failed) = client.get_json::<TasksAnswer>("tasks", &query) {
                findings.push(failed_tasks(&failed));
            }
            Ok(findings)
        }
        Err(error @ ClientError::Url { .. }) => Err(error),
        Err(ClientError::Denied(reason)) => Ok(vec![Finding::bad("token", reason, TOKEN_HINT)]),
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

/// Modules without names of functions, with their share of time.
fn symbols(profile: &ProfileAnswer) -> Vec<Finding> {
    let whole_ns = profile.totals.total_ns;
    let share = |part_ns: u64| part_ns as f64 * 100.0 / whole_ns.max(1) as f64;
    if whole_ns > 0 && share(profile.unnamed.total_ns) < UNNAMED_PERCENT_MAX {
        return vec![Finding::ok("symbols", "functions have names")];
    }
    let modules = profile
        .unnamed
        .modules
        .iter()
        .take(WORKERS_NAMED_MAX)
        .filter(|module| share(module.own_ns) >= UNNAMED_PERCENT_MAX / 10.0);
    modules
        .map(|module: &api::UnnamedModule| {
            let share = percentage(module.own_ns, whole_ns);
            let found = format!("{}: {share} of the time has no names", module.module);
            Finding::warn("symbols", found, &*module.help)
        })
        .collect()
}

/// Whether a server receives what is forwarded to it.
fn forwarding(forward: &api::Forward) -> Finding {
    match forward_note(forward) {
        None => Finding::ok(
            "forward",
            format!("{} receives what is forwarded", forward.url),
        ),
        Some(note) => Finding::warn(
            "forward",
            note,
            "nothing is lost to Emberline itself; if forwarding fails, check the server, its address and \
             its credentials: what waits is sent when it accepts again",
        ),
    }
}

/// Whether the server has all data of the collectors for which it answers; nothing if it is a collector itself.
fn stores(fleet: &WorkersAnswer) -> Vec<Finding> {
    let mut findings = Vec::new();
    for store in &fleet.stores {
        findings.push(completeness(store));
        findings.extend(clock(store));
    }
    findings
}

fn completeness(store: &api::Store) -> Finding {
    match store_note(store) {
        None => Finding::ok("store", format!("{} is read", printable(&store.name))),
        Some(note) => Finding::warn(
            "store",
            note,
            "start that collector with `--ack store`, or ask it itself for its last minute; if its store \
             cannot be read, check the network and the credentials of this server",
        ),
    }
}

fn clock(store: &api::Store) -> Option<Finding> {
    let note = store_clock_note(store)?;
    let advice = "nothing is lost; with a clock that is 5 minutes off that collector does not start \
                      again";
    Some(Finding::warn("clock", note, advice))
}

/// Connected workers with threads that block the sampler's signal, their number and since when.
fn signal_blocked(fleet: &WorkersAnswer) -> Option<String> {
    let epochs = fleet
        .workers
        .iter()
        .flat_map(|worker| worker.epochs.iter().map(|epoch| (&*worker.worker, epoch)));
    let connected = epochs.filter(|(_, epoch)| epoch.connected);
    let blocked = connected.filter_map(|(worker, epoch)| {
        let since = epoch.signal_blocked_since.as_ref()?;
        Some(format!(
            "{worker} {} since {since}",
            epoch.signal_blocked_threads
        ))
    });
    listed(&blocked.collect::<Vec<_>>())
}

/// Workers with several connected agents, and their number.
fn duplicated(fleet: &WorkersAnswer) -> Option<String> {
    let workers = fleet.workers.iter().filter_map(|worker| {
        let connected = connected_lives(worker);
        (connected > 1).then(|| format!("{} ({connected})", worker.worker))
    });
    listed(&workers.collect::<Vec<_>>())
}

/// Workers that crashed, went silent or did not return. A worker that has been restarted since then is
/// only a warning.
fn lost(fleet: &WorkersAnswer) -> impl Iterator<Item = Finding> {
    let lost = lost_workers(fleet).take(WORKERS_NAMED_MAX);
    lost.map(move |end| {
        let again = if end.is_newest {
            ""
        } else {
            "; it was restarted"
        };
        let found = format!("{}: {}{again}", end.text(&fleet.now), end.disconnect.cause);
        let advice = end.disconnect.next_step.clone().unwrap_or_default();
        let is_bad = end.is_newest && end.disconnect.reason != "unknown";
        if is_bad {
            Finding::bad("workers", found, advice)
        } else {
            Finding::warn("workers", found, advice)
        }
    })
}

/// The first of these texts, and how many more there are; `None` if there are none.
pub(super) fn listed(texts: &[String]) -> Option<String> {
    let first = &texts[..texts.len().min(WORKERS_NAMED_MAX)];
    let rest = texts.len() - first.len();
    let more = if rest > 0 {
        format!(" and {rest} more")
    } else {
        String::new()
    };
    (!texts.is_empty()).then(|| format!("{}{more}", first.join(", ")))
}

fn fleet(url: &str, fleet: &WorkersAnswer) -> Vec<Finding> {
    let connected: Vec<(&str, &str)> = fleet
        .workers
        .iter()
        .flat_map(|worker| worker.epochs.iter().map(|epoch| (&*worker.worker, epoch)))
        .filter(|(_, epoch)| epoch.connected)
        .map(|(worker, epoch)| (worker, epoch.sampler_mode.as_deref().unwrap_or_default()))
        .collect();
    // Not all are listed if there are many.
    let count = fleet.counts.connected.max(connected.len() as u64);
    let refused: Vec<String> = fleet
        .quotas
        .iter()
        .filter(|met| met.refused > 0)
        .map(|met| quota_note(met, &fleet.now))
        .collect();
    let blocked = blocked_reason(&fleet.ingest);
    let mut findings = vec![match blocked {
        None => Finding::ok("collector", format!("responds at {url}")),
        Some(reason) => Finding::bad(
            "collector",
            format!("responds at {url}, but ingestion is stopped: {reason}"),
            "fix the cause: ingestion then resumes by itself; until then agents keep their samples and \
             retry; pushes of other profilers are refused",
        ),
    }];
    if let Some(refused) = listed(&refused) {
        findings.push(Finding::warn(
            "quotas",
            refused,
            "agents keep their samples and retry; if these are honest, raise the quota with `emberline \
             token new --quota` or `emberline serve --quota`, else revoke the token",
        ));
    }
    findings.extend(fleet.forwards.iter().map(forwarding));
    findings.extend(stores(fleet));
    findings.extend(lost(fleet));
    findings.extend(quality(fleet));
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
        findings.push(Finding::bad(
            "workers",
            format!("not sampled: {off}"),
            advice,
        ));
    }
    if let Some(partial) = &partial {
        findings.push(Finding::warn(
            "workers",
            format!("partially sampled: {partial}"),
            advice,
        ));
    }
    let blocked = signal_blocked(fleet);
    if let Some(blocked) = &blocked {
        findings.push(Finding::warn(
            "workers",
            format!("threads that block the sampler's signal: {blocked}"),
            "unblock SIGURG in these threads: while they run they have no stacks; their time is in \
             the right task",
        ));
    }
    if let Some(duplicated) = duplicated(fleet) {
        findings.push(Finding::warn(
            "workers",
            format!("several connected agents with one id: {duplicated}"),
            "give each process a worker id of its own: their time is summed as one worker's",
        ));
    }
    if !fleet.ingest.open {
        findings.push(Finding::warn(
            "workers",
            format!("{count} connected; nothing of them is stored at present"),
            "see collector above",
        ));
    } else if off.is_none() && partial.is_none() && blocked.is_none() {
        findings.push(Finding::ok(
            "workers",
            format!("{count} connected, fully sampled"),
        ));
    }
    findings
}

/// The workers whose mode matches, with their modes; `None` if there are none.
fn named(connected: &[(&str, &str)], matches: impl Fn(&str) -> bool) -> Option<String> {
    let matching: Vec<_> = connected.iter().filter(|(_, mode)| matches(mode)).collect();
    let first = matching.iter().take(WORKERS_NAMED_MAX);
    let mut text = first
        .map(|(worker, mode)| format!("{worker} ({mode})"))
        .collect::<Vec<_>>()
        .join(", ");
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
    use api::{Disconnect, Epoch, IngestStatus, QuotaUse, WorkerEpochs};

    fn check(modes: &[(&str, bool, &str)], expected: Expect) {
        check_with(
            modes,
            IngestStatus {
                open: true,
                ..IngestStatus::default()
            },
            expected,
        );
    }

    fn check_with(modes: &[(&str, bool, &str)], ingest: IngestStatus, expected: Expect) {
        let workers = modes
            .iter()
            .map(
                |(worker, connected, mode): &(&str, bool, &str)| WorkerEpochs {
                    worker: (*worker).to_owned(),
                    epochs: vec![Epoch {
                        connected: *connected,
                        sampler_mode: Some((*mode).to_owned()),
                        ..Epoch::default()
                    }],
                },
            )
            .collect();
        let answer = WorkersAnswer {
            ingest,
            workers,
            ..WorkersAnswer::default()
        };
        let findings = fleet("http://c:1", &answer);
        expected.assert_eq(
            &Report {
                subject: "fleet".into(),
                findings,
            }
            .text(),
        );
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
                (
                    "w-3",
                    true,
                    "running threads only, blocked ones without stacks: refused",
                ),
            ],
            expect![[r#"
                fleet
                ok    collector          responds at http://c:1
                bad   workers            not sampled: w-2 (off: no /proc)
                                         → the reason names what the system refuses: run
                                           `emberline doctor` as that worker
                warn  workers            partially sampled: w-3 (running threads only, blocked
                                         ones without stacks: refused)
                                         → the reason names what the system refuses: run
                                           `emberline doctor` as that worker
            "#]],
        );
        check(
            &[],
            expect![[r#"
                fleet
                ok    collector          responds at http://c:1
                warn  workers            none connected
                                         → start the agent in a worker, with the URL of this
                                           collector in EMBERLINE_URL
            "#]],
        );
    }

    #[test]
    fn a_crashed_worker_is_bad_until_it_is_restarted() {
        let workers = vec![
            worker_with_ends("a", &[Some("crashed"), None]),
            worker_with_ends("b", &[Some("silent")]),
            worker_with_ends("c", &[Some("clean")]),
            worker_with_ends("d", &[Some("unknown")]),
        ];
        let answer = WorkersAnswer {
            now: "2026-01-31T12:00:00Z".to_owned(),
            ingest: IngestStatus {
                open: true,
                ..IngestStatus::default()
            },
            workers,
            ..WorkersAnswer::default()
        };
        let findings = fleet("http://c:1", &answer);
        expect![[r#"
            fleet
            ok    collector          responds at http://c:1
            warn  workers            a crashed (process 17 on h, last seen 1 min ago): why;
                                     it was restarted
                                     → look
            bad   workers            b silent (process 17 on h, last seen 1 min ago): why
                                     → look
            warn  workers            d missing (process 17 on h, last seen 1 min ago): why
                                     → look
            warn  workers            connected, but silent: a (process 17, 1 min)
                                     → check whether the process is stopped or its machine
                                       is overloaded or unreachable
            ok    workers            1 connected, fully sampled
        "#]]
        .assert_eq(
            &Report {
                subject: "fleet".into(),
                findings,
            }
            .text(),
        );
    }

    fn ended_life(reason: Option<&'static str>) -> Epoch {
        Epoch {
            pid: 17,
            host: "h".to_owned(),
            connected: reason.is_none(),
            state: if reason.is_none() {
                "connected".into()
            } else {
                "gone".into()
            },
            last_seen: "2026-01-31T11:59:00Z".to_owned(),
            sampler_mode: Some("full".into()),
            disconnect: reason.map(|reason| Disconnect {
                reason: reason.into(),
                cause: "why".into(),
                next_step: (reason != "clean").then(|| "look".to_owned()),
                ..Disconnect::default()
            }),
            ..Epoch::default()
        }
    }

    fn worker_with_ends(worker: &str, lives: &[Option<&'static str>]) -> WorkerEpochs {
        WorkerEpochs {
            worker: worker.to_owned(),
            epochs: lives.iter().map(|reason| ended_life(*reason)).collect(),
        }
    }

    #[test]
    fn two_live_agents_with_one_id_are_a_warning() {
        let ingest = IngestStatus {
            open: true,
            ..IngestStatus::default()
        };
        let workers = vec![
            worker_with_lives("w-1", &[true, false, true]),
            worker_with_lives("w-2", &[false, true]),
        ];
        let answer = WorkersAnswer {
            ingest,
            workers,
            ..WorkersAnswer::default()
        };
        let findings = fleet("http://c:1", &answer);
        expect![[r#"
            fleet
            ok    collector          responds at http://c:1
            warn  workers            several connected agents with one id: w-1 (2)
                                     → give each process a worker id of its own: their time
                                       is summed as one worker's
            ok    workers            3 connected, fully sampled
        "#]]
        .assert_eq(
            &Report {
                subject: "fleet".into(),
                findings,
            }
            .text(),
        );
    }

    fn life(connected: bool) -> Epoch {
        Epoch {
            connected,
            sampler_mode: Some("full".into()),
            ..Epoch::default()
        }
    }

    fn worker_with_lives(worker: &str, lives: &[bool]) -> WorkerEpochs {
        WorkerEpochs {
            worker: worker.to_owned(),
            epochs: lives.iter().map(|connected| life(*connected)).collect(),
        }
    }

    #[test]
    fn a_store_that_lacks_data_or_has_a_wrong_clock_is_a_warning() {
        let answer = WorkersAnswer {
            ingest: IngestStatus {
                open: true,
                ..IngestStatus::default()
            },
            stores: vec![
                store("c1"),
                api::Store {
                    incomplete: Some("no response".into()),
                    ..store("c2")
                },
                api::Store {
                    clock_warning: Some("the clock is 90 s ahead".into()),
                    ..store("c3")
                },
            ],
            ..WorkersAnswer::default()
        };
        let findings = fleet("http://c:1", &answer);
        expect![[r#"
            fleet
            ok    collector          responds at http://c:1
            ok    store              c1 is read
            warn  store              answers are incomplete: c2: no response
                                     → start that collector with `--ack store`, or ask it
                                       itself for its last minute; if its store cannot be
                                       read, check the network and the credentials of this
                                       server
            ok    store              c3 is read
            warn  clock              c3: the clock is 90 s ahead
                                     → nothing is lost; with a clock that is 5 minutes off
                                       that collector does not start again
            warn  workers            none connected
                                     → start the agent in a worker, with the URL of this
                                       collector in EMBERLINE_URL
        "#]]
        .assert_eq(
            &Report {
                subject: "fleet".into(),
                findings,
            }
            .text(),
        );
    }

    fn store(name: &str) -> api::Store {
        api::Store {
            name: name.to_owned(),
            ..api::Store::default()
        }
    }

    #[test]
    fn refusals_by_quotas_are_a_warning() {
        let answer = WorkersAnswer {
            now: "2026-01-31T12:00:12Z".to_owned(),
            ingest: IngestStatus {
                open: true,
                ..IngestStatus::default()
            },
            quotas: vec![quota_use(7, 1), quota_use(0, 9)],
            ..WorkersAnswer::default()
        };
        let findings = fleet("http://c:1", &answer);
        expect![[r#"
            fleet
            ok    collector          responds at http://c:1
            warn  quotas             token 3f9a2c01 reached its quota sessions=100: 7
                                     refused, 1 delayed, the last 12.0 s ago
                                     → agents keep their samples and retry; if these are
                                       honest, raise the quota with `emberline token new
                                       --quota` or `emberline serve --quota`, else revoke
                                       the token
            warn  workers            none connected
                                     → start the agent in a worker, with the URL of this
                                       collector in EMBERLINE_URL
        "#]]
        .assert_eq(
            &Report {
                subject: "fleet".into(),
                findings,
            }
            .text(),
        );
    }

    fn quota_use(refused: u64, delayed: u64) -> QuotaUse {
        QuotaUse {
            identity: "token 3f9a2c01".to_owned(),
            quota: "sessions".into(),
            value: Some(100),
            refused,
            delayed,
            last: "2026-01-31T12:00:00Z".to_owned(),
        }
    }

    #[test]
    fn stopped_ingestion_is_bad() {
        let reason = "the disk is full: 0 B free of 64 MiB, 32 MiB needed in /d";
        let ingest = || IngestStatus {
            reason: Some(reason.to_owned()),
            ..IngestStatus::default()
        };
        check_with(
            &[("w-1", false, "off: x")],
            ingest(),
            expect![[r#"
                fleet
                bad   collector          responds at http://c:1, but ingestion is stopped: the
                                         disk is full: 0 B free of 64 MiB, 32 MiB needed in /d
                                         → fix the cause: ingestion then resumes by itself;
                                           until then agents keep their samples and retry;
                                           pushes of other profilers are refused
                warn  workers            none connected
                                         → agents are rejected; they reconnect by themselves
                                           when ingestion resumes
            "#]],
        );
        check_with(
            &[("w-1", true, "full")],
            ingest(),
            expect![[r#"
                fleet
                bad   collector          responds at http://c:1, but ingestion is stopped: the
                                         disk is full: 0 B free of 64 MiB, 32 MiB needed in /d
                                         → fix the cause: ingestion then resumes by itself;
                                           until then agents keep their samples and retry;
                                           pushes of other profilers are refused
                warn  workers            1 connected; nothing of them is stored at present
                                         → see collector above
            "#]],
        );
    }
}
