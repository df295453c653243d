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
    let profiles = String::from_utf8(otlp::requests(&[0])).unwrap();
    let profiles = profiles.replace("\"cpu\"", "\"wall\"");
    let answer = running
        .push_with(otlp::HTTP, &[otlp::JSON], profiles.as_bytes())
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
