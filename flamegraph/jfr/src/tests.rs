//! Recordings are read as they were written, and damaged ones within the limits.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::limits::{MEMORY_MIN, MEMORY_PER_BYTE_MAX, WORK_MIN, WORK_PER_BYTE_MAX};
use crate::testing::{Datum, TestChunk, WAITS};

/// Events of each type.
const NUMBERS: u64 = 3;

/// [`chunk`], in both forms.
static GOOD: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| BOTH.map(|integers| chunk(integers).bytes()));

const BOTH: [Integers; 2] = [Integers::Compressed, Integers::Raw];

/// An event of each type, with stacks of several lengths.
fn chunk(integers: Integers) -> TestChunk {
    let mut chunk = TestChunk::new(integers);
    chunk.setting("jdk.ExecutionSample", "period", "20 ms");
    for number in 0..NUMBERS {
        let methods: Vec<String> = (0..number)
            .map(|depth| format!("pkg/Class{depth}.method{depth}:{}", depth + 1))
            .collect();
        let names: Vec<&str> = methods.iter().map(String::as_str).collect();
        let values = [
            ("startTime", Datum::Number(1 << (7 * number))),
            ("duration", Datum::Number(number)),
            (
                "eventThread",
                chunk.thread(&format!("thread {number}"), number),
            ),
            ("sampledThread", chunk.thread("päckchen", number)),
            ("stackTrace", chunk.stack(&names)),
            ("state", chunk.state("STATE_RUNNABLE")),
        ];
        let others = [
            "jdk.ExecutionSample",
            "jdk.NativeMethodSample",
            "profiler.WallClockSample",
            "jdk.ObjectAllocationInNewTLAB",
            "jdk.DataLoss",
        ];
        for name in others.iter().chain(&WAITS) {
            chunk.event(name, &values);
        }
    }
    chunk
}

/// Everything that a recording has, as a text.
fn dump(recording: &Recording<'_>) -> Result<String, JfrError> {
    let mut text = String::new();
    for chunk in recording.chunks() {
        let chunk = chunk?;
        let types: Vec<String> = chunk.types().map(|(name, _)| name.to_owned()).collect();
        text.push_str(&format!(
            "chunk {} {}\n",
            chunk.start_ns(),
            chunk.duration_ns()
        ));
        for event in chunk.events() {
            let event = event?;
            let record = event.record()?;
            let start_ns = chunk.time_ns(record.number(Key::StartTime).unwrap_or(0));
            let length_ns = chunk.length_ns(record.number(Key::Duration).unwrap_or(0));
            let name = &types[event.type_index];
            text.push_str(&format!("{name} {start_ns} +{length_ns}"));
            for key in [Key::State, Key::Name, Key::Value] {
                let value = chunk.text(&record, key)?;
                value
                    .iter()
                    .for_each(|value| text.push_str(&format!(" {value}")));
            }
            let thread = record.constant(Key::Thread);
            if let Some(thread) = thread
                .map(|thread| chunk.resolve(thread))
                .transpose()?
                .flatten()
            {
                let name = chunk.text(&thread, Key::JavaName)?.unwrap_or_default();
                text.push_str(&format!(" [{name} {:?}]", thread.number(Key::OsThreadId)));
            }
            let stack = record.constant(Key::StackTrace);
            if let Some(stack) = stack
                .map(|stack| chunk.resolve(stack))
                .transpose()?
                .flatten()
            {
                for frame in chunk.list(&stack, Key::Frames) {
                    text.push_str(&frame_text(&chunk, &frame?)?);
                }
            }
            text.push('\n');
        }
    }
    Ok(text)
}

fn frame_text(chunk: &Chunk<'_>, frame: &Record<'_>) -> Result<String, JfrError> {
    let line = frame.number(Key::LineNumber).unwrap_or(0);
    let kind = chunk.text(frame, Key::Type)?.unwrap_or_default();
    let method = frame
        .constant(Key::Method)
        .map(|method| chunk.resolve(method));
    let Some(method) = method.transpose()?.flatten() else {
        return Ok(format!(" ?:{line} {kind}"));
    };
    let found = method
        .constant(Key::Type)
        .map(|class| chunk.resolve(class))
        .transpose()?
        .flatten();
    let class = found
        .map(|class| chunk.text(&class, Key::Name))
        .transpose()?
        .flatten()
        .unwrap_or_default();
    let name = chunk.text(&method, Key::Name)?.unwrap_or_default();
    Ok(format!(" {class}.{name}:{line} {kind}"))
}

