//! Files of our exports and of other profilers are imported with their stacks and sums.

mod allocations;
mod chrome;
mod collapsed;
mod columns;
mod firefox;
mod fixtures;
mod hostile;
mod jfr;
mod known;
mod names;
mod others;
mod perf;
mod producers;
mod raw;
mod received;
mod sums;

use expect_test::{Expect, expect};
use flamegraph::testing::{from_rows, hostile_profiles, profile};
use flamegraph::{ExportOptions, collapsed, pprof, speedscope};
use profiler_core::limits::NAME_BYTES_MAX;
use profiler_core::{CodePlace, Frame, FrameKind, Profile, State, TimeRange, Timestamp};
use proptest::prelude::*;

use super::*;

fn of(file: impl AsRef<[u8]>) -> Imported {
    import(file.as_ref(), &ImportOptions::default()).unwrap()
}

fn exports(profile: &Profile) -> [(ImportFormat, Vec<u8>); 4] {
    let options = ExportOptions::default();
    [
        (ImportFormat::Pprof, pprof(profile, &options)),
        (
            ImportFormat::Speedscope,
            speedscope(profile, &options).into_bytes(),
        ),
        (
            ImportFormat::Firefox,
            flamegraph::firefox(profile, &options).into_bytes(),
        ),
        (ImportFormat::Collapsed, collapsed(profile).into_bytes()),
    ]
}

/// The time of each stack below its task, with names as they are displayed.
fn stacks(imported: &Imported) -> Vec<(String, u64)> {
    let mut sums = std::collections::BTreeMap::<String, u64>::new();
    for sample in &imported.samples {
        let mut labels = Vec::new();
        let mut at = sample.node;
        while let Some((parent, frame)) = imported.trie.node(at) {
            labels.push(imported.symbols.frame(frame).label());
            at = parent;
        }
        labels.pop();
        labels.reverse();
        *sums.entry(labels.join(";")).or_default() += sample.nanoseconds;
    }
    sums.into_iter().collect()
}

#[test]
fn exports_are_recognized_and_keep_their_sums_by_stack() {
    let all = profile(
        "load;main:7;read cpu=20000000\nload;main:7;read disk=30000000\nload;main:9 cpu=50000\n\
         [no task];wait lock=40000000\nload cpu=4321",
    );
    for (format, file) in exports(&all) {
        let imported = of(&file);
        assert_eq!(imported.format, format);
        assert_eq!(collapsed(&imported.profile()), collapsed(&all), "{format}");
        assert_eq!(imported.total_ns(), all.total().total_ns());
        let no_task = imported.profile();
        let kinds: Vec<_> = no_task
            .nodes()
            .iter()
            .map(|node| no_task.frame(node.frame).kind)
            .collect();
        assert!(kinds.contains(&FrameKind::NoTask), "{format}");
    }
}

#[test]
fn pprof_keeps_states_lines_modules_phases_and_times() {
    let mut frames = vec![Frame::task("load"), Frame::phase("transfer")];
    frames.push(Frame {
        module: "/opt/app",
        build_id: "ab12",
        ..Frame::function("main", "m.rs", 3)
    });
    frames.push(Frame {
        inlined: true,
        ..frames[2].clone()
    });
    let all = from_rows([
        (frames.clone(), State::Disk, 30),
        (frames[..3].to_vec(), State::Runnable, 4),
    ]);
    let start = Timestamp::from_unix_ns(1_700_000_000_000_000_000);
    let range = TimeRange::new(start, start.shifted(60_000_000_000));
    let imported = of(pprof(
        &all,
        &ExportOptions {
            range,
            ..ExportOptions::default()
        },
    ));
    assert_eq!(imported.profile(), all);
    assert_eq!(imported.started_at, Some(start));
    assert_eq!(imported.duration_ns, 60_000_000_000);
}

