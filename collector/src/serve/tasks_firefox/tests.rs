//! Files are read again as JSON: markers, threads and samples are those of the rows.

use api::testing::{NOON_NS, task};
use api::{Phase, ResourceSeries, ResourcesAnswer, Task, TimeRange, Transfer};
use serde_json::{Value, json};

use profiler_core::Resource;

use super::Rows;

fn rows() -> Rows {
    let first = Task {
        phases: vec![
            Phase {
                name: "queue".to_owned(),
                start_ns: NOON_NS - 2_000,
                duration_ns: 2_001,
                count: 1,
            },
            Phase {
                name: "disk-read".to_owned(),
                start_ns: NOON_NS,
                duration_ns: 7,
                count: 4,
            },
        ],
        result_bytes: Some(1_024),
        ..task(7, 12, NOON_NS + 1, 1_500_000)
    };
    let second = task(8, 13, NOON_NS + 5_000_000, 250);
    let transfer = Transfer {
        worker: "w-1".to_owned(),
        direction: "incoming".into(),
        peer: "w-2\u{1b}".to_owned(),
        bytes: 1_000,
        start_ns: NOON_NS + 10_000_000,
        stop_ns: NOON_NS + 11_000_000,
        duration_ns: 1_000_000,
        outcome: "ok".into(),
        ..Transfer::default()
    };
    Rows {
        tasks: vec![first, second],
        transfers: vec![transfer],
        resources: ResourcesAnswer {
            range: TimeRange {
                to_ns: NOON_NS + 2_500_000_000,
                ..TimeRange::default()
            },
            step_ns: 1_000_000_000,
            series: vec![
                series(Resource::ProcessCpu, [0.25, 2.0, 0.5]),
                series(Resource::ProcessMemory, [1_000.0, 1_500.0, 500.0]),
            ],
            ..ResourcesAnswer::default()
        },
    }
}

fn series(measure: Resource, values: [f64; 3]) -> ResourceSeries {
    ResourceSeries {
        worker: "w-1".to_owned(),
        measure: measure.name().into(),
        points: (0i64..)
            .zip(values)
            .map(|(second, value)| (NOON_NS + second * 1_000_000_000, value, value, value))
            .collect(),
        ..ResourceSeries::default()
    }
}

fn file(rows: &Rows) -> Value {
    let text = serde_json::to_string(&super::file(rows)).unwrap();
    assert_eq!(
        text,
        serde_json::to_string(&super::file(rows)).unwrap(),
        "same rows, same bytes"
    );
    serde_json::from_str(&text).unwrap()
}

/// Name, start and stop in milliseconds since the file's origin, and data of each marker.
fn markers(thread: &Value) -> Vec<(String, f64, f64, Value)> {
    let table = &thread["markers"];
    let count = table["length"].as_u64().unwrap() as usize;
    let text = |index: &Value| thread["stringArray"][index.as_u64().unwrap() as usize].clone();
    (0..count)
        .map(|row| {
            let name = text(&table["name"][row]).as_str().unwrap().to_owned();
            let time = |column: &str| table[column][row].as_f64().unwrap();
            (
                name,
                time("startTime"),
                time("endTime"),
                table["data"][row].clone(),
            )
        })
        .collect()
}

#[test]
fn tasks_phases_and_transfers_are_markers_of_their_threads() {
    let file = file(&rows());
    // The queue began in the millisecond before noon.
    assert_eq!(file["meta"]["startTime"], (NOON_NS / 1_000_000 - 1) as f64);
    let threads = file["threads"].as_array().unwrap();
    let names: Vec<&Value> = threads.iter().map(|thread| &thread["name"]).collect();
    assert_eq!(names, ["w-1", "pool-3", "pool-3"]);
    assert!(threads.iter().all(|thread| thread["processName"] == "w-1"));

    let first = markers(&threads[1]);
    let places: Vec<(&str, f64, f64)> = first
        .iter()
        .map(|(name, start, stop, _)| (name.as_str(), *start, *stop))
        .collect();
    assert_eq!(
        places,
        [("load", 1.000_001, 2.500_001), ("queue", 0.998, 1.000_001)]
    );
    let data = &first[0].3;
    let string = |key: &str| {
        let index = data[key].as_u64().unwrap() as usize;
        threads[1]["stringArray"][index].clone()
    };
    assert_eq!(data["type"], "emberline-task");
    assert_eq!(
        [string("key"), string("outcome")],
        [json!("load-7"), json!("ok")]
    );
    assert_eq!(
        [&data["id"], &data["resultBytes"]].map(|number| number.as_f64()),
        [Some(7.0), Some(1_024.0)]
    );

    let moved = markers(&threads[0]);
    assert_eq!(
        (&*moved[0].0, moved[0].1, moved[0].2),
        ("incoming", 11.0, 12.0)
    );
    let peer = moved[0].3["peer"].as_u64().unwrap() as usize;
    assert_eq!(threads[0]["stringArray"][peer], "w-2\\u{1b}");
}

#[test]
fn the_cpu_usage_of_a_process_is_its_samples_and_its_memory_a_counter() {
    let file = file(&rows());
    let samples = &file["threads"][0]["samples"];
    assert_eq!(
        samples["threadCPUDelta"],
        json!([0, 250_000, 2_000_000, 250_000])
    );
    assert_eq!(file["meta"]["sampleUnits"]["threadCPUDelta"], "µs");
    let memory = &file["counters"][0];
    assert_eq!(memory["category"], "Memory");
    assert_eq!(
        memory["samples"]["count"],
        json!([1_000.0, 500.0, -1_000.0])
    );
}

#[test]
fn the_ends_of_time_and_nothing_can_be_written() {
    let tasks = vec![
        task(1, 1, i64::MIN, u64::MAX),
        task(1, 1, i64::MAX, u64::MAX),
    ];
    assert_eq!(
        markers(
            &file(&Rows {
                tasks,
                ..Rows::default()
            })["threads"][1]
        )
        .len(),
        2
    );
    assert_eq!(file(&Rows::default())["threads"], json!([]));
}