fn dumped(bytes: &[u8]) -> String {
    dump(&Recording::new(bytes)).unwrap()
}

#[test]
fn both_forms_of_integers_tell_the_same() {
    let [compressed, raw] = BOTH.map(|integers| dumped(&chunk(integers).bytes()));
    assert_eq!(compressed, raw);
    let lines: Vec<&str> = compressed.lines().collect();
    assert_eq!(lines[0], "chunk 1000000000000000 10000000000");
    assert_eq!(
        lines[1],
        "jdk.ActiveSetting 1000000000000000 +0 period 20 ms"
    );
    assert_eq!(
        lines[2 + 2 * 14],
        "jdk.ExecutionSample 1000000000016384 +0 STATE_RUNNABLE [päckchen Some(2)] \
         pkg/Class0.method0:1 Interpreted pkg/Class1.method1:2 Interpreted"
    );
    assert!(
        lines
            .last()
            .unwrap()
            .starts_with("jdk.FileForce 1000000000016384 +2")
    );
    assert_eq!(lines.len(), 2 + NUMBERS as usize * (5 + WAITS.len()));
}

#[test]
fn chunks_follow_each_other_and_may_be_without_events() {
    let mut later = TestChunk::new(Integers::Raw);
    later.start_ns = 2_000_000_000_000_000;
    let parts = [
        chunk(Integers::Compressed).bytes(),
        TestChunk::new(Integers::Compressed).bytes(),
        later.bytes(),
    ];
    let expected: String = parts.iter().map(|part| dumped(part)).collect();
    assert_eq!(dumped(&parts.concat()), expected);
    assert!(expected.ends_with("chunk 2000000000000000 10000000000\n"));
    assert_eq!(dumped(b""), "");
}

#[test]
fn ticks_are_scaled_to_nanoseconds_whatever_a_second_has() {
    for (ticks_per_second, ticks, expected_ns) in [
        (1_000_000_000, 5, 5),
        (1_000, 5, 5_000_000),
        (3, 1, 333_333_333),
        (u64::MAX, u64::MAX / 2, 499_999_999),
        (1, u64::MAX / 2, i64::MAX as u64 / 2),
        // Negative.
        (1, u64::MAX, 0),
    ] {
        let mut chunk = TestChunk::new(Integers::Compressed);
        chunk.ticks_per_second = ticks_per_second;
        chunk.start_ticks = 7;
        let bytes = chunk.bytes();
        let recording = Recording::new(&bytes);
        let chunk = recording.chunks().next().unwrap().unwrap();
        assert_eq!(
            chunk.length_ns(ticks),
            expected_ns,
            "{ticks} of {ticks_per_second}"
        );
        assert_eq!(chunk.time_ns(7), 1_000_000_000_000_000);
        let before_ns =
            1_000_000_000_000_000 - (2_000_000_000 / i128::from(ticks_per_second)) as i64;
        assert_eq!(chunk.time_ns(5), before_ns);
    }
    let mut chunk = TestChunk::new(Integers::Compressed);
    chunk.ticks_per_second = 0;
    rejected(
        &chunk.bytes(),
        "byte 68: a second of the chunk has no ticks",
    );
}

fn rejected(bytes: &[u8], expected: &str) {
    let error = dump(&Recording::new(bytes)).unwrap_err().to_string();
    assert_eq!(error, expected);
}

#[test]
fn headers_are_checked_before_anything_is_read() {
    let good = chunk(Integers::Compressed).bytes();
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        bytes
    };
    let cut = "the chunk is longer than the file: the recording is cut, or was not finished";
    rejected(&good[..good.len() - 1], &format!("byte 68: {cut}"));
    rejected(&with(8, 1 << 30), &format!("byte 68: {cut}"));
    rejected(&with(8, u64::MAX), &format!("byte 68: {cut}"));
    let outside = "byte 68: the metadata is outside of its chunk";
    rejected(&with(8, 0), outside);
    rejected(&with(24, 0), outside);
    rejected(&with(24, good.len() as u64), outside);
    rejected(
        &with(32, u64::MAX),
        "byte 68: the chunk's start is out of range",
    );
    rejected(b"FLR\0\0\x01", "byte 6: the bytes end within a value");
    let two = [&good[..], b"FLR"].concat();
    let at = good.len();
    rejected(
        &two,
        &format!("byte {at}: a chunk must begin with `FLR` and a zero"),
    );
    let mut old = good.clone();
    old[5] = 1;
    rejected(
        &old,
        "byte 8: version 2 is read, which Java 9 and later write",
    );
}

