//! The audit log: who did what, as lines of the target `audit`.
//!
//! Texts from outside are bounded, and recorded as strings, which the log escapes. Lines that strangers
//! can cause are limited by kind; the next line has the number of those that were left out.

use std::fmt::Write as _;

use profiler_core::limits::bounded;
use profiler_core::{Settings, SettingsChange};

use base::limits::{AUDIT_NAMES_MAX, AUDIT_TEXT_BYTES_MAX};
use base::log_limit::{Admitted, LineLimit};
use shares::identity::Identity;
use store::rows::RunRow;

static SETTINGS: LineLimit = LineLimit::new();
static RUNS: LineLimit = LineLimit::new();
static THREAD_DUMPS: LineLimit = LineLimit::new();
static SQL: LineLimit = LineLimit::new();
static SYMBOLS: LineLimit = LineLimit::new();

/// A text from outside, as a line has it.
fn short(text: &str) -> String {
    bounded(text, AUDIT_TEXT_BYTES_MAX).into_owned()
}

/// The workers that a request names.
fn named(workers: &[String]) -> String {
    if workers.is_empty() {
        return "all".to_owned();
    }
    let names = workers
        .iter()
        .take(AUDIT_NAMES_MAX)
        .map(|worker| short(worker));
    let mut text = names.collect::<Vec<_>>().join(", ");
    let more = workers.len().saturating_sub(AUDIT_NAMES_MAX);
    if more > 0 {
        // Writing to a String does not fail.
        let _ = write!(text, " and {more} more");
    }
    text
}

/// Settings in words; those that are not known are left out.
fn in_words(change: SettingsChange) -> String {
    let SettingsChange {
        interval_ns,
        enabled,
        states,
    } = change;
    let mut words = Vec::new();
    words.extend(enabled.map(|enabled| if enabled { "on" } else { "off" }.to_owned()));
    words.extend(interval_ns.map(|interval_ns| format!("{} ms", interval_ns as f64 / 1e6)));
    words.extend(states.map(|states| format!("states {}", states.names().join("+"))));
    words.join(", ")
}

/// The settings of several agents in words.
fn all_in_words(settings: impl Iterator<Item = Settings>) -> String {
    let mut distinct: Vec<Settings> = Vec::new();
    for each in settings {
        if !distinct.contains(&each) {
            distinct.push(each);
        }
    }
    match distinct[..] {
        [] => "unknown".to_owned(),
        [
            Settings {
                interval_ns,
                enabled,
                states,
            },
        ] => in_words(SettingsChange {
            interval_ns: Some(interval_ns),
            enabled: Some(enabled),
            states: Some(states),
        }),
        _ => format!("{} different settings", distinct.len()),
    }
}

/// Settings of workers were changed. `before` are those of the connected agents.
pub(crate) fn settings_changed(
    who: &Identity,
    workers: &[String],
    before: impl Iterator<Item = Settings>,
    change: SettingsChange,
) {
    if let Some(Admitted { suppressed }) = SETTINGS.admit() {
        let who = &*short(&who.to_string());
        let workers = &*named(workers);
        let old = &*all_in_words(before);
        let new = &*in_words(change);
        tracing::info!(target: "audit", who, workers, old, new, suppressed, "settings changed");
    }
}

/// A run was started.
pub(crate) fn run_started(who: &Identity, run: &RunRow) {
    if let Some(Admitted { suppressed }) = RUNS.admit() {
        let who = &*short(&who.to_string());
        let name = &*short(&run.run.name);
        tracing::info!(target: "audit", who, name, id = run.id(), suppressed, "run started");
    }
}

/// A run was stopped.
pub(crate) fn run_stopped(who: &Identity, run: &RunRow) {
    if let Some(Admitted { suppressed }) = RUNS.admit() {
        let who = &*short(&who.to_string());
        let name = &*short(&run.run.name);
        tracing::info!(target: "audit", who, name, id = run.id(), suppressed, "run stopped");
    }
}

/// Thread dumps were requested from agents.
pub(crate) fn thread_dump(who: &Identity, workers: &[String]) {
    if let Some(Admitted { suppressed }) = THREAD_DUMPS.admit() {
        let who = &*short(&who.to_string());
        let workers = &*named(workers);
        tracing::info!(target: "audit", who, workers, suppressed, "thread dump");
    }
}

/// A query in SQL was asked.
pub(crate) fn sql(who: &Identity, query: &str) {
    if let Some(Admitted { suppressed }) = SQL.admit() {
        let who = &*short(&who.to_string());
        let query = &*short(query);
        tracing::info!(target: "audit", who, query, suppressed, "SQL");
    }
}

/// A symbol file was stored.
pub(crate) fn symbols_stored(who: &Identity, build_id: &str, bytes: u64) {
    if let Some(Admitted { suppressed }) = SYMBOLS.admit() {
        let who = &*short(&who.to_string());
        let build_id = &*short(build_id);
        tracing::info!(target: "audit", who, build_id, bytes, suppressed, "symbols stored");
    }
}

/// The symbols of a build are requested from agents.
pub(crate) fn symbols_requested(who: &Identity, build_id: &str) {
    if let Some(Admitted { suppressed }) = SYMBOLS.admit() {
        let who = &*short(&who.to_string());
        let build_id = &*short(build_id);
        tracing::info!(target: "audit", who, build_id, suppressed, "symbols requested from agents");
    }
}

/// A symbol file was made of what an agent sent.
pub(crate) fn symbols_fetched(worker: &str, build_id: &str) {
    if let Some(Admitted { suppressed }) = SYMBOLS.admit() {
        let worker = &*short(worker);
        let build_id = &*short(build_id);
        tracing::info!(target: "audit", worker, build_id, suppressed, "symbols fetched");
    }
}

/// Symbol files were removed.
pub(crate) fn symbols_removed(who: &Identity, files: usize) {
    if let Some(Admitted { suppressed }) = SYMBOLS.admit() {
        let who = &*short(&who.to_string());
        tracing::info!(target: "audit", who, files, suppressed, "unused symbols removed");
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::StateSet;

    use super::*;

    #[test]
    fn names_are_bounded_in_length_and_number() {
        let workers: Vec<String> = (0..AUDIT_NAMES_MAX + 3)
            .map(|_| "w".repeat(1_000))
            .collect();
        let text = named(&workers);
        assert!(text.ends_with(" and 3 more"), "{text}");
        assert!(text.len() <= (AUDIT_TEXT_BYTES_MAX + 2) * AUDIT_NAMES_MAX + 11);
        assert_eq!(named(&[]), "all");
    }

    #[test]
    fn settings_are_words_and_different_ones_are_counted() {
        let settings = Settings {
            interval_ns: 20_000_000,
            enabled: true,
            states: StateSet::ALL,
        };
        let text = all_in_words([settings, settings].into_iter());
        assert!(
            text.starts_with("on, 20 ms, states cpu+runnable+wait"),
            "{text}"
        );
        let other = Settings {
            enabled: false,
            ..settings
        };
        assert_eq!(
            all_in_words([settings, other].into_iter()),
            "2 different settings"
        );
        assert_eq!(all_in_words(std::iter::empty()), "unknown");
        let change = SettingsChange {
            enabled: Some(false),
            ..SettingsChange::default()
        };
        assert_eq!(in_words(change), "off");
    }
}
