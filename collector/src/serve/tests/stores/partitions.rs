//! Filtered answers add up: over the values of each filter, what they count sums to the unfiltered answer, or the answer
//! counts what it lacks.

use std::collections::BTreeMap;

use super::*;

/// Members of an answer that count something, by the path and query of the route.
struct Route {
    path: &'static str,
    /// Names of members whose numbers are summed, wherever they are.
    counts: &'static [&'static str],
    /// Members that a filter of tasks cannot divide: they are of workers.
    of_workers: &'static [&'static str],
    /// Whether tasks without rows are counted, but not by worker.
    counts_sums: bool,
}

const fn route(path: &'static str, counts: &'static [&'static str]) -> Route {
    Route {
        path,
        counts,
        of_workers: &[],
        counts_sums: false,
    }
}

const ROUTES: [Route; 11] = [
    route(
        "/api/v1/profile",
        &["cpu_ns", "runnable_ns", "wait_ns", "total_ns"],
    ),
    Route {
        of_workers: &[
            "worker_seconds",
            "ticks",
            "ticks_expected",
            "ticks_throttled",
        ],
        ..route("/api/v1/timeline", &["cpu_ns", "runnable_ns", "wait_ns"])
    },
    route("/api/v1/thread-time", &["total_ns", "time_ns"]),
    // The limit is on rows, and the total counts all.
    route("/api/v1/tasks?limit=2", &["total"]),
    Route {
        counts_sums: true,
        ..route(
            "/api/v1/tasks?summary=true",
            &["ok", "failed", "cancelled", "panicked", "lost", "running"],
        )
    },
    Route {
        counts_sums: true,
        ..route("/api/v1/tasks/durations", &["ended", "failed"])
    },
    Route {
        counts_sums: true,
        ..route("/api/v1/progress", &["done", "running", "failed", "lost"])
    },
    route("/api/v1/transfers?limit=2", &["total"]),
    route("/api/v1/transfers?summary=true", &["count", "bytes"]),
    route("/api/v1/resources", &["points"]),
    route(
        "/api/v1/workers",
        &["connected", "accepted_ns", "stored_ns"],
    ),
];

/// Routes with a worker that are another form of one above, compare two answers, or ask running agents.
const OTHERS: [&str; 6] = [
    ".",
    "/api/v1/events",
    "/api/v1/tasks/compare",
    "/api/v1/thread-dump",
    "/api/v1/workers/settings",
    "/debug/",
];

/// Filters and all their values, which no two rows share.
const PARTITIONS: [(&str, &[&str]); 6] = [
    ("worker", &["w1", "w2", "w3", "w4"]),
    ("label", &["zone=a", "zone=b"]),
    (
        "task",
        &[
            "load", "store", "short", "w1-only", "w2-only", "w3-only", "w4-only",
        ],
    ),
    (
        "outcome",
        &["running", "ok", "failed", "cancelled", "panicked", "lost"],
    ),
    ("threads", &["program", "agent"]),
    ("direction", &["incoming", "outgoing"]),
];

/// Adds the numbers in members of these names.
fn add(sums: &mut BTreeMap<String, f64>, value: &Value, names: &[&str]) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| add(sums, value, names)),
        Value::Object(members) => {
            for (name, value) in members {
                if names.contains(&name.as_str()) {
                    *sums.entry(name.clone()).or_default() += total(value);
                } else {
                    add(sums, value, names);
                }
            }
        }
        _ => {}
    }
}

fn total(value: &Value) -> f64 {
    match value {
        Value::Array(values) => values.iter().map(total).sum(),
        Value::Number(number) => number.as_f64().unwrap(),
        Value::Bool(_) => 0.0,
        _ => 0.0,
    }
}

/// The counts of an answer, by member.
async fn sums(
    running: &Running,
    path: &str,
    names: &[&str],
    filter: &str,
) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    let answer = get(running.address, path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    let mut answer: Value = serde_json::from_str(&answer.body).unwrap();
    // Time outside of tasks belongs to no task.
    if filter == "task"
        && let Some(series) = answer["series"].as_array_mut()
    {
        series.retain(|one| one["kind"] == "task");
    }
    // Numbers of all workers, however the answer is filtered.
    for shared in ["retained", "quotas", "hidden", "unnamed", "folded", "data"] {
        answer.as_object_mut().unwrap().remove(shared);
    }
    add(&mut sums, &answer, names);
    sums
}

/// Twelve seconds of four workers, the first seven of them in tables.
async fn shipped() -> TwoStores {
    let mut fleet = TwoStores::start().await;
    for second in 0..12 {
        for worker in &mut fleet.workers {
            worker.ship().await;
        }
        if second == 6 {
            seal(&fleet.whole).await;
        }
    }
    fleet
}