#[test]
fn values_of_unknown_fields_are_skipped() {
    for integers in BOTH {
        let mut chunk = TestChunk::new(integers);
        chunk.set_type("test.Inner", "a:double b:*java.lang.String");
        chunk.set_type(
            "test.Event",
            "list:*test.Inner short:short char:char byte:byte float:float inner:test.Inner \
             keys:*java.lang.Thread duration:long",
        );
        let texts = Datum::List(vec![vec![Datum::Text("x".to_owned())]; 2]);
        let list = Datum::List(vec![vec![Datum::Number(0), texts.clone()]; 3]);
        chunk.event(
            "test.Event",
            &[("list", list), ("duration", Datum::Number(9))],
        );
        assert!(dumped(&chunk.bytes()).ends_with("\ntest.Event 1000000000000000 +9\n"));
    }
}

#[test]
fn constants_that_are_missing_are_none() {
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
        let mut chunk = chunk(Integers::Compressed);
        chunk.leave_out(missing);
        let text = dumped(&chunk.bytes());
        assert_eq!(text.lines().count(), 44, "{missing}");
        let whole = dumped(&self::chunk(Integers::Compressed).bytes());
        assert!(text.len() < whole.len(), "{missing}");
    }
}

/// A type that contains itself, or lists whose elements have no bytes, cannot make the reader run on.
#[test]
fn types_without_end_or_bytes_are_rejected() {
    let rejection = |types: &[(&'static str, &'static str)], bytes: &[u8]| {
        let mut chunk = TestChunk::new(Integers::Compressed);
        for (name, fields) in types {
            chunk.set_type(name, fields);
        }
        chunk.event_of_bytes("test.Event", bytes);
        let bytes = chunk.bytes();
        let recording = Recording::new(&bytes);
        let error = dump(&recording).unwrap_err();
        let work_max = WORK_MIN + WORK_PER_BYTE_MAX * bytes.len() as u64;
        assert!(recording.work() <= work_max + 1, "{error}");
        error.to_string()
    };
    let error = rejection(&[("test.Event", "x:test.Event")], &[]);
    assert!(
        error.ends_with("a value contains itself or is nested too deeply"),
        "{error}"
    );

    // 8^8 values without bytes.
    let eight = [
        ("t0", ""),
        ("t1", "a:t0 b:t0 c:t0 d:t0 e:t0 f:t0 g:t0 h:t0"),
        ("t2", "a:t1 b:t1 c:t1 d:t1 e:t1 f:t1 g:t1 h:t1"),
        ("t3", "a:t2 b:t2 c:t2 d:t2 e:t2 f:t2 g:t2 h:t2"),
        ("t4", "a:t3 b:t3 c:t3 d:t3 e:t3 f:t3 g:t3 h:t3"),
        ("t5", "a:t4 b:t4 c:t4 d:t4 e:t4 f:t4 g:t4 h:t4"),
        ("t6", "a:t5 b:t5 c:t5 d:t5 e:t5 f:t5 g:t5 h:t5"),
        ("t7", "a:t6 b:t6 c:t6 d:t6 e:t6 f:t6 g:t6 h:t6"),
        ("test.Event", "a:t7 b:t7 c:t7 d:t7 e:t7 f:t7 g:t7 h:t7"),
    ];
    let error = rejection(&eight, &[]);
    assert!(
        error.ends_with("steps, which is the limit for its size"),
        "{error}"
    );

    // Ten elements, and ten bytes that follow.
    let list = [("t0", ""), ("test.Event", "frames:*t0")];
    let error = rejection(&list, &[10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(
        error.ends_with("a list has elements without bytes"),
        "{error}"
    );
    let error = rejection(&list, &[11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(
        error.ends_with("a list has more elements than bytes are left"),
        "{error}"
    );
}

/// Reads everything of bytes, and checks what it took.
fn check_bounds(bytes: &[u8]) -> bool {
    let mut is_good = false;
    let mut work = 0;
    let measured = allocation_counter::measure(|| {
        let recording = Recording::new(bytes);
        is_good = visit(&recording).is_ok();
        work = recording.work();
    });
    let length = bytes.len();
    let memory_max = MEMORY_MIN + MEMORY_PER_BYTE_MAX * length;
    assert!(
        measured.bytes_max <= memory_max as u64,
        "{length} bytes: {measured:?}"
    );
    let work_max = WORK_MIN + WORK_PER_BYTE_MAX * length as u64;
    // A step is charged before it is made, the last one in vain.
    assert!(
        work <= work_max + length as u64,
        "{length} bytes: {work} steps"
    );
    // Each allocation is a step, so this counts work that is not charged.
    assert!(
        measured.count_total <= work_max,
        "{length} bytes: {measured:?}"
    );
    is_good
}

/// Decodes all values, without keeping them.
fn visit(recording: &Recording<'_>) -> Result<(), JfrError> {
    for chunk in recording.chunks() {
        let chunk = chunk?;
        for event in chunk.events() {
            let record = event?.record()?;
            for key in [Key::State, Key::Name, Key::Value] {
                chunk.text(&record, key)?;
            }
            let thread = record
                .constant(Key::Thread)
                .map(|thread| chunk.resolve(thread));
            if let Some(thread) = thread.transpose()?.flatten() {
                chunk.text(&thread, Key::JavaName)?;
            }
            let stack = record
                .constant(Key::StackTrace)
                .map(|stack| chunk.resolve(stack));
            if let Some(stack) = stack.transpose()?.flatten() {
                for frame in chunk.list(&stack, Key::Frames) {
                    frame_text(&chunk, &frame?)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn good_recordings_take_a_tenth_of_the_work_that_is_allowed() {
    for integers in BOTH {
        let mut chunk = chunk(integers);
        for number in 0..2_000 {
            let stack = chunk.stack(&["a/B.c:7", "a/B.main:3"]);
            let thread = chunk.thread("main", 1);
            let values = [
                ("startTime", Datum::Number(1_000_000_000 + number)),
                ("sampledThread", thread),
                ("stackTrace", stack),
            ];
            chunk.event("jdk.ExecutionSample", &values);
        }
        let bytes = chunk.bytes();
        let recording = Recording::new(&bytes);
        for chunk in recording.chunks() {
            let chunk = chunk.unwrap();
            for event in chunk.events() {
                event.unwrap().record().unwrap();
            }
        }
        let allowed = WORK_PER_BYTE_MAX * bytes.len() as u64;
        assert!(
            recording.work() * 10 <= allowed,
            "{} of {allowed}",
            recording.work()
        );
    }
}

/// Many small constants, types or texts take the most memory for their bytes.
#[test]
fn memory_is_bounded_where_entries_are_small() {
    let mut constants = TestChunk::new(Integers::Compressed);
    constants.add_raw_constants("jdk.types.Symbol", 200_000, &[0]);
    assert!(check_bounds(&constants.bytes()));
    let mut types = TestChunk::new(Integers::Compressed);
    types.empty_types = 16_000;
    assert!(check_bounds(&types.bytes()));
    let mut texts = TestChunk::new(Integers::Compressed);
    texts.unused_texts = 100_000;
    assert!(check_bounds(&texts.bytes()));
}

/// Changes up to eight bytes, or cuts.
fn damaged(good: &[u8], changes: &[(usize, u8)], end: usize) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for (at, value) in changes {
        let length = bytes.len();
        bytes[at % length] = *value;
    }
    bytes.truncate(end);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    /// Neither hangs nor takes memory, whatever the bytes say. The short good recordings make each byte of headers,
    /// metadata and constants a likely one.
    #[test]
    fn damaged_recordings_end_within_the_limits(
        is_raw in any::<bool>(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..=8),
        cut in prop_oneof![Just(usize::MAX), 0_usize..20_000],
    ) {
        let good = &GOOD[usize::from(is_raw)];
        check_bounds(&damaged(good, &changes, cut));
    }

    #[test]
    fn any_bytes_after_a_header_end_within_the_limits(
        content in proptest::collection::vec(any::<u8>(), 0..2_000),
        is_raw in any::<bool>(),
    ) {
        let mut bytes = GOOD[usize::from(is_raw)][..chunk::HEADER_BYTES].to_vec();
        bytes.extend(content);
        let length = bytes.len() as u64;
        bytes[8..16].copy_from_slice(&length.to_be_bytes());
        bytes[24..32].copy_from_slice(&68_u64.to_be_bytes());
        check_bounds(&bytes);
    }
}
