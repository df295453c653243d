//! Values of pprof that become time: those that their own tools call so, in any column.

use flamegraph::messages::pprof as proto;
use prost::Message as _;

use super::*;

/// A message with one sample that has these values, and a default type.
fn message(columns: &[(&str, i64)], default: &str, period: Option<(&str, i64)>) -> Vec<u8> {
    let mut texts = vec![String::new(), "main".to_owned()];
    let mut text = |text: &str| {
        texts.push(text.to_owned());
        texts.len() as i64 - 1
    };
    let mut kind = |column: &str| {
        let (name, unit) = column.split_once('/').unwrap();
        proto::ValueType {
            kind: text(name),
            unit: text(unit),
        }
    };
    let sample_type = columns.iter().map(|(column, _)| kind(column)).collect();
    let period_type = period.map(|(column, _)| kind(column));
    let default_sample_type = text(default);
    let line = vec![proto::Line {
        function_id: 1,
        line: 1,
    }];
    let message = proto::Profile {
        sample_type,
        sample: vec![proto::Sample {
            location_id: vec![1],
            value: columns.iter().map(|(_, value)| *value).collect(),
            label: Vec::new(),
        }],
        location: vec![proto::Location {
            id: 1,
            line,
            ..Default::default()
        }],
        function: vec![proto::Function {
            id: 1,
            name: 1,
            ..Default::default()
        }],
        period_type,
        period: period.map_or(0, |(_, period)| period),
        default_sample_type,
        string_table: texts,
        ..Default::default()
    };
    message.encode_to_vec()
}

/// The time by state, such as `cpu 5 lock 2`, or the error.
fn summary(message: &[u8]) -> String {
    let options = ImportOptions {
        format: Some(ImportFormat::Pprof),
        ..ImportOptions::default()
    };
    let imported = match import(message, &options) {
        Ok(imported) => imported,
        Err(error) => return error.to_string(),
    };
    let total = imported.profile().total();
    let states = State::ALL
        .into_iter()
        .filter(|state| total.get(*state) > 0)
        .map(|state| format!("{} {}", state.name(), total.get(state)));
    states.collect::<Vec<_>>().join(" ")
}

/// In this order, the other way around, and with each column as the default.
fn check(columns: &[(&str, i64)], period: Option<(&str, i64)>, expected: &str) {
    let reversed: Vec<_> = columns.iter().rev().copied().collect();
    let defaults = columns
        .iter()
        .map(|(column, _)| column.split_once('/').unwrap().0);
    for default in defaults.chain(["", "missing"]) {
        for columns in [columns, &reversed] {
            let found = summary(&message(columns, default, period));
            assert_eq!(
                found, expected,
                "{columns:?}, default {default:?}, period {period:?}"
            );
        }
    }
}

const CPU: Option<(&str, i64)> = Some(("cpu/nanoseconds", 10));

#[test]
fn columns_of_real_profilers_are_their_own_time() {
    // .NET of Pyroscope, which lists all types in each push.
    let dotnet = |cpu, alloc, lock| {
        [
            ("cpu/nanoseconds", cpu),
            ("exception/count", 3),
            ("alloc_samples/count", alloc),
            ("alloc_size/bytes", alloc),
            ("lock_count/count", lock),
            ("lock_time/nanoseconds", lock),
        ]
    };
    check(&dotnet(5, 1, 2), None, "cpu 5 lock 2");
    check(&dotnet(5, 0, 0), None, "cpu 5");
    check(&dotnet(0, 0, 2), None, "lock 2");
    // Python of Datadog.
    let python = |cpu, wall, wait, hold| {
        [
            ("cpu-time/nanoseconds", cpu),
            ("cpu-samples/count", 1),
            ("wall-time/nanoseconds", wall),
            ("exception-samples/count", 1),
            ("lock-acquire/count", 1),
            ("lock-acquire-wait/nanoseconds", wait),
            ("lock-release/count", 1),
            ("lock-release-hold/nanoseconds", hold),
            ("alloc-samples/count", 9),
            ("alloc-space/bytes", 9),
            ("heap-space/bytes", 9),
        ]
    };
    check(&python(5, 6, 2, 9), None, "cpu 5 other 1");
    check(&python(0, 0, 2, 9), None, "lock 2");
    // Go.
    check(
        &[("samples/count", 2), ("cpu/nanoseconds", 20)],
        CPU,
        "cpu 20",
    );
    let contentions = [("contentions/count", 2), ("delay/nanoseconds", 20)];
    check(&contentions, Some(("contentions/count", 1)), "lock 20");
    // Node.js, PHP, fgprof, Parca, `perf_to_profile` of off-CPU time.
    check(
        &[("sample/count", 2), ("wall/nanoseconds", 20)],
        Some(("wall/nanoseconds", 10)),
        "other 20",
    );
    let php = [
        ("sample/count", 2),
        ("wall-time/nanoseconds", 20),
        ("cpu-time/nanoseconds", 15),
        ("timeline/nanoseconds", 99),
    ];
    check(&php, Some(("wall-time/nanoseconds", 10)), "cpu 15 other 5");
    check(
        &[("samples/count", 2), ("time/nanoseconds", 20)],
        None,
        "other 20",
    );
    check(&[("samples/count", 2)], CPU, "cpu 20");
    check(
        &[("samples/count", 2), ("off-cpu/milliseconds", 3)],
        None,
        "other 3000000",
    );
    // More CPU time than time: threads that are measured as one.
    check(
        &[("wall/nanoseconds", 5), ("cpu/nanoseconds", 8)],
        None,
        "cpu 8",
    );
    check(
        &[
            ("cpu/microseconds", 5),
            ("off_cpu/nanoseconds", 8),
            ("delay/nanoseconds", 7),
        ],
        None,
        "cpu 5000 other 8",
    );
}

