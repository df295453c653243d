//! States of time, by the columns of a profile and by each protocol that it comes by.

use super::connect::push_message;
use super::*;

/// A profile as Node's client sends it without `collectCpuTime`.
fn wall_profile() -> Vec<u8> {
    Pprof::new(&[("samples", "count"), ("wall", "nanoseconds")])
        .with("wait", &[3, 30], &[])
        .at(40, 10)
        .encode_to_vec()
}

/// A service that sleeps has as much of it as one that computes.
#[tokio::test]
async fn wall_time_without_cpu_time_is_no_cpu_time_by_each_protocol() {
    let running = serve().await;
    let query = format!("name=a&{TIMES}&format=pprof");
    running.ingest(&query, &[], &wall_profile()).await;
    let labels = [("__name__", "wall"), ("service_name", "b")];
    let message = push_message(&labels, &[wall_profile()]);
    let headers = [("content-type", "application/proto")];
    let answer = running.push_with(PUSH, &headers, &message).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let of_cpu = String::from_utf8(otlp::requests(&[0])).unwrap();
    let of_wall = of_cpu.replace("\"cpu\"", "\"wall\"");
    let answer = running
        .push_with(otlp::HTTP, &[otlp::JSON], of_wall.as_bytes())
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let other = running.stacks("&state=other").await;
    let expected = [
        "a;wait 00030",
        "b;wait 00030",
        "load;main;work 50000000",
        "shop;main 30000000",
    ];
    assert_eq!(other, expected);
    assert_eq!(running.stacks("").await, expected);
    assert_eq!(running.stacks("&state=cpu").await, Vec::<String>::new());
}

/// A profile of Go of waits, whose columns are the same for blocks and mutexes.
fn waits(function: &str) -> Vec<u8> {
    Pprof::new(&[("contentions", "count"), ("delay", "nanoseconds")])
        .with(function, &[2, 500], &[])
        .at(40, 10)
        .encode_to_vec()
}

/// A form as Go's client sends it.
fn form_of_go(kind: &str, function: &str) -> Vec<u8> {
    let config = format!(
        r#"{{"contentions":{{"display-name":"{kind}_count"}},"delay":{{"display-name":"{kind}_duration"}}}}"#
    );
    let parts = [
        part("profile", &waits(function)),
        part("sample_type_config", config.as_bytes()),
    ];
    [parts.concat(), b"--x--\r\n".to_vec()].concat()
}

/// A wait for a mutex is in the block profile where it waited, and in the mutex profile where the lock was held.
#[tokio::test]
async fn a_wait_for_a_mutex_of_go_counts_once_in_either_order() {
    for order in [["block", "mutex"], ["mutex", "block"]] {
        let running = serve().await;
        let headers = [("content-type", "multipart/form-data; boundary=x")];
        for kind in order {
            let body = form_of_go(kind, &format!("{kind}Caller"));
            let text = running
                .ingest(&format!("name=go&{TIMES}"), &headers, &body)
                .await;
            assert_eq!(
                text.contains("push the block profile"),
                kind == "mutex",
                "{text}"
            );
            let labels = [("__name__", kind), ("service_name", "alloy")];
            let message = push_message(&labels, &[waits(&format!("{kind}Caller"))]);
            let headers = [("content-type", "application/proto")];
            let answer = running.push_with(PUSH, &headers, &message).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            let warning = answer.header("x-emberline-warning");
            assert_eq!(warning.is_some(), kind == "mutex", "{warning:?}");
        }
        let stacks = ["alloy;blockCaller 00500", "go;blockCaller 00500"];
        assert_eq!(running.stacks("").await, stacks);
        assert_eq!(running.stacks("&state=lock").await, stacks);
    }
}
