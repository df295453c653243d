//! The collector's answers compared with the truth.

use std::collections::BTreeMap;

use collector::simulation::{Content, LifeContent};

use crate::worker::{Fate, Life};

/// Checks that every cycle and task is there once or not at all, that what was acknowledged is there, and
/// that each session's stored weight is that of its cycles.
///
/// # Errors
/// With what is wrong.
pub(crate) fn check(held: &Content, lives: &[Life]) -> Result<(), String> {
    if !held.damaged.is_empty() {
        return Err(format!("files are missing: {:?}", held.damaged));
    }
    let mut leaves = held.leaves.clone();
    let mut rows: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for (key, has_ended) in &held.tasks {
        rows.entry(key).or_default().push(*has_ended);
    }
    for life in lives {
        let mut stored_ns = 0;
        for (cycle, (weight_ns, fate)) in life.cycles.iter().enumerate() {
            let leaf = life.leaf(cycle);
            let found_ns = leaves.remove(&leaf).unwrap_or(0);
            stored_ns += found_ns;
            let is_right = found_ns == *weight_ns || found_ns == 0 && *fate == Fate::Open;
            if !is_right {
                return Err(format!("{leaf} has {found_ns} ns of {weight_ns} ns, {fate:?}"));
            }
        }
        let session = held.lives.iter().find(|session| session.epoch == life.epoch);
        let session_ns = session.map_or(0, |session| session.stored_ns);
        if session_ns != stored_ns {
            let epoch = life.epoch;
            return Err(format!(
                "session {epoch:016x} has {session_ns} ns, queries {stored_ns} ns"
            ));
        }
        check_tasks(life, &rows)?;
    }
    match leaves.first_key_value() {
        Some((leaf, weight_ns)) => Err(format!("{weight_ns} ns of {leaf}, which nobody sampled")),
        None => Ok(()),
    }
}

fn check_tasks(life: &Life, rows: &BTreeMap<&str, Vec<bool>>) -> Result<(), String> {
    for (cycle, fate) in &life.tasks {
        let key = life.task_key(*cycle);
        let found = rows.get(&*key).map_or(&[][..], Vec::as_slice);
        let is_right = match fate {
            Fate::Stored => found == [true],
            Fate::Open => found.len() <= 1,
        };
        if !is_right {
            return Err(format!("task {key}: {found:?} for {fate:?}"));
        }
    }
    Ok(())
}

/// Checks that accepted = stored + lost, after everything has healed.
///
/// # Errors
/// With what is wrong.
pub(crate) fn check_accounts(held: &Content, lives: &[Life]) -> Result<(), String> {
    for life in lives {
        let session = held.lives.iter().find(|session| session.epoch == life.epoch);
        let unaccounted_ns = session.map_or(0, |session| session.unaccounted_ns);
        // A flush that was under way while another was rejected counts that one as stored; the next
        // flush corrects it, if the agent lives to send one.
        let may_be_behind = life.agent.is_none() && life.was_refused;
        if unaccounted_ns != 0 && !may_be_behind {
            return Err(format!("{:016x}: {unaccounted_ns} ns unaccounted for", life.epoch));
        }
        if life.agent.is_some() {
            check_report(life, session)?;
        }
    }
    Ok(())
}

fn check_report(life: &Life, session: Option<&LifeContent>) -> Result<(), String> {
    let Some(agent) = &life.agent else { return Ok(()) };
    let report = agent.report();
    let lost_ns = report.lost_rejected_ns + report.lost_by_collector_ns + report.lost_queue_ns;
    let sum_ns = report.stored_ns + report.unacked_ns + lost_ns;
    let is_right = report.accepted_ns == life.accepted_ns()
        && report.accepted_ns == sum_ns
        && report.unacked_ns == 0
        && session.is_some_and(|session| session.stored_ns == report.stored_ns);
    if is_right { Ok(()) } else { Err(format!("{report:?} for {session:?}")) }
}
