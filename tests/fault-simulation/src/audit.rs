//! The collectors' answers compared with the truth.

use std::collections::BTreeMap;

use crate::collector::{Content, LifeContent, TaskContent};
use profiler_core::Outcome;
use ship::shipper::simulation::UNSETTLED_MAX;

use crate::worker::{Fate, Life};

/// Answer of one collector: its content.
pub(crate) struct HostContent {
    pub(crate) host: usize,
    pub(crate) content: Content,
}

/// A row of a task, and the collector that has it.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    host: usize,
    task: &'a TaskContent,
}

type Rows<'a> = BTreeMap<&'a str, Vec<Row<'a>>>;

/// Checks that every cycle and task is in one of these collectors once or in none, that what a collector
/// acknowledged is there, and that the stored weight of sessions is that of their cycles.
///
/// # Errors
/// With what is wrong.
pub(crate) fn check(all: &[HostContent], lives: &[Life]) -> Result<(), String> {
    if let Some(held) = all.iter().find(|held| !held.content.damaged.is_empty()) {
        let HostContent { host, content } = held;
        return Err(format!(
            "files of collector {host} are missing: {:?}",
            content.damaged
        ));
    }
    let mut leaves: Vec<_> = all.iter().map(|held| held.content.leaves.clone()).collect();
    let rows = rows_by_key(all);
    for life in lives {
        let mut stored_ns = vec![0; all.len()];
        for (cycle, (weight_ns, fate)) in life.cycles.iter().enumerate() {
            let leaf = life.leaf(cycle);
            let mut sum_ns = 0;
            for (index, held) in all.iter().enumerate() {
                let found_ns = leaves[index].remove(&leaf).unwrap_or(0);
                stored_ns[index] += found_ns;
                sum_ns += found_ns;
                let must_be_here = *fate == Fate::Stored { host: held.host };
                let is_right = found_ns == *weight_ns || found_ns == 0 && !must_be_here;
                if !is_right || sum_ns > *weight_ns {
                    let host = held.host;
                    return Err(format!(
                        "{leaf} has {found_ns} ns in collector {host}, so {sum_ns} ns of {weight_ns} ns, \
                         {fate:?}"
                    ));
                }
            }
        }
        for (held, stored_ns) in all.iter().zip(stored_ns) {
            check_sessions(life, held, stored_ns)?;
        }
        check_tasks(life, &rows)?;
    }
    match leaves.iter().find_map(BTreeMap::first_key_value) {
        Some((leaf, weight_ns)) => Err(format!("{weight_ns} ns of {leaf}, which nobody sampled")),
        None => Ok(()),
    }
}

fn rows_by_key(all: &[HostContent]) -> Rows<'_> {
    let mut rows = Rows::new();
    for HostContent { host, content } in all {
        for task in &content.tasks {
            rows.entry(&task.key)
                .or_default()
                .push(Row { host: *host, task });
        }
    }
    rows
}

/// The sessions of a life at one collector.
fn sessions<'a>(life: &'a Life, held: &'a HostContent) -> impl Iterator<Item = &'a LifeContent> {
    held.content
        .lives
        .iter()
        .filter(|session| life.stays.contains_key(&session.epoch))
}

fn check_sessions(life: &Life, held: &HostContent, stored_ns: u64) -> Result<(), String> {
    let session_ns: u64 = sessions(life, held).map(|session| session.stored_ns).sum();
    if session_ns == stored_ns {
        return Ok(());
    }
    let epoch = life.epoch;
    let host = held.host;
    Err(format!(
        "sessions of {epoch:016x} have {session_ns} ns in collector {host}, queries {stored_ns} ns"
    ))
}

/// Checks ended tasks. One that has moved may also run, or count as lost, where its agent was before.
fn check_tasks(life: &Life, rows: &Rows<'_>) -> Result<(), String> {
    for (cycle, fate) in &life.tasks {
        let key = life.task_key(*cycle);
        let found = rows.get(&*key).map_or(&[][..], Vec::as_slice);
        let ended: Vec<_> = found
            .iter()
            .filter(|row| row.task.outcome == Outcome::Ok)
            .collect();
        let is_sure = life.stays.len() < 2;
        let is_right = match fate {
            Fate::Stored { host } => ended.iter().all(|row| row.host == *host),
            Fate::Open => true,
        };
        let is_once = ended.len() <= 1 && (!is_sure || found.len() <= 1);
        if !is_right || !is_once {
            return Err(format!("task {key}: {found:?} for {fate:?}"));
        }
    }
    Ok(())
}

