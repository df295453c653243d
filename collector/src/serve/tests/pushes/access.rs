//! Tokens of pushes, the end of a series, and pushes that cannot be logged.

use super::*;

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

#[tokio::test]
async fn pushes_need_a_token_of_role_agent_that_covers_the_worker() {
    let guarded = Guarded::serve().await;
    let reader = guarded.token(NewToken::new(Role::Reader));
    let agent = guarded.token(NewToken::new(Role::Agent));
    let narrow = guarded.agent("pyroscope:shop*");
    guarded.until_valid(&reader).await;
    let push = async |path: &str, authorization: Option<String>| {
        let mut headers = vec![("content-type", "application/proto")];
        headers.extend(
            authorization
                .as_ref()
                .map(|value| ("authorization", &**value)),
        );
        guarded.running.push_with(path, &headers, b"").await
    };
    let ingest = format!("/ingest?name=other&{TIMES}");
    for path in [&*ingest, PUSH] {
        let missing = push(path, None).await;
        assert_eq!(missing.status, 401);
        assert!(
            missing.body.contains("password of basic authentication"),
            "{}",
            missing.body
        );
        let field = if path == PUSH { "message" } else { "error" };
        assert!(serde_json::from_str::<Value>(&missing.body).unwrap()[field].is_string());
        assert_eq!(push(path, Some(basic("user", "emb_0_0"))).await.status, 401);
        assert_eq!(push(path, password(&reader)).await.status, 403);
        assert_eq!(
            push(path, Some(reader.bearer().to_string())).await.status,
            403
        );
        for value in [password(&agent), Some(agent.bearer().to_string())] {
            assert_eq!(push(path, value).await.status, 200);
        }
        assert_eq!(
            push(path, Some(basic(agent.expose(), ""))).await.status,
            200
        );
    }
    // No other route takes passwords, which browsers keep.
    let host = guarded.running.address.to_string();
    let authorization = basic("user", reader.expose());
    let headers = [("host", &*host), ("authorization", &*authorization)];
    let answer = send_bytes(
        guarded.running.address,
        "GET /api/v1/workers",
        &headers,
        b"",
    )
    .await;
    assert_eq!(answer.status, 401);
    let authorization = password(&narrow).unwrap();
    let headers = [("authorization", &*authorization)];
    let of = async |name: &str| {
        let path = format!("/ingest?name={name}&{TIMES}");
        guarded.running.push_with(&path, &headers, b"main 1").await
    };
    assert_eq!(of("shop").await.status, 200);
    let foreign = of("other").await;
    assert_eq!(foreign.status, 403);
    assert!(
        foreign.body.contains("--worker 'pyroscope:*'"),
        "{}",
        foreign.body
    );
}

fn password(token: &Token) -> Option<String> {
    Some(basic("user", token.expose()))
}

#[tokio::test]
async fn a_series_ends_when_nothing_comes_and_begins_again_with_the_next_push() {
    let running = serve().await;
    running
        .ingest(&format!("name=idle&{TIMES}"), &[], b"main 1")
        .await;
    let state = "/workers/0/epochs/0/state";
    running
        .until("/api/v1/workers", state, json!("connected"))
        .await;
    let later_ns = at(60).unix_ns() + PUSHED_IDLE_MAX.as_nanos() as i64;
    running.now_ns.store(later_ns, Ordering::SeqCst);
    running.until("/api/v1/workers", state, json!("gone")).await;
    let workers = running.json("/api/v1/workers").await;
    assert_eq!(
        workers["workers"][0]["epochs"][0]["disconnect"]["reason"],
        "clean"
    );
    assert_eq!(workers["pushes"][0]["series"], 0);
    let events = running.json("/api/v1/events/recent").await;
    let [gone, connected] = [0, 1].map(|index| events["events"][index].clone());
    assert_eq!(gone["kind"], "worker_gone");
    assert_eq!(gone["data"]["disconnect"]["cause"], "no push for 3 min");
    assert_eq!(connected["kind"], "worker_connected");
    assert_eq!(events["events"].as_array().unwrap().len(), 2);
    running
        .ingest(&format!("name=idle&{TIMES}"), &[], b"main 1")
        .await;
    let workers = running.json("/api/v1/workers").await;
    assert_eq!(workers["workers"][0]["epochs"].as_array().unwrap().len(), 2);
    assert_eq!(running.stacks("").await, ["idle;main 20000000"]);
}

#[tokio::test]
async fn settings_do_not_wait_for_what_has_no_agent() {
    let running = serve().await;
    running
        .ingest(&format!("name=s&{TIMES}"), &[], b"main 1")
        .await;
    let host = running.address.to_string();
    let headers = [("host", &*host), ("content-type", "application/json")];
    let line = "PUT /api/v1/workers/settings";
    let answer = send_bytes(running.address, line, &headers, br#"{"enabled":false}"#).await;
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(
        (answer.status, &body["workers"]),
        (200, &json!([])),
        "{body}"
    );
}

#[tokio::test]
async fn a_push_is_not_acknowledged_while_nothing_can_be_logged() {
    let (running, _folder) = serve_full().await;
    let answer = running
        .push_with(&format!("/ingest?name=a&{TIMES}"), &[], b"main 1")
        .await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.body.contains("disk"), "{}", answer.body);
    assert_eq!(answer.header("retry-after"), Some("5"));
}