proptest! {
    #[test]
    fn exports_round_trip_by_stack(all in hostile_profiles()) {
        // Escapes may make names longer than a name may be.
        let text = collapsed(&all);
        let names = text.lines().flat_map(|line| line.split(';'));
        prop_assume!(names.into_iter().all(|name| name.len() <= NAME_BYTES_MAX));
        for (format, file) in exports(&all) {
            let options = ImportOptions {
                format: Some(format),
                ..ImportOptions::default()
            };
            let imported = import(&file, &options);
            if all.total().total_ns() == 0 {
                prop_assert_eq!(imported.unwrap_err(), ImportError::Empty { format });
                continue;
            }
            let imported = imported.unwrap().profile();
            prop_assert_eq!(collapsed(&imported), collapsed(&all), "{}", format);
        }
    }

    #[test]
    fn speedscope_and_firefox_keep_the_time_on_a_cpu(all in hostile_profiles()) {
        for (format, file) in exports(&all) {
            if !matches!(format, ImportFormat::Speedscope | ImportFormat::Pprof) {
                continue;
            }
            let Ok(imported) = import(&file, &ImportOptions::default()) else { continue };
            let cpu_ns = imported.profile().total().get(State::Cpu);
            prop_assert_eq!(cpu_ns, all.total().get(State::Cpu));
        }
    }

    /// Any content is imported or rejected; what is imported has sums.
    #[test]
    fn arbitrary_content_is_imported_or_rejected(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        format in prop::sample::select(ImportFormat::ALL.to_vec()),
    ) {
        let options = ImportOptions { format: Some(format), ..ImportOptions::default() };
        if let Ok(imported) = import(&bytes, &options) {
            prop_assert!(imported.total_ns() > 0);
        }
    }
}

#[test]
fn a_given_task_has_all_stacks() {
    for (format, file) in exports(&profile("load;main cpu=20000000\nsave;main cpu=30000000")) {
        let options = ImportOptions {
            task: Some("t".to_owned()),
            ..ImportOptions::default()
        };
        let imported = import(&file, &options).unwrap();
        assert_eq!(imported.tasks(), ["t"], "{format}");
        assert_eq!(imported.total_ns(), 50_000_000);
    }
}

fn check(file: &str, options: &ImportOptions, expected: Expect) {
    let imported = import(file.as_bytes(), options).unwrap();
    let samples: String = imported
        .samples
        .iter()
        .map(|sample| {
            let name = |node| {
                imported
                    .symbols
                    .frame(imported.trie.node(node).unwrap().1)
                    .label()
            };
            let thread = imported
                .symbols
                .frame(imported.trie.node(sample.thread).unwrap().1);
            let ImportedSample {
                second,
                node,
                state,
                nanoseconds,
                ..
            } = *sample;
            let thread = format!("{}/{}", thread.function, thread.line);
            format!(
                "{second} s {} {} {thread} {nanoseconds}\n",
                name(node),
                state.name()
            )
        })
        .collect();
    let notes: String = imported
        .notes
        .iter()
        .map(|note| format!("note: {note}\n"))
        .collect();
    let length = format!("{} of {} ns\n", imported.format, imported.duration_ns);
    expected.assert_eq(&format!(
        "{length}{samples}{notes}{}",
        collapsed(&imported.profile())
    ));
}

#[test]
fn unknown_content_names_the_known_formats() {
    for content in ["hello", "{\"a\": 1}", "[1, 2]", "a b c\n", "<svg/>"] {
        let error = import(content.as_bytes(), &ImportOptions::default()).unwrap_err();
        assert_eq!(error, ImportError::UnknownFormat, "{content:?}");
        assert!(
            error
                .to_string()
                .contains("pprof, collapsed, perf, speedscope, firefox, chrome, jfr:")
        );
    }
}

#[test]
fn text_in_utf_16_and_with_a_mark_is_read() {
    let text = "app;main;päckchen 31\napp;main 6\n";
    let expected = of(text).profile();
    let units: Vec<u16> = format!("\u{feff}{text}").encode_utf16().collect();
    let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    let marked = format!("\u{feff}{text}").into_bytes();
    for content in [little, big, marked] {
        assert_eq!(of(&content).profile(), expected);
    }
    let all = profile("load;main cpu=20000000");
    let json = format!("\u{feff}{}", speedscope(&all, &ExportOptions::default()));
    assert_eq!(of(json).format, ImportFormat::Speedscope);
}

