//! Every JSON answer that a test reads is a body of [`api`], whether it was made from that type or
//! written from borrowed rows: it reads back with every field, and has no other.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Checks the answer to a `GET` of `path`.
pub(crate) fn check(path: &str, body: &Value) {
    let (path, parameters) = path.split_once('?').unwrap_or((path, ""));
    let has = |parameter| parameters.split('&').any(|each| each == parameter);
    match path.trim_start_matches("/api/v1/") {
        "profile" => {
            let mut head = body.clone();
            let profile = head.as_object_mut().and_then(|head| head.remove("profile"));
            assert!(
                profile.is_some_and(|profile| profile.is_object()),
                "{body:#}"
            );
            reads_back::<api::ProfileAnswer>(&head);
        }
        "timeline" => reads_back::<api::TimelineAnswer>(body),
        "thread-time" => reads_back::<api::ThreadTimeAnswer>(body),
        "tasks" if has("summary=true") => reads_back::<api::TaskSummaryAnswer>(body),
        "tasks" if has("format=columns") => reads_back::<api::TaskColumnsAnswer>(body),
        "tasks" => reads_back::<api::TasksAnswer>(body),
        "progress" => reads_back::<api::ProgressAnswer>(body),
        "workers" => reads_back::<api::WorkersAnswer>(body),
        "workers/names" => reads_back::<api::WorkerNamesAnswer>(body),
        "thread-dump" => reads_back::<api::ThreadDumpAnswer>(body),
        "transfers" if has("summary=true") => reads_back::<api::TransferSummaryAnswer>(body),
        "transfers" => reads_back::<api::TransfersAnswer>(body),
        "resources" => reads_back::<api::ResourcesAnswer>(body),
        "runs" => reads_back::<api::RunsAnswer>(body),
        "session" => reads_back::<api::SessionAnswer>(body),
        "events/recent" => reads_back::<api::EventsAnswer>(body),
        other => panic!("no body is known of {other}"),
    }
}

fn reads_back<T: DeserializeOwned + Serialize>(body: &Value) {
    let read: T = serde_json::from_value(body.clone()).unwrap_or_else(|e| panic!("{e}: {body:#}"));
    assert_eq!(&serde_json::to_value(read).unwrap(), body);
}