#[test]
fn what_is_no_time_is_refused_by_name() {
    let heap = [
        ("alloc_objects/count", 1),
        ("alloc_space/bytes", 2),
        ("inuse_space/bytes", 3),
    ];
    let error = summary(&message(&heap, "inuse_space", Some(("space/bytes", 1))));
    let expected = "no type of sample is time; the pprof profile has alloc_objects/count, alloc_space/bytes, inuse_space/bytes";
    assert_eq!(error, expected);
    let held = [("cpu/nanoseconds", 0), ("lock-release-hold/nanoseconds", 7)];
    let expected = "no type of sample is time; the pprof profile has only values of lock-release-hold/nanoseconds";
    check(&held, None, expected);
    check(
        &[("cpu/nanoseconds", 0)],
        None,
        "the pprof profile has no samples with time",
    );
    let expected = "no type of sample is time; the pprof profile has samples/count; --interval sets the time of a sample";
    check(&[("samples/count", 1)], None, expected);
    check(
        &[("samples/count", 1)],
        Some(("space/bytes", 512)),
        expected,
    );
}

#[test]
fn an_unknown_time_counts_only_if_no_known_one_does() {
    let unknown = [("latency/ms", 2), ("service/ms", 3)];
    assert_eq!(summary(&message(&unknown, "latency", None)), "cpu 2000000");
    assert_eq!(
        summary(&message(&unknown, "", None)),
        "cpu 3000000",
        "the last, as pprof has it"
    );
    check(&[("latency/ms", 2), ("cpu/ns", 3)], None, "cpu 3");
    check(&[("latency/ms", 2), ("lock_time/ns", 3)], None, "lock 3");
}

proptest! {
    /// Whatever stands next to them: CPU time is CPU time, waits are waits, and nothing is counted twice.
    #[test]
    fn cpu_and_waits_are_found_in_any_order_and_unit(
        mut columns in prop::sample::subsequence(
            vec!["exception/count", "alloc_size/bytes", "lock-hold/ns", "heap-live/ms", "gpu-time/ns", "lock_count/count"],
            0..=6,
        ),
        cpu in prop::sample::select(vec!["cpu", "cpu-time", "CPU_time"]),
        wait in prop::sample::select(vec!["delay", "lock_time", "lock-acquire-wait", "contentions"]),
        unit in prop::sample::select(vec![("ns", 1), ("us", 1_000), ("milliseconds", 1_000_000)]),
        values in (0..1_000_i64, 0..1_000_i64),
        order in any::<u64>(),
    ) {
        let [cpu, wait] = [cpu, wait].map(|name| format!("{name}/{}", unit.0));
        columns.extend([&*cpu, &*wait]);
        let at = (order % columns.len() as u64) as usize;
        columns.rotate_left(at);
        let columns: Vec<_> = columns.into_iter().map(|column| {
            let value = if column == cpu { values.0 } else if column == wait { values.1 } else { 77 };
            (column, value)
        }).collect();
        let parts: Vec<String> = [("cpu", values.0), ("lock", values.1)].into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| format!("{name} {}", value * unit.1)).collect();
        let found = summary(&message(&columns, "", None));
        if parts.is_empty() {
            prop_assert!(found.contains("no type of sample is time") || found.contains("no samples with time"));
        } else {
            prop_assert_eq!(found, parts.join(" "));
        }
    }
}
