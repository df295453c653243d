//! Many series of one service, as readers see them.

use profiler_core::wire::Marks;

use super::*;
use base::limits::{Limits, PUSHED_LABEL_SETS_MAX, nanoseconds};
use base::sync::{lock, read};
use store::TreeSize;

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
    assert_eq!(json!(counts), json!([["shop", 3, 3], ["other", 1, 1]]),);
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

#[tokio::test]
async fn samples_with_labels_of_their_own_are_series_of_their_own() {
    let running = serve().await;
    let pprof = Pprof::new(&[("cpu", "nanoseconds")])
        .with("work", &[10], &[("region", "eu"), ("task", "load")])
        .with(
            "work",
            &[20],
            &[("region", "us"), ("task", "load"), ("span_id", "17")],
        )
        .with("rest", &[40], &[]);
    let query = format!("name=shop%7Bteam%3Dx%7D&{TIMES}&format=pprof");
    let text = running.ingest(&query, &[], &pprof.encode_to_vec()).await;
    assert_eq!(text, "stored 0.000 s in 3 series\n");
    assert_eq!(
        running.stacks("&label=region%3Deu").await,
        ["load;work 00010"]
    );
    assert_eq!(
        running.stacks("&label=region%3Dus").await,
        ["load;work 00020"]
    );
    let all = running.stacks("&label=team%3Dx").await;
    assert_eq!(all, ["load;work 00030", "shop;rest 00040"]);
    let workers = running.json("/api/v1/workers").await;
    let ids: Vec<_> = workers["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| &worker["worker"])
        .collect();
    let expected = [
        "pyroscope:shop{region=eu,team=x}",
        "pyroscope:shop{region=us,team=x}",
        "pyroscope:shop{team=x}",
    ];
    assert_eq!(ids, expected);
}

#[tokio::test]
async fn samples_with_too_many_labels_count_in_the_series_without_them() {
    let running = serve().await;
    let mut pprof = Pprof::new(&[("cpu", "nanoseconds")]);
    for number in 0..PUSHED_LABEL_SETS_MAX + 50 {
        pprof = pprof.with("work", &[10], &[("request", &number.to_string())]);
    }
    for _ in 0..2 {
        let query = format!("name=shop&{TIMES}&format=pprof");
        let text = running
            .ingest(&query, &[], &pprof.clone().encode_to_vec())
            .await;
        let stored = "stored 0.000 s in 101 series\n";
        let merged =
            "note: samples with 50 further sets of labels count without these: a name keeps 100\n";
        assert_eq!(text, format!("{stored}{merged}"));
    }
    assert_eq!(running.stacks("").await, ["shop;work 03000"]);
    assert_eq!(
        running.stacks("&label=request%3D99").await,
        ["shop;work 00020"]
    );
    let workers = running.json("/api/v1/workers").await;
    let count = workers["workers"].as_array().unwrap().len();
    assert_eq!(count, PUSHED_LABEL_SETS_MAX + 1);
    assert_eq!(workers["pushes"][0]["series"], count);
    assert_eq!(
        running.stacks("&worker=pyroscope:shop").await,
        ["shop;work 01000"]
    );
}

/// Thousands of series of a service have the same names: what they have in common is in the tree, once.
#[tokio::test]
async fn a_series_keeps_no_names_and_stacks_of_its_own() {
    let running = serve().await;
    let collector = running.collector.upgrade().unwrap();
    let body: String = (0..500)
        .map(|number| format!("main;package-{};function-{number} 1\n", number / 10))
        .collect();
    let mut nodes = Vec::new();
    for instance in 0..20 {
        let query = format!("name=shop%7Binstance%3Di-{instance}%7D&{TIMES}&sampleRate=100");
        running.ingest(&query, &[], body.as_bytes()).await;
        nodes.push(read(&collector.state.tree).node_count());
    }
    assert!(nodes[0] > 550, "{nodes:?}");
    assert!(nodes.iter().all(|count| *count == nodes[0]), "{nodes:?}");
    let sessions = lock(&collector.state.registry).all();
    assert_eq!(sessions.len(), 20);
    for cell in sessions {
        let held = lock(&cell.state).translation.marks();
        assert_eq!(held, Marks::default(), "{}", cell.worker);
    }
    assert_eq!(running.stacks("").await.len(), 500);
}

/// Sizes of what series leave behind.
#[derive(PartialEq, Eq, Debug)]
struct Retained {
    tree: TreeSize,
    sessions: usize,
    live: usize,
    unsealed_bytes: usize,
}

impl Retained {
    fn by(collector: &Collector) -> Retained {
        let tree = read(&collector.state.tree).size();
        let sessions = lock(&collector.state.registry).all().len();
        let live = collector.pushed.live_count("pyroscope");
        let unsealed_bytes = read(&collector.state.windows).bytes();
        Retained {
            tree,
            sessions,
            live,
            unsealed_bytes,
        }
    }
}

/// Each hour has new instances, as after a rollout: what they have in common stays, and nothing else adds up.
#[tokio::test]
async fn a_day_of_series_that_come_and_go_holds_no_more_than_three_hours() {
    const SERIES_AN_HOUR: i64 = 40;
    let limits = Limits {
        sessions_max: 3 * SERIES_AN_HOUR as usize,
        ..Limits::default()
    };
    let running = serve_with(ServeOptions {
        limits,
        ..ServeOptions::default()
    })
    .await;
    let collector = running.collector.upgrade().unwrap();
    let body: String = (0..100)
        .map(|number| format!("main;package-{};function-{number} 1\n", number / 10))
        .collect();
    let mut by_hour = Vec::new();
    for hour in 0..24 {
        let now = at(60 + 3_600 * hour);
        running.now_ns.store(now.unix_ns(), Ordering::SeqCst);
        let until = now.unix_ns() / 1_000_000_000 - 10;
        let times = format!("from={}&until={until}", until - 10);
        for instance in 0..SERIES_AN_HOUR {
            let query = format!("name=shop%7Binstance%3Di-{hour}-{instance}%7D&{times}");
            running.ingest(&query, &[], body.as_bytes()).await;
        }
        let idle_ns = nanoseconds(PUSHED_IDLE_MAX);
        running
            .now_ns
            .store(now.unix_ns() + idle_ns, Ordering::SeqCst);
        collector.sweep();
        collector.sealer.seal().unwrap();
        by_hour.push(Retained::by(&collector));
    }
    let full = &by_hour[2];
    assert_eq!((full.sessions, full.live), (120, 0));
    assert!(by_hour[2..].iter().all(|hour| hour == full), "{by_hour:#?}");
}

/// As the command line and the page name a series, whichever others they list.
#[tokio::test]
async fn a_shown_name_is_a_worker_in_each_query() {
    let running = serve().await;
    for [instance, region] in [["i-0", "eu"], ["i-1", "us"], ["i-2", "us"]] {
        let labels = format!("instance%3D{instance}%2Cregion%3D{region}");
        let query = format!("name=shop%7B{labels}%7D&{TIMES}");
        running.ingest(&query, &[], b"main 7").await;
    }
    let id = "pyroscope:shop{instance=i-1,region=us}";
    let document = get(running.address, "/api/v1/openapi.json").await.body;
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let parameters = operations["get"]["parameters"].as_array();
        let has_worker = parameters.is_some_and(|all| {
            all.iter()
                .any(|one| one["$ref"] == "#/components/parameters/worker")
        });
        if !has_worker || path.starts_with("/debug") || path == "/api/v1/events" {
            continue;
        }
        asked += 1;
        let status = async |worker: &str| {
            let answer = get(running.address, &format!("{path}?worker={worker}")).await;
            (answer.status, answer.body)
        };
        let by_id = status("pyroscope:shop%7Binstance=i-1,region=us%7D").await;
        for name in [
            "shop%20i-1%20us",
            "shop%20instance=i-1%20region=us",
            "shop%20i-1",
        ] {
            assert_eq!(status(name).await.0, by_id.0, "{path} {name}");
        }
        for (name, expected) in [
            (
                "shop%20us",
                "2 workers are shown as \\\"shop us\\\"; give the id of one: ",
            ),
            ("shop", "3 workers are shown as"),
        ] {
            let (status, body) = status(name).await;
            assert_eq!(status, 400, "{path} {name}: {body}");
            assert!(body.contains(expected), "{path} {name}: {body}");
            assert!(body.contains(id), "{path} {name}: {body}");
        }
    }
    assert!(asked >= 20, "{asked} routes");
    assert_eq!(
        running.stacks("&worker=shop%20i-1").await,
        ["shop;main 70000000"]
    );
    let found = running
        .json("/api/v1/workers/names?text=shop%20i-1%20US")
        .await;
    assert_eq!(found["workers"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["workers"][0]["worker"], id);
}
