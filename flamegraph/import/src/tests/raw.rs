//! The browser's own format: as `MOZ_PROFILER_SHUTDOWN`, `about:profiling` and `perf script report gecko` write it.

use serde_json::{Value, json};

use super::*;

fn thread(name: &str, stacks: &[Option<u32>], start: f64) -> Value {
    let rows: Vec<Value> = stacks
        .iter()
        .enumerate()
        .map(|(at, stack)| json!([stack, start + at as f64, 0.5, 250_000]))
        .collect();
    json!({
        "name": name, "tid": 9, "pid": "5", "processType": "default", "registerTime": 0,
        "samples": { "schema": { "stack": 0, "time": 1, "eventDelay": 2, "threadCPUDelta": 3 }, "data": rows },
        "stackTable": { "schema": { "prefix": 0, "frame": 1 }, "data": [[null, 0], [0, 1], [1, 2], [0, 3]] },
        "frameTable": {
            "schema": { "location": 0, "relevantForJS": 1, "innerWindowID": 2, "implementation": 3, "line": 4,
                        "column": 5, "category": 6, "subcategory": 7 },
            "data": [[0, false, 0, null, null, null, 1], [1, true, 0, 4, 12], [2, false], [3, false, 0, null, null]],
        },
        "stringTable": ["(root)", "run (https://a.example/x.js:12:5)", "0x7f0000001234", "perform (in my lib)", "ion"],
        "markers": { "schema": { "name": 0 }, "data": [] },
    })
}

fn file(threads: Value, processes: Value, start: f64) -> Value {
    json!({
        "meta": { "version": 27, "interval": 1, "startTime": start, "product": "Firefox",
                  "sampleUnits": { "time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns" } },
        "libs": [{ "start": 0x7f00_0000_0000_u64, "end": 0x7f00_0010_0000_u64, "offset": 0, "name": "libxul.so",
                   "path": "/usr/lib/libxul.so", "codeId": "ab12", "breakpadId": "AB120" }],
        "pausedRanges": [], "threads": threads, "processes": processes,
    })
}

#[test]
fn threads_of_all_processes_have_their_stacks_times_and_libraries() {
    let child = file(
        json!([thread("Content", &[Some(3), Some(3)], 0.0)]),
        json!([]),
        1_700_000_002_000.0,
    );
    let main = file(
        json!([thread("GeckoMain", &[Some(0), Some(1), Some(2), None], 0.0)]),
        json!([child]),
        1_700_000_000_000.0,
    );
    check(
        &main.to_string(),
        &ImportOptions::default(),
        expect![[r#"
            firefox of 2002000000 ns
            0 s imported cpu GeckoMain/9 250000
            0 s imported other GeckoMain/9 750000
            0 s (root) cpu GeckoMain/9 250000
            0 s (root) other GeckoMain/9 750000
            0 s run cpu GeckoMain/9 250000
            0 s run other GeckoMain/9 750000
            0 s libxul.so+0x1234 cpu GeckoMain/9 250000
            0 s libxul.so+0x1234 other GeckoMain/9 750000
            2 s perform (in my lib) cpu Content/9 500000
            2 s perform (in my lib) other Content/9 1500000
            imported 1000000
            imported;(root) 1000000
            imported;(root);perform (in my lib) 2000000
            imported;(root);run 1000000
            imported;(root);run;libxul.so 1000000
        "#]],
    );
    let imported = of(main.to_string());
    assert_eq!(
        imported.started_at,
        Some(Timestamp::from_unix_ns(1_700_000_000_000_000_000))
    );
    let ids = (0..imported.symbols.frame_count()).map(profiler_core::FrameId);
    let frames: Vec<_> = ids.map(|id| imported.symbols.frame(id)).collect();
    let script = frames.iter().find(|frame| frame.function == "run").unwrap();
    assert_eq!(
        [script.file, &script.line.to_string()],
        ["https://a.example/x.js", "12"]
    );
    let code = frames
        .iter()
        .find(|frame| frame.kind == FrameKind::Unresolved)
        .unwrap();
    assert_eq!([code.module, code.build_id], ["/usr/lib/libxul.so", "ab12"]);
    assert_eq!(code.offset, CodePlace::Address(0x1234).number());
}

proptest! {
    /// Each sample is an interval, whatever its stack.
    #[test]
    fn samples_are_intervals(
        stacks in prop::collection::vec(prop::option::weighted(0.9, 0..4_u32), 1..40),
        interval_us in 1..5_000_u32,
    ) {
        let mut raw = file(json!([thread("T", &stacks, 3.0)]), json!([]), 1e12);
        raw["meta"]["interval"] = json!(f64::from(interval_us) / 1_000.0);
        let imported = of(raw.to_string());
        prop_assert_eq!(imported.total_ns(), stacks.len() as u64 * u64::from(interval_us) * 1_000);
    }
}

#[test]
fn indexes_out_of_range_are_named() {
    let mut raw = file(json!([thread("T", &[Some(9)], 0.0)]), json!([]), 1e12);
    let rejected = |raw: &Value| {
        let error = import(raw.to_string().as_bytes(), &ImportOptions::default());
        error.unwrap_err().to_string()
    };
    assert_eq!(
        rejected(&raw),
        "invalid firefox: stack 9 is outside of its table of 4"
    );
    raw["threads"][0]["stackTable"]["data"][0][1] = json!(null);
    assert_eq!(
        rejected(&raw),
        "invalid firefox: frame 4294967295 is outside of its table of 4"
    );
}

#[test]
fn libraries_of_the_first_versions_are_a_text() {
    let raw = file(json!([thread("T", &[Some(2)], 0.0)]), json!([]), 1e12);
    let expected = of(raw.to_string());
    let mut first = raw;
    first["meta"]["version"] = json!(3);
    first["libs"] = json!(first["libs"].to_string());
    let imported = of(first.to_string());
    assert_eq!(stacks(&imported), stacks(&expected));
    assert_eq!(imported.total_ns(), expected.total_ns());
}
