//! The purpose of each route, its parameters and its answers.

use axum::http::Method;
use query::{
    EventFilter, Parameter, Parameters, ProfileQuery, ProgressQuery, RECENT_EVENTS_PARAMETERS,
    RUNS_PARAMETERS, ResourceQuery, SETTINGS_PARAMETERS, SymbolUpload, TaskComparisonQuery,
    TaskDurationsQuery, TaskQuery, ThreadDumpQuery, ThreadTimeQuery, TimelineQuery, TransferQuery,
    WorkerNamesQuery, WorkersQuery,
};

use crate::serve::file_paths::{self, FilePath};
use crate::serve::health;
use base::limits::LIVE_PROFILE_SECONDS_MAX;
use bridge::{grafana, push};

/// A route of the document.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Operation {
    pub(in crate::serve) method: Method,
    pub(in crate::serve) path: &'static str,
    pub(in crate::serve) summary: &'static str,
    pub(in crate::serve) parameters: Parameters,
    /// Those of `parameters` that the route sets itself.
    pub(in crate::serve) fixed: &'static [&'static str],
    pub(in crate::serve) request: Option<Content>,
    /// Without it, the route has no answer to read.
    pub(in crate::serve) answer: Option<Content>,
    /// Of success.
    pub(in crate::serve) status: u16,
}

/// A body.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Content {
    pub(in crate::serve) media: &'static str,
    /// Names of schemas, one of which describes it.
    pub(in crate::serve) schemas: &'static [&'static str],
    /// Of a request, in JSON.
    pub(in crate::serve) example: &'static str,
}

const fn json(schemas: &'static [&'static str]) -> Content {
    Content {
        media: "application/json",
        schemas,
        example: "",
    }
}

const fn media(media: &'static str) -> Content {
    Content {
        media,
        schemas: &[],
        example: "",
    }
}

/// A body whose format another project defines.
const FOREIGN: Content = media("*/*");
const PAGE: Content = media("text/html");
const EVENTS: Content = media("text/event-stream");

impl Operation {
    fn new(method: Method, path: &'static str, summary: &'static str) -> Operation {
        Operation {
            method,
            path,
            summary,
            parameters: &[],
            fixed: &[],
            request: None,
            answer: None,
            status: 200,
        }
    }

    fn answers(self, answer: Content) -> Operation {
        Operation {
            answer: Some(answer),
            ..self
        }
    }

    fn takes(self, parameters: Parameters) -> Operation {
        Operation { parameters, ..self }
    }

    fn reads(self, schema: &'static [&'static str], example: &'static str) -> Operation {
        Operation {
            request: Some(Content {
                example,
                ..json(schema)
            }),
            ..self
        }
    }

    fn reads_foreign(self, request: Content) -> Operation {
        Operation {
            request: Some(request),
            ..self
        }
    }
}

fn get(path: &'static str, summary: &'static str) -> Operation {
    Operation::new(Method::GET, path, summary)
}

fn post(path: &'static str, summary: &'static str) -> Operation {
    Operation::new(Method::POST, path, summary)
}

/// All of them.
pub(in crate::serve) fn operations() -> Vec<Operation> {
    [
        queries(),
        workers(),
        symbols(),
        runs_and_events(),
        others(),
        pages(),
    ]
    .concat()
}

