//! SQL over the files of stores, by DataFusion.
//!
//! ```text
//! stores ─▶ catalog: tables of files, stacks in memory ─▶ views with names ─▶ one statement ─▶ rows ─▶ encode
//! ```
//!
//! Nothing here writes, and nothing but the stores is read: there is no table of other files, and a statement
//! that is no query is rejected.

mod catalog;
mod checked_files;
#[cfg(feature = "ballista")]
mod cluster;
#[cfg(feature = "ballista")]
mod cluster_sums;
mod encode;
mod file_table;
mod json;
#[cfg(feature = "ballista")]
mod selections;
mod semi_joins;
mod spill;
mod stacks;
mod statement;
mod sums_first;
mod views;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use api::SqlRequest;
use base::limited::{limit_process, sql_address_space};
use base::limits::{
    PROCESS_CPU_SECONDS_MAX, SQL_ANSWER_BYTES_MAX, SQL_MEMORY_BYTES_MAX, SQL_ROWS_DEFAULT,
    SQL_SPILL_BYTES_MAX, SQL_TIME_MAX,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
#[cfg(not(feature = "ballista"))]
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
#[cfg(not(feature = "ballista"))]
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::parser::ParserError;
use profiler_core::Timestamp;
use profiler_core::limits::bounded;
use store::{Problem, StoreLocation, StoreName, StorePlace, StoreSnapshot, VerifiedFiles};
use tokio_stream::StreamExt as _;

use self::semi_joins::SemiJoinsFirst;
use self::spill::SpillFiles;
use self::statement::{NOT_SUPPORTED, similar_view};
use self::sums_first::SumsFirst;
use crate::exit::BadInput;
use crate::output::{StdoutClosed, reader_is_gone};

#[cfg(feature = "ballista")]
pub(crate) use self::cluster::{Cluster, folder};
#[cfg(feature = "ballista")]
pub(crate) use self::cluster_sums::sums as cluster_sums;

/// This program cannot use a cluster.
#[cfg(not(feature = "ballista"))]
pub(crate) enum Cluster {}

#[cfg(not(feature = "ballista"))]
impl Cluster {
    async fn execute(&self, _: DataFrame) -> Result<SendableRecordBatchStream, DataFusionError> {
        match *self {}
    }
}

/// Most threads that compute.
const THREADS_MAX: usize = 8;

/// Longest reason of an error, in bytes: the engine lists each function that has a name.
const REASON_BYTES_MAX: usize = 600;

/// A store with the name of its collector.
pub(crate) struct NamedStore {
    pub(crate) name: String,
    pub(crate) snapshot: StoreSnapshot,
}

/// An encoded answer.
pub(crate) struct Answer {
    pub(crate) content: Vec<u8>,
    /// As in [`api::SqlAnswer`].
    pub(crate) corrupt_files: Vec<String>,
}

/// The rows of a query.
struct Rows {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    is_truncated: bool,
}

/// Properties that all rows have in common.
struct Facts {
    /// The oldest version of the stores.
    data_until: Timestamp,
    /// Sorted.
    corrupt_files: BTreeSet<String>,
}

/// The files of a store.
struct NamedFiles {
    /// Begins the path of a file; empty for a store that is a folder by itself.
    prefix: String,
    files: Arc<VerifiedFiles>,
}

impl NamedFiles {
    fn of(store: &NamedStore) -> NamedFiles {
        let name = &store.name;
        let prefix = if name == views::SINGLE {
            String::new()
        } else {
            format!("{name}/")
        };
        NamedFiles {
            prefix,
            files: store.snapshot.files(),
        }
    }

    fn path(&self, problem: &Problem) -> String {
        format!("{}{}", self.prefix, problem.name)
    }
}

impl Facts {
    /// Facts that are known before a row is read.
    fn of(stores: &[NamedStore]) -> Facts {
        let published = stores.iter().map(|store| store.snapshot.published_at());
        let lost = stores.iter().flat_map(|store| {
            let files = NamedFiles::of(store);
            store
                .snapshot
                .lost()
                .into_iter()
                .map(move |problem| files.path(&problem))
        });
        Facts {
            data_until: published.min().unwrap_or(Timestamp::from_unix_ns(0)),
            corrupt_files: lost.collect(),
        }
    }

    /// Adds what was found damaged while rows were read.
    fn add_damaged(&mut self, files: &[NamedFiles]) {
        for named in files {
            let damaged = named.files.damaged();
            self.corrupt_files
                .extend(damaged.iter().map(|problem| named.path(problem)));
        }
    }
}

/// Limits this process, and makes it the first to end when the machine has no memory.
///
/// # Errors
/// If the system refuses.
pub(crate) fn limit_this_process() -> anyhow::Result<()> {
    limit_process(sql_address_space(), PROCESS_CPU_SECONDS_MAX)?;
    base::limited::end_first();
    Ok(())
}

/// Most memory of the operators of a query: a quarter of the address space, which is less on a small machine.
fn operator_memory_bytes() -> usize {
    let quarter = usize::try_from(sql_address_space() / 4).unwrap_or(usize::MAX);
    quarter.min(SQL_MEMORY_BYTES_MAX)
}

/// Reads the newest versions of the stores.
///
/// # Errors
/// If there is none, or one cannot be read.
pub(crate) fn open(
    data: Option<&Path>,
    place: Option<&StorePlace>,
    names: &[StoreName],
) -> anyhow::Result<Vec<NamedStore>> {
    let Some(place) = place else {
        let folder = data.unwrap_or(Path::new("."));
        let snapshot = StoreSnapshot::read(&StoreLocation::from(folder))?;
        return Ok(vec![NamedStore {
            name: "store".to_owned(),
            snapshot,
        }]);
    };
    let names = if names.is_empty() {
        place.names()?
    } else {
        names.to_vec()
    };
    if names.is_empty() {
        return Err(BadInput(format!("no collector has a store in {place}")).into());
    }
    names
        .into_iter()
        .map(|name: StoreName| {
            let location = StoreLocation::Named(place.clone(), name.clone());
            Ok(NamedStore {
                name: name.to_string(),
                snapshot: StoreSnapshot::read(&location)?,
            })
        })
        .collect()
}

/// Answers a query from these stores. The cluster takes its large sums, if there is one.
///
/// # Errors
/// [`BadInput`] if the query is invalid or needs too much.
pub(crate) fn answer(
    stores: Vec<NamedStore>,
    asked: &SqlRequest,
    cluster: Option<Cluster>,
) -> anyhow::Result<Answer> {
    let mut facts = Facts::of(&stores);
    let files: Vec<NamedFiles> = stores.iter().map(NamedFiles::of).collect();
    let threads = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(THREADS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("could not start threads")?;
    let query = run(stores, asked, cluster, threads);
    let done = runtime.block_on(async {
        tokio::select! {
            rows = tokio::time::timeout(SQL_TIME_MAX, query) => Some(rows),
            () = reader_is_gone() => None,
        }
    });
    runtime.shutdown_timeout(Duration::ZERO);
    let rows = done
        .ok_or(StdoutClosed)?
        .map_err(|_| {
            let seconds = SQL_TIME_MAX.as_secs();
            BadInput(format!(
                "the query took longer than {seconds} s; ask for a shorter range or a coarser tier"
            ))
        })?
        .map_err(explain)?;
    facts.add_damaged(&files);
    let content = encode::encode(&rows, &facts, asked.format)?;
    let corrupt_files = facts.corrupt_files.into_iter().collect();
    Ok(Answer {
        content,
        corrupt_files,
    })
}

async fn run(
    stores: Vec<NamedStore>,
    asked: &SqlRequest,
    cluster: Option<Cluster>,
    threads: usize,
) -> Result<Rows, DataFusionError> {
    let context = context(threads)?;
    catalog::register(&context, stores).await?;
    let plan = statement::plan(&context, &asked.query).await?;
    let frame = context.execute_logical_plan(plan).await?;
    let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
    let mut stream = match cluster {
        Some(cluster) => cluster.execute(frame).await?,
        None => frame.execute_stream().await?,
    };
    let mut rows = Rows {
        schema,
        batches: Vec::new(),
        is_truncated: false,
    };
    let mut room = asked.rows.map_or(SQL_ROWS_DEFAULT, |rows| rows as usize);
    let mut bytes = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        rows.is_truncated = batch.num_rows() > room;
        let kept = batch.slice(0, batch.num_rows().min(room));
        room -= kept.num_rows();
        bytes += kept.get_array_memory_size();
        if bytes > 4 * SQL_ANSWER_BYTES_MAX {
            return Err(DataFusionError::ResourcesExhausted(
                "the answer is too large; select fewer columns, or add LIMIT".to_owned(),
            ));
        }
        rows.batches.push(kept);
        if rows.is_truncated {
            break;
        }
    }
    Ok(rows)
}

fn context(threads: usize) -> Result<SessionContext, DataFusionError> {
    let mut config = SessionConfig::new()
        .with_default_catalog_and_schema("emberline", "public")
        .with_information_schema(true)
        .with_target_partitions(threads);
    // `SumsFirst` is the last rule. A second pass would try conditions on stacks before the sum again.
    config.options_mut().optimizer.max_passes = 1;
    // Rows of other workers are dropped while pages are decoded, not after that.
    config.options_mut().execution.parquet.pushdown_filters = true;
    let spilled = Arc::new(SpillFiles::new(std::env::temp_dir(), SQL_SPILL_BYTES_MAX));
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(operator_memory_bytes())))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_temp_file_factory(spilled))
        .build_arc()?;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        // A condition on a name reaches the join with names in the first pass, so what follows from it runs after that.
        .with_optimizer_rule(Arc::new(SemiJoinsFirst))
        .with_optimizer_rule(Arc::new(EliminateOuterJoin::new()))
        .with_optimizer_rule(Arc::new(PushDownFilter::new()))
        .with_optimizer_rule(Arc::new(OptimizeProjections::new()))
        .with_optimizer_rule(Arc::new(SumsFirst))
        .build();
    Ok(SessionContext::new_with_state(state))
}