/// Checks what must be true after everything has healed, and all collectors are asked.
///
/// # Errors
/// With what is wrong.
pub(crate) fn check_end(all: &[HostContent], lives: &[Life]) -> Result<(), String> {
    let rows = rows_by_key(all);
    for life in lives {
        for session in all.iter().flat_map(|held| sessions(life, held)) {
            check_session_account(life, session)?;
        }
        check_report(life, all)?;
        let is_settled = is_settled(life)?;
        for cycle in 0..life.cycles.len() {
            let key = life.task_key(cycle);
            let found = rows.get(&*key).map_or(&[][..], Vec::as_slice);
            let is_stored = matches!(life.tasks.get(&cycle), Some(Fate::Stored { .. }));
            let ended = found
                .iter()
                .filter(|row| row.task.outcome == Outcome::Ok)
                .count();
            let is_right = (!is_stored || ended == 1) && (!is_settled || found.len() <= 1);
            if !is_right {
                return Err(format!(
                    "task {key}: {found:?} in the end, acknowledged: {is_stored}"
                ));
            }
        }
    }
    Ok(())
}

/// Checks that sessions that agents have left have no tasks any more.
///
/// # Errors
/// With a task that is still there.
pub(crate) fn check_left_stays(all: &[HostContent], lives: &[Life]) -> Result<(), String> {
    let mut newest = BTreeMap::new();
    for life in lives.iter().filter(|life| life.agent.is_some()) {
        if is_settled(life)? {
            newest.extend(life.stays.keys().map(|epoch| (*epoch, life.newest_stay())));
        }
    }
    for row in rows_by_key(all).values().flatten() {
        let is_open = matches!(row.task.outcome, Outcome::Running | Outcome::Lost);
        let newest = newest.get(&row.task.epoch);
        if is_open && newest.is_some_and(|newest| *newest != Some(row.task.epoch)) {
            return Err(format!("{row:?} of a stay that ended"));
        }
    }
    Ok(())
}

/// Whether each collector that the agent has left knows it. Not if the agent was killed, or gave stays up.
///
/// # Errors
/// If an agent believes it, and a collector does not know it.
fn is_settled(life: &Life) -> Result<bool, String> {
    let newest = life.newest_stay();
    let mut left = life.stays.iter().filter(|(epoch, stay)| {
        stay.begin.is_some() && Some(**epoch) != newest && !stay.is_settled
    });
    let Some((epoch, _)) = left.next() else {
        return Ok(true);
    };
    let agent = life.agent.as_ref();
    let report = agent.map(|agent| agent.report()).or(life.report);
    let has_too_many_bytes = life.has_small_outbox && report.is_some_and(|it| it.unacked_ns > 0);
    let has_given_up = has_too_many_bytes || life.unsettled_max >= UNSETTLED_MAX;
    let may_be = report.is_none() || has_given_up || life.unsettled_at_end > 0;
    if may_be {
        Ok(false)
    } else {
        Err(format!("nobody has settled {epoch:016x}"))
    }
}

fn check_session_account(life: &Life, session: &LifeContent) -> Result<(), String> {
    // A flush that was under way while another was rejected counts that one as stored; the next
    // flush corrects it, if the agent lives to send one, and does not ship elsewhere.
    let is_present = life.agent.is_some() && life.newest_stay() == Some(session.epoch);
    let may_be_behind = !is_present && life.stays[&session.epoch].was_refused;
    if session.unaccounted_ns != 0 && !may_be_behind {
        let LifeContent {
            epoch,
            unaccounted_ns,
            ..
        } = session;
        return Err(format!("{epoch:016x}: {unaccounted_ns} ns unaccounted for"));
    }
    Ok(())
}

/// Checks that accepted = stored + lost over all collectors. Time that an agent gave up, or could not
/// ship in time, may be stored or not.
fn check_report(life: &Life, all: &[HostContent]) -> Result<(), String> {
    let report = match &life.agent {
        Some(agent) => agent.report(),
        None => match life.report {
            Some(report) => report,
            None => return Ok(()),
        },
    };
    let stored = all
        .iter()
        .flat_map(|held| sessions(life, held))
        .map(|session| session.stored_ns);
    let stored_ns: u64 = stored.sum();
    let lost_ns = report.lost_rejected_ns + report.lost_by_collector_ns + report.lost_queue_ns;
    let sum_ns = report.stored_ns + report.unacked_ns + lost_ns;
    let is_right = report.accepted_ns == life.accepted_ns()
        && report.accepted_ns == sum_ns
        && report.stored_ns <= stored_ns
        && stored_ns <= report.stored_ns + report.unacked_ns;
    if is_right {
        Ok(())
    } else {
        Err(format!("{report:?}, but {stored_ns} ns are stored"))
    }
}
