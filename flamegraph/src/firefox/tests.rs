//! Files are read again as JSON: threads, stacks and sums are those of the profile.

use expect_test::expect_file;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::testing::{deep_profile, from_rows, hostile_profiles, profile};

fn parsed(profile: &Profile) -> Value {
    let options = ExportOptions {
        title: "All tasks".to_owned(),
        ..ExportOptions::default()
    };
    serde_json::from_str(&firefox(profile, &options)).unwrap()
}

/// Sum of the weights of all threads in nanoseconds.
fn sum_ns(file: &Value) -> u64 {
    let threads = file["threads"].as_array().unwrap();
    let weights = threads
        .iter()
        .flat_map(|thread| thread["samples"]["weight"].as_array().unwrap());
    weights
        .map(|weight| (weight.as_f64().unwrap() * 1e6).round() as u64)
        .sum()
}

#[test]
fn a_small_profile_matches_the_golden_file() {
    let main = Frame {
        module: "/opt/app",
        build_id: "ab12",
        ..Frame::function("main", "src/a.rs", 3)
    };
    let read = Frame {
        line: 9,
        ..main.clone()
    };
    let stack =
        |task, frame: &Frame<&'static str>| vec![Frame::task(task), main.clone(), frame.clone()];
    let all = from_rows([
        (stack("load", &read), State::Cpu, 1_500_000),
        (stack("save", &read), State::Disk, 2_000_001),
        (vec![Frame::no_task(), Frame::truncated()], State::Lock, 5),
    ]);
    let text = serde_json::to_string_pretty(&parsed(&all)).unwrap();
    expect_file!["golden/small.json"].assert_eq(&text);
}

#[test]
fn tasks_past_the_limit_share_a_thread_below_frames_of_their_own() {
    let stacks: Vec<String> = (1..=102).map(|n| format!("t{n};f cpu={n}")).collect();
    let file = parsed(&profile(&stacks.join("\n")));
    let threads = file["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 101);
    assert_eq!(
        (&threads[0]["name"], &threads[100]["name"]),
        (&"t102".into(), &OTHERS.into())
    );
    assert_eq!(
        threads[100]["stringArray"],
        serde_json::json!(["t1", "f", "app/src/a.rs", "t2"])
    );
    assert_eq!(
        threads[100]["stackTable"]["prefix"],
        serde_json::json!([null, 0, null, 2])
    );
    assert_eq!(sum_ns(&file), (1..=102).sum::<u64>());
}

#[test]
fn an_empty_profile_has_no_threads() {
    assert_eq!(
        parsed(&Profile::default())["threads"],
        serde_json::json!([])
    );
}

#[test]
fn the_deepest_stack_is_written() {
    let file = parsed(&deep_profile(1_000));
    assert_eq!(file["threads"][0]["stackTable"]["length"], 999);
}

proptest! {
    #[test]
    fn weights_sum_to_the_profile_and_every_number_resolves(all in hostile_profiles()) {
        let file = parsed(&all);
        prop_assert_eq!(sum_ns(&file), all.total().total_ns());
        for thread in file["threads"].as_array().unwrap() {
            let check = |table: &str, column: &str, target: u64| {
                let values = thread[table][column].as_array().unwrap();
                assert_eq!(Some(values.len() as u64), thread[table]["length"].as_u64());
                assert!(values.iter().filter_map(Value::as_u64).all(|value| value < target), "{column}");
            };
            let length = |table: &str| thread[table]["length"].as_u64().unwrap();
            let strings = thread["stringArray"].as_array().unwrap().len() as u64;
            check("samples", "stack", length("stackTable"));
            check("stackTable", "prefix", length("stackTable"));
            check("stackTable", "frame", length("frameTable"));
            check("frameTable", "func", length("funcTable"));
            check("funcTable", "name", strings);
            check("funcTable", "fileName", strings);
            check("funcTable", "resource", length("resourceTable"));
            check("resourceTable", "name", strings);
            check("resourceTable", "lib", file["libs"].as_array().unwrap().len() as u64);
        }
    }
}
