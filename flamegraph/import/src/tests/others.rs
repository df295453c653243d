//! Content of formats that are not read is called by its name, and no text that looks a little like stacks is taken for
//! them.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use super::*;

fn rejected(content: &[u8]) -> String {
    import(content, &ImportOptions::default())
        .unwrap_err()
        .to_string()
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(content).unwrap();
    gzip.finish().unwrap()
}

fn check(content: &str, name: &str) {
    let error = rejected(content.as_bytes());
    let expected = format!("this is {name}, which is not read: ");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn texts_are_named() {
    let report = "\tSun Aug  6 14:52 2023 Time and Allocation Profiling Report  (Final)\n\n\t   app +RTS -P\n\n\
                  COST CENTRE  MODULE  SRC  %time %alloc\n\nmain  Main  app.hs:1  30.4 9\nparse  Main  app.hs:2  26 5\n";
    check(report, "a report of GHC");
    let metrics = "# HELP up Whether it is up.\n# TYPE up gauge\nup 1\nhttp_requests_total{code=\"200\"} 30\n";
    check(metrics, "metrics of Prometheus");
    check(
        &metrics[metrics.find("# TYPE").unwrap()..],
        "metrics of Prometheus",
    );
    check(
        "PeriodType: cpu nanoseconds\nPeriod: 1\nSamples:\ncpu/nanoseconds\n  5: 1 2\nLocations\n",
        "a text of `go tool pprof -raw`",
    );
    check(
        "Type: cpu\nShowing nodes accounting for 1s, 100% of 1s total\n",
        "a text of `go tool pprof`",
    );
    check("SIMPLEPERF\u{1}\0", "a report of simpleperf");
    check("*version\n3\nclock=dual\n", "a trace of Android's methods");
    check("\u{7f}ELF\u{2}\u{1}", "a program or a library");
    check(
        "CPU     ID                    FUNCTION:NAME\n  0  1  :tick\n\n  a`b\n  3\n",
        "the output of DTrace",
    );
    check(
        "\u{feff}Level,Function Name,Number of Calls\n",
        "an export of Visual Studio",
    );
    check(
        "Function Stack,CPU Time:Self,Module\nTotal,0.0,\n",
        "an export of VTune",
    );
}

#[test]
fn json_is_named_by_its_members() {
    for (file, name) in [
        (
            json!({ "label": "", "markers": [], "profile": {}, "systemHost": {} }),
            "a recording of Firefox's developer tools before version 98",
        ),
        (
            json!({ "version": 1, "recording": {}, "overview": {} }),
            "a timeline of Safari",
        ),
        (
            json!({ "version": 1.2, "mode": "wall", "interval": 1000, "samples": 5, "frames": {} }),
            "a profile of stackprof",
        ),
        (
            json!({ "version": 1, "flamebearer": { "names": [] } }),
            "a picture's data of Pyroscope",
        ),
        (
            json!({ "resourceProfiles": [], "dictionary": {} }),
            "a message of OpenTelemetry",
        ),
    ] {
        check(&file.to_string(), name);
    }
    let unknown = rejected(br#"{"name":"emberline","version":"1.0.0"}"#);
    assert!(unknown.starts_with("unknown format"), "{unknown}");
}

#[test]
fn our_exports_that_are_not_read_are_named() {
    let deep = vec!["f"; 1_000].join(";");
    let all = profile(&format!("load;{deep} cpu=3"));
    let nodes = flamegraph::json(&all);
    let answer = format!("{{\"worker_seconds\":1,\"sampled_ns\":3,\"profile\":{nodes}}}");
    for (file, name) in [
        (answer, "the JSON of `emberline profile`"),
        (
            flamegraph::nested_json(&all),
            "nested JSON of `emberline profile` or of Dask",
        ),
    ] {
        check(&file, name);
    }
}

#[test]
fn a_request_of_opentelemetry_is_not_a_damaged_pprof() {
    let mut request = flamegraph::OtlpRequest::new("test");
    let range = TimeRange::new(
        Timestamp::from_unix_ns(1_700_000_000_000_000_000),
        Timestamp::from_unix_ns(1_700_000_001_000_000_000),
    );
    let sent = profile("load;main cpu=3");
    request.add(
        [("service.name".to_owned(), "shop".to_owned())],
        &sent,
        range.unwrap(),
    );
    let error = rejected(&request.gzip());
    assert!(
        error.starts_with("this is a message of OpenTelemetry, which is not read: "),
        "{error}"
    );
}

/// Without a `;`, a text with lines that are no stacks may be anything.
#[test]
fn a_text_without_stacks_of_several_frames_is_of_no_format() {
    let text = "total 3\nname size\na.txt 5\nb.txt 7\n";
    let error = rejected(text.as_bytes());
    assert!(error.starts_with("unknown format"), "{error}");
    let options = ImportOptions {
        format: Some(ImportFormat::Collapsed),
        ..ImportOptions::default()
    };
    assert!(import(text.as_bytes(), &options).is_ok());
    assert_eq!(of("main 3\nidle 4\n").total_ns(), 70_000_000);
}

/// The first bytes of files that the tools wrote.
#[test]
fn files_of_other_tools_are_named() {
    let elf = |kind: [u8; 2]| [b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", &kind[..]].concat();
    let no_stacks = "it has no stacks";
    for (content, name, way_on) in [
        (&b""[..], "an empty file", "record again"),
        (b" \n\n", "an empty file", "record again"),
        (
            b"\xfb\x29\x03\xfa\x38/root/a.py\xe9\x01\0\0\0",
            "a profile of Python's cProfile",
            no_stacks,
        ),
        (
            b"         1056 function calls (1055 primitive calls) in 2.022 seconds\n\n   Ordered by: cumulative time\n\n   \
              ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n",
            "a text of Python's cProfile",
            no_stacks,
        ),
        (
            b"Timer unit: 1e-06 s\n\nTotal time: 1 s\nLine #      Hits         Time  Per Hit   % Time  Line Contents\n",
            "a report of Python's line_profiler",
            no_stacks,
        ),
        (
            b"{\n    \"alloc_samples\": 0,\n \"args\": [\"burn.py\"], \"elapsed_time_sec\": 2.1, \"files\": {}}",
            "a profile of Scalene",
            "py-spy",
        ),
        (
            b"\n  _     ._   __/__   _ _  _  _ _/_   Recorded: 17:48:52  Samples:  402\n /_//_/// /_ / //_//\n",
            "a text of pyinstrument",
            "pyinstrument -r speedscope",
        ),
        (
            b"# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npid: 9\ncmd:  /bin/true\npart: 1\n",
            "a profile of Callgrind",
            "perf record",
        ),
        (
            b"desc: I1 cache: 32768 B, 64 B, 8-way associative\ncmd: /bin/true\nevents: Ir \nfl=./a.c\n",
            "a profile of Cachegrind",
            "perf record",
        ),
        (
            b"desc: --massif-out-file=massif.out\ncmd: /bin/true\ntime_unit: i\n#-----------\nsnapshot=0\n",
            "a profile of Massif",
            "no time",
        ),
        (
            b"v 10400 3\nX /bin/true\nI 1000 5e298d\ns d /usr/bin/true\n",
            "a recording of heaptrack",
            "no time",
        ),
        (b"tr\xfdP\x01\x05\0\0", "a capture of Tracy", "perf record"),
        (b"tZst\0\0\0", "a capture of Tracy", "perf record"),
        (b"PERFILE2h\0\0\0\0\0\0\0", "a recording of perf", "perf script"),
        (
            b"[ perf script: Wrote 0.023 MB perf.data.cpu-clock.dump (194 samples) ]\n",
            "a message of `perf script --per-event-dump`",
            ".dump",
        ),
        (
            b"\n0x108@perf.data [0x50]: event: 69\n.\n. ... raw event: size 80 bytes\n",
            "the output of `perf script -D`",
            "without -D",
        ),
        (
            b"# started on Mon Nov 30 18:17:27 2026\n\n\n Performance counter stats for './burn 1':\n",
            "a report of `perf stat`",
            "perf record",
        ),
        (
            b"  10101010 cpu-clock: \n\tffffffff81409e30 __rcu_read_unlock\n\n",
            "the output of `perf script` without threads and times",
            "-F +tid,+time",
        ),
        (b"gmon\x01\0\0\0", "a profile of gprof", "perf record"),
        (b"Flat profile:\n\nEach sample counts as 0.01 seconds.\n", "a report of gprof", "perf record"),
        (b"go 1.22 trace\0\0\0\x01\x02", "a trace of Go", "go tool trace -pprof=sched"),
        (b"v8-version,11,3,244,8,-node.26,0\n", "a log of Node.js's --prof", "--cpu-prof"),
        (
            b"{\"code\":[],\"functions\":[],\"ticks\":[]}",
            "a log of Node.js's --prof",
            "--cpu-prof",
        ),
        (b"\x10\0\x04FxT\x16\0", "a trace of Fuchsia's format, as magic-trace writes it", "perf record"),
        (b"\x04\x08{\x0b:\x0cversion", "a dump of stackprof", "--stackcollapse"),
        (b"SQLite format 3\0\x10\0", "a database of SQLite", "export"),
        (&elf([4, 0]), "a core dump", "record a profile"),
        (&elf([0, 4]), "a core dump", "record a profile"),
        (&elf([3, 0]), "a program or a library", "record a profile"),
        (
            b"version: 1\ncreator: yappi\npid: 9\ncmd:  a.py\npart: 1\n\nevents: Ticks\n",
            "a profile in Callgrind's format",
            "no stacks",
        ),
        (
            b"\x80\x02cyappi\nYFuncStats\n",
            "a pickle of Python, as yappi writes it",
            "no stacks",
        ),
        (
            b"\x04\x22\x4d\x18\x40\x40\xc0",
            "a file that lz4 compressed, as memray does",
            "unpack",
        ),
        (
            b"version: 1\ncreator: xdebug 3.1.0 (PHP 8.1)\ncmd: a.php\n",
            "a profile of Xdebug",
            "no stacks",
        ),
    ] {
        let error = rejected(content);
        let expected = format!("this is {name}, which is not read: ");
        assert!(error.starts_with(&expected), "{name}: {error}");
        assert!(error.contains(way_on), "{way_on}: {error}");
        assert_eq!(rejected(&gzipped(content)), error, "compressed");
    }
}
