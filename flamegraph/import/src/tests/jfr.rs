//! Recordings of Java's Flight Recorder: what each event is used as, and that no time counts twice.

use std::sync::LazyLock;

use ::jfr::Integers;
use ::jfr::limits::TIME_NS_MAX;
use ::jfr::testing::{Datum, TestChunk, TestFrame, WAITS};
use prost::Message;

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A chunk of async-profiler that samples an event each 10 ms.
fn async_chunk(event: &str) -> TestChunk {
    let mut chunk = TestChunk::new(Integers::Compressed);
    chunk.setting("jdk.ActiveRecording", "event", event);
    chunk.setting("jdk.ExecutionSample", "interval", "10000000");
    chunk
}

/// Adds an event of the thread `main` with the stack `Main.main;Main.work`.
fn add(chunk: &mut TestChunk, name: &str, start_ns: u64, values: &[(&str, Datum)]) {
    add_of(chunk, "main", name, start_ns, values);
}

fn add_of(
    chunk: &mut TestChunk,
    thread: &str,
    name: &str,
    start_ns: u64,
    values: &[(&str, Datum)],
) {
    let thread = chunk.thread(thread, 7);
    let common = [
        ("startTime", Datum::Number(start_ns)),
        ("eventThread", thread.clone()),
        ("sampledThread", thread),
        ("stackTrace", chunk.stack(&["Main.work:5", "Main.main:3"])),
    ];
    chunk.event(name, &[values, &common].concat());
}

fn add_wait(chunk: &mut TestChunk, name: &str, start_ns: u64, length_ns: u64) {
    add(
        chunk,
        name,
        start_ns,
        &[("duration", Datum::Number(length_ns))],
    );
}

fn add_sample(chunk: &mut TestChunk, name: &str, start_ns: u64, state: &str) {
    let state = chunk.state(state);
    let values = [("state", state), ("samples", Datum::Number(1))];
    add(chunk, name, start_ns, &values);
}

/// Milliseconds by state, then the notes.
fn times(file: &[u8]) -> String {
    let imported = of(file);
    let mut text = String::new();
    for state in State::ALL {
        let of_state = imported
            .samples
            .iter()
            .filter(|sample| sample.state == state);
        let sum_ns: u64 = of_state.map(|sample| sample.nanoseconds).sum();
        if sum_ns > 0 {
            text.push_str(&format!(
                "{} {} ms\n",
                state.name(),
                sum_ns as f64 / MS as f64
            ));
        }
    }
    imported
        .notes
        .iter()
        .for_each(|note| text.push_str(&format!("note: {note}\n")));
    text
}

fn check_times(chunk: &TestChunk, expected: Expect) {
    expected.assert_eq(&times(&chunk.bytes()));
}

