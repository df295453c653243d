use axum::body::to_bytes;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A program that runs this script.
fn program(folder: &Path, script: &str) -> PathBuf {
    let program = folder.join("program");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o700)).unwrap();
    program
}

/// Runs a query of a store by this program.
async fn run(program: &Path, asked: &SqlRequest) -> Result<ProgramAnswer, ErrorAnswer> {
    super::run(program, &["--data".into(), "a b".into()], asked).await
}

fn asked(query: &str) -> SqlRequest {
    SqlRequest {
        query: query.to_owned(),
        format: SqlFormat::Csv,
        rows: Some(7),
    }
}

/// Status and error text of an answer.
async fn told(error: ErrorAnswer) -> (StatusCode, String) {
    let response = error.into_response();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    let failure: api::Failure = serde_json::from_slice(&body).unwrap();
    (status, failure.error)
}

#[tokio::test]
async fn the_program_gets_the_query_on_its_input_and_the_store_as_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(
        folder.path(),
        "for one in \"$@\"; do echo \"$one\"; done; cat",
    );
    let answer = run(&program, &asked("SELECT 'x'")).await.unwrap();
    let lines = [
        "query",
        "--limited",
        "--data",
        "a b",
        "--rows",
        "7",
        "--format",
        "csv",
    ];
    assert_eq!(
        String::from_utf8(answer.content).unwrap(),
        lines.join("\n") + "\nSELECT 'x'"
    );
}

#[test]
fn a_missing_store_and_a_missing_program_are_named() {
    let installed = SqlProgram {
        program: Some("/bin/true".into()),
        store: Vec::new(),
    };
    assert!(Sql::new(Some(installed.clone())).is_available());
    let missing = SqlProgram {
        program: None,
        ..installed
    };
    for (program, reason) in [
        (None, "--data DIR"),
        (Some(missing), "the program emberline-sql"),
    ] {
        let sql = Sql::new(program);
        assert!(!sql.is_available());
        assert!(sql.program().unwrap_err().contains(reason));
    }
}

#[tokio::test]
async fn an_invalid_query_a_killed_program_and_a_failure_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut failures = Vec::new();
    for script in [
        "echo 'error: no table named x' >&2; exit 2",
        "kill -9 $$",
        "echo 'error: disk' >&2; exit 1",
    ] {
        let program = program(folder.path(), script);
        failures.push(told(run(&program, &asked("SELECT 1")).await.unwrap_err()).await);
    }
    assert_eq!(
        failures[0],
        (StatusCode::BAD_REQUEST, "no table named x".to_owned())
    );
    assert_eq!(failures[1].0, StatusCode::BAD_REQUEST);
    assert!(
        failures[1].1.contains("more than its share of memory"),
        "{failures:?}"
    );
    assert_eq!(
        failures[2],
        (StatusCode::INTERNAL_SERVER_ERROR, "disk".to_owned())
    );
}

#[tokio::test]
async fn a_larger_answer_than_allowed_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path(), "exec cat /dev/zero");
    let (status, error) = told(run(&program, &asked("SELECT 1")).await.unwrap_err()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(error.contains(&SQL_ANSWER_BYTES_MAX.to_string()), "{error}");
}

#[tokio::test]
async fn long_queries_and_impossible_numbers_of_rows_are_rejected() {
    let longest = "x".repeat(SQL_QUERY_BYTES_MAX);
    check(&asked(&longest)).unwrap();
    let (_, error) = told(check(&asked(&(longest + "x"))).unwrap_err()).await;
    assert!(error.contains("65537 bytes; at most 65536"), "{error}");
    for rows in [0, SQL_ROWS_MAX as u32 + 1] {
        let asked = SqlRequest {
            rows: Some(rows),
            ..asked("SELECT 1")
        };
        let (_, error) = told(check(&asked).unwrap_err()).await;
        assert!(error.contains("from 1 to 1000000"), "{error}");
    }
}

#[tokio::test]
async fn damaged_files_that_a_program_names_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "echo '{SQL_CORRUPT_FILE}a' >&2; echo note >&2; echo '{SQL_CORRUPT_FILE}b' >&2; echo x"
    );
    let answer = run(&program(folder.path(), &script), &asked("SELECT 1"))
        .await
        .unwrap();
    assert_eq!(
        (corrupt_files(&answer.messages), &answer.content[..]),
        (2, &b"x\n"[..])
    );
}
