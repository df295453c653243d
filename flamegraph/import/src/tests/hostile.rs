//! Files that are truncated, refer to what does not exist, contain cycles, or are made to take memory.

use flamegraph::messages::pprof as proto;
use prost::Message as _;

use super::*;

fn rejected(format: ImportFormat, file: &[u8]) -> String {
    let options = ImportOptions {
        format: Some(format),
        ..ImportOptions::default()
    };
    import(file, &options).unwrap_err().to_string()
}

fn check(format: ImportFormat, file: &str, expected: &str) {
    let error = rejected(format, file.as_bytes());
    assert!(error.contains(expected), "{error}\ninstead of: {expected}");
}

#[test]
fn every_prefix_of_an_export_is_rejected_or_has_a_part_of_its_time() {
    let all =
        profile("load;main:7;read cpu=20000000\nload;main:7;read disk=30000000\nu;v cpu=1000");
    for (format, file) in exports(&all) {
        let options = ImportOptions {
            format: Some(format),
            ..ImportOptions::default()
        };
        for end in 0..file.len() {
            if let Ok(imported) = import(&file[..end], &options) {
                assert!(
                    format == ImportFormat::Collapsed,
                    "{format} cut at {end} of {}",
                    file.len()
                );
                assert!(imported.total_ns() > 0);
            }
        }
    }
}

#[test]
fn broken_text_names_its_line() {
    use ImportFormat::{Collapsed, Perf};
    check(
        Collapsed,
        "a;b 1\na;c\n",
        "line 2 is not `frame;frame number`: \"a;c\"",
    );
    check(Collapsed, "a;b -1\n", "line 1 is not");
    for number in ["1e3", "+1", "1,000", ".5", "18446744073709551616"] {
        let file = format!("a;b 1\na;c {number}\n");
        check(Collapsed, &file, "line 2 is not");
    }
    check(Collapsed, "a\nb\nc 1\n", "line 1 is not");
    check(
        Collapsed,
        "a 18446744073709551615\nb 1\n",
        "exceeds 64 bits",
    );
    check(
        Collapsed,
        "# nothing\n\n",
        "the collapsed profile has no samples",
    );
    check(
        Perf,
        "main 1 1.0: cycles:\n\t1f f (m)\nwhat\n",
        "line 3 is neither the header of a sample nor a frame",
    );
    check(
        Perf,
        "a 1 1.0: cycles:\n\na 1 900000.0: cycles:\n\n",
        "spans 899999 s; at most 604800 s are allowed",
    );
    let long = format!("{} 1\n", "x".repeat(limits::ENTRY_BYTES_MAX));
    check(
        Collapsed,
        &long,
        "too many bytes in a line: at most 1048576 are allowed",
    );
}

