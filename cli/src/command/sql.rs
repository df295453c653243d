//! `emberline sql`

use std::io::Read as _;

use anyhow::Context as _;
use api::{SqlAnswer, SqlFormat, SqlRequest};
#[cfg(feature = "sql")]
use collector::SQL_CORRUPT_FILE;
use collector::limits::SQL_QUERY_BYTES_MAX;

use super::rows::{corrupt_count, reject_terminal};
use crate::args::{FileFormat, SqlArgs};
use crate::client::Client;
use crate::exit::BadInput;
use crate::format;
#[cfg(feature = "sql")]
use crate::output::say;
use crate::output::{json_line, put, say_wrapped};
#[cfg(feature = "sql")]
use crate::sql::{Answer, Cluster, NamedStore};
#[cfg(feature = "sql")]
use crate::view;
use crate::view::View as _;

/// Why a program has no client of a cluster.
pub(super) const NO_BALLISTA: &str = "this program was built without the feature `ballista`, so it cannot use \
    --scheduler; run: cargo install --features sql,ballista emberline-cli";

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
        FileFormat::Arrow => SqlFormat::Arrow,
    };
    if matches!(format, FileFormat::Parquet | FileFormat::Arrow) {
        let extension = asked_format.name();
        reject_terminal(extension, file, &format!("rows.{extension}"))?;
    }
    let asked = SqlRequest { query: query(args)?, format: asked_format, rows: args.rows };
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
            corrupt_count(count).iter().for_each(|note| say_wrapped(note));
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
        // The process of a collector passes the bytes on.
        FileFormat::Json if !args.limited => put(file, &json_line(content)),
        _ => put(file, &content),
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

#[cfg(feature = "sql")]
fn from_store(args: &SqlArgs, asked: &SqlRequest) -> anyhow::Result<Vec<u8>> {
    if asked.query.len() > SQL_QUERY_BYTES_MAX {
        let text =
            format!("the query is too long; at most {SQL_QUERY_BYTES_MAX} bytes are allowed");
        return Err(BadInput(text).into());
    }
    if args.limited {
        crate::sql::limit_process()?;
    }
    let stores = crate::sql::open(args.data.as_deref(), args.store.as_ref(), &args.name)?;
    let cluster = cluster(args, &stores)?;
    let Answer { content, corrupt_files } = crate::sql::answer(stores, asked, cluster)?;
    if asked.format != SqlFormat::Json {
        // The answer cannot name them.
        if args.limited {
            corrupt_files.iter().for_each(|path| say(&format!("{SQL_CORRUPT_FILE}{path}")));
        } else {
            view::corrupt_files(&corrupt_files).iter().for_each(|note| say_wrapped(note));
        }
    }
    Ok(content)
}

#[cfg(feature = "ballista")]
fn cluster(args: &SqlArgs, stores: &[NamedStore]) -> anyhow::Result<Option<Cluster>> {
    let Some(scheduler) = args.cluster.scheduler.clone() else { return Ok(None) };
    let place = args.store.as_ref();
    Cluster::new(scheduler, args.cluster.distribute_over(), args.data.as_deref(), place, stores)
        .map(Some)
}

#[cfg(all(feature = "sql", not(feature = "ballista")))]
fn cluster(args: &SqlArgs, _: &[NamedStore]) -> anyhow::Result<Option<Cluster>> {
    match args.cluster.scheduler {
        None => Ok(None),
        Some(_) => Err(BadInput(NO_BALLISTA.to_owned()).into()),
    }
}

#[cfg(not(feature = "sql"))]
fn from_store(_: &SqlArgs, _: &SqlRequest) -> anyhow::Result<Vec<u8>> {
    let text = "this program was built without the feature `sql`, so it cannot read a store by itself; ask a \
                collector that has it (--url), or run: cargo install --features sql emberline-cli";
    Err(BadInput(text.to_owned()).into())
}
