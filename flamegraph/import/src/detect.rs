//! The format of a file, by its content.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::ImportError;
use super::model::ImportFormat;
use super::{collapsed, perf};

/// Bytes at the start of a text that decide.
const TEXT_BYTES: usize = 64 << 10;

/// The format of this content; `None` if it is none of them.
pub(super) fn format(content: &[u8]) -> Option<ImportFormat> {
    if jfr::is_recording(content) {
        return Some(ImportFormat::Jfr);
    }
    let start = content.iter().find(|byte| !byte.is_ascii_whitespace())?;
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
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let first = lines.next().unwrap_or_default();
    let next = lines.next().unwrap_or_default();
    if perf::is_header(first) || perf::is_record(first) || perf::is_header_without_time(first, next)
    {
        return Some(ImportFormat::Perf);
    }
    collapsed::is_likely(text.as_bytes()).then_some(ImportFormat::Collapsed)
}

/// The error for content of a known format that is not read, or of none.
pub(super) fn other(content: &[u8]) -> ImportError {
    match named(content) {
        Some(Other { name, instead, .. }) => ImportError::OtherFormat { name, instead },
        None => ImportError::UnknownFormat,
    }
}

/// A format that is not read.
struct Other {
    mark: Mark,
    name: &'static str,
    instead: &'static str,
}

