//! The messages are decoded again: stacks, labels and sums are those of the profile.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Read as _;

use expect_test::expect_file;
use flate2::read::GzDecoder;
use profiler_core::{TimeRange, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::testing::{deep_profile, from_rows, hostile_profiles, profile};

fn decoded(gzip: &[u8]) -> proto::Profile {
    let mut bytes = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut bytes).unwrap();
    proto::Profile::decode(&bytes[..]).unwrap()
}

fn options() -> ExportOptions {
    let second = 1_000_000_000;
    let start = Timestamp::from_unix_ns(1_700_000_000 * second);
    ExportOptions {
        title: "All tasks".to_owned(),
        subtitle: Some("1 worker".to_owned()),
        range: TimeRange::new(start, start.shifted(60 * second)),
        interval_ns: 10,
        group: None,
        worker: Some("w-1".to_owned()),
    }
}

/// The message as lines: one for each sample, mapping and fact.
fn rendered(message: &proto::Profile) -> String {
    let text = |id: i64| message.string_table[usize::try_from(id).unwrap()].as_str();
    let mut lines = String::new();
    let value_type =
        |value: &proto::ValueType| format!("{}/{}", text(value.kind), text(value.unit));
    let types: Vec<_> = message.sample_type.iter().map(value_type).collect();
    let _ = writeln!(
        lines,
        "types {}; default {}",
        types.join(" "),
        text(message.default_sample_type)
    );
    let period = value_type(message.period_type.as_ref().unwrap());
    let _ = writeln!(lines, "period {} {period}", message.period);
    let _ = writeln!(
        lines,
        "from {} for {}",
        message.time_nanos, message.duration_nanos
    );
    for comment in &message.comment {
        let _ = writeln!(lines, "comment {}", text(*comment));
    }
    for mapping in &message.mapping {
        let start = mapping.memory_start;
        let limit = mapping.memory_limit;
        let names = format!("{} {}", text(mapping.filename), text(mapping.build_id));
        let _ = writeln!(
            lines,
            "mapping {} {start:#x}-{limit:#x} {names}",
            mapping.id
        );
    }
    for sample in &message.sample {
        for id in &sample.location_id {
            let location = &message.location[index(*id)];
            let _ = write!(lines, "[{}:{:#x}", location.mapping_id, location.address);
            for line in &location.line {
                let function = &message.function[index(line.function_id)];
                let name = text(function.name);
                let file = text(function.filename);
                let _ = write!(lines, " {name} ({file}:{})", line.line);
            }
            let _ = write!(lines, "] ");
        }
        let labels: Vec<_> = sample
            .label
            .iter()
            .map(|label| format!("{}={}", text(label.key), text(label.text)))
            .collect();
        let _ = writeln!(lines, "{:?} {}", sample.value, labels.join(" "));
    }
    lines
}

#[test]
fn stacks_labels_and_modules_match_the_golden_file() {
    let unresolved = Frame {
        kind: FrameKind::Unresolved,
        module: "/usr/lib/libc.so.6",
        offset: 0x1a2b,
        ..Frame::function("", "", 0)
    };
    let main = of_app("main", 3, false);
    let all = from_rows([
        (load(std::slice::from_ref(&main)), State::Cpu, 14),
        (
            load(&[
                main.clone(),
                of_app("inner", 7, true),
                of_app("innermost", 9, true),
            ]),
            State::Lock,
            26,
        ),
        (
            load(&[main.clone(), of_app("inner", 7, true), unresolved]),
            State::Disk,
            5,
        ),
        (
            vec![
                Frame::group("b"),
                Frame::no_task(),
                Frame::truncated(),
                main,
            ],
            State::Runnable,
            7,
        ),
        (vec![Frame::group("b"), Frame::agent()], State::Sleep, 8),
    ]);
    let options = ExportOptions {
        group: Some("zone".to_owned()),
        ..options()
    };
    let message = decoded(&pprof(&all, &options));
    expect_file!["golden/small.txt"].assert_eq(&rendered(&message));
}

