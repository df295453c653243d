//! Small files as other profilers write them.

use super::*;
use flamegraph::messages::pprof as proto;
use prost::Message as _;

#[test]
fn collapsed_stacks_of_async_profiler() {
    check(
        "[main tid=17];java/lang/Thread.run_[j];Work.step_[i] 7\n\
         [pool-1 tid=18];java/lang/Thread.run_[j];futex_[k] 2\n",
        &ImportOptions::default(),
        expect![[r#"
            collapsed of 90000000 ns
            0 s Work.step cpu main/17 70000000
            0 s futex cpu pool-1/18 20000000
            note: weights are samples of 10 ms; --interval sets another time, --unit nanoseconds reads them as time
            imported;java/lang/Thread.run;Work.step 70000000
            imported;java/lang/Thread.run;futex 20000000
        "#]],
    );
}

#[test]
fn collapsed_stacks_of_py_spy() {
    check(
        "<module> (app.py:12);load (app.py:3) 41\n<module> (app.py:12) 1\n",
        &ImportOptions {
            interval_ns: Some(1_000_000),
            ..ImportOptions::default()
        },
        expect![[r#"
            collapsed of 42000000 ns
            0 s <module> cpu /0 1000000
            0 s load cpu /0 41000000
            note: weights are samples of 1 ms; --interval sets another time, --unit nanoseconds reads them as time
            imported;<module> 1000000
            imported;<module>;load 41000000
        "#]],
    );
}

const PERF: &str = "\
# captured on    : Mon Jan  1 00:00:00 2024
tokio worker  100/101 [002] 12.000000:     250000 cpu-clock:ppp:
\t    55d0 app::load+0x12 (/opt/app)
\t    55c0 app::main+0x8 (/opt/app)
\t    7f00 [unknown] (/lib/libc.so.6)

     sh 7 [000] 12.500000:     250000 cpu-clock:ppp:
\tffffffff81 do_idle+0x10 ([kernel.kallsyms])

tokio worker  100/101 [002] 13.250000:     250000 cpu-clock:ppp:
\t    55d0 app::inner (inlined)
\t    55d0 app::load+0x12 (/opt/app)
\t    55c0 app::main+0x8 (/opt/app)
";

#[test]
fn perf_script_with_clock_events() {
    check(
        PERF,
        &ImportOptions::default(),
        expect![[r#"
        perf of 1250000001 ns
        0 s app::load cpu tokio worker/101 250000
        0 s do_idle cpu sh/7 250000
        1 s app::inner cpu tokio worker/101 250000
        imported;app::main;app::load;app::inner 250000
        imported;do_idle 250000
        imported;libc.so.6;app::main;app::load 250000
    "#]],
    );
}

#[test]
fn perf_script_with_cycles_has_an_estimated_interval() {
    let mut text = String::new();
    for tick in 0..9 {
        text.push_str(&format!(
            "app 5 1.{:06}: 3000 cycles: 1f f+0x1 (app)\n",
            tick * 10_101
        ));
    }
    text.push_str("app 5 1.200000: 3000 page-faults: 1f f+0x1 (app)\n");
    check(
        &text,
        &ImportOptions::default(),
        expect![[r#"
            perf of 90909000 ns
            0 s f cpu app/5 90909000
            note: a second is 2.970e5 cycles, estimated from gaps between samples; --interval sets a time for each sample
            note: samples of other events than cycles were skipped: 1
            imported;f 90909000
        "#]],
    );
}

#[test]
fn perf_script_headers_tell_the_frequency() {
    let text = "# event : name = cycles, , id = { 1 }, size = 136, { sample_period, sample_freq } = 99, \
                disabled = 1, freq = 1, precise_ip = 3\n\
                app 5 1.000000: 3000 cycles:\n\t1f f+0x1 (app)\n\n";
    let imported = of(text);
    assert_eq!(imported.total_ns(), 10_101_010);
    assert_eq!(imported.notes, [""; 0]);
}

#[test]
fn speedscope_with_threads_samples_and_events() {
    check(
        r#"{"$schema": "https://www.speedscope.app/file-format-schema.json", "exporter": "x",
            "shared": {"frames": [{"name": "main", "file": "a.js", "line": 3, "col": 4}, {"name": "run"}]},
            "profiles": [
              {"type": "sampled", "name": "T1", "unit": "milliseconds", "startValue": 1000, "endValue": 3000,
               "samples": [[0], [0, 1], []], "weights": [500, 1000, 500]},
              {"type": "evented", "name": "T2", "unit": "milliseconds", "startValue": 2000, "endValue": 2600,
               "events": [{"type": "O", "frame": 0, "at": 2000}, {"type": "O", "frame": 1, "at": 2100},
                          {"type": "C", "frame": 1, "at": 2500}, {"type": "C", "frame": 0, "at": 2600}]}]}"#,
        &ImportOptions::default(),
        expect![[r#"
            speedscope of 2000000000 ns
            0 s main cpu T1/0 500000000
            0 s run cpu T1/0 1000000000
            1 s imported cpu T1/0 500000000
            1 s main cpu T2/0 200000000
            1 s run cpu T2/0 400000000
            imported 500000000
            imported;main 700000000
            imported;main;run 1400000000
        "#]],
    );
}

#[test]
fn firefox_with_tables_of_its_own_and_shared_ones() {
    let tables = r#""stackTable": {"frame": [0, 1], "prefix": [null, 0], "length": 2},
        "frameTable": {"func": [0, 1], "line": [null, 7], "inlineDepth": [0, 0]},
        "funcTable": {"name": [0, 1], "resource": [0, -1], "fileName": [null, 2]},
        "resourceTable": {"lib": [0], "name": [0], "host": [null], "type": [1]},
        "stringArray": ["main", "run", "src/run.rs"]"#;
    let samples = r#""samples": {"stack": [0, 1, null], "timeDeltas": [0, 900, 200], "weight": null,
        "weightType": "samples", "threadCPUDelta": [0, 1000000, 250000], "length": 3}"#;
    let meta = r#""meta": {"interval": 1, "startTime": 1700000000000, "product": "app",
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"}},
        "libs": [{"path": "/opt/app", "codeId": "ab12"}]"#;
    let own = format!(r#"{{{meta}, "threads": [{{"name": "T", "tid": 9, {samples}, {tables}}}]}}"#);
    let shared = format!(
        r#"{{{meta}, "shared": {{{tables}}}, "threads": [{{"name": "T", "tid": "9", {samples}}}]}}"#
    );
    check(
        &own,
        &ImportOptions::default(),
        expect![[r#"
        firefox of 1101000000 ns
        0 s main other T/9 1000000
        0 s run cpu T/9 1000000
        1 s imported cpu T/9 250000
        1 s imported other T/9 750000
        imported 1000000
        imported;main 1000000
        imported;main;run 1000000
    "#]],
    );
    assert_eq!(of(&own).profile(), of(&shared).profile());
    assert_eq!(
        of(&own).started_at,
        Some(Timestamp::from_unix_ns(1_700_000_000_000_000_000))
    );
}

#[test]
fn chrome_with_samples_and_with_counts() {
    let nodes = r#""nodes": [
        {"id": 1, "callFrame": {"functionName": "(root)", "url": "", "lineNumber": -1}, "children": [2, 3]},
        {"id": 2, "callFrame": {"functionName": "(idle)", "url": "", "lineNumber": -1}, "hitCount": 1},
        {"id": 3, "callFrame": {"functionName": "", "url": "file:///a.js", "lineNumber": 4},
         "hitCount": 2, "children": [4]},
        {"id": 4, "callFrame": {"functionName": "work", "url": "file:///a.js", "lineNumber": 9}}],
        "startTime": 5000, "endTime": 2005000"#;
    let samples = r#", "samples": [3, 4, 2], "timeDeltas": [0, 500000, 1000000]"#;
    check(
        &format!("{{{nodes}{samples}}}"),
        &ImportOptions::default(),
        expect![[r#"
        chrome of 2000000000 ns
        0 s (anonymous) cpu /0 500000000
        0 s work cpu /0 1000000000
        1 s (idle) sleep /0 500000000
        imported;(anonymous) 500000000
        imported;(anonymous);work 1000000000
        imported;(idle) 500000000
    "#]],
    );
    check(
        &format!("{{{nodes}}}"),
        &ImportOptions::default(),
        expect![[r#"
        chrome of 2000000000 ns
        0 s (idle) sleep /0 666666666
        0 s (anonymous) cpu /0 1333333334
        imported;(anonymous) 1333333334
        imported;(idle) 666666666
    "#]],
    );
}

/// A CPU profile as Go writes it: two types, no labels, and a default that is not set.
fn of_go(types: &[[&str; 2]], values: &[i64], period: [&str; 2]) -> Vec<u8> {
    let mut texts = vec![String::new()];
    let mut text = |text: &str| {
        texts.push(text.to_owned());
        texts.len() as i64 - 1
    };
    let sample_type = types
        .iter()
        .map(|[kind, unit]| proto::ValueType {
            kind: text(kind),
            unit: text(unit),
        })
        .collect();
    let period_type = Some(proto::ValueType {
        kind: text(period[0]),
        unit: text(period[1]),
    });
    let function = |id, name| proto::Function {
        id,
        name,
        ..Default::default()
    };
    let line = |function_id, line| proto::Line { function_id, line };
    let function = vec![
        function(1, text("main.main")),
        function(2, text("main.load")),
    ];
    let location = vec![
        proto::Location {
            id: 7,
            line: vec![line(1, 12)],
            ..Default::default()
        },
        // main.load is inlined into main.main.
        proto::Location {
            id: 9,
            line: vec![line(2, 3), line(1, 15)],
            ..Default::default()
        },
        proto::Location {
            id: 11,
            address: 0x50,
            ..Default::default()
        },
    ];
    let sample = |location_id: &[u64]| proto::Sample {
        location_id: location_id.to_vec(),
        value: values.to_vec(),
        label: Vec::new(),
    };
    let message = proto::Profile {
        sample_type,
        sample: vec![sample(&[7]), sample(&[9]), sample(&[11, 7])],
        location,
        function,
        time_nanos: 1_700_000_000_000_000_000,
        duration_nanos: 3_000_000_000,
        period_type,
        period: 10,
        string_table: texts,
        ..Default::default()
    };
    message.encode_to_vec()
}

#[test]
fn a_length_that_is_the_time_of_the_profile_is_none() {
    let types = [["cpu", "nanoseconds"]];
    let content = of_go(&types, &[20_000_000], ["cpu", "nanoseconds"]);
    let mut message = proto::Profile::decode(&*content).unwrap();
    message.duration_nanos = message.time_nanos;
    let imported = of(message.encode_to_vec());
    assert_eq!(imported.duration_ns, 60_000_000, "the sum of the samples");
}

#[test]
fn pprof_of_go() {
    let types = [["samples", "count"], ["cpu", "nanoseconds"]];
    let imported = of(of_go(&types, &[2, 20_000_000], ["cpu", "nanoseconds"]));
    assert_eq!(imported.profile().total().get(State::Cpu), 60_000_000);
    assert_eq!(imported.duration_ns, 3_000_000_000);
    expect![[r#"
        imported;main.main 20000000
        imported;main.main;[unknown] 20000000
        imported;main.main;main.load 20000000
    "#]]
    .assert_eq(&collapsed(&imported.profile()));
}

#[test]
fn pprof_of_locks_of_samples_and_of_memory() {
    let delay = of(of_go(
        &[["contentions", "count"], ["delay", "microseconds"]],
        &[1, 5],
        ["contentions", "count"],
    ));
    assert_eq!(delay.profile().total().get(State::Lock), 15_000);
    let counted = of(of_go(&[["samples", "count"]], &[4], ["cpu", "nanoseconds"]));
    assert_eq!(counted.profile().total().get(State::Cpu), 3 * 4 * 10);
    let uncounted = of_go(&[["samples", "count"]], &[4], ["", ""]);
    let error = import(&uncounted, &ImportOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("has samples/count; --interval sets the time of a sample"),
        "{error}"
    );
    let options = ImportOptions {
        interval_ns: Some(7),
        ..ImportOptions::default()
    };
    assert_eq!(import(&uncounted, &options).unwrap().total_ns(), 3 * 4 * 7);
    let heap = of_go(
        &[["inuse_objects", "count"], ["inuse_space", "bytes"]],
        &[1, 5],
        ["space", "bytes"],
    );
    let error = import(&heap, &ImportOptions::default())
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "no type of sample is time; the pprof profile has inuse_objects/count, inuse_space/bytes"
    );
}

/// As gperftools, agents and the kernel's mappings have them.
#[test]
fn addresses_of_pprof_are_offsets_in_the_mapped_file() {
    const NO_LIMIT: u64 = 0;
    let kernel = 0xffff_ffff_8100_0000;
    let offset = |offset| CodePlace::FileOffset(offset).number();
    for (start, limit, file_offset, address, expected) in [
        // A library, a program at a fixed address, and one mapping of all of it.
        (
            0x7f00_0002_6000,
            0x7f00_0017_b000,
            0x2_6000,
            0x7f00_0002_6010,
            offset(0x2_6010),
        ),
        (0x40_1000, 0x40_2000, 0x1000, 0x40_1136, offset(0x1136)),
        (0x40_0000, 0x40_2000, 0, 0x40_1136, offset(0x1136)),
        (0x40_0000, NO_LIMIT, 0, 0x40_1136, offset(0x1136)),
        // The ends of a mapping, and what is outside.
        (0x40_1000, 0x40_2000, 0x1000, 0x40_1000, offset(0x1000)),
        (0x40_1000, 0x40_2000, 0x1000, 0x40_1fff, offset(0x1fff)),
        (0x40_1000, 0x40_2000, 0x1000, 0x40_0fff, 0),
        (0x40_1000, 0x40_2000, 0x1000, 0x40_2000, 0),
        // A mapping of everything: addresses are those of the file.
        (0, NO_LIMIT, 0, 0x1136, 0x1136),
        (0, u64::MAX, 0, 0x40_1136, 0x40_1136),
        (kernel, u64::MAX, kernel, kernel + 0x50, kernel + 0x50),
    ] {
        let content = of_go(&[["cpu", "nanoseconds"]], &[1], ["cpu", "nanoseconds"]);
        let mut message = proto::Profile::decode(&*content).unwrap();
        message.mapping.push(proto::Mapping {
            id: 1,
            memory_start: start,
            memory_limit: limit,
            file_offset,
            ..Default::default()
        });
        message.location[2] = proto::Location {
            id: 11,
            mapping_id: 1,
            address,
            ..Default::default()
        };
        let imported = of(message.encode_to_vec());
        let mut frames = (0..imported.symbols.frame_count())
            .map(profiler_core::FrameId)
            .map(|id| imported.symbols.frame(id));
        let unresolved = frames
            .find(|frame| frame.kind == FrameKind::Unresolved)
            .unwrap();
        assert_eq!(
            unresolved.offset, expected,
            "{address:#x} in {start:#x}-{limit:#x}"
        );
    }
}

/// Both ways of saying where an address is come back from our exports.
#[test]
fn addresses_without_names_keep_their_meaning() {
    for place in [CodePlace::Address(0x1136), CodePlace::FileOffset(0x1136)] {
        let code = Frame {
            kind: FrameKind::Unresolved,
            module: "/opt/app",
            build_id: "ab12",
            offset: place.number(),
            ..Frame::function("", "", 0)
        };
        let all = from_rows([(vec![Frame::task("load"), code], State::Cpu, 30)]);
        assert_eq!(
            of(pprof(&all, &ExportOptions::default())).profile(),
            all,
            "{place:?}"
        );
    }
}
