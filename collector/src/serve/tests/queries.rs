//! Invalid queries and their errors.

use serde_json::{Value, json};

use super::client::{get, request, send_with};
use super::{Running, attached, serve};

impl Running {
    /// Checks the error, and its list of allowed or nearest words.
    pub(super) async fn check(&self, path: &str, status: u16, error: &str, list: Value) {
        let answer = get(self.address, path).await;
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        let lists = [&body["allowed"], &body["nearest"]]
            .into_iter()
            .find(|list| !list.is_null());
        assert_eq!(answer.status, status, "{path}: {body}");
        assert_eq!(body["error"], error, "{path}");
        assert_eq!(lists.unwrap_or(&Value::Null), &list, "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

#[tokio::test]
async fn an_unknown_choice_lists_all_choices() {
    let running = serve().await;
    let (_, _client) = attached(&running, "worker-1").await;
    let states = json!([
        "cpu",
        "runnable",
        "wait",
        "lock",
        "interpreter",
        "sleep",
        "network",
        "disk",
        "other",
        "all"
    ]);
    let error = "invalid state=\"CPU\"; allowed: cpu, runnable, wait, lock, interpreter, sleep, \
                 network, disk, other, all";
    running
        .check("/api/v1/profile?state=cpu&state=CPU", 400, error, states)
        .await;
    let error = "invalid threads=\"\"; allowed: program, agent, all";
    let threads = json!(["program", "agent", "all"]);
    running
        .check("/api/v1/profile?threads=", 400, error, threads)
        .await;
    let error = "invalid format=\"pdf\"; allowed: json, columns, collapsed, svg, pprof, \
                 speedscope, firefox, nested, csv, parquet";
    running
        .check(
            "/api/v1/profile?format=pdf",
            400,
            error,
            json!([
                "json",
                "columns",
                "collapsed",
                "svg",
                "pprof",
                "speedscope",
                "firefox",
                "nested",
                "csv",
                "parquet"
            ]),
        )
        .await;
    let error = "invalid by=\"file\"; allowed: function, line";
    running
        .check(
            "/api/v1/profile?by=file",
            400,
            error,
            json!(["function", "line"]),
        )
        .await;
    let error = "format=collapsed has no lines; use by=function, or format=json or format=svg";
    running
        .check(
            "/api/v1/profile?by=line&format=collapsed",
            400,
            error,
            Value::Null,
        )
        .await;
    let error = "invalid outcome=\"done\"; allowed: running, ok, failed, cancelled, \
                 panicked, lost";
    let outcomes = json!(["running", "ok", "failed", "cancelled", "panicked", "lost"]);
    running
        .check("/api/v1/tasks?outcome=done", 400, error, outcomes)
        .await;
    let error = "invalid summary=\"yes\"; allowed: false, true";
    running
        .check(
            "/api/v1/tasks?summary=yes",
            400,
            error,
            json!(["false", "true"]),
        )
        .await;
}

#[tokio::test]
async fn an_unknown_name_lists_the_nearest() {
    let running = serve().await;
    let (_, _client) = attached(&running, "worker-1").await;
    let error = "no task is called \"LAOD\"; the nearest are: \"load\"";
    running
        .check("/api/v1/profile?task=LAOD", 404, error, json!(["load"]))
        .await;
    running
        .check("/api/v1/tasks?task=LAOD", 404, error, json!(["load"]))
        .await;
    let error = "no worker is called \"work\"; the nearest are: \"worker-1\"";
    running
        .check(
            "/api/v1/timeline?worker=work",
            404,
            error,
            json!(["worker-1"]),
        )
        .await;
    running
        .check(
            "/api/v1/workers?worker=work",
            404,
            error,
            json!(["worker-1"]),
        )
        .await;
    let error = "no worker is called \"zzz\"";
    running
        .check("/api/v1/tasks?worker=zzz", 404, error, json!([]))
        .await;
}

#[tokio::test]
async fn an_unknown_label_phase_or_group_lists_the_known_ones() {
    let running = serve().await;
    let (_, _client) = attached(&running, "worker-1").await;
    for path in ["profile", "timeline", "tasks", "thread-time"] {
        let path = |label| format!("/api/v1/{path}?label={label}");
        let error = "no worker has a label \"zome\"; the nearest are: \"zone\"";
        running
            .check(&path("zome=a"), 400, error, json!(["zone"]))
            .await;
        let error = "invalid label=\"zone\"; allowed: KEY=VALUE; KEY=* for any value";
        let allowed = json!(["KEY=VALUE", "KEY=* for any value"]);
        running.check(&path("zone"), 400, error, allowed).await;
    }
    let error = "no phase is called \"transver\"; the nearest are: \"transfer\"";
    running
        .check(
            "/api/v1/profile?phase=transver",
            404,
            error,
            json!(["transfer"]),
        )
        .await;
    let error = "no worker has a label \"\"";
    running
        .check("/api/v1/profile?group=label:", 400, error, json!([]))
        .await;
    let error = "invalid group=\"zone\"; allowed: worker; host; run; phase; second; label:KEY";
    let allowed = json!(["worker", "host", "run", "phase", "second", "label:KEY"]);
    running
        .check("/api/v1/profile?group=zone", 400, error, allowed)
        .await;
    let allowed = json!([
        "task",
        "worker",
        "host",
        "run",
        "phase",
        "thread",
        "label:KEY"
    ]);
    let error =
        "invalid group=\"second\"; allowed: task; worker; host; run; phase; thread; label:KEY";
    running
        .check("/api/v1/timeline?group=second", 400, error, allowed)
        .await;
    let error = "groups=\"10001\" is not a number from 1 to 10000";
    running
        .check("/api/v1/timeline?groups=10001", 400, error, Value::Null)
        .await;
}

#[tokio::test]
async fn an_invalid_time_range_or_number_lists_what_is_allowed() {
    let running = serve().await;
    let (_, _client) = attached(&running, "worker-1").await;
    let times = json!([
        "now",
        "a time ago: -5m, -90s, -1h30m, -2d, 10m ago",
        "a time of day, the last one: 17:20, 17:20:05.5",
        "a date, or a date and a time of day: 2026-01-31, 2026-01-31 12:00",
        "RFC 3339: 2026-01-31T12:00:00Z, 2026-01-31T13:00:00+01:00",
        "Unix seconds: 1769860800.5",
    ]);
    let error = "invalid from=\"5x\"; allowed: now; a time ago: -5m, -90s, -1h30m, -2d, 10m ago; a time of day, \
                 the last one: 17:20, 17:20:05.5; a date, or a date and a time of day: 2026-01-31, 2026-01-31 \
                 12:00; RFC 3339: 2026-01-31T12:00:00Z, 2026-01-31T13:00:00+01:00; Unix seconds: 1769860800.5";
    running
        .check("/api/v1/profile?from=5x", 400, error, times)
        .await;
    let error = "to=\"9999-12-31T23:59:59Z\" is out of range: times are from \
                 1677-09-21T00:12:43.145224192Z to 2262-04-11T23:47:16.854775807Z";
    running
        .check(
            "/api/v1/profile?to=9999-12-31T23:59:59Z",
            400,
            error,
            Value::Null,
        )
        .await;
    // The format that the command line prints.
    let printed = "1970-01-12%2013:46:40.000";
    let range = &running
        .json(&format!("/api/v1/profile?from={printed}"))
        .await["range"];
    assert_eq!(range["from"], "1970-01-12T13:46:40.000000000Z");
    let error = "the range is empty: from=now and to=now are both 1970-01-12T13:47:40.000000000Z";
    running
        .check("/api/v1/profile?from=now", 400, error, Value::Null)
        .await;
    let error = "the range is reversed: from=-1m (1970-01-12T13:46:40.000000000Z) is after \
                 to=-2m (1970-01-12T13:45:40.000000000Z)";
    running
        .check("/api/v1/tasks?from=-1m&to=-2m", 400, error, Value::Null)
        .await;
    let error = "the range is reversed: from=-1m (1970-01-12T13:46:40.000000000Z) is after \
                 to=1970-01-12T13:45:40.000000000Z";
    let instant = "1970-01-12T13:45:40.000000000Z";
    running
        .check(
            &format!("/api/v1/tasks?from=-1m&to={instant}"),
            400,
            error,
            Value::Null,
        )
        .await;
    let units = json!(["numbers with the units w, d, h, m, s, ms: 1s, 1h30m"]);
    let error = "invalid step=\"0s\"; allowed: numbers with the units w, d, h, m, s, \
                 ms: 1s, 1h30m";
    running
        .check("/api/v1/timeline?step=0s", 400, error, units)
        .await;
    let error = "step=1ms would make 300000 steps; at most 4000 are allowed: take a larger step";
    running
        .check("/api/v1/timeline?step=1ms", 400, error, Value::Null)
        .await;
    for limit in ["0", "100001", "-1", "ten"] {
        let error = format!("limit={limit:?} is not a number from 1 to 100000");
        running
            .check(
                &format!("/api/v1/tasks?limit={limit}"),
                400,
                &error,
                Value::Null,
            )
            .await;
    }
    let error = r#"limit="1000001" is not a number from 1 to 1000000"#;
    let path = "/api/v1/tasks?limit=1000001&format=columns";
    running.check(path, 400, error, Value::Null).await;
}

#[tokio::test]
async fn an_unknown_or_repeated_parameter_path_or_method_is_rejected() {
    let running = serve().await;
    let (_, _client) = attached(&running, "worker-1").await;
    let error = "unknown parameter \"tsak\"; allowed: from, to, run, task, worker, label, \
                 state, threads, phase, phases, group, groups, by, format, outside, stacks, focus, hide, merge, \
                 recursion, invert, zoom, thread, thread_id";
    let names = json!([
        "from",
        "to",
        "run",
        "task",
        "worker",
        "label",
        "state",
        "threads",
        "phase",
        "phases",
        "group",
        "groups",
        "by",
        "format",
        "outside",
        "stacks",
        "focus",
        "hide",
        "merge",
        "recursion",
        "invert",
        "zoom",
        "thread",
        "thread_id"
    ]);
    running
        .check("/api/v1/profile?tsak=load", 400, error, names)
        .await;
    let error = "the parameter from was given 2 times; at most 1 is allowed";
    running
        .check("/api/v1/profile?from=-1m&from=-2m", 400, error, Value::Null)
        .await;
    let many = "task=load&".repeat(101);
    let error = "the parameter task was given 101 times; at most 100 is allowed";
    running
        .check(&format!("/api/v1/profile?{many}"), 400, error, Value::Null)
        .await;
    let paths = json!([
        "/livez",
        "/readyz",
        "/metrics",
        "/api/v1/session",
        "/api/v1/openapi.json",
        "/api/v1/profile",
        "/api/v1/profile.svg",
        "/api/v1/profile.json",
        "/api/v1/profile.collapsed",
        "/api/v1/profile.pb.gz",
        "/api/v1/profile.speedscope.json",
        "/api/v1/profile.firefox.json",
        "/api/v1/profile.nested.json",
        "/api/v1/profile.csv",
        "/api/v1/profile.parquet",
        "/api/v1/timeline.csv",
        "/api/v1/timeline.parquet",
        "/api/v1/tasks.csv",
        "/api/v1/tasks.parquet",
        "/api/v1/tasks.firefox.json",
        "/api/v1/tasks.hlog",
        "/api/v1/resources.csv",
        "/api/v1/resources.parquet",
        "/api/v1/transfers.csv",
        "/api/v1/transfers.parquet",
        "/debug/pprof/profile",
        "/api/v1/timeline",
        "/api/v1/tasks",
        "/api/v1/tasks/compare",
        "/api/v1/tasks/durations",
        "/api/v1/thread-time",
        "/api/v1/workers",
        "/api/v1/workers/names",
        "/api/v1/workers/settings",
        "/api/v1/thread-dump",
        "/api/v1/symbols",
        "/api/v1/symbols/verify",
        "/api/v1/symbols/gc",
        "/api/v1/symbols/fetch",
        "/api/v1/sql",
        "/api/v1/updates",
        "/api/v1/transfers",
        "/api/v1/resources",
        "/api/v1/progress",
        "/api/v1/runs",
        "/api/v1/runs/stop",
        "/api/v1/events",
        "/api/v1/events/recent"
    ]);
    running
        .check(
            "/api/v2/%3Cscript%3E",
            404,
            "no such path: /api/v2/%3Cscript%3E",
            paths,
        )
        .await;
    let posted = request(running.address, "POST", "/api/v1/profile").await;
    assert_eq!(posted.status, 405, "{}", posted.body);
    assert!(
        posted.body.contains("method not allowed: POST"),
        "{}",
        posted.body
    );
}

/// A body that is compressed would be read as if it were not.
#[tokio::test]
async fn a_body_with_an_encoding_that_is_not_undone_is_refused() {
    let running = serve().await;
    let host = running.address.to_string();
    let body = r#"{"name":"encoded"}"#;
    let grafana = "POST /querier.v1.QuerierService/ProfileTypes";
    for (line, encoding, status) in [
        (grafana, "identity", 200),
        (grafana, "br", 415),
        ("POST /api/v1/runs", "gzip", 415),
        ("POST /api/v1/runs", "identity, br", 415),
        ("PUT /api/v1/workers/settings", "zstd", 415),
        ("POST /api/v1/symbols", "gzip", 415),
        ("POST /api/v1/sql", "gzip", 415),
        ("POST /login", "gzip", 415),
        ("POST /api/v1/runs", "Identity", 201),
    ] {
        let headers = [
            ("host", host.as_str()),
            ("content-type", "application/json"),
            ("content-encoding", encoding),
        ];
        let answer = send_with(running.address, line, &headers, body).await;
        assert_eq!(answer.status, status, "{line} {encoding}: {}", answer.body);
        if status == 415 {
            let body = &answer.body;
            assert!(
                body.contains("allowed: ") && body.contains("identity"),
                "{body}"
            );
        }
    }
    let runs = running.json("/api/v1/runs").await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
}
