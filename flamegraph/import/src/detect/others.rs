//! Formats that are known and not read.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::TEXT_BYTES;

/// Names of members that are compared.
const MEMBERS_MAX: usize = 64;

/// A format that is not read.
pub(super) struct Other {
    mark: Mark,
    pub(super) name: &'static str,
    pub(super) instead: &'static str,
}

/// How the content of a format is recognized.
enum Mark {
    /// Its first bytes.
    Magic(&'static [u8]),
    /// Its first bytes, and others further on.
    MagicAt(&'static [u8], usize, &'static [u8]),
    /// The first text that is not blank.
    Start(&'static str),
    /// Its first text, and another one.
    StartWith(&'static str, &'static str),
    /// Members of its JSON object.
    Members(&'static [&'static str]),
}

impl Mark {
    fn is_in(&self, content: &[u8], text: &str) -> bool {
        match self {
            Mark::Magic(bytes) => content.starts_with(bytes),
            Mark::MagicAt(bytes, at, others) => {
                content.starts_with(bytes)
                    && content
                        .get(*at..)
                        .is_some_and(|rest| rest.starts_with(others))
            }
            Mark::Start(start) => text.starts_with(start),
            Mark::StartWith(start, other) => text.starts_with(start) && text.contains(other),
            Mark::Members(_) => false,
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

pub(super) const PUSH: &str = "send it to the collector's path /v1development/profiles";
const ITSELF: &str = "import its profile itself";
const EXPORT_PPROF: &str = "run `emberline profile -o p.pb.gz` for the same time and import that";
const NO_PROFILE: &str = "they are no profile";
const PROFILER_OF_FIREFOX: &str = "open it in profiler.firefox.com and import what that saves";

const CPU_PROF: &str = "run `node --cpu-prof` and import the .cpuprofile";
const NO_STACKS: &str = "it has no stacks; record with py-spy or austin";
const NO_STACKS_OF_PERF: &str =
    "it has no stacks; record with `perf record -g` and import the output of `perf script`";
const PYINSTRUMENT: &str = "run `pyinstrument -r speedscope` and import its output";
const CORE_DUMP: &str = "a core dump";
const ONE_MOMENT: &str = "it is one moment of a process; record a profile of the process";
const INSTRUCTIONS: &str = "it counts instructions, which are no time; record with `perf record -g`, or open it in KCachegrind";
const PICKLE: &str = "a pickle of Python, as yappi writes it";
const TRACY: &str = "a capture of Tracy";
const PYTHON_PROFILE: &str = "a profile of Python's cProfile";

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
        Mark::Magic(b"PERFFILE"),
        "a recording of perf before Linux 3.9",
        "run its `perf script` and import the output",
    ),
    other_format(
        Mark::Magic(b"\x04\x22\x4d\x18"),
        "a file that lz4 compressed, as memray does",
        UNPACKED,
    ),
    other_format(
        Mark::Magic(b"SIMPLEPERF"),
        "a report of simpleperf",
        "run simpleperf's `report_sample.py` and import its output",
    ),
    other_format(
        Mark::Magic(b"*version"),
        "a trace of Android's methods",
        PROFILER_OF_FIREFOX,
    ),
    other_format(
        Mark::Magic(b"SLOW"),
        "a trace of Android's methods",
        PROFILER_OF_FIREFOX,
    ),
    other_format(
        Mark::MagicAt(b"\x7fELF", 16, &[4, 0]),
        CORE_DUMP,
        ONE_MOMENT,
    ),
    other_format(
        Mark::MagicAt(b"\x7fELF", 16, &[0, 4]),
        CORE_DUMP,
        ONE_MOMENT,
    ),
    other_format(
        Mark::Magic(b"\x7fELF"),
        "a program or a library",
        "record a profile of it",
    ),
    other_format(
        Mark::Magic(b"PAR1"),
        "a Parquet file",
        "import the profile that it was made from",
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
        INSTRUCTIONS,
    ),
    other_format(
        Mark::StartWith("version:", "creator: callgrind"),
        "a profile of Callgrind",
        INSTRUCTIONS,
    ),
    other_format(
        Mark::Start("[ perf script: Wrote "),
        "a message of `perf script --per-event-dump`",
        "import the .dump files that it names",
    ),
    other_format(
        Mark::StartWith("0x", "... raw event: size "),
        "the output of `perf script -D`",
        "run `perf script` without -D and import its output",
    ),
    other_format(
        Mark::StartWith("", "Performance counter stats for "),
        "a report of `perf stat`",
        NO_STACKS_OF_PERF,
    ),
    other_format(
        Mark::StartWith("#", "\n# Event count (approx.): "),
        "a report of perf",
        "run `perf script` and import its output",
    ),
    other_format(
        Mark::StartWith("File: ", "Showing nodes accounting for"),
        "a text of `go tool pprof`",
        ITSELF,
    ),
    other_format(
        Mark::StartWith("Type: ", "Showing nodes accounting for"),
        "a text of `go tool pprof`",
        ITSELF,
    ),
    other_format(
        Mark::Start("PeriodType: "),
        "a text of `go tool pprof -raw`",
        ITSELF,
    ),
    other_format(
        Mark::StartWith("", "Time and Allocation Profiling Report"),
        "a report of GHC",
        "run inferno-collapse-ghcprof, or open it in speedscope, and import the output",
    ),
    other_format(Mark::Start("# HELP "), "metrics of Prometheus", NO_PROFILE),
    other_format(Mark::Start("# TYPE "), "metrics of Prometheus", NO_PROFILE),
    other_format(
        Mark::StartWith("CPU ", "FUNCTION:NAME"),
        "the output of DTrace",
        "run stackcollapse.pl and import its output",
    ),
    other_format(
        Mark::Start("Level,Function Name,"),
        "an export of Visual Studio",
        "run inferno-collapse-vsprof and import its output",
    ),
    other_format(
        Mark::Start("Function Stack,"),
        "an export of VTune",
        "run inferno-collapse-vtune and import its output",
    ),
    other_format(
        Mark::StartWith("Analysis of sampling ", "Call graph:"),
        "a report of macOS's sample",
        "run inferno-collapse-sample and import its output",
    ),
    other_format(Mark::Magic(b"{\xa9\x03"), PYTHON_PROFILE, NO_STACKS),
    other_format(Mark::Magic(b"{\x29\x03"), PYTHON_PROFILE, NO_STACKS),
    other_format(Mark::Magic(b"\xfb\xa9\x03"), PYTHON_PROFILE, NO_STACKS),
    other_format(Mark::Magic(b"\xfb\x29\x03"), PYTHON_PROFILE, NO_STACKS),
    other_format(Mark::Magic(b"{(\x03\0\0\0"), PYTHON_PROFILE, NO_STACKS),
    other_format(
        Mark::StartWith("", "ncalls  tottime  percall  cumtime  percall"),
        "a text of Python's cProfile",
        NO_STACKS,
    ),
    other_format(
        Mark::StartWith("Timer unit:", "% Time"),
        "a report of Python's line_profiler",
        NO_STACKS,
    ),
    other_format(
        Mark::Members(&["alloc_samples", "elapsed_time_sec", "files"]),
        "a profile of Scalene",
        "its times are of lines; record with py-spy or austin",
    ),
    other_format(
        Mark::StartWith("_     ._   __/__", "Recorded:"),
        "a text of pyinstrument",
        PYINSTRUMENT,
    ),
    other_format(Mark::Magic(b"memray\0"), "a recording of memray", NO_TIME),
    other_format(
        Mark::StartWith("v 1", "\nX "),
        "a recording of heaptrack",
        NO_TIME,
    ),
    other_format(
        Mark::StartWith("desc: ", "\ntime_unit: "),
        "a profile of Massif",
        NO_TIME,
    ),
    other_format(
        Mark::StartWith("desc: ", "\nevents: "),
        "a profile of Cachegrind",
        INSTRUCTIONS,
    ),
    other_format(Mark::Magic(b"tr\xfdP"), TRACY, NO_STACKS_OF_PERF),
    other_format(Mark::Magic(b"tlZ\x04"), TRACY, NO_STACKS_OF_PERF),
    other_format(Mark::Magic(b"tZst"), TRACY, NO_STACKS_OF_PERF),
    other_format(
        Mark::Magic(b"gmon\x01\0\0\0"),
        "a profile of gprof",
        NO_STACKS_OF_PERF,
    ),
    other_format(
        Mark::Start("Flat profile:"),
        "a report of gprof",
        NO_STACKS_OF_PERF,
    ),
    other_format(
        Mark::StartWith("go 1.", " trace\0"),
        "a trace of Go",
        "import a profile of the CPU, or the output of `go tool trace -pprof=sched`",
    ),
    other_format(
        Mark::Start("v8-version,"),
        "a log of Node.js's --prof",
        CPU_PROF,
    ),
    other_format(
        Mark::Start("Statistical profiling result from "),
        "a report of Node.js's --prof",
        CPU_PROF,
    ),
    other_format(
        Mark::Members(&["code", "functions", "ticks"]),
        "a log of Node.js's --prof",
        CPU_PROF,
    ),
    other_format(
        Mark::Magic(b"\x10\0\x04FxT\x16\0"),
        "a trace of Fuchsia's format, as magic-trace writes it",
        "record with `perf record -g` and import the output of `perf script`",
    ),
    other_format(
        Mark::Magic(b"rbspy02\n"),
        "a recording of rbspy",
        "run `rbspy report -f collapsed` and import its output",
    ),
    other_format(
        Mark::Magic(b"\x04\x08{"),
        "a dump of stackprof",
        "run `stackprof --stackcollapse` and import its output",
    ),
    other_format(
        Mark::Magic(b"SQLite format 3\0"),
        "a database of SQLite",
        "export a profile from it with the program that made it",
    ),
    other_format(
        Mark::StartWith("version:", "creator: xdebug"),
        "a profile of Xdebug",
        "it has no stacks, only callers; record with phpspy or Excimer",
    ),
    other_format(
        Mark::StartWith("version:", "\nevents:"),
        "a profile in Callgrind's format",
        "it has no stacks, only callers; record with a profiler that samples stacks",
    ),
    other_format(Mark::Magic(b"\x80\x02c"), PICKLE, NO_STACKS),
    other_format(Mark::Magic(b"\x80\x03c"), PICKLE, NO_STACKS),
    other_format(Mark::Magic(b"\x80\x04\x95"), PICKLE, NO_STACKS),
    other_format(Mark::Magic(b"\x80\x05\x95"), PICKLE, NO_STACKS),
    other_format(
        Mark::StartWith("{", "\"root_frame\""),
        "a profile of pyinstrument",
        PYINSTRUMENT,
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
        Mark::Members(&["profile", "systemHost"]),
        "a recording of Firefox's developer tools before version 98",
        "open it in speedscope and import what that exports",
    ),
    other_format(
        Mark::Members(&["recording", "overview"]),
        "a timeline of Safari",
        "open it in speedscope and import what that exports",
    ),
    other_format(
        Mark::Members(&["mode", "samples", "frames"]),
        "a profile of stackprof",
        "run `stackprof --stackcollapse` and import its output",
    ),
    other_format(
        Mark::Members(&["flamebearer"]),
        "a picture's data of Pyroscope",
        "export the profile as pprof",
    ),
    other_format(
        Mark::Members(&["worker_seconds", "sampled_ns", "profile"]),
        "the JSON of `emberline profile`",
        EXPORT_PPROF,
    ),
    other_format(
        Mark::Members(&["name", "count", "identifier", "description", "children"]),
        "nested JSON of `emberline profile` or of Dask",
        EXPORT_PPROF,
    ),
    other_format(
        Mark::Members(&["resourceProfiles"]),
        "a message of OpenTelemetry",
        PUSH,
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

/// The format of this content, by its start.
pub(super) fn named(content: &[u8]) -> Option<&'static Other> {
    let start = String::from_utf8_lossy(&content[..content.len().min(TEXT_BYTES)]);
    let text = start.trim_start();
    OTHERS.iter().find(|other| other.mark.is_in(content, text))
}

/// The format of this JSON object, by its members.
pub(super) fn named_by_members(content: &[u8]) -> Option<&'static Other> {
    let MemberNames(names) = serde_json::from_slice(content).ok()?;
    OTHERS.iter().find(|other| match other.mark {
        Mark::Members(members) => members.iter().all(|name| names.iter().any(|n| n == name)),
        _ => false,
    })
}

/// The names of an object's first members.
struct MemberNames<'a>(Vec<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for MemberNames<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MemberNames<'a>, D::Error> {
        deserializer.deserialize_map(MemberNamesVisitor)
    }
}

struct MemberNamesVisitor;

impl<'de> Visitor<'de> for MemberNamesVisitor {
    type Value = MemberNames<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MemberNames<'de>, A::Error> {
        let mut names = Vec::new();
        while let Some((name, IgnoredAny)) = map.next_entry::<Cow<'de, str>, IgnoredAny>()? {
            if names.len() < MEMBERS_MAX {
                names.push(name);
            }
        }
        Ok(MemberNames(names))
    }
}
