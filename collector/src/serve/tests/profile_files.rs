//! Profiles in the formats of other tools: each holds the time that the JSON has.

use std::io::Read as _;
use std::sync::atomic::Ordering;

use prost::Message;
use serde_json::Value;

use super::client::{Answer, get};
use super::{ALL, attached, serve};
use state::testing::at;

/// The part of pprof's profile that has the values.
#[derive(Clone, PartialEq, Message)]
struct Pprof {
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(string, repeated, tag = "6")]
    texts: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
}

fn pprof(answer: &Answer) -> Pprof {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&answer.bytes[..])
        .read_to_end(&mut bytes)
        .unwrap();
    Pprof::decode(&bytes[..]).unwrap()
}

/// Samples, nanoseconds, and nanoseconds on CPU.
fn sums(profile: &Pprof) -> [i64; 3] {
    [0, 1, 2].map(|at| profile.samples.iter().map(|sample| sample.values[at]).sum())
}

#[tokio::test]
async fn each_format_has_the_time_of_the_profile() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let json = running.json(&format!("/api/v1/profile?{ALL}")).await;
    let total_ns = json["totals"]["total_ns"].as_u64().unwrap();
    let cpu_ns = json["totals"]["cpu_ns"].as_u64().unwrap();
    assert_eq!((total_ns, cpu_ns), (7, 5));

    let answer = get(running.address, &path("pprof")).await;
    assert_eq!(
        answer.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(answer.header("x-emberline-total-ns"), Some("7"));
    let profile = pprof(&answer);
    assert_eq!(sums(&profile), [0, 7, 5]);
    for text in [
        "load", "main", "parse", "worker", "w", "state", "cpu", "network",
    ] {
        assert!(
            profile.texts.iter().any(|known| known == text),
            "{text}: {:?}",
            profile.texts
        );
    }
    let parsed = async |format| -> Value {
        let answer = get(running.address, &path(format)).await;
        assert_eq!(answer.header("content-type"), Some("application/json"));
        serde_json::from_str(&answer.body).unwrap()
    };
    let speedscope = parsed("speedscope").await;
    let ends: Vec<&Value> = [0, 1]
        .into_iter()
        .map(|at| &speedscope["profiles"][at]["endValue"])
        .collect();
    assert_eq!(ends, [total_ns, cpu_ns]);
    let firefox = parsed("firefox").await;
    let weights = firefox["threads"][0]["samples"]["weight"]
        .as_array()
        .unwrap();
    let milliseconds: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
    assert_eq!((milliseconds * 1e6).round() as u64, total_ns);
    assert_eq!(firefox["threads"][0]["name"], "load");
    let nested = parsed("nested").await;
    assert_eq!(nested["count"], total_ns);
    assert_eq!(nested["children"]["load;;0"]["count"], total_ns);
}

fn path(format: &str) -> String {
    format!("/api/v1/profile?{ALL}&format={format}")
}

#[tokio::test]
async fn a_path_with_an_extension_is_its_format() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    for (extension, format) in [
        ("svg", "svg"),
        ("json", "json"),
        ("collapsed", "collapsed"),
        ("pb.gz", "pprof"),
        ("speedscope.json", "speedscope"),
        ("firefox.json", "firefox"),
        ("nested.json", "nested"),
        ("csv", "csv"),
        ("parquet", "parquet"),
    ] {
        let file = get(
            running.address,
            &format!("/api/v1/profile.{extension}?{ALL}"),
        )
        .await;
        let asked = get(
            running.address,
            &format!("/api/v1/profile?{ALL}&format={format}"),
        )
        .await;
        assert_eq!(
            file.header("content-type"),
            asked.header("content-type"),
            "{extension}"
        );
        assert_eq!((file.status, file.bytes), (200, asked.bytes), "{extension}");
    }
    let twice = get(running.address, "/api/v1/profile.svg?format=json").await;
    assert_eq!(twice.status, 400);
    assert!(
        twice.body.contains("format was given 2 times"),
        "{}",
        twice.body
    );
}

