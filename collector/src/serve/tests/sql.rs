use super::client::send;
use super::*;
use base::limits::SQL_SEAL_EVERY;

/// Makes a query, and returns how many windows are not in the store's tables after it.
async fn unsealed_after_query(running: &Running) -> Value {
    let query = r#"{"query": "SELECT 1", "format": "csv"}"#;
    let answer = send(
        running.address,
        "POST /api/v1/sql",
        "application/json",
        query,
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    running.json("/api/v1/workers").await["retained"]["unsealed_windows"].clone()
}

#[tokio::test]
async fn a_query_in_sql_seals_before_it_reads_but_not_a_moment_later_again() {
    let begin = Instant::now();
    let program = SqlProgram {
        program: Some("/bin/true".into()),
        store: Vec::new(),
    };
    let running = serve_with(ServeOptions {
        sql: Some(program),
        ..ServeOptions::default()
    })
    .await;
    let (mut worker, mut client) = attached(&running, "w").await;
    assert_eq!(unsealed_after_query(&running).await, 0);

    let flush = worker.flush(31, Vec::new());
    assert_eq!(client.ask(agent_message::Kind::Flush(flush)).await, "ack 2");
    let unsealed = unsealed_after_query(&running).await;
    // On a machine that is too slow for both, the second query may seal as well.
    if begin.elapsed() < SQL_SEAL_EVERY {
        assert_eq!(unsealed, 1);
    }
}