fn queries() -> Vec<Operation> {
    let profile = get(
        "/api/v1/profile",
        "Where the time of tasks went: thread time by stack.",
    )
    .takes(ProfileQuery::PARAMETERS)
    .answers(json(&["ProfileAnswer"]));
    let timeline = get("/api/v1/timeline", "Time of each task, step by step.")
        .takes(TimelineQuery::PARAMETERS)
        .answers(json(&["TimelineAnswer"]));
    let tasks = get(
        "/api/v1/tasks",
        "The ledger: each task's start and stop, or sums by name.",
    )
    .takes(TaskQuery::PARAMETERS)
    .answers(json(&[
        "TasksAnswer",
        "TaskColumnsAnswer",
        "TaskSummaryAnswer",
    ]));
    let durations = get(
        "/api/v1/tasks/durations",
        "Percentiles of durations, step by step.",
    )
    .takes(TaskDurationsQuery::PARAMETERS)
    .answers(json(&["TaskDurationsAnswer"]));
    let transfers = get(
        "/api/v1/transfers",
        "Transfers between workers, or sums by link and type.",
    )
    .takes(TransferQuery::PARAMETERS)
    .answers(json(&["TransfersAnswer", "TransferSummaryAnswer"]));
    let resources = get(
        "/api/v1/resources",
        "Resource use of workers and their machines, step by step.",
    )
    .takes(ResourceQuery::PARAMETERS)
    .answers(json(&["ResourcesAnswer"]));
    let mut all = vec![
        Operation {
            path: "/debug/pprof/profile",
            summary: "Waits, then answers with a profile of the last `seconds`, for `go tool pprof`.",
            parameters: LIVE_PROFILE,
            fixed: &["from", "to", "run", "format"],
            answer: Some(media("application/octet-stream")),
            ..profile.clone()
        },
        get(
            "/api/v1/tasks/compare",
            "Durations and failures of task names on two sides.",
        )
        .takes(TaskComparisonQuery::PARAMETERS)
        .answers(json(&["TaskComparisonAnswer"])),
        get("/api/v1/thread-time", "Where the time of each thread went.")
            .takes(ThreadTimeQuery::PARAMETERS)
            .answers(json(&["ThreadTimeAnswer"])),
        get("/api/v1/progress", "Progress of the tasks, by name.")
            .takes(ProgressQuery::PARAMETERS)
            .answers(json(&["ProgressAnswer"])),
        post("/api/v1/sql", "Rows of a query in SQL.")
            .reads(
                &["SqlRequest"],
                r#"{"query": "SELECT count(*) FROM tasks"}"#,
            )
            .answers(json(&["SqlAnswer"])),
    ];
    all.extend(files(&profile, &file_paths::PROFILE));
    all.extend(files(&timeline, &file_paths::TIMELINE));
    all.extend(files(&tasks, &file_paths::TASKS));
    all.extend(files(&durations, &file_paths::DURATIONS));
    all.extend(files(&transfers, &file_paths::TRANSFERS));
    all.extend(files(&resources, &file_paths::RESOURCES));
    all.extend([profile, timeline, tasks, durations, transfers, resources]);
    all
}

const LIVE_PROFILE: Parameters = &[
    &[Parameter::integer(
        "seconds",
        1..=LIVE_PROFILE_SECONDS_MAX as usize,
        Some(30),
        "1",
        "Length of the profile, and of the wait.",
    )],
    ProfileQuery::PARAMETERS[1],
    ProfileQuery::PARAMETERS[2],
    ProfileQuery::PARAMETERS[3],
    ProfileQuery::PARAMETERS[4],
];

/// The paths with an extension that answer as `whole` does with a `format`.
fn files(whole: &Operation, paths: &[FilePath]) -> Vec<Operation> {
    paths
        .iter()
        .map(|file: &FilePath| Operation {
            path: file.path,
            fixed: &["format"],
            answer: Some(match file.format {
                "json" => json(whole.answer.as_ref().map_or(&[], |answer| answer.schemas)),
                format => media(media_of(format)),
            }),
            ..whole.clone()
        })
        .collect()
}

/// The media type of a value of `format`.
pub(in crate::serve) fn media_of(format: &str) -> &'static str {
    match format {
        "json" | "columns" | "speedscope" | "firefox" | "nested" => "application/json",
        "svg" => "image/svg+xml",
        "csv" => "text/csv",
        "parquet" => "application/vnd.apache.parquet",
        "collapsed" | "hlog" => "text/plain",
        "pprof" => "application/octet-stream",
        format => panic!("{format} has no media type"),
    }
}