#[test]
fn formats_that_are_not_read_are_named() {
    let words = [0_u64, 3, 0, 10_000, 0];
    let halves = words.map(|word| word as u32);
    let gperftools = "a profile of gperftools";
    let without_profile = "a trace without a CPU profile";
    for (content, name) in [
        (&b"PK\x03\x04\x14\0\0\0\x08\0"[..], "a zip file"),
        (b"\x28\xb5\x2f\xfd\x04", "a file that zstd compressed"),
        (b"BZh91AY", "a file that bzip2 compressed"),
        (b"PERFILE2\x68\0", "a recording of perf"),
        (&words.map(u64::to_le_bytes).concat(), gperftools),
        (&words.map(u64::to_be_bytes).concat(), gperftools),
        (&halves.map(u32::to_le_bytes).concat(), gperftools),
        (&halves.map(u32::to_be_bytes).concat(), gperftools),
        (b"--- symbol\nbinary=/opt/app\n---\n", gperftools),
        (b"heap profile: 1: 2 [3: 4] @ heap/9\n", "a text of pprof"),
        (
            b"MOJ\x02\x01austin\0",
            "a binary recording of austin (MOJO)",
        ),
        (b"Nettrace\x14\0", "a trace of .NET (nettrace)"),
        (
            b"#\n# Event count (approx.): 7\n#\n# Overhead  Command\n    50.00%  app\n",
            "a report of perf",
        ),
        (
            b"Running Time\tSelf\t\tSymbol Name\n",
            "a deep copy of Instruments",
        ),
        (
            b"<?xml version=\"1.0\"?>\n<trace-query-result>\n",
            "an export of Instruments",
        ),
        (
            b"Attaching 1 probe...\n@[\n    main+5\n]: 12\n",
            "the output of bpftrace",
        ),
        (b"{\xa9\x03\xda\x01", "a profile of Python's cProfile"),
        (b"{\"root_frame\": {}}", "a profile of pyinstrument"),
        (
            b"File: app\nType: cpu\nShowing nodes accounting for 5s, 100% of 5s total\n",
            "a text of `go tool pprof`",
        ),
        (b"{\"dhatFileVersion\": 2}", "a profile of DHAT"),
        (
            b"{\"head\": {\"selfSize\": 1}}",
            "a profile of the heap of V8",
        ),
        (b"{\"traceEvents\": []}", without_profile),
        (b"[{\"name\": \"a\", \"ph\": \"X\"}]", without_profile),
        (
            b"{\"head\": {\"functionName\": \"\"}, \"startTime\": 1}",
            "a CPU profile of Chrome before version 58 or of Node.js before 12",
        ),
    ] {
        let error = import(content, &ImportOptions::default())
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!("this is {name}, which is not read: ")),
            "{error}"
        );
    }
}

#[test]
fn the_unit_of_collapsed_stacks_can_be_chosen() {
    let options = ImportOptions {
        unit: Some(CollapsedUnit::Samples),
        interval_ns: Some(5),
        state: Some(State::Other),
        ..ImportOptions::default()
    };
    check(
        "load;main 20000\n",
        &options,
        expect![[r#"
        collapsed of 100000 ns
        0 s main other /0 100000
        imported;load;main 100000
    "#]],
    );
}

/// Names that stand for something else in the files of other tools.
const MARKS: [&str; 31] = [
    "P1",
    "T2",
    "T0:2",
    "schedule",
    "__schedule",
    "finish_task_switch.isra.0",
    "read_[k]",
    "f_[j]",
    "[k]",
    "all",
    "-",
    "7",
    "1 2",
    "step 3",
    "#",
    "# mode: wall",
    "#1",
    "//",
    "thread (7): main",
    "[main tid=7]",
    "f (a.py:3)",
    "a.py:f:3",
    "@[",
    "{",
    "[{\"ph\"",
    "go 1.22 trace",
    "app 9 [000] 1.5: 10 cpu-clock:",
    "BZh91AY",
    "[truncated]",
    "a  b",
    " ",
];

fn marked_profiles() -> impl Strategy<Value = Profile> {
    let name = || prop::sample::select(MARKS.to_vec());
    let stack = (name(), prop::collection::vec(name(), 0..4));
    let row = (stack, prop::sample::select(vec![7_u64, 12_345, 20_000_000]));
    prop::collection::vec(row, 1..5).prop_map(|rows| {
        from_rows(rows.into_iter().map(|((task, functions), weight)| {
            let functions = functions
                .into_iter()
                .map(|name| Frame::function(name, "", 0));
            let frames = std::iter::once(Frame::task(task)).chain(functions);
            (frames.collect::<Vec<_>>(), State::Cpu, weight)
        }))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The format is found by the content, as in `emberline import`.
    #[test]
    fn exports_come_back_whatever_their_names_look_like(all in marked_profiles()) {
        for (format, file) in exports(&all) {
            let imported = import(&file, &ImportOptions::default());
            let text = String::from_utf8_lossy(&file);
            let imported = imported.unwrap_or_else(|error| panic!("{format}: {error}: {text}"));
            prop_assert_eq!(imported.format, format, "{}", text);
            prop_assert_eq!(collapsed(&imported.profile()), collapsed(&all), "{}: {}", format, text);
        }
    }
}