/// The parameters of a route, by name.
fn parameters(document: &Value, path: &str) -> Vec<String> {
    let listed = document["paths"][path]["get"]["parameters"].as_array();
    let name = |parameter: &Value| {
        let key = parameter["$ref"].as_str()?.rsplit('/').next()?;
        let name = &document["components"]["parameters"][key]["name"];
        name.as_str().map(str::to_owned)
    };
    listed.into_iter().flatten().filter_map(name).collect()
}

#[tokio::test]
async fn filtered_answers_sum_to_the_whole() {
    let fleet = shipped().await;
    let whole = &fleet.whole;
    let document = get(whole.address, "/api/v1/openapi.json").await.body;
    let document: Value = serde_json::from_str(&document).unwrap();
    for path in document["paths"].as_object().unwrap().keys() {
        let has_worker = parameters(&document, path).contains(&"worker".to_owned());
        let is_checked = ROUTES
            .iter()
            .any(|route| route.path.split('?').next() == Some(path));
        let is_other = OTHERS.iter().any(|other| match *other {
            "." => path.rsplit('/').next().unwrap().contains('.'),
            other => path.starts_with(other),
        });
        assert!(
            !has_worker || is_checked || is_other,
            "{path} is not checked"
        );
    }
    let aggregated = whole.json(&format!("/api/v1/tasks?{ALL}")).await["aggregated"].take();
    assert_eq!(aggregated, 4 * 12 * 3);
    for route in &ROUTES {
        let (path, query) = route.path.split_once('?').unwrap_or((route.path, ""));
        let known = parameters(&document, path);
        let range = if known.contains(&"from".to_owned()) {
            ALL
        } else {
            ""
        };
        let base = format!("{path}?{query}&{range}&");
        for (filter, values) in PARTITIONS {
            if !known.contains(&filter.to_owned()) {
                continue;
            }
            let all = match filter {
                "threads" => "threads=all",
                "task" if known.contains(&"outside".to_owned()) => "outside=hidden",
                _ => "",
            };
            let is_of_workers = matches!(filter, "worker" | "label");
            let of_workers = if is_of_workers { route.of_workers } else { &[] };
            let names = [route.counts, of_workers].concat();
            let mut missing = sums(whole, &format!("{base}{all}"), &names, filter).await;
            assert!(missing.values().sum::<f64>() > 0.0, "{base} counts nothing");
            for value in values {
                let part = sums(whole, &format!("{base}{filter}={value}"), &names, filter).await;
                for (name, sum) in part {
                    *missing.get_mut(&name).unwrap() -= sum;
                }
                if route.path == "/api/v1/tasks?summary=true" && is_of_workers {
                    let answer = whole.json(&format!("{base}{filter}={value}")).await;
                    assert_eq!(answer["aggregated"], aggregated, "{filter}={value}");
                }
            }
            let missing: f64 = missing.into_values().sum();
            let lacking = if route.counts_sums && is_of_workers {
                aggregated.as_f64().unwrap()
            } else {
                0.0
            };
            assert_eq!(missing, lacking, "{base}{filter}");
        }
    }
}

/// The newest and the longest of all are among the newest and the longest of each part.
#[tokio::test]
async fn the_first_of_all_are_the_first_of_the_parts() {
    let fleet = shipped().await;
    let whole = &fleet.whole;
    let listed = async |route: &str, list: &str, filter: &str| -> Vec<Value> {
        let path = format!("/api/v1/{route}{ALL}&limit=9&{filter}");
        whole.json(&path).await[list].as_array().unwrap().clone()
    };
    for (route, list, key) in [
        ("tasks?", "tasks", "start_ns"),
        ("tasks?sort=duration&", "tasks", "duration_ns"),
        ("transfers?", "transfers", "stop_ns"),
    ] {
        let all = listed(route, list, "").await;
        assert_eq!(all.len(), 9);
        for (filter, values) in &PARTITIONS[..2] {
            let mut parts = Vec::new();
            for value in *values {
                parts.extend(listed(route, list, &format!("{filter}={value}")).await);
            }
            let mut keys: Vec<i64> = parts.iter().map(|row| row[key].as_i64().unwrap()).collect();
            keys.sort_unstable_by(|a, b| b.cmp(a));
            keys.truncate(9);
            let of_all: Vec<i64> = all.iter().map(|row| row[key].as_i64().unwrap()).collect();
            assert_eq!(of_all, keys, "{route} {filter}");
        }
    }
}