fn workers() -> Vec<Operation> {
    vec![
        get("/api/v1/workers", "Workers, their agents, and losses.")
            .takes(WorkersQuery::PARAMETERS)
            .answers(json(&["WorkersAnswer"])),
        get("/api/v1/workers/names", "Workers and labels for menus.")
            .takes(WorkerNamesQuery::PARAMETERS)
            .answers(json(&["WorkerNamesAnswer"])),
        Operation::new(
            Method::PUT,
            "/api/v1/workers/settings",
            "Changes how running agents sample, and those that connect later.",
        )
        .takes(SETTINGS_PARAMETERS)
        .reads(
            &["SettingsChange"],
            r#"{"interval_ms": 20, "states": ["cpu", "runnable"]}"#,
        )
        .answers(json(&["SettingsAnswer"])),
        get("/api/v1/thread-dump", "What every thread is doing now.")
            .takes(ThreadDumpQuery::PARAMETERS)
            .answers(json(&["ThreadDumpAnswer"])),
    ]
}

fn symbols() -> Vec<Operation> {
    vec![
        get("/api/v1/symbols", "Symbol files.").answers(json(&["SymbolsAnswer"])),
        post("/api/v1/symbols", "Uploads a piece of a symbol file.")
            .takes(SymbolUpload::PARAMETERS)
            .reads_foreign(media("application/octet-stream"))
            .answers(json(&["SymbolUploadAnswer"])),
        get("/api/v1/symbols/verify", "Checks the symbol files.")
            .answers(json(&["SymbolsVerifyAnswer"])),
        post(
            "/api/v1/symbols/gc",
            "Removes symbol files that were not used for a while.",
        )
        .reads(&["SymbolsGcRequest"], r#"{"unused_seconds": 2592000}"#)
        .answers(json(&["SymbolsGcAnswer"])),
        post(
            "/api/v1/symbols/fetch",
            "Asks a worker for the symbols of a module.",
        )
        .reads(&["SymbolsFetchRequest"], r#"{"build_id": "59fd0cb5"}"#)
        .answers(json(&["SymbolsFetchAnswer"])),
    ]
}

fn runs_and_events() -> Vec<Operation> {
    let start = post("/api/v1/runs", "Starts a named run.")
        .reads(&["RunStart"], r#"{"name": "nightly"}"#)
        .answers(json(&["Run"]));
    vec![
        get("/api/v1/runs", "Named runs, the newest first.")
            .takes(RUNS_PARAMETERS)
            .answers(json(&["RunsAnswer"])),
        Operation {
            status: 201,
            ..start
        },
        post(
            "/api/v1/runs/stop",
            "Stops the newest open run of a name, or the one of an id.",
        )
        .reads(&["RunStop"], r#"{"name": "nightly"}"#)
        .answers(json(&["Run"])),
        get("/api/v1/events", "Events as they happen.")
            .takes(EventFilter::PARAMETERS)
            .answers(EVENTS),
        get("/api/v1/events/recent", "The most recent events.")
            .takes(RECENT_EVENTS_PARAMETERS)
            .answers(json(&["EventsAnswer"])),
        get(
            "/api/v1/updates",
            "An event `update` whenever there is new data.",
        )
        .answers(EVENTS),
    ]
}

fn others() -> Vec<Operation> {
    const RENDER: Parameters = &[&[
        Parameter::text(
            "query",
            "process_cpu:cpu:nanoseconds:cpu:nanoseconds{}",
            "Type and matchers.",
        )
        .required(),
        Parameter::text("from", "now-1h", "Start of the range."),
        Parameter::text("until", "now", "End of the range."),
        Parameter::text("maxNodes", "1024", "Most nodes."),
        Parameter::text("max-nodes", "1024", "The same."),
        Parameter::text("format", "json", "Only `json`."),
    ]];
    const RENDER_DIFF: Parameters = &[&[
        Parameter::text(
            "leftQuery",
            "process_cpu:cpu:nanoseconds:cpu:nanoseconds{}",
            "Type and matchers before.",
        )
        .required(),
        Parameter::text("leftFrom", "now-2h", "Start of the range before."),
        Parameter::text("leftUntil", "now", "End of the range before."),
        Parameter::text(
            "rightQuery",
            "process_cpu:cpu:nanoseconds:cpu:nanoseconds{}",
            "Type and matchers after.",
        )
        .required(),
        Parameter::text("rightFrom", "now-2h", "Start of the range after."),
        Parameter::text("rightUntil", "now", "End of the range after."),
        Parameter::text("maxNodes", "1024", "Most nodes."),
        Parameter::text("max-nodes", "1024", "The same."),
        Parameter::text("format", "json", "Only `json`."),
    ]];
    const LABEL_VALUES: Parameters = &[&[
        Parameter::text("label", "service_name", "Name of the label.").required(),
        Parameter::text("query", "{}", "Matchers."),
        Parameter::text("from", "now-1h", "Accepted, and not used."),
        Parameter::text("until", "now", "Accepted, and not used."),
    ]];
    vec![
        get(
            "/api/v1/session",
            "What the caller may do, and by which token.",
        )
        .answers(json(&["SessionAnswer"])),
        get("/api/v1/openapi.json", "This document.").answers(json(&[])),
        get("/livez", "Whether the process runs.").answers(media("text/plain")),
        get(
            "/readyz",
            "Whether flushes are accepted; else 503 with the cause.",
        )
        .answers(media("text/plain")),
        get("/metrics", "OpenMetrics.").answers(media("text/plain")),
        post(
            "/emberline.v1.Ingest/{*rest}",
            "gRPC: the streams of agents.",
        ),
        post(health::HEALTH_ROUTE, "gRPC: the standard health check."),
        post(push::INGEST_PATH, "Profiles of Pyroscope clients.").reads_foreign(FOREIGN),
        post(
            push::PUSH_PATH,
            "Profiles of Pyroscope clients, by Connect.",
        )
        .reads_foreign(FOREIGN),
        post(push::OTLP_HTTP_PATH, "Profiles of OpenTelemetry.").reads_foreign(FOREIGN),
        post(push::OTLP_GRPC_PATH, "gRPC: profiles of OpenTelemetry."),
        post(
            grafana::SERVICE_ROUTE,
            "Queries of Grafana's Pyroscope data source, by Connect.",
        )
        .reads_foreign(FOREIGN),
        get(
            grafana::RENDER_ROUTE,
            "A flame graph as Pyroscope renders it.",
        )
        .takes(RENDER)
        .answers(json(&[])),
        get(
            grafana::RENDER_DIFF_ROUTE,
            "A differential flame graph as Pyroscope renders it.",
        )
        .takes(RENDER_DIFF)
        .answers(json(&[])),
        get(
            grafana::LABEL_VALUES_ROUTE,
            "Values of a label, as Pyroscope lists them.",
        )
        .takes(LABEL_VALUES)
        .answers(json(&[])),
    ]
}

fn pages() -> Vec<Operation> {
    let pages = [
        "/",
        "/profile",
        "/compare",
        "/tasks",
        "/tasks/{name}",
        "/workers",
        "/workers/{name}",
        "/transfers",
        "/resources",
        "/events",
        "/sql",
        "/licenses",
    ];
    let mut all: Vec<Operation> = pages
        .into_iter()
        .map(|path| get(path, "The page.").answers(PAGE))
        .collect();
    all.extend([
        get("/login", "The login of browsers.").answers(PAGE),
        post("/login", "Logs a browser in.")
            .reads_foreign(media("application/x-www-form-urlencoded")),
        post("/logout", "Logs a browser out."),
        get("/login.css", "A file of the login.").answers(media("text/css")),
        get("/login.js", "A file of the login.").answers(media("text/javascript")),
        get("/licenses.txt", "Licenses of what is compiled in.").answers(media("text/plain")),
        get("/favicon.ico", "The page's icon.").answers(FOREIGN),
        get("/assets/{name}", "A file of the page.").answers(FOREIGN),
    ]);
    all
}
