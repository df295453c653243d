//! Banned identifiers: private metaphors and vague words in place of the field's standard terms.

use super::finding::Finding;
use super::tokens::Token;

pub(super) const NAMES: &str = "names";

/// Identifiers, with what to say instead. Checked in Rust, TypeScript, JavaScript and proto code.
const BANNED: &[(&str, &str)] = &[
    ("Asker", "AgentControl"),
    ("Beside", "the content: Unsealed"),
    ("Counting", "SumTable"),
    ("Departure", "DisconnectReason"),
    ("Doing", "TaskContext"),
    ("Effort", "Compression"),
    ("Folder", "Symbolizer, or Directory"),
    ("Gathered", "the content: SealBatch"),
    ("Given", "the content"),
    ("Greeting", "AgentInfo"),
    ("Happening", "EventKind"),
    ("Held", "the content: OutboxRefs"),
    ("Intake", "IngestStatus"),
    ("Kept", "the content: Retained"),
    ("Look", "ThreadProbe"),
    ("Orders", "ControlStream"),
    ("Parcel", "Batch"),
    ("Place", "Attribution"),
    ("RawStacks", "ThreadDump"),
    ("RecordBook", "Telemetry"),
    ("Said", "FlushDeltaCodec"),
    ("Seen", "LastObservation"),
    ("Spread", "Percentiles"),
    ("StacksNow", "ThreadDump"),
    ("Standstill", "IngestBlocked"),
    ("Taken", "the content: DrainedRow"),
    ("Tally", "LossAccount"),
    ("Teller", "Telemetry"),
    ("Told", "Telemetry"),
    ("Trouble", "LogHealth"),
    ("Way", "UnwindMethod"),
    ("Wish", "DesiredSettings"),
    ("Wishes", "DesiredSettings"),
    ("erred", "failed"),
    ("forgive", "reset"),
    ("is_met_by", "is_applied_by"),
    ("left_out", "omitted"),
    ("lost_forgotten", "lost_by_collector"),
    ("lost_forgotten_ns", "lost_by_collector_ns"),
    ("lost_records", "lost_telemetry"),
    ("seen_ago", "age"),
    ("seen_ago_ns", "age_ns"),
    ("standstill", "blocked"),
    ("there_ns", "blocked_ns"),
    ("thinned", "aggregated"),
    ("thinned_tasks", "aggregated_tasks"),
    ("ticks_saved", "ticks_throttled"),
    ("twins", "same_row_tiers"),
    ("wishes", "desired_settings"),
];

/// Findings in Rust.
pub(super) fn check_tokens(path: &str, tokens: &[Token]) -> Vec<Finding> {
    tokens
        .iter()
        .filter_map(|token| check_word(path, token.line, &token.text))
        .collect()
}

/// Findings in TypeScript, JavaScript and proto, outside comments that fill their line.
pub(super) fn check_text(path: &str, text: &str) -> Vec<Finding> {
    let is_comment =
        |line: &str| line.starts_with("//") || line.starts_with('*') || line.starts_with("/*");
    let lines = text
        .lines()
        .map(str::trim)
        .zip(1..)
        .filter(|(line, _)| !is_comment(line));
    lines
        .flat_map(|(line, number)| {
            let code = line.split("// ").next().unwrap_or(line);
            let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            words.filter_map(move |word| check_word(path, number, word))
        })
        .collect()
}

fn check_word(path: &str, line: usize, word: &str) -> Option<Finding> {
    let (name, instead) = BANNED.iter().find(|(name, _)| *name == word)?;
    let text = format!("`{name}` is not a standard term; use {instead}");
    Some(Finding {
        rule: NAMES,
        path: path.into(),
        line,
        text,
    })
}
