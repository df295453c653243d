use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use super::access::Guarded;
use super::client::{send, send_with};
use super::*;
use base::limits::{SQL_QUERY_BYTES_MAX, SQL_SEAL_EVERY};
use front::auth::{NewToken, Role};

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

/// An answer that its reader may not see is not computed either.
#[tokio::test]
async fn a_query_whose_token_is_revoked_ends_with_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("pid");
    let program = folder.path().join("program");
    let script = format!("#!/bin/sh\necho $$ > {}\nexec sleep 600\n", begun.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    let guarded = Guarded::serve_with(ServeOptions {
        sql: Some(SqlProgram {
            program: Some(program),
            store: Vec::new(),
        }),
        ..ServeOptions::default()
    })
    .await;
    let token = guarded.token(NewToken::new(Role::Operator));
    guarded.until_valid(&token).await;
    let address = guarded.running.address;
    let bearer = token.bearer().to_string();
    let asked = tokio::spawn(async move {
        let host = address.to_string();
        let headers = [
            ("host", &*host),
            ("content-type", "application/json"),
            ("authorization", &*bearer),
        ];
        let query = r#"{"query": "SELECT 1", "format": "csv"}"#;
        send_with(address, "POST /api/v1/sql", &headers, query).await
    });
    let pid = || std::fs::read_to_string(&begun).unwrap_or_default();
    wait_until("the program", || pid().ends_with('\n')).await;
    guarded.file.revoke(token.id()).unwrap();
    let answer = in_time(asked).await.unwrap();
    assert_eq!(answer.status, 401, "{}", answer.body);
    assert!(
        answer.body.contains("the token is not valid"),
        "{}",
        answer.body
    );
    let process = format!("/proc/{}/cmdline", pid().trim());
    let has_ended = || std::fs::read(&process).unwrap_or_default().is_empty();
    wait_until("the end of the program", has_ended).await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_named() {
    let running = serve().await;
    let query = format!(r#"{{"query": "{}"}}"#, "x".repeat(4 * SQL_QUERY_BYTES_MAX));
    let answer = send(
        running.address,
        "POST /api/v1/sql",
        "application/json",
        &query,
    )
    .await;
    assert_eq!(answer.status, 413, "{}", answer.body);
    assert!(
        answer.body.contains("the body is longer than"),
        "{}",
        answer.body
    );
}