/// How the content of a format is recognized.
enum Mark {
    /// Its first bytes.
    Magic(&'static [u8]),
    /// The first text that is not blank.
    Start(&'static str),
    /// Its first text, and another one.
    StartWith(&'static str, &'static str),
}

impl Mark {
    fn is_in(&self, content: &[u8], text: &str) -> bool {
        match self {
            Mark::Magic(bytes) => content.starts_with(bytes),
            Mark::Start(start) => text.starts_with(start),
            Mark::StartWith(start, other) => text.starts_with(start) && text.contains(other),
        }
    }
}

const fn other_format(mark: Mark, name: &'static str, instead: &'static str) -> Other {
    Other {
        mark,
        name,
        instead,
    }
}

const PPROF_OF_IT: &str = "run `go tool pprof -proto` with its program and import the output";
const UNPACKED: &str = "unpack it and import the file in it";
const NO_TIME: &str = "it has memory and no time; only profiles of time are imported";

const NO_STACKS: &str = "it has no stacks; record with py-spy or austin";

/// The formats that are known and not read.
const OTHERS: &[Other] = &[
    other_format(Mark::Magic(b"PK\x03\x04"), "a zip file", UNPACKED),
    other_format(
        Mark::Magic(b"\x28\xb5\x2f\xfd"),
        "a file that zstd compressed",
        UNPACKED,
    ),
    other_format(
        Mark::Magic(b"\xfd7zXZ\0"),
        "a file that xz compressed",
        UNPACKED,
    ),
    other_format(
        Mark::Magic(b"BZh"),
        "a file that bzip2 compressed",
        UNPACKED,
    ),
    other_format(
        Mark::Magic(b"PERFILE2"),
        "a recording of perf",
        "run `perf script` and import its output",
    ),
    other_format(
        Mark::Magic(b"2ELIFREP"),
        "a recording of perf of a machine with another byte order",
        "run `perf script` there and import its output",
    ),
    other_format(Mark::Magic(&GPERFTOOLS), GPERFTOOLS_NAME, PPROF_OF_IT),
    other_format(Mark::Magic(&GPERFTOOLS_32), GPERFTOOLS_NAME, PPROF_OF_IT),
    other_format(Mark::Magic(&GPERFTOOLS_BIG), GPERFTOOLS_NAME, PPROF_OF_IT),
    other_format(
        Mark::Magic(&GPERFTOOLS_BIG_32),
        GPERFTOOLS_NAME,
        PPROF_OF_IT,
    ),
    other_format(Mark::Start("--- symbol"), GPERFTOOLS_NAME, PPROF_OF_IT),
    other_format(Mark::Start("--- profile"), GPERFTOOLS_NAME, PPROF_OF_IT),
    other_format(
        Mark::Start("--- contention"),
        "a text of pprof",
        PPROF_OF_IT,
    ),
    other_format(Mark::Start("--- mutex:"), "a text of pprof", PPROF_OF_IT),
    other_format(Mark::Start("--- heap"), "a text of pprof", NO_TIME),
    other_format(Mark::Start("heap profile:"), "a text of pprof", NO_TIME),
    other_format(
        Mark::Start("goroutine profile:"),
        "a text of Go's goroutines",
        "they have no time; import a profile of the CPU",
    ),
    other_format(
        Mark::Magic(b"MOJ"),
        "a binary recording of austin (MOJO)",
        "run `mojo2austin` and import its output",
    ),
    other_format(
        Mark::Magic(b"Nettrace"),
        "a trace of .NET (nettrace)",
        "run `dotnet-trace convert --format Speedscope` and import its output",
    ),
    other_format(
        Mark::StartWith("<?xml", "<trace-query-result"),
        "an export of Instruments",
        "open the trace in the Firefox Profiler or in speedscope, and import what that saves",
    ),
    other_format(
        Mark::StartWith("Running Time", "Symbol Name"),
        "a deep copy of Instruments",
        "paste it into speedscope and import what that exports",
    ),
    other_format(
        Mark::StartWith("Weight", "Symbol Name"),
        "a deep copy of Instruments",
        "paste it into speedscope and import what that exports",
    ),
    other_format(
        Mark::Start("# callgrind format"),
        "a profile of Callgrind",
        "it counts instructions; open it in speedscope or KCachegrind",
    ),
    other_format(
        Mark::StartWith("version:", "creator: callgrind"),
        "a profile of Callgrind",
        "it counts instructions; open it in speedscope or KCachegrind",
    ),
    other_format(
        Mark::StartWith("#", "\n# Event count (approx.): "),
        "a report of perf",
        "run `perf script` and import its output",
    ),
    other_format(
        Mark::StartWith("File: ", "Showing nodes accounting for"),
        "a text of `go tool pprof`",
        "import its profile itself",
    ),
    other_format(
        Mark::Magic(b"{\xa9\x03"),
        "a profile of Python's cProfile",
        NO_STACKS,
    ),
    other_format(
        Mark::Magic(b"{\x29\x03"),
        "a profile of Python's cProfile",
        NO_STACKS,
    ),
    other_format(
        Mark::StartWith("{", "\"root_frame\""),
        "a profile of pyinstrument",
        "run `pyinstrument -r speedscope` and import its output",
    ),
    other_format(
        Mark::StartWith("Attaching ", "@"),
        "the output of bpftrace",
        "run stackcollapse-bpftrace.pl and import its output",
    ),
    other_format(
        Mark::Start("@["),
        "the output of bpftrace",
        "run stackcollapse-bpftrace.pl and import its output",
    ),
    other_format(
        Mark::StartWith("<?xml", "<svg"),
        "a picture",
        "import the profile that it was made from",
    ),
    other_format(
        Mark::StartWith("{", "\"dhatFileVersion\""),
        "a profile of DHAT",
        NO_TIME,
    ),
    other_format(
        Mark::StartWith("{", "\"snapshot\""),
        "a snapshot of the heap of V8",
        NO_TIME,
    ),
    other_format(
        Mark::StartWith("{", "\"selfSize\""),
        "a profile of the heap of V8",
        NO_TIME,
    ),
    other_format(
        Mark::StartWith("{", "\"linux-perf-json-version\""),
        "a recording of perf as JSON",
        "run `perf script` and import its output",
    ),
];

const GPERFTOOLS_NAME: &str = "a profile of gperftools";

/// The first words of a CPU profile of gperftools: 0, the number of words that follow, and the version 0.
const GPERFTOOLS: [u8; 24] = {
    let mut words = [0; 24];
    words[8] = 3;
    words
};
const GPERFTOOLS_BIG: [u8; 24] = {
    let mut words = [0; 24];
    words[15] = 3;
    words
};
const GPERFTOOLS_32: [u8; 12] = [0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
const GPERFTOOLS_BIG_32: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0];

fn named(content: &[u8]) -> Option<&'static Other> {
    let start = String::from_utf8_lossy(&content[..content.len().min(TEXT_BYTES)]);
    let text = start.trim_start();
    OTHERS.iter().find(|other| other.mark.is_in(content, text))
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
