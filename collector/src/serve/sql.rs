//! Queries in SQL. Each is answered by a process of its own, which reads the store's files: one that needs too
//! much memory or time, or ends the engine, costs its own answer only.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Instant;

use api::{SqlFormat, SqlRequest};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use profiler_core::limits::bounded;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

use super::agents::json_request;
use super::reader::Reader;
use super::tables::content_type;
use crate::audit;
use base::limited::SQL_CORRUPT_FILE;
use base::limits::{
    QUERY_WAIT_MAX, SQL_ANSWER_BYTES_MAX, SQL_MESSAGE_BYTES_MAX, SQL_QUERIES_MAX,
    SQL_QUERY_BYTES_MAX, SQL_ROWS_DEFAULT, SQL_ROWS_MAX, SQL_SEAL_EVERY, SQL_SEAL_MAX,
    SQL_TIME_MAX,
};
use front::error::ErrorAnswer;
use query::TableFormat;
use shares::identity::Identity;

/// The program that answers queries in SQL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlProgram {
    /// It is run as `PROGRAM query --limited ARGUMENTS --rows COUNT --format FORMAT`, with the query on
    /// its standard input. `None` if it is not installed.
    pub program: Option<PathBuf>,
    /// Where the store is: `--data DIR` or `--store URL --name NAME`.
    pub store: Vec<OsString>,
}

/// The number of damaged files, for answers that cannot name them.
const CORRUPT_FILES: HeaderName = HeaderName::from_static("x-emberline-corrupt-files");

/// Why a collector without a store answers no query.
const NO_STORE: &str =
    "this collector answers no SQL: it keeps nothing on disk; start it with --data DIR";

/// Why a collector without the program answers no query.
const NO_PROGRAM: &str = "this collector answers no SQL: the program emberline-sql is neither next to emberline nor in \
    PATH; install it (docs/SQL.md) and restart the collector";

/// Exit code of a program whose input is invalid.
const INVALID_CODE: i32 = 2;

/// Variables that the program keeps, by the start of their names: access to a bucket, authorities of HTTPS
/// servers, and the folder for temporary files.
const KEPT_VARIABLES: [&str; 3] = ["AWS_", "SSL_CERT_", "TMPDIR"];

/// Answers queries in SQL, a few at once.
#[derive(Clone, Debug)]
pub(super) struct Sql {
    program: Option<Arc<SqlProgram>>,
    room: Arc<Semaphore>,
    /// When the collector last sealed its data for a query.
    sealed_at: Arc<Mutex<Option<Instant>>>,
}

impl Sql {
    pub(super) fn new(program: Option<SqlProgram>) -> Sql {
        Sql {
            program: program.map(Arc::new),
            room: Arc::new(Semaphore::new(SQL_QUERIES_MAX)),
            sealed_at: Arc::default(),
        }
    }

    /// Whether the collector answers.
    pub(super) fn is_available(&self) -> bool {
        self.program().is_ok()
    }

    /// The program and where the store is.
    fn program(&self) -> Result<(&Path, &[OsString]), &'static str> {
        let known = self.program.as_ref().ok_or(NO_STORE)?;
        let program = known.program.as_deref().ok_or(NO_PROGRAM)?;
        Ok((program, &known.store))
    }
}

pub(super) fn routes() -> Router<Reader> {
    // A query may be escaped.
    let bytes_max = 2 * SQL_QUERY_BYTES_MAX;
    Router::new()
        .route("/api/v1/sql", post(sql))
        .layer(DefaultBodyLimit::max(bytes_max))
}

async fn sql(
    State(reader): State<Reader>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ErrorAnswer> {
    let asked: SqlRequest = json_request(&headers, body)?;
    check(&asked)?;
    let (program, store) = reader
        .sql
        .program()
        .map_err(|error: &str| ErrorAnswer::new(StatusCode::NOT_IMPLEMENTED, error.to_owned()))?;
    audit::sql(&identity, &asked.query);
    let room = timeout(QUERY_WAIT_MAX, reader.sql.room.acquire()).await;
    let _room = room.map_err(|_| ErrorAnswer::busy())?;
    seal(&reader).await;
    let answered = timeout(SQL_TIME_MAX, run(program, store, &asked)).await;
    let answer = answered.map_err(|_| {
        bad_request(format!(
            "the query took longer than {} s; ask for a shorter range or a coarser tier",
            SQL_TIME_MAX.as_secs()
        ))
    })??;
    let content_type = match asked.format {
        SqlFormat::Json => "application/json",
        SqlFormat::Csv => content_type(TableFormat::Csv),
        SqlFormat::Parquet => content_type(TableFormat::Parquet),
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CORRUPT_FILES, corrupt_files(&answer.messages).into()),
    ];
    Ok((headers, answer.content).into_response())
}

/// The number of files that a program's messages name as damaged.
fn corrupt_files(messages: &[u8]) -> usize {
    let messages = String::from_utf8_lossy(messages);
    messages
        .lines()
        .filter(|line| line.starts_with(SQL_CORRUPT_FILE))
        .count()
}