#[test]
fn each_event_is_time_of_its_kind_in_both_forms_of_integers() {
    for integers in [Integers::Compressed, Integers::Raw] {
        let mut chunk = TestChunk::new(integers);
        chunk.setting("jdk.ExecutionSample", "period", "20 ms");
        chunk.setting("jdk.NativeMethodSample", "period", "40 ms");
        add_sample(&mut chunk, "jdk.ExecutionSample", SECOND, "STATE_RUNNABLE");
        add_sample(
            &mut chunk,
            "jdk.NativeMethodSample",
            SECOND,
            "STATE_RUNNABLE",
        );
        for (name, number) in WAITS.into_iter().zip(0..) {
            add_wait(
                &mut chunk,
                name,
                2 * SECOND + number * 100 * MS,
                (1 << number) * MS / 10,
            );
        }
        for _ in 0..77 {
            add(&mut chunk, "jdk.ObjectAllocationInNewTLAB", 1, &[]);
        }
        chunk.event("jdk.ObjectAllocationInNewTLAB", &[]);
        chunk.set_type("jdk.CPULoad", "startTime:long jvmUser:float");
        add(&mut chunk, "jdk.CPULoad", 1, &[]);
        check_times(
            &chunk,
            expect![[r#"
            cpu 20 ms
            lock 0.7 ms
            sleep 0.8 ms
            network 4.8 ms
            disk 44.8 ms
            other 40 ms
            note: events that are no time of a thread do not count: 77 jdk.ObjectAllocationInNewTLAB
            note: samples of threads in native code, which may run or wait, are in state other: 1
            note: waiting is that of events above the recording's thresholds (1 jdk.FileForce, 1 jdk.FileRead, 1 jdk.FileWrite, 1 jdk.JavaMonitorEnter, 1 jdk.JavaMonitorWait, 1 jdk.SocketRead, 1 jdk.SocketWrite, 1 jdk.ThreadPark, and 1 other types): shorter waits are missing
        "#]],
        );
        assert!(of(chunk.bytes()).has_long_waits_only);
    }
}

#[test]
fn samples_are_one_interval_of_what_the_settings_say() {
    for event in ["itimer", "cpu", "ctimer"] {
        let mut chunk = async_chunk(event);
        add_sample(&mut chunk, "jdk.ExecutionSample", 0, "STATE_SLEEPING");
        check_times(
            &chunk,
            expect![[r#"
            cpu 10 ms
        "#]],
        );
    }
    // 0 is async-profiler's own default.
    for (setting, expected_ns) in [("0", 10 * MS), ("7", 7)] {
        let mut chunk = TestChunk::new(Integers::Compressed);
        chunk.setting("jdk.ActiveRecording", "event", "cpu");
        chunk.setting("jdk.ExecutionSample", "interval", setting);
        add_sample(&mut chunk, "jdk.ExecutionSample", 0, "STATE_RUNNABLE");
        assert_eq!(of(chunk.bytes()).total_ns(), expected_ns);
    }
    // Of two recordings that run at once, the shorter period; and settings may come after samples.
    let mut chunk = TestChunk::new(Integers::Compressed);
    add_sample(&mut chunk, "jdk.ExecutionSample", 0, "STATE_RUNNABLE");
    for period in ["everyChunk", "20 ms", "0 ns", "500 us", "1 s"] {
        chunk.setting("jdk.ExecutionSample", "period", period);
    }
    assert_eq!(of(chunk.bytes()).total_ns(), 500_000);
}

#[test]
fn without_settings_the_interval_is_that_of_the_options_or_assumed() {
    let mut chunk = TestChunk::new(Integers::Compressed);
    add_sample(&mut chunk, "jdk.ExecutionSample", 0, "STATE_RUNNABLE");
    check_times(
        &chunk,
        expect![[r#"
        cpu 20 ms
        note: a sample is 20 ms, assumed; --interval sets another time
    "#]],
    );
    let options = ImportOptions {
        interval_ns: Some(3 * MS),
        ..ImportOptions::default()
    };
    let imported = import(&chunk.bytes(), &options).unwrap();
    assert_eq!((imported.total_ns(), imported.notes.len()), (3 * MS, 0));
}

#[test]
fn wall_samples_have_the_state_of_the_event() {
    let mut chunk = async_chunk("wall");
    for (number, state) in ["STATE_RUNNABLE", "STATE_SLEEPING", "STATE_SLEEPING"]
        .iter()
        .enumerate()
    {
        add_sample(
            &mut chunk,
            "jdk.ExecutionSample",
            number as u64 * SECOND,
            state,
        );
    }
    // A batch of equal samples.
    let values = [
        ("state", chunk.state("STATE_SLEEPING")),
        ("samples", Datum::Number(100)),
    ];
    add(&mut chunk, "profiler.WallClockSample", 5 * SECOND, &values);
    check_times(
        &chunk,
        expect![[r#"
        cpu 10 ms
        other 1020 ms
    "#]],
    );
    assert!(!of(chunk.bytes()).has_long_waits_only);
}

/// Samples of all threads next to samples of CPU time: the latter have the CPU time, the former the rest.
#[test]
fn time_on_a_cpu_counts_once_if_all_threads_are_sampled_too() {
    for name in ["jdk.ExecutionSample", "profiler.WallClockSample"] {
        let mut chunk = async_chunk("cpu");
        chunk.setting("jdk.ExecutionSample", "wall", "50000000");
        for number in 0..10 {
            let at_ns = number * 10 * MS;
            add_sample(&mut chunk, "jdk.ExecutionSample", at_ns, "STATE_DEFAULT");
        }
        for (number, state) in ["STATE_RUNNABLE", "STATE_RUNNABLE", "STATE_SLEEPING"]
            .iter()
            .enumerate()
        {
            add_sample(&mut chunk, name, number as u64 * 50 * MS, state);
        }
        check_times(
            &chunk,
            expect![[r#"
            cpu 100 ms
            other 50 ms
            note: 0.100 s of samples do not count again: CPU samples or events with a length have that time
        "#]],
        );
    }
}

#[test]
fn samples_within_an_event_of_their_thread_do_not_count_again() {
    let mut first = async_chunk("wall");
    let mut second = TestChunk::new(Integers::Raw);
    second.start_ns += first.duration_ns;
    // From 1 s to 1.5 s; written when it ends, perhaps into a later chunk.
    add_of(&mut second, "main", "jdk.JavaMonitorEnter", 0, &[]);
    let start = first.start_ns;
    second.start_ticks = 10 * SECOND;
    add_wait(&mut second, "jdk.JavaMonitorEnter", SECOND, 500 * MS);
    for number in 0..100 {
        let at_ns = 995 * MS + number * 10 * MS;
        add_sample(&mut first, "jdk.ExecutionSample", at_ns, "STATE_SLEEPING");
    }
    // Another thread, which waits for nothing that an event tells.
    let state = first.state("STATE_SLEEPING");
    add_of(
        &mut first,
        "other",
        "jdk.ExecutionSample",
        SECOND,
        &[("state", state)],
    );
    assert_eq!(start + first.duration_ns, second.start_ns);
    let expected = expect![[r#"
        lock 500 ms
        other 510 ms
        note: 0.500 s of samples do not count again: CPU samples or events with a length have that time
    "#]];
    // The threads have the same constants in both chunks, as the JVM writes them.
    expected.assert_eq(&times(&[first.bytes(), second.bytes()].concat()));
}

#[test]
fn waits_within_waits_count_once() {
    let mut chunk = TestChunk::new(Integers::Compressed);
    add_wait(&mut chunk, "jdk.SocketRead", SECOND, 100 * MS);
    add_wait(&mut chunk, "jdk.ThreadPark", SECOND + 20 * MS, 30 * MS);
    add_wait(&mut chunk, "jdk.ThreadPark", SECOND + 90 * MS, 30 * MS);
    let imported = of(chunk.bytes());
    assert_eq!(imported.total_ns(), 120 * MS);
}

#[test]
fn events_that_are_no_time_are_named() {
    let mut chunk = async_chunk("cache-misses");
    for _ in 0..3 {
        add_sample(&mut chunk, "jdk.ExecutionSample", 0, "STATE_RUNNABLE");
    }
    add(&mut chunk, "jdk.ObjectAllocationInNewTLAB", 0, &[]);
    let error = import(&chunk.bytes(), &ImportOptions::default()).unwrap_err();
    let expected = "no type of sample is time; the jfr profile has 3 jdk.ExecutionSample of \
                    cache-misses, 1 jdk.ObjectAllocationInNewTLAB";
    assert_eq!(error.to_string(), expected);
    let empty = import(
        &TestChunk::new(Integers::Raw).bytes(),
        &ImportOptions::default(),
    );
    assert_eq!(
        empty.unwrap_err().to_string(),
        "the jfr profile has no samples with time"
    );
    chunk.event("jdk.DataLoss", &[("amount", Datum::Number(9))]);
    add_wait(&mut chunk, "jdk.ThreadSleep", 0, MS);
    assert!(times(&chunk.bytes()).contains("note: the JVM lost 9 bytes of events\n"));
}

#[test]
fn frames_have_class_line_kind_and_library() {
    let frame = |class, method, descriptor, line, kind| TestFrame {
        class,
        method,
        descriptor,
        line,
        kind,
    };
    let frames = [
        frame("", "do_syscall_64", "()L;", 0, "Kernel"),
        frame("libc.so.6", "read", "()L;", 0, "Native"),
        frame("libjvm.so", "os::read(int)", "()L;", 0, "C++"),
        frame("java/io/In", "read", "(I)I", u64::from(u32::MAX), "Native"),
        frame("a/Main", "in", "()V", 12, "Inlined"),
        frame("a/Main", "jit", "()V", 7, "JIT compiled"),
        frame("a/Main", "main", "()V", 3, "Interpreted"),
    ];
    let mut chunk = async_chunk("cpu");
    let stack = chunk.stack_of(&frames, true);
    chunk.event("jdk.ExecutionSample", &[("stackTrace", stack)]);
    let imported = of(chunk.bytes());
    let mut node = imported.samples[0].node;
    let mut lines = Vec::new();
    while let Some((parent, frame)) = imported.trie.node(node) {
        let frame = imported.symbols.frame(frame);
        let inlined = if frame.inlined { " inlined" } else { "" };
        let Frame {
            kind,
            function,
            module,
            line,
            ..
        } = frame;
        lines.push(format!("{kind:?} {function}:{line} {module}{inlined}"));
        node = parent;
    }
    let expected = [
        "Function do_syscall_64:0 [kernel]",
        "Function read:0 libc.so.6",
        "Function os::read(int):0 libjvm.so",
        "Function java.io.In.read:0 ",
        "Function a.Main.in:12  inlined",
        "Function a.Main.jit:7 ",
        "Function a.Main.main:3 ",
        "Truncated [truncated]:0 ",
        "Task imported:0 ",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn deep_stacks_keep_their_inner_frames() {
    let methods: Vec<String> = (0..2_000).map(|depth| format!("A.m{depth}")).collect();
    let names: Vec<&str> = methods.iter().map(String::as_str).collect();
    let mut chunk = async_chunk("cpu");
    let stack = chunk.stack(&names);
    chunk.event("jdk.ExecutionSample", &[("stackTrace", stack)]);
    let text = collapsed(&of(chunk.bytes()).profile());
    assert!(text.starts_with("imported;[truncated];A.m996;"), "{text}");
    assert!(text.ends_with(";A.m1;A.m0 10000000\n"), "{text}");
}

#[test]
fn missing_constants_leave_the_time() {
    for missing in [
        "java.lang.Thread",
        "jdk.types.StackTrace",
        "jdk.types.Method",
        "jdk.types.Symbol",
        "java.lang.Class",
        "java.lang.String",
        "jdk.types.FrameType",
        "jdk.types.ThreadState",
    ] {
        let mut chunk = async_chunk("cpu");
        add_sample(&mut chunk, "jdk.ExecutionSample", 0, "STATE_RUNNABLE");
        add_wait(&mut chunk, "jdk.ThreadSleep", 0, MS);
        chunk.leave_out(missing);
        assert_eq!(of(chunk.bytes()).total_ns(), 11 * MS, "{missing}");
    }
}

#[test]
fn seconds_threads_and_the_start_are_those_of_the_recording() {
    let mut chunk = async_chunk("cpu");
    chunk.ticks_per_second = 1_000;
    chunk.start_ticks = 500;
    add_of(&mut chunk, "worker", "jdk.ExecutionSample", 2_600, &[]);
    // From 1.9 s on, for 1.2 s; and one that began 3 s before the recording.
    add_of(
        &mut chunk,
        "main",
        "jdk.ThreadSleep",
        2_400,
        &[("duration", Datum::Number(1_200))],
    );
    let before = Datum::Number(4_000);
    add_of(
        &mut chunk,
        "early",
        "jdk.ThreadPark",
        0_u64.wrapping_sub(2_500),
        &[("duration", before)],
    );
    // After the end, as the clock of a damaged header tells.
    add_of(
        &mut chunk,
        "late",
        "jdk.ThreadPark",
        1 << 60,
        &[("duration", Datum::Number(1))],
    );
    let imported = of(chunk.bytes());
    assert_eq!(
        imported.started_at,
        Some(Timestamp::from_unix_ns(1_000_000_000_000_000))
    );
    assert_eq!(imported.duration_ns, 10 * SECOND);
    let mut lines: Vec<String> = imported
        .samples
        .iter()
        .map(|sample| {
            let (_, thread) = imported.trie.node(sample.thread).unwrap();
            let Frame { function, line, .. } = imported.symbols.frame(thread);
            let ms = sample.nanoseconds / MS;
            format!("{} s {function}/{line} {ms} ms", sample.second)
        })
        .collect();
    lines.sort();
    let expected = [
        "0 s early/7 4000 ms",
        "1 s main/7 100 ms",
        "10 s late/7 1 ms",
        "2 s main/7 1000 ms",
        "2 s worker/7 10 ms",
        "3 s main/7 100 ms",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn long_waits_are_divided_into_parts_that_sum_up() {
    let mut chunk = TestChunk::new(Integers::Compressed);
    chunk.duration_ns = 200_000 * SECOND;
    add_wait(
        &mut chunk,
        "jdk.ThreadPark",
        SECOND / 2,
        100_000 * SECOND + 7,
    );
    let imported = of(chunk.bytes());
    assert_eq!(imported.total_ns(), 100_000 * SECOND + 7);
    assert!(
        (50..=62).contains(&imported.samples.len()),
        "{}",
        imported.samples.len()
    );
}

/// The labels of Pyroscope's agent.
#[derive(Clone, PartialEq, Message)]
struct Snapshot {
    #[prost(btree_map = "int64, message", tag = "1")]
    contexts: std::collections::BTreeMap<i64, Context>,
    #[prost(btree_map = "int64, string", tag = "2")]
    texts: std::collections::BTreeMap<i64, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Context {
    #[prost(btree_map = "int64, int64", tag = "1")]
    labels: std::collections::BTreeMap<i64, i64>,
}

#[test]
fn labels_next_to_the_recording_name_tasks_and_series() {
    let texts = ["task", "load", "region", "eu", "span_id", "17"];
    let texts = (1..).zip(texts.map(str::to_owned)).collect();
    let context = |labels: &[(i64, i64)]| Context {
        labels: labels.iter().copied().collect(),
    };
    let contexts = [
        (5, context(&[(1, 2), (3, 4)])),
        (-1, context(&[(1, 2), (5, 6), (9, 9)])),
    ];
    let snapshot = Snapshot {
        contexts: contexts.into(),
        texts,
    };
    let mut chunk = async_chunk("cpu");
    for context in [0, 5, 5, u64::MAX, 77] {
        add(
            &mut chunk,
            "jdk.ExecutionSample",
            0,
            &[("contextId", Datum::Number(context))],
        );
    }
    let options = ImportOptions {
        jfr_labels: snapshot.encode_to_vec(),
        keep_labels: true,
        ..ImportOptions::default()
    };
    let imported = import(&chunk.bytes(), &options).unwrap();
    let expected = "imported;Main.main;Main.work 20000000\nload;Main.main;Main.work 30000000\n";
    assert_eq!(collapsed(&imported.profile()), expected);
    let region = Labels::from([("region".to_owned(), "eu".to_owned())]);
    assert_eq!(imported.label_sets, [Labels::new(), region]);
    let of_region = imported.samples.iter().filter(|sample| sample.labels == 1);
    assert_eq!(
        of_region.map(|sample| sample.nanoseconds).sum::<u64>(),
        20 * MS
    );

    let none = of(chunk.bytes());
    assert_eq!(
        none.notes,
        ["the labels of samples are not in the recording"]
    );
    let damaged = ImportOptions {
        jfr_labels: vec![0xff],
        ..ImportOptions::default()
    };
    let error = import(&chunk.bytes(), &damaged).unwrap_err().to_string();
    assert!(error.starts_with("invalid jfr: labels: "), "{error}");
    let long = ImportOptions {
        jfr_labels: vec![0; limits::CONTEXTS_BYTES_MAX + 1],
        ..ImportOptions::default()
    };
    let error = import(&chunk.bytes(), &long).unwrap_err().to_string();
    assert_eq!(
        error,
        "too many bytes of content: at most 2097152 are allowed"
    );
}

/// One of each, for damage.
fn small_recording(integers: Integers) -> Vec<u8> {
    let mut chunk = TestChunk::new(integers);
    chunk.setting("jdk.ActiveRecording", "event", "cpu");
    chunk.setting("jdk.ExecutionSample", "interval", "10000000");
    chunk.setting("jdk.ExecutionSample", "wall", "50000000");
    for (name, number) in WAITS.into_iter().zip(1..) {
        add_wait(&mut chunk, name, number * SECOND / 2, 100 * MS);
        let values = [
            ("samples", Datum::Number(number)),
            ("contextId", Datum::Number(number)),
        ];
        for sample in [
            "jdk.ExecutionSample",
            "jdk.NativeMethodSample",
            "profiler.WallClockSample",
        ] {
            add(&mut chunk, sample, number * SECOND / 2, &values);
        }
    }
    chunk.bytes()
}

static SMALL: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [Integers::Compressed, Integers::Raw].map(small_recording));

/// Imports, and checks what it took.
fn check_bounds(bytes: &[u8]) {
    let measured = allocation_counter::measure(|| drop(import(bytes, &ImportOptions::default())));
    let length = bytes.len() as u64;
    // Tables of an empty profile, and one name of the longest kind.
    let memory_max = (256 << 10) + 48 * length;
    assert!(
        measured.bytes_max <= memory_max,
        "{length} bytes: {measured:?}"
    );
    assert!(
        measured.count_total <= 10_000 + 8 * length,
        "{length} bytes: {measured:?}"
    );
}

/// Small events that differ in all constants, which the recording lacks, take the most memory for their bytes.
#[test]
fn small_events_take_bounded_memory() {
    for (name, shape) in [
        ("jdk.ThreadPark", "start duration thread stack context"),
        ("jdk.ExecutionSample", "start thread stack state context"),
    ] {
        let mut chunk = TestChunk::new(Integers::Compressed);
        for number in 0..20_000_u32 {
            let [low, high] = [
                number as u8 & 0x7f | 0x80,
                (number >> 7) as u8 & 0x7f | 0x80,
            ];
            let differing = [low, high, (number >> 14) as u8 & 0x7f];
            let field = |name: &str| match name {
                "thread" | "stack" | "context" => differing.to_vec(),
                _ => vec![1],
            };
            let bytes: Vec<u8> = shape.split(' ').flat_map(field).collect();
            chunk.event_of_bytes(name, &bytes);
        }
        check_bounds(&chunk.bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn damaged_recordings_take_bounded_memory_and_work(
        is_raw in any::<bool>(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..=8),
        cut in prop_oneof![Just(usize::MAX), 0_usize..10_000],
    ) {
        let mut bytes = SMALL[usize::from(is_raw)].clone();
        for (at, value) in changes {
            let length = bytes.len();
            bytes[at % length] = value;
        }
        bytes.truncate(cut);
        check_bounds(&bytes);
    }

}

proptest! {
    /// Times, lengths and ticks of any size neither fail nor count anything but the lengths.
    #[test]
    fn times_of_any_size_are_added_up(
        ticks_per_second in prop_oneof![Just(1), Just(1_000_000_000), Just(u64::MAX), 1..u64::MAX],
        start_ticks in any::<u64>(),
        events in proptest::collection::vec((any::<u64>(), 0_u64..1 << 33), 1..6),
    ) {
        let mut chunk = TestChunk::new(Integers::Compressed);
        chunk.ticks_per_second = ticks_per_second;
        chunk.start_ticks = start_ticks;
        let mut total_ns = 0_u128;
        for (number, (start, length)) in (0..).zip(&events) {
            let duration = [("duration", Datum::Number(*length))];
            add_of(&mut chunk, &format!("thread {number}"), "jdk.ThreadPark", *start, &duration);
            let length_ns = u128::from(*length) * u128::from(SECOND) / u128::from(ticks_per_second);
            total_ns += length_ns.min(TIME_NS_MAX as u128);
        }
        match import(&chunk.bytes(), &ImportOptions::default()) {
            Ok(imported) => prop_assert_eq!(u128::from(imported.total_ns()), total_ns),
            Err(error) => {
                let text = error.to_string();
                let expected = if total_ns == 0 { "no samples with time" } else { "exceeds 64 bits" };
                prop_assert!(text.contains(expected), "{}", text);
            }
        }
    }
}