/// The error of a query for people. All but a failure of the store is invalid input.
fn explain(error: DataFusionError) -> anyhow::Error {
    let reason = match error.find_root() {
        DataFusionError::ObjectStore(_)
        | DataFusionError::IoError(_)
        | DataFusionError::ParquetError(_) => {
            return anyhow!(
                "the store cannot be read: {}",
                first_line(&error.to_string())
            );
        }
        DataFusionError::ResourcesExhausted(reason) => format!(
            "the query needs more than the {} MiB that it may take: {}; ask for a shorter range or a coarser tier",
            operator_memory_bytes() >> 20,
            in_one_line(reason)
        ),
        DataFusionError::Plan(reason) if reason.contains("L not supported") => not_reading(reason),
        DataFusionError::Plan(reason) if reason.starts_with(NOT_SUPPORTED) => not_reading(reason),
        DataFusionError::Plan(reason) if reason.starts_with("table '") => no_table(reason),
        DataFusionError::Plan(reason) | DataFusionError::NotImplemented(reason) => {
            in_one_line(reason)
        }
        DataFusionError::SQL(error, _) => match &**error {
            ParserError::ParserError(reason) | ParserError::TokenizerError(reason) => {
                in_one_line(reason)
            }
            error => error.to_string(),
        },
        DataFusionError::SchemaError(error, _) => in_one_line(&error.to_string()),
        // Of the cluster.
        DataFusionError::External(error) => return anyhow!("{}", first_line(&error.to_string())),
        DataFusionError::ArrowError(error, _) => in_one_line(&error.to_string()),
        root => in_one_line(&root.strip_backtrace()),
    };
    BadInput(reason).into()
}

/// A statement that would change something.
fn not_reading(reason: &str) -> String {
    format!(
        "{}; queries only read: SELECT, SHOW TABLES, SHOW COLUMNS FROM, DESCRIBE, EXPLAIN",
        first_line(reason)
    )
}

/// A table that does not exist, with the view that was probably meant.
fn no_table(reason: &str) -> String {
    let table = reason.split('\'').nth(1).unwrap_or_default();
    let meant = similar_view(table).map(|view| format!(". Did you mean '{view}'?"));
    format!(
        "{}{}; SHOW TABLES lists them",
        first_line(reason),
        meant.unwrap_or_default()
    )
}

/// All lines of an error. The second one often has the name that was meant.
fn in_one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    bounded(&words.join(" "), REASON_BYTES_MAX).into_owned()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