/// Moves what is in memory to the tables, unless a query did a moment ago. A query that cannot wait for it reads what
/// the tables have.
async fn seal(reader: &Reader) {
    let mut sealed_at = reader.sql.sealed_at.lock().await;
    let is_new = sealed_at.is_some_and(|sealed_at| sealed_at.elapsed() < SQL_SEAL_EVERY);
    // A reader of several stores has nothing of its own.
    if is_new || reader.collector.follower.is_some() {
        return;
    }
    let collector = reader.collector.clone();
    let sealing = tokio::task::spawn_blocking(move || collector.sealer.seal());
    match timeout(SQL_SEAL_MAX, sealing).await {
        Ok(Ok(Ok(_))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "no sealing before a query in SQL"),
        Ok(Err(error)) => tracing::error!(%error, "sealing panicked: a bug in Emberline"),
        Err(_) => tracing::warn!("sealing before a query in SQL took over {SQL_SEAL_MAX:?}"),
    }
    *sealed_at = Some(Instant::now());
}

fn bad_request(error: String) -> ErrorAnswer {
    ErrorAnswer::new(StatusCode::BAD_REQUEST, error)
}

fn check(asked: &SqlRequest) -> Result<(), ErrorAnswer> {
    if asked.query.len() > SQL_QUERY_BYTES_MAX {
        return Err(bad_request(format!(
            "the query has {} bytes; at most {SQL_QUERY_BYTES_MAX} are allowed",
            asked.query.len()
        )));
    }
    match asked.rows {
        Some(rows) if rows == 0 || rows as usize > SQL_ROWS_MAX => Err(bad_request(format!(
            "rows={rows} is not a number from 1 to {SQL_ROWS_MAX}"
        ))),
        _ => Ok(()),
    }
}

async fn run(
    program: &Path,
    store: &[OsString],
    asked: &SqlRequest,
) -> Result<ProgramAnswer, ErrorAnswer> {
    let rows = asked
        .rows
        .map_or(SQL_ROWS_DEFAULT, |rows| rows as usize)
        .to_string();
    let mut command = Command::new(program);
    command.args(["query", "--limited"]).args(store);
    command.args(["--rows", &rows, "--format", asked.format.name()]);
    answer_of(command, asked.query.as_bytes()).await
}

/// The output of a program.
#[derive(Debug)]
pub(super) struct ProgramAnswer {
    pub(super) content: Vec<u8>,
    /// Its standard error.
    messages: Vec<u8>,
}

/// Runs a program that reads stores. It is killed when this future is dropped.
pub(super) async fn answer_of(
    mut command: Command,
    input: &[u8],
) -> Result<ProgramAnswer, ErrorAnswer> {
    let mut child = command
        .env_clear()
        .envs(kept_variables())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| ErrorAnswer::internal(&error))?;
    let piped = "all three are pipes";
    let mut to_child = child.stdin.take().expect(piped);
    let output = child.stdout.take().expect(piped);
    let messages = child.stderr.take().expect(piped);
    let (_, output, messages) = tokio::join!(
        async move {
            // A program that ends before it has read its input says why.
            let _ = to_child.write_all(input).await;
        },
        async {
            let output = read(output, SQL_ANSWER_BYTES_MAX).await;
            if output.len() > SQL_ANSWER_BYTES_MAX {
                // Otherwise it would wait for ever with the rest.
                let _ = child.start_kill();
            }
            output
        },
        read(messages, SQL_MESSAGE_BYTES_MAX)
    );
    if output.len() > SQL_ANSWER_BYTES_MAX {
        return Err(bad_request(format!(
            "the answer has more than {SQL_ANSWER_BYTES_MAX} bytes; select fewer columns, or add LIMIT"
        )));
    }
    let status = child
        .wait()
        .await
        .map_err(|error| ErrorAnswer::internal(&error))?;
    if !status.success() {
        return Err(failure(status, &messages));
    }
    Ok(ProgramAnswer {
        content: output,
        messages,
    })
}

/// The variables of a process that reads stores.
pub(super) fn kept_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(move |(name, _)| is_kept(name))
}

fn is_kept(name: &std::ffi::OsStr) -> bool {
    KEPT_VARIABLES
        .iter()
        .any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
}

/// Reads at most one byte more than `bytes_max`.
pub(super) async fn read(from: impl AsyncRead + Unpin, bytes_max: usize) -> Vec<u8> {
    let mut content = Vec::new();
    // A pipe that breaks ends like one that is closed.
    let _ = from
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut content)
        .await;
    content
}

fn failure(status: ExitStatus, messages: &[u8]) -> ErrorAnswer {
    let message = String::from_utf8_lossy(messages);
    let whole = bounded(message.trim(), SQL_MESSAGE_BYTES_MAX);
    let message = whole.strip_prefix("error: ").unwrap_or(&message);
    match status.code() {
        Some(INVALID_CODE) => bad_request(message.to_owned()),
        Some(_) => ErrorAnswer::new(StatusCode::INTERNAL_SERVER_ERROR, message.to_owned()),
        None => bad_request(format!(
            "the query took more than its share of memory or processor time ({status}); ask for a shorter \
             range or a coarser tier"
        )),
    }
}

#[cfg(test)]
mod tests;