fn of_app(name: &'static str, line: u32, inlined: bool) -> Frame<&'static str> {
    Frame {
        module: "/opt/app",
        build_id: "ab12",
        inlined,
        ..Frame::function(name, "src/a.rs", line)
    }
}

fn load(frames: &[Frame<&'static str>]) -> Vec<Frame<&'static str>> {
    [
        &[
            Frame::group("a"),
            Frame::task("load"),
            Frame::phase("transfer"),
        ],
        frames,
    ]
    .concat()
}

#[test]
fn an_empty_profile_is_valid_and_has_no_samples() {
    let message = decoded(&pprof(&Profile::default(), &ExportOptions::default()));
    assert_eq!((message.sample.len(), message.sample_type.len()), (0, 3));
    assert_eq!(
        (message.string_table[0].as_str(), message.period),
        ("", 10_000_000)
    );
}

#[test]
fn a_group_of_workers_names_the_worker_once() {
    let rows = vec![
        Frame::group("w-1"),
        Frame::task("t"),
        Frame::function("f", "", 0),
    ];
    let options = ExportOptions {
        group: Some("worker".to_owned()),
        ..options()
    };
    let message = decoded(&pprof(&from_rows([(rows, State::Cpu, 1)]), &options));
    assert!(
        rendered(&message).ends_with("task=t worker=w-1 state=cpu\n"),
        "{}",
        rendered(&message)
    );
}

/// Readers drop samples without a location.
#[test]
fn time_at_a_task_itself_has_a_location() {
    let all = profile("t cpu=5\nt lock=2\nt;f cpu=7\nu cpu=1");
    let gzip = pprof(&all, &options());
    let message = decoded(&gzip);
    let text = rendered(&message);
    assert_eq!(
        text.matches("[0:0x0 [no stack] (:0)] ").count(),
        3,
        "{text}"
    );
    assert_eq!((message.sample.len(), message.location.len()), (4, 2));
}

#[test]
fn the_deepest_stack_and_the_longest_names_are_written() {
    let message = decoded(&pprof(&deep_profile(1_000), &options()));
    assert_eq!(message.sample[0].location_id.len(), 999);
    let name = "\u{1b}\"\n".repeat(34_000);
    let message = decoded(&pprof(
        &profile(&format!("t;{} cpu=1", name.replace('\n', ""))),
        &options(),
    ));
    assert_eq!(message.sample.len(), 1);
    assert!(
        message
            .string_table
            .iter()
            .all(|text| !text.contains(char::is_control))
    );
}

proptest! {
    #[test]
    fn values_sum_to_the_profile_and_every_number_resolves(all in hostile_profiles()) {
        let gzip = pprof(&all, &options());
        prop_assert_eq!(&gzip, &pprof(&all, &options()), "same input, same bytes");
        let message = decoded(&gzip);
        let sum = |at: usize| message.sample.iter().map(|sample| sample.value[at]).sum::<i64>();
        let total = all.total();
        prop_assert_eq!(sum(0), signed(total.total_ns() / 10));
        prop_assert_eq!(sum(1), signed(total.total_ns()));
        prop_assert_eq!(sum(2), signed(total.get(State::Cpu)));
        prop_assert_eq!(&message.string_table[0], "");
        prop_assert!(message.string_table.iter().all(|text| !text.contains(char::is_control)));
        prop_assert!(message.location.iter().zip(1..).all(|(location, id)| location.id == id));
        prop_assert!(message.function.iter().zip(1..).all(|(function, id)| function.id == id));
        // Resolves every number, or panics.
        prop_assert!(rendered(&message).lines().count() > message.sample.len());
        let texts: HashSet<&String> = message.string_table.iter().collect();
        prop_assert_eq!(texts.len(), message.string_table.len());
    }
}

#[test]
fn the_program_is_the_first_mapping() {
    let module = |module: &'static str| Frame {
        module,
        ..Frame::function("f", "", 1)
    };
    for (modules, expected) in [
        (&["/lib/libc.so.6", "[vdso]", "/opt/app"][..], "/opt/app"),
        (
            &["/lib/libc.so.6", "/opt/app (deleted)"],
            "/opt/app (deleted)",
        ),
        (
            &["/usr/bin/python3.11", "/opt/a.cpython-311.so"],
            "/usr/bin/python3.11",
        ),
        (
            &["/lib/ld-2.31.so", "/opt/lib_1.so_2", "/opt/so"],
            "/opt/so",
        ),
        (&["/lib/libc.so.6", "[kernel]"], "/lib/libc.so.6"),
    ] {
        let mut frames = vec![Frame::task("load")];
        frames.extend(modules.iter().copied().map(module));
        let all = from_rows([(frames, State::Cpu, 7)]);
        let found = message(&all, &ExportOptions::default());
        let name = |mapping: &proto::Mapping| &*found.string_table[mapping.filename as usize];
        assert_eq!(name(&found.mapping[0]), expected);
        let mut names: Vec<&str> = found.mapping.iter().map(name).collect();
        let mut all_names = modules.to_vec();
        names.sort_unstable();
        all_names.sort_unstable();
        assert_eq!(names, all_names);
    }
}
