//! Many series of one service, as readers see them.

use super::*;

/// The sums of the series of a timeline, second by second from 40 s after the tests' start.
async fn cpu_by_second(running: &Running) -> Vec<u64> {
    let start = at(40).unix_ns() / 1_000_000_000;
    let path = format!("/api/v1/timeline?from={start}&to={}&step=1s", start + 10);
    let answer = running.json(&path).await;
    let series = answer["series"].as_array().unwrap();
    let mut sums = vec![0; 10];
    for one in series {
        for (sum, value) in sums.iter_mut().zip(one["cpu_ns"].as_array().unwrap()) {
            *sum += value.as_u64().unwrap();
        }
    }
    sums
}

#[tokio::test]
async fn series_of_a_service_are_counted_together_and_their_time_is_spread() {
    let running = serve().await;
    for instance in 0..3 {
        let query = format!("name=shop%7Binstance%3Di-{instance}%7D&{TIMES}&sampleRate=100");
        running.ingest(&query, &[], b"main;work 100").await;
    }
    running
        .ingest(&format!("name=other&{TIMES}"), &[], b"main 7")
        .await;

    let workers = running.json("/api/v1/workers").await;
    let services = workers["services"].as_array().unwrap();
    let counts: Vec<_> = services
        .iter()
        .map(|service| (&service["name"], &service["series"], &service["connected"]))
        .collect();
    let (shop, other) = (json!("shop"), json!("other"));
    let (one, three) = (json!(1), json!(3));
    assert_eq!(counts, [(&shop, &three, &three), (&other, &one, &one)]);
    let clocks = workers["workers"].as_array().unwrap().iter();
    for worker in clocks {
        assert_eq!(worker["epochs"][0]["clock"], Value::Null, "{worker}");
    }

    // 3.07 s of a window of 10 s.
    assert_eq!(cpu_by_second(&running).await, [307_000_000; 10]);

    let summary = running.json("/api/v1/tasks?summary=true&from=0").await;
    let sampled: Vec<_> = summary["sampled"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| {
            (
                task["name"].as_str().unwrap(),
                task["cpu_ns"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(sampled, [("shop", 3_000_000_000), ("other", 70_000_000)]);
    assert_eq!(summary["names"], json!([]));
    let failed = running
        .json("/api/v1/tasks?summary=true&from=0&outcome=failed")
        .await;
    assert_eq!(failed["sampled"], json!([]), "samples have no outcome");
}