#[test]
fn indices_out_of_range_are_named() {
    use ImportFormat::{Chrome, Firefox, Speedscope};
    let speedscope = |samples: &str, weights: &str| {
        format!(
            r#"{{"shared": {{"frames": [{{"name": "f"}}]}}, "profiles": [{{"type": "sampled", "name": "",
               "unit": "seconds", "samples": {samples}, "weights": {weights}}}]}}"#
        )
    };
    check(
        Speedscope,
        &speedscope("[[0, 1]]", "[1]"),
        "frame 1 is outside of the table of 1",
    );
    check(
        Speedscope,
        &speedscope("[[0]]", "[1, 2]"),
        "1 samples and 2 weights",
    );
    check(
        Speedscope,
        &speedscope("[[0]]", "[-1]"),
        "a weight is -1; a time of 0 or more is expected",
    );
    check(
        Speedscope,
        &speedscope("[[0]]", "[1e300]"),
        "a weight is 1000000",
    );
    check(
        Speedscope,
        &speedscope("[[-1]]", "[1]"),
        "invalid value: integer `-1`",
    );
    let events = |events: &str| {
        format!(
            r#"{{"shared": {{"frames": [{{"name": "f"}}]}}, "profiles": [{{"type": "evented", "name": "",
               "unit": "bytes", "events": []}}, {{"type": "evented", "name": "", "unit": "seconds",
               "events": {events}}}]}}"#
        )
        .replace(r#"{"type": "evented", "name": "",
               "unit": "bytes", "events": []}, "#, "")
    };
    let open = r#"{"type": "O", "at": 5, "frame": 0}"#;
    check(
        Speedscope,
        &events(r#"[{"type": "C", "at": 5, "frame": 0}]"#),
        "frame 0 is closed, but is not the innermost",
    );
    check(
        Speedscope,
        &events(&format!(
            r#"[{open}, {{"type": "C", "at": 4, "frame": 0}}]"#
        )),
        "not in the order",
    );
    check(
        Speedscope,
        &events(r#"[{"type": "X", "at": 5, "frame": 0}]"#),
        "an event of type \"X\"; O and C are known",
    );

    let firefox = |stack: u32, prefix: &str, frame: u32, func: u32, name: u32| {
        format!(
            r#"{{"meta": {{"interval": 1}}, "threads": [{{"name": "t",
               "samples": {{"stack": [{stack}]}},
               "stackTable": {{"frame": [{frame}], "prefix": [{prefix}]}},
               "frameTable": {{"func": [{func}]}}, "funcTable": {{"name": [{name}]}},
               "stringArray": ["f"]}}]}}"#
        )
    };
    let imported = of(firefox(0, "null", 0, 0, 0));
    assert_eq!(imported.total_ns(), 1_000_000);
    check(
        Firefox,
        &firefox(1, "null", 0, 0, 0),
        "stack 1 is outside of its table of 1",
    );
    check(
        Firefox,
        &firefox(0, "0", 0, 0, 0),
        "stack 0 has the prefix 0; it must be smaller",
    );
    check(
        Firefox,
        &firefox(0, "null", 1, 0, 0),
        "frame 1 is outside of its table of 1",
    );
    check(
        Firefox,
        &firefox(0, "null", 0, 1, 0),
        "function 1 is outside of its table of 1",
    );
    check(
        Firefox,
        &firefox(0, "null", 0, 0, 1),
        "string 1 is outside of its table of 1",
    );

    let chrome = |children: &str, samples: &str| {
        format!(
            r#"{{"nodes": [{{"id": 1, "callFrame": {{"functionName": "(root)"}}, "children": [2]}},
               {{"id": 2, "callFrame": {{"functionName": "f"}}, "children": {children}}},
               {{"id": 3, "callFrame": {{"functionName": "g"}}}}],
               "startTime": 0, "endTime": 9, "samples": {samples}, "timeDeltas": [0]}}"#
        )
    };
    assert_eq!(of(chrome("[3]", "[3]")).total_ns(), 9_000);
    check(
        Chrome,
        &chrome("[3]", "[4]"),
        "a sample names node 4, which does not exist",
    );
    check(Chrome, &chrome("[4]", "[2]"), "node 4 does not exist");
    check(Chrome, &chrome("[1]", "[2]"), "node 1 is below itself");
    check(Chrome, &chrome("[2]", "[2]"), "node 2 has two parents");
    check(
        Chrome,
        &chrome("[3]", "[3, 3]"),
        "2 samples and 1 time deltas",
    );
}

#[test]
fn invalid_messages_of_pprof_are_named() {
    let valid = || proto::Profile {
        sample_type: vec![proto::ValueType { kind: 1, unit: 2 }],
        string_table: ["", "cpu", "nanoseconds"].map(str::to_owned).to_vec(),
        location: vec![proto::Location {
            id: 1,
            ..Default::default()
        }],
        sample: vec![proto::Sample {
            location_id: vec![1],
            value: vec![5],
            label: Vec::new(),
        }],
        ..Default::default()
    };
    assert_eq!(of(valid().encode_to_vec()).total_ns(), 5);
    let check = |change: &dyn Fn(&mut proto::Profile), expected: &str| {
        let mut message = valid();
        change(&mut message);
        let error = rejected(ImportFormat::Pprof, &message.encode_to_vec());
        assert_eq!(error, format!("invalid pprof: {expected}"));
    };
    check(
        &|message| message.sample[0].location_id[0] = 2,
        "sample 1 names location 2, which does not exist",
    );
    check(
        &|message| message.sample[0].value.push(1),
        "sample 1 has 2 values for 1 types",
    );
    check(
        &|message| message.sample[0].value[0] = -1,
        "sample 1 has value -1; a time of 0 or more is expected",
    );
    check(
        &|message| message.location[0].mapping_id = 3,
        "location 1 names mapping 3, which does not exist",
    );
    check(
        &|message| {
            message.location[0].line.push(proto::Line {
                function_id: 4,
                line: 1,
            })
        },
        "location 1 names function 4, which does not exist",
    );
    check(
        &|message| message.sample_type[0].unit = 9,
        "text 9 is outside of the table of 3",
    );
    check(
        &|message| message.sample_type.clear(),
        "it has no types of samples",
    );
    assert!(rejected(ImportFormat::Pprof, b"\x0a\xff\xff\xff\xff\x0f").contains("truncated"));
    assert!(rejected(ImportFormat::Pprof, b"\x0b").contains("group"));
}

