//! Content of formats that are not read is called by its name, and no text that looks a little like stacks is taken for
//! them.

use serde_json::json;

use super::*;

fn rejected(content: &[u8]) -> String {
    import(content, &ImportOptions::default())
        .unwrap_err()
        .to_string()
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
