use std::collections::{BTreeMap, BTreeSet};

use api::testing::{self, NOON_NS};
use expect_test::expect;
use prost::Message as _;

use super::*;

fn task(id: u64, parent: Option<u64>, start_ns: i64) -> Task {
    Task {
        parent,
        stop_ns: Some(start_ns + 100),
        ..testing::task(id, 12, start_ns, 100)
    }
}

fn messages(tasks: Vec<Task>) -> Vec<ExportTraceServiceRequest> {
    Spans::new("fleet").messages(tasks)
}

fn spans(messages: &[ExportTraceServiceRequest]) -> Vec<&Span> {
    let resources = messages.iter().flat_map(|message| &message.resource_spans);
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| &scope.spans).collect()
}

#[test]
fn a_failed_task_with_a_phase_is_two_spans_in_otlp_json() {
    let mut failed = task(7, None, NOON_NS);
    failed.outcome = "failed".into();
    failed.cause = "no \"file\"".to_owned();
    failed.attempt = Some(2);
    failed.result_bytes = Some(512);
    failed.labels = BTreeMap::from([("shard".to_owned(), "7".to_owned())]);
    failed.phases = vec![Phase {
        name: "disk-read".to_owned(),
        start_ns: NOON_NS + 10,
        duration_ns: 20,
        count: 3,
    }];
    let messages = messages(vec![failed]);
    let json = serde_json::to_string_pretty(&messages[0]).unwrap();
    expect![[r#"
        {
          "resourceSpans": [
            {
              "resource": {
                "attributes": [
                  {
                    "key": "service.name",
                    "value": {
                      "stringValue": "fleet"
                    }
                  },
                  {
                    "key": "service.instance.id",
                    "value": {
                      "stringValue": "w-1/a1"
                    }
                  },
                  {
                    "key": "emberline.worker",
                    "value": {
                      "stringValue": "w-1"
                    }
                  }
                ]
              },
              "scopeSpans": [
                {
                  "scope": {
                    "name": "emberline",
                    "version": "0.1.0"
                  },
                  "spans": [
                    {
                      "traceId": "2492ce450b7707012f81e62d70122989",
                      "spanId": "6c66214b374b4bdc",
                      "name": "load",
                      "kind": 1,
                      "startTimeUnixNano": "1769860800000000000",
                      "endTimeUnixNano": "1769860800000000100",
                      "attributes": [
                        {
                          "key": "emberline.task.key",
                          "value": {
                            "stringValue": "load-7"
                          }
                        },
                        {
                          "key": "emberline.task.outcome",
                          "value": {
                            "stringValue": "failed"
                          }
                        },
                        {
                          "key": "thread.id",
                          "value": {
                            "intValue": "12"
                          }
                        },
                        {
                          "key": "thread.name",
                          "value": {
                            "stringValue": "pool-3"
                          }
                        },
                        {
                          "key": "emberline.task.attempt",
                          "value": {
                            "intValue": "2"
                          }
                        },
                        {
                          "key": "emberline.task.result_bytes",
                          "value": {
                            "intValue": "512"
                          }
                        },
                        {
                          "key": "shard",
                          "value": {
                            "stringValue": "7"
                          }
                        }
                      ],
                      "status": {
                        "message": "no \"file\"",
                        "code": 2
                      }
                    },
                    {
                      "traceId": "2492ce450b7707012f81e62d70122989",
                      "spanId": "e819586e36199365",
                      "parentSpanId": "6c66214b374b4bdc",
                      "name": "disk-read",
                      "kind": 1,
                      "startTimeUnixNano": "1769860800000000010",
                      "endTimeUnixNano": "1769860800000000030",
                      "attributes": [
                        {
                          "key": "emberline.kind",
                          "value": {
                            "stringValue": "phase"
                          }
                        },
                        {
                          "key": "emberline.phase.intervals",
                          "value": {
                            "intValue": "3"
                          }
                        }
                      ]
                    }
                  ]
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(&json);
}

#[test]
fn protobuf_and_json_have_the_same_spans() {
    let sent = messages(vec![task(1, None, NOON_NS), task(2, Some(1), NOON_NS + 1)]);
    let read = ExportTraceServiceRequest::decode(&*sent[0].encode_to_vec()).unwrap();
    assert_eq!(read, sent[0]);
}

#[test]
fn tasks_that_one_task_started_share_its_trace() {
    let tasks = vec![
        task(3, Some(2), NOON_NS + 2),
        task(1, None, NOON_NS),
        task(2, Some(1), NOON_NS + 1),
        task(9, None, NOON_NS + 3),
        // Their parent is not exported.
        task(21, Some(20), NOON_NS + 4),
        task(22, Some(20), NOON_NS + 5),
    ];
    let messages = messages(tasks);
    let spans = spans(&messages);
    let trace = |index: usize| spans[index].trace_id.clone();
    assert_eq!(
        [trace(1), trace(2)],
        [trace(0), trace(0)],
        "1 started 2, which started 3"
    );
    assert_eq!(spans[2].parent_span_id, spans[1].span_id);
    assert_ne!(trace(3), trace(0));
    assert_eq!(trace(4), trace(5));
    assert_eq!(spans[4].parent_span_id, spans[5].parent_span_id);
    let ids: BTreeSet<_> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), spans.len());
    assert!(ids.iter().all(|id| id.len() == 8) && trace(0).len() == 16);
}

#[test]
fn an_id_depends_on_the_task_alone() {
    let alone = messages(vec![task(7, None, NOON_NS)]);
    let among_others = messages((1..9).map(|id| task(id, None, NOON_NS)).collect());
    let alone = spans(&alone)[0];
    assert!(spans(&among_others).contains(&alone));
    let mut elsewhere = task(7, None, NOON_NS);
    elsewhere.epoch = "a2".to_owned();
    let elsewhere = messages(vec![elsewhere]);
    assert_ne!(spans(&elsewhere)[0].span_id, alone.span_id);
}

#[test]
fn messages_are_bounded_and_running_tasks_wait_for_their_end() {
    let mut tasks: Vec<Task> = (0..5_000).map(|id| task(id, None, NOON_NS)).collect();
    tasks[4_999].stop_ns = None;
    let mut made = Spans::new("fleet");
    let messages = made.messages(tasks);
    assert_eq!((made.tasks, made.running), (4_999, 1));
    let lengths: Vec<usize> = messages
        .iter()
        .map(|message| spans(std::slice::from_ref(message)).len())
        .collect();
    assert_eq!(lengths, [SPANS_MAX, SPANS_MAX, 999]);
}