/// A file of a megabyte that would take many times its size if it were decoded naively.
#[test]
fn memory_is_bounded_by_a_small_multiple_of_the_content() {
    const BYTES: usize = 1 << 20;
    let repeated = |before: &str, entry: &str, after: &str| {
        let count = BYTES / entry.len();
        let entries = vec![entry; count].join(",");
        format!("{before}{entries}{after}").into_bytes()
    };
    let speedscope = r#"{"shared": {"frames": []}, "profiles": [{"type": "sampled", "name": "", "unit": "seconds", "weights": [1], "samples": ["#;
    let firefox = r#"{"meta": {}, "threads": [{"samples": {"stack": [0]}, "stackTable": {"frame": [0], "prefix": ["#;
    let files = [
        (ImportFormat::Pprof, [0x12, 0].repeat(BYTES / 2)),
        (ImportFormat::Pprof, [0x22, 0].repeat(BYTES / 2)),
        (ImportFormat::Speedscope, repeated(speedscope, "[]", "]}]}")),
        (ImportFormat::Speedscope, repeated(speedscope, "0", "]}]}")),
        (ImportFormat::Firefox, repeated(firefox, "0", "]}}]}")),
        (
            ImportFormat::Firefox,
            repeated(r#"{"meta": {}, "threads": ["#, "[[]]", "]}"),
        ),
        (
            ImportFormat::Firefox,
            repeated(
                r#"{"meta": {"version": 27}, "threads": [{"samples": {"schema": {}, "data": ["#,
                "[0]",
                "]}}]}",
            ),
        ),
        (
            ImportFormat::Chrome,
            repeated("[", r#"{"name":"ProfileChunk"}"#, "]"),
        ),
        (
            ImportFormat::Chrome,
            repeated(
                r#"[{"name": "ProfileChunk", "args": {"data": {"timeDeltas": ["#,
                "0",
                "]}}}]",
            ),
        ),
        (ImportFormat::Collapsed, b"a\n".repeat(BYTES / 2)),
        (
            ImportFormat::Chrome,
            repeated(
                r#"{"startTime": 0, "endTime": 1, "nodes": [], "samples": ["#,
                "0",
                "]}",
            ),
        ),
        (ImportFormat::Collapsed, b"a;".repeat(BYTES / 2)),
        (ImportFormat::Perf, b"a 1 1.0: cycles:\n".repeat(BYTES / 17)),
        (ImportFormat::Speedscope, b"[".repeat(BYTES)),
        (
            ImportFormat::Chrome,
            [b"{\"nodes\":".repeat(BYTES / 9), b"1".to_vec()].concat(),
        ),
    ];
    for (format, file) in files {
        let options = ImportOptions {
            format: Some(format),
            ..ImportOptions::default()
        };
        let measured = allocation_counter::measure(|| drop(import(&file, &options)));
        let multiple = measured.bytes_max / BYTES as u64;
        assert!(
            multiple <= 48,
            "{format}: {multiple} times {:?}",
            String::from_utf8_lossy(&file[..40])
        );
    }
}

#[test]
fn tables_have_a_limit() {
    let entries = limits::TABLE_ENTRIES_MAX + 1;
    let texts = rejected(ImportFormat::Pprof, &[0x32, 0].repeat(entries));
    assert_eq!(texts, "too many texts: at most 1048576 are allowed");
    let frames = vec![r#"{"name":""}"#; entries].join(",");
    let file = format!(r#"{{"shared": {{"frames": [{frames}]}}, "profiles": []}}"#);
    check(
        ImportFormat::Speedscope,
        &file,
        "a list has more than 1048576 entries",
    );
}

#[test]
fn names_and_depths_have_a_limit() {
    let long = "x".repeat(10_000);
    let deep = vec!["f"; 3_000].join(";");
    let imported = of(format!("{long} 1\n{deep} 2\n"));
    assert_eq!(imported.total_ns(), 30_000_000);
    let profile = imported.profile();
    let text = collapsed(&profile);
    let [first, second] = [0, 1].map(|line| text.lines().nth(line).unwrap());
    assert!(
        first.starts_with("imported;[truncated];f;f") && first.ends_with(" 20000000"),
        "{first}"
    );
    assert_eq!(first.split(';').count(), limits::FRAMES_MAX + 1);
    assert!(
        second.ends_with("… 10000000") && second.len() < 4_200,
        "{second}"
    );

    let mut text = String::new();
    for number in 0..limits::NAMES_BYTES_MAX / 4_096 + 1 {
        text.push_str(&format!("{number:06}{} 1\n", "x".repeat(4_090)));
    }
    check(
        ImportFormat::Collapsed,
        &text,
        "too many bytes of names and frames: at most 67108864 are allowed",
    );
}

/// Past the limit on nodes the sum stays true.
#[test]
fn stacks_past_the_limit_count_as_overflow() {
    let mut text = String::new();
    for number in 0..limits::NODES_MAX / 900 + 2 {
        text.push_str(&format!("r{number}"));
        for _ in 0..900 {
            text.push_str(";f");
        }
        text.push_str(" 1\n");
    }
    let imported = of(&text);
    let lines = text.lines().count() as u64;
    assert_eq!(imported.total_ns(), lines * 10_000_000);
    assert!(imported.trie.node_count() as usize <= limits::NODES_MAX + 3);
    assert!(collapsed(&imported.profile()).contains("imported;[overflow] "));
}
