//! The format of a file, by its content.

mod others;

use serde::Deserialize;
use serde::de::IgnoredAny;

use self::others::{Other, PUSH, named};

use super::error::ImportError;
use super::model::ImportFormat;
use super::otlp::{OtlpEncoding, otlp_profiles};
use super::{collapsed, perf};

/// Bytes at the start of a text that decide.
const TEXT_BYTES: usize = 64 << 10;

/// The format of this content; `None` if it is none of them.
pub(super) fn format(content: &[u8]) -> Option<ImportFormat> {
    if jfr::is_recording(content) {
        return Some(ImportFormat::Jfr);
    }
    let start = content.iter().find(|byte| !byte.is_ascii_whitespace())?;
    // Names in it may begin like any other format.
    if collapsed::is_export(whole_lines(content)) {
        return Some(ImportFormat::Collapsed);
    }
    let text = String::from_utf8_lossy(&content[..content.len().min(TEXT_BYTES)]);
    if *start == b'{' {
        return json_format(content);
    }
    if *start == b'[' && text.contains("\"ph\"") {
        return Some(ImportFormat::Chrome);
    }
    if named(content).is_some() {
        return None;
    }
    if is_pprof(content) {
        return Some(ImportFormat::Pprof);
    }
    let mut lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !perf::is_comment(line));
    let first = lines.next().unwrap_or_default();
    let next = lines.next().unwrap_or_default();
    if perf::is_header(first) || perf::is_record(first) || perf::is_header_without_time(first, next)
    {
        return Some(ImportFormat::Perf);
    }
    collapsed::is_likely(text.as_bytes()).then_some(ImportFormat::Collapsed)
}

/// The start of a text, without a line that is cut.
fn whole_lines(content: &[u8]) -> &[u8] {
    if content.len() <= TEXT_BYTES {
        return content;
    }
    let start = &content[..TEXT_BYTES];
    let end = start.iter().rposition(|byte| *byte == b'\n');
    &start[..end.unwrap_or(0)]
}

/// The error for content of a known format that is not read, or of none.
pub(super) fn other(content: &[u8]) -> ImportError {
    if content.trim_ascii().is_empty() {
        return ImportError::OtherFormat {
            name: "an empty file",
            instead: "record again, and end the profiler before the import",
        };
    }
    let text = String::from_utf8_lossy(&content[..content.len().min(TEXT_BYTES)]);
    let mut lines = text.lines().filter(|line| !perf::is_comment(line));
    let [first, next] = [lines.next(), lines.next()].map(Option::unwrap_or_default);
    if perf::is_header_without_thread(first, next) {
        return ImportError::OtherFormat {
            name: "the output of `perf script` without threads and times",
            instead: "run `perf script -F +tid,+time` and import its output",
        };
    }
    match named(content).or_else(|| others::named_by_members(content)) {
        Some(Other { name, instead, .. }) => ImportError::OtherFormat { name, instead },
        None => ImportError::UnknownFormat,
    }
}

/// The error for a message that is not one of pprof.
pub(super) fn other_message(content: &[u8], error: ImportError) -> ImportError {
    let is_invalid = matches!(error, ImportError::Invalid { .. });
    let is_request = is_invalid
        && otlp_profiles(content, OtlpEncoding::Protobuf)
            .is_ok_and(|profiles| !profiles.is_empty());
    if is_request {
        ImportError::OtherFormat {
            name: "a message of OpenTelemetry",
            instead: PUSH,
        }
    } else {
        error
    }
}

/// Whether it begins like a message of pprof: with a small field that has a length, of a type of sample or
/// of any other table, and no text has such a byte after a line feed.
fn is_pprof(content: &[u8]) -> bool {
    let [tag, length, rest @ ..] = content else {
        return false;
    };
    let is_field = tag & 0b111 == 2 && (1..=14).contains(&(tag >> 3));
    let is_number = tag & 0b111 == 0 && (7..=14).contains(&(tag >> 3));
    let is_binary = content[..content.len().min(TEXT_BYTES)]
        .iter()
        .any(|byte| *byte < 0x20 && !matches!(byte, b'\n' | b'\r' | b'\t' | 0x1b));
    is_number && is_binary
        || is_field && is_binary && rest.len() >= usize::from(length & 0x7f).min(1)
}

/// The members that tell the JSON formats apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    shared: Option<IgnoredAny>,
    profiles: Option<IgnoredAny>,
    meta: Option<IgnoredAny>,
    threads: Option<IgnoredAny>,
    nodes: Option<IgnoredAny>,
    head: Option<IgnoredAny>,
    start_time: Option<IgnoredAny>,
    trace_events: Option<IgnoredAny>,
}

fn json_format(content: &[u8]) -> Option<ImportFormat> {
    let Ok(members) = serde_json::from_slice::<Members>(content) else {
        return cut_json_format(content);
    };
    let Members {
        shared,
        profiles,
        meta,
        threads,
        nodes,
        head,
        start_time,
        trace_events,
    } = members;
    if shared.is_some() && profiles.is_some() {
        Some(ImportFormat::Speedscope)
    } else if meta.is_some() && threads.is_some() {
        Some(ImportFormat::Firefox)
    } else if (nodes.is_some() || head.is_some()) && start_time.is_some() || trace_events.is_some()
    {
        Some(ImportFormat::Chrome)
    } else {
        None
    }
}

/// The format of JSON that cannot be parsed, so that the error says what is wrong with it.
fn cut_json_format(content: &[u8]) -> Option<ImportFormat> {
    let start = String::from_utf8_lossy(&content[..content.len().min(TEXT_BYTES)]);
    let has = |name: &str| start.contains(&format!("\"{name}\""));
    if has("profiles") || has("shared") {
        Some(ImportFormat::Speedscope)
    } else if has("preprocessedProfileVersion") || has("threads") {
        Some(ImportFormat::Firefox)
    } else if has("callFrame") || has("traceEvents") {
        Some(ImportFormat::Chrome)
    } else {
        None
    }
}