#[tokio::test]
async fn a_file_of_functions_has_the_time_of_the_profile() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let file = get(running.address, &format!("/api/v1/profile.csv?{ALL}")).await;
    assert_eq!(
        file.header("content-type"),
        Some("text/csv; charset=utf-8; header=present")
    );
    assert_eq!(file.header("x-emberline-total-ns"), Some("7"));
    let mut lines = file.body.lines();
    let header = "kind,name,crate,file,line,module,self_ns,total_ns,self_cpu_ns,self_runnable_ns,\
                  self_lock_ns,self_interpreter_ns,self_sleep_ns,self_network_ns,self_disk_ns,\
                  self_other_ns";
    assert_eq!(lines.next(), Some(header));
    let cells: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let sum = |column: usize| -> u64 {
        cells
            .iter()
            .map(|row| row[column].parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!([sum(6), sum(8)], [7, 5]);
    assert!(
        cells
            .iter()
            .any(|row| row[..2] == ["task", "load"] && row[7] == "7"),
        "{cells:?}"
    );
    let inverted = get(running.address, "/api/v1/profile.csv?invert=true").await;
    assert_eq!(inverted.status, 400);
    assert!(
        inverted
            .body
            .contains("format=csv has rows and no tree to invert"),
        "{}",
        inverted.body
    );
}

#[tokio::test]
async fn a_file_of_rows_is_that_of_its_path() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    for path in ["tasks", "timeline", "resources", "tasks?summary=true"] {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let file = async |format: &str| {
            get(running.address, &format!("/api/v1/{path}.{format}?{query}")).await
        };
        let csv = file("csv").await;
        let asked = get(
            running.address,
            &format!("/api/v1/{path}?{query}&format=csv"),
        )
        .await;
        assert_eq!((csv.status, &csv.bytes), (200, &asked.bytes), "{path}");
        let rows: usize = csv.header("x-emberline-rows").unwrap().parse().unwrap();
        assert_eq!(csv.body.lines().count(), rows + 1, "{path}: {}", csv.body);
        assert!(
            rows > 0 || path == "resources",
            "{path}?{query}: {}",
            csv.body
        );
        let parquet = file("parquet").await;
        assert_eq!(
            parquet.header("content-type"),
            Some("application/vnd.apache.parquet")
        );
        assert_eq!(
            (&parquet.bytes[..4], parquet.header("x-emberline-rows")),
            (&b"PAR1"[..], csv.header("x-emberline-rows"))
        );
    }
    let unknown = get(running.address, "/api/v1/resources?format=xls").await;
    assert!(
        unknown.body.contains("allowed: json, csv, parquet"),
        "{}",
        unknown.body
    );
}

#[tokio::test]
async fn tasks_for_the_firefox_profiler_have_their_numbers_in_headers() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let file = get(running.address, "/api/v1/tasks.firefox.json").await;
    let asked = get(running.address, "/api/v1/tasks?format=firefox").await;
    assert_eq!((file.status, &file.bytes), (200, &asked.bytes));
    let profile: Value = serde_json::from_str(&file.body).unwrap();
    let threads = profile["threads"].as_array().unwrap();
    let markers = |thread: &Value| thread["markers"]["length"].as_u64().unwrap();
    let markers: u64 = threads.iter().map(markers).sum();
    let csv = get(running.address, "/api/v1/tasks.csv").await;
    for name in [
        "x-emberline-rows",
        "x-emberline-total",
        "x-emberline-aggregated",
    ] {
        assert_eq!(file.header(name), csv.header(name), "{name}");
    }
    let fact = |name| file.header(name).unwrap().parse::<u64>().unwrap();
    assert!(
        markers >= fact("x-emberline-rows") + fact("x-emberline-transfers"),
        "{}",
        file.body
    );
    assert!(fact("x-emberline-rows") > 0);
    let unknown = get(running.address, "/api/v1/tasks?format=gecko").await;
    let allowed = "allowed: json, columns, csv, parquet, firefox";
    assert!(unknown.body.contains(allowed), "{}", unknown.body);
}

#[tokio::test]
async fn a_log_of_histograms_has_a_line_for_each_name_and_step() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    let log = get(running.address, "/api/v1/tasks.hlog").await;
    let asked = get(running.address, "/api/v1/tasks/durations?format=hlog").await;
    assert_eq!((log.status, &log.bytes), (200, &asked.bytes));
    assert!(
        log.body
            .starts_with("#[Histogram log format version 1.3]\n"),
        "{}",
        log.body
    );
    let lines = log
        .body
        .lines()
        .filter(|line| line.starts_with("Tag="))
        .count();
    assert_eq!(log.header("x-emberline-rows"), Some(&*lines.to_string()));
    let unknown = get(running.address, "/api/v1/tasks/durations?format=csv").await;
    assert!(
        unknown.body.contains("allowed: json, hlog"),
        "{}",
        unknown.body
    );
}

#[tokio::test]
async fn a_live_profile_has_the_seconds_that_were_waited_for() {
    let running = serve().await;
    let (_, _client) = attached(&running, "w").await;
    // The samples are of second 30, and a profile ends two seconds before its answer.
    running.now_ns.store(at(32).unix_ns(), Ordering::SeqCst);
    let path = "/debug/pprof/profile?seconds=1";
    assert_eq!(sums(&pprof(&get(running.address, path).await)), [0, 7, 5]);
    let of_cpu = get(running.address, &format!("{path}&state=cpu&task=load")).await;
    assert_eq!(sums(&pprof(&of_cpu)), [0, 5, 5]);
    running.now_ns.store(at(33).unix_ns(), Ordering::SeqCst);
    let later = pprof(&get(running.address, path).await);
    assert_eq!(later.samples.len(), 0);
}

#[tokio::test]
async fn invalid_seconds_of_a_live_profile_are_rejected_at_once() {
    let running = serve().await;
    for (query, expected) in [
        (
            "seconds=0",
            "seconds=\\\"0\\\" is not a number from 1 to 300",
        ),
        ("seconds=301", "is not a number from 1 to 300"),
        ("seconds=soon", "is not a number from 1 to 300"),
        ("seconds=1&seconds=1", "seconds was given more than once"),
        ("seconds=1&format=svg", "format was given 2 times"),
    ] {
        let answer = get(running.address, &format!("/debug/pprof/profile?{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.body);
        assert!(answer.body.contains(expected), "{query}: {}", answer.body);
    }
}
