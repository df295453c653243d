//! `emberline sql`: asks a collector, or has the program `emberline-sql` read stores.

use std::ffi::OsString;
use std::io::Read as _;
use std::process::{Output, Stdio};

use anyhow::{Context as _, bail};
use api::{SqlAnswer, SqlFormat, SqlRequest};
use collector::limits::SQL_QUERY_BYTES_MAX;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::rows::{corrupt_count, reject_terminal};
use super::server::programs::{cluster_arguments, data_arguments, installed_sql_program};
use crate::args::{FileFormat, SqlArgs};
use crate::client::Client;
use crate::exit::{BadInput, Reported};
use crate::format;
use crate::grid::is_wide;
use crate::output::{StdoutClosed, json_line, put, reader_is_gone, say_wrapped};
use crate::view::View as _;

/// Why a query to a collector has no scheduler.
pub(super) const SCHEDULER_OF_COLLECTOR: &str = "--scheduler needs stores that this command \
    reads itself (--store, for sql also --data); a collector has its own scheduler: emberline serve --scheduler HOST:PORT";

pub(crate) fn run(args: &SqlArgs) -> anyhow::Result<()> {
    let file = args.output.file();
    let format = format::choose(args.format, file)?;
    let asked_format = match format {
        FileFormat::Table | FileFormat::Json => SqlFormat::Json,
        FileFormat::Csv => SqlFormat::Csv,
        FileFormat::Parquet => SqlFormat::Parquet,
    };
    if matches!(format, FileFormat::Parquet) {
        let extension = asked_format.name();
        reject_terminal(extension, file, &format!("rows.{extension}"))?;
    }
    let asked = SqlRequest {
        query: query(args)?,
        format: asked_format,
        rows: args.rows,
    };
    let is_local = args.data.is_some() || args.store.is_some();
    if args.cluster.scheduler.is_some() && !is_local {
        return Err(BadInput(SCHEDULER_OF_COLLECTOR.to_owned()).into());
    }
    let content = if is_local {
        from_store(args, &asked)?
    } else {
        let answer = Client::new(&args.url.url)?.post("sql", &asked)?;
        if asked_format != SqlFormat::Json {
            let count = answer.header("x-emberline-corrupt-files").unwrap_or(0);
            corrupt_count(count)
                .iter()
                .for_each(|note| say_wrapped(note));
        }
        answer.body
    };
    match format {
        FileFormat::Table => {
            let answer: SqlAnswer =
                serde_json::from_slice(&content).context("unexpected response to a query")?;
            answer.notes().iter().for_each(|note| say_wrapped(note));
            put(file, answer.text().as_bytes())
        }
        FileFormat::Json => put(file, &json_line(content)),
        FileFormat::Csv | FileFormat::Parquet => put(file, &content),
    }
}

fn query(args: &SqlArgs) -> anyhow::Result<String> {
    if args.query != "-" {
        return Ok(args.query.clone());
    }
    let mut text = String::new();
    let longest = SQL_QUERY_BYTES_MAX as u64 + 1;
    let read = std::io::stdin().take(longest).read_to_string(&mut text);
    read.context("the query on standard input cannot be read")?;
    Ok(text)
}

/// Has `emberline-sql` answer the query, whose messages go to the same place as those of this program.
fn from_store(args: &SqlArgs, asked: &SqlRequest) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new(installed_sql_program()?);
    command
        .arg("query")
        .args(store_arguments(args))
        .args(cluster_arguments(&args.cluster));
    command.args(["--format", asked.format.name()]);
    if let Some(rows) = asked.rows {
        command.args(["--rows", &rows.to_string()]);
    }
    if is_wide() {
        command.arg("--wide");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start a thread")?;
    let output = runtime.block_on(async {
        tokio::select! {
            output = output_of(command, asked.query.as_bytes()) => output,
            // The program is killed.
            () = reader_is_gone() => Err(StdoutClosed.into()),
        }
    })?;
    match output.status.code() {
        Some(0) => Ok(output.stdout),
        Some(code) => Err(Reported(u8::try_from(code).unwrap_or(1)).into()),
        None => bail!(
            "the program that read the store was killed ({})",
            output.status
        ),
    }
}

/// Where the stores are, as arguments of `emberline-sql`.
fn store_arguments(args: &SqlArgs) -> Vec<OsString> {
    let mut arguments = match &args.store {
        Some(place) => vec!["--store".into(), place.to_string().into()],
        None => args.data.as_deref().map(data_arguments).unwrap_or_default(),
    };
    for name in &args.name {
        arguments.extend(["--name".into(), name.to_string().into()]);
    }
    arguments
}

/// Runs a program with this input. It is killed when this future is dropped.
async fn output_of(mut command: Command, input: &[u8]) -> anyhow::Result<Output> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .with_context(|| format!("could not start {command:?}"))?;
    if let Some(mut to_child) = child.stdin.take() {
        // A program that ends before it has read its input says why.
        let _ = to_child.write_all(input).await;
    }
    child
        .wait_with_output()
        .await
        .context("the answer to the query cannot be read")
}
