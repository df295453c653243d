//! Sums over large tables on a Ballista cluster.
//!
//! The cluster gets a plan of plain operators over Parquet files: a sum, its conditions, and the addresses of the
//! files. Its executors read them with their own access to the bucket, and have none of our code. They return
//! the sums by number, which are joined with their names here.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ballista_core::config::BALLISTA_CLIENT_GRPC_CONNECT_TIMEOUT_SECONDS;
use ballista_core::extension::{SessionConfigExt as _, SessionStateExt as _};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::catalog::default_table_source::{provider_as_source, source_as_provider};
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Result, exec_datafusion_err};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, SessionState, SessionStateBuilder};
use datafusion::logical_expr::{
    Expr, Filter, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias, TableScan,
};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use store::StorePlace;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

use super::NamedStore;
use super::file_table::FileTable;
use super::selections::with_numbers;
use super::stacks::uses_stacks;
use super::views::schema_of;
use crate::output::say_wrapped;

/// Parts that a scan is cut into, at most: executors take as many at once as they have processors.
const PARTITIONS: usize = 16;

/// Longest time of the cluster's part of a query, which all in all may take 60 s.
pub(super) const CLUSTER_TIME_MAX: Duration = Duration::from_secs(45);

/// Most bytes of the sums that a cluster sends for a query.
pub(super) const CLUSTER_BYTES_MAX: usize = 256 << 20;

/// Most sums of a query that go to a cluster: one for each collector and counting table.
const PARTS_MAX: usize = 64;

/// Longest wait for a connection to a scheduler.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// A Ballista cluster that sums tables of these stores.
pub(crate) struct Cluster {
    scheduler: String,
    /// Scans of fewer bytes stay here.
    distribute_over: u64,
    /// The address of each store, as executors reach it, by its schema.
    folders: BTreeMap<String, String>,
}

/// A sum that the cluster can take.
struct Part {
    /// As it is in the plan.
    local: LogicalPlan,
    /// The same over files that executors reach.
    distributed: LogicalPlan,
    bytes: u64,
}

/// A cluster that answers, but with an error.
#[derive(Debug, thiserror::Error)]
#[error("the cluster of the scheduler {scheduler} failed: {reason}")]
pub(super) struct ClusterError {
    pub(super) scheduler: String,
    pub(super) reason: String,
}

impl Cluster {
    /// # Errors
    /// If the folder does not exist.
    pub(crate) fn new(
        scheduler: String,
        distribute_over: u64,
        data: Option<&Path>,
        place: Option<&StorePlace>,
        stores: &[NamedStore],
    ) -> anyhow::Result<Cluster> {
        let mut folders = BTreeMap::new();
        for NamedStore { name, .. } in stores {
            let in_place = place.map(|_| name.as_str());
            folders.insert(schema_of(name), folder(data, place, in_place)?);
        }
        Ok(Cluster {
            scheduler,
            distribute_over,
            folders,
        })
    }

    /// Runs a query, whose large sums the cluster takes.
    pub(super) async fn execute(&self, frame: DataFrame) -> Result<SendableRecordBatchStream> {
        if matches!(
            frame.logical_plan(),
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_)
        ) {
            return frame.execute_stream().await;
        }
        let (state, plan) = frame.into_parts();
        let plan = self.distributed(&state, state.optimize(&plan)?).await?;
        let plan = state
            .query_planner()
            .create_physical_plan(&plan, &state)
            .await?;
        execute_stream(plan, state.task_ctx())
    }

    /// The plan with the cluster's sums in place of its large scans.
    async fn distributed(&self, state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
        let parts = self.parts(state, &plan)?;
        let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        if parts.is_empty() || parts.len() > PARTS_MAX || bytes < self.distribute_over {
            return Ok(plan);
        }
        let plan = with_numbers(state, plan).await?;
        let parts = self.parts(state, &plan)?;
        let Some(tables) = self.run_or_give_up(&parts).await? else {
            return Ok(plan);
        };
        let plan = plan.transform_down(|node| {
            let found = parts.iter().position(|part| part.local == node);
            Ok(match found {
                Some(index) => {
                    Transformed::new(tables[index].clone(), true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(node),
            })
        })?;
        Ok(plan.data)
    }

    /// The sums of a plan that the cluster can take.
    fn parts(&self, state: &SessionState, plan: &LogicalPlan) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        plan.apply(|node| match self.part(state, node)? {
            Some(part) => {
                parts.push(part);
                Ok(TreeNodeRecursion::Jump)
            }
            None => Ok(TreeNodeRecursion::Continue),
        })?;
        Ok(parts)
    }

    /// The node as a part for the cluster: an aggregate right above a scan.
    fn part(&self, state: &SessionState, node: &LogicalPlan) -> Result<Option<Part>> {
        let LogicalPlan::Aggregate(aggregate) = node else {
            return Ok(None);
        };
        let Some(scan) = scan_below(&aggregate.input) else {
            return Ok(None);
        };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<FileTable>() else {
            return Ok(None);
        };
        let folder = scan
            .table_name
            .schema()
            .and_then(|schema| self.folders.get(schema));
        let (Some(folder), false) = (folder, has_own_functions(node)?) else {
            return Ok(None);
        };
        let files = table.matching_files(state, scan)?;
        if files.is_empty() {
            return Ok(None);
        }
        let paths = files
            .iter()
            .map(|file| format!("{folder}/{}", escaped(&file.path)));
        let source = provider_as_source(listing(paths, provider.schema())?);
        let distributed = node.clone().transform_down(|node| {
            Ok(match node {
                LogicalPlan::TableScan(mut scan) => {
                    scan.source = source.clone();
                    scan.filters.retain(|filter| !uses_stacks(filter));
                    Transformed::yes(LogicalPlan::TableScan(scan))
                }
                node => Transformed::no(node),
            })
        })?;
        let bytes = files.iter().map(|file| file.bytes).sum();
        Ok(Some(Part {
            local: node.clone(),
            distributed: distributed.data,
            bytes,
        }))
    }

    /// The rows of the parts as plans; `None` if the scheduler is gone.
    async fn run_or_give_up(&self, parts: &[Part]) -> Result<Option<Vec<LogicalPlan>>> {
        let mut reason = String::new();
        for _ in 0..2 {
            match timeout(CLUSTER_TIME_MAX, self.run(parts)).await {
                Ok(Ok(tables)) => return Ok(Some(tables)),
                Ok(Err(error)) => reason = super::first_line(&error.strip_backtrace()).to_owned(),
                Err(_) => {
                    let seconds = CLUSTER_TIME_MAX.as_secs();
                    reason = format!("no answer in {seconds} s");
                    break;
                }
            }
        }
        let scheduler = self.scheduler.clone();
        if timeout(CONNECT_MAX, TcpStream::connect(&scheduler))
            .await
            .is_ok_and(|made| made.is_ok())
        {
            let error = ClusterError { scheduler, reason };
            return Err(DataFusionError::External(Box::new(error)));
        }
        say_wrapped(&format!(
            "no scheduler answers at {scheduler}; the query runs here, within the limits of one process"
        ));
        Ok(None)
    }

    async fn run(&self, parts: &[Part]) -> Result<Vec<LogicalPlan>> {
        let context = context(&self.scheduler)?;
        let mut tables = Vec::new();
        let mut room = CLUSTER_BYTES_MAX;
        for (number, part) in parts.iter().enumerate() {
            let frame = context
                .execute_logical_plan(part.distributed.clone())
                .await?;
            let mut rows = frame.execute_stream().await?;
            let schema = numbered(&part.local);
            let mut batches = Vec::new();
            while let Some(batch) = rows.next().await {
                let batch = renamed(&batch?, &schema)?;
                room = room_left(room, &batch)?;
                batches.push(batch);
            }
            tables.push(table_of(number, part, schema, batches)?);
        }
        Ok(tables)
    }
}

/// A session whose plans run on the cluster.
pub(super) fn context(scheduler: &str) -> Result<SessionContext> {
    // When an executor dies, the adaptive planner of Ballista 55 keeps slots of the others for ever.
    let config = SessionConfig::new_with_ballista()
        .with_ballista_adaptive_query_planner(false)
        .with_target_partitions(PARTITIONS)
        .with_ballista_job_name("emberline")
        .set_u64(
            BALLISTA_CLIENT_GRPC_CONNECT_TIMEOUT_SECONDS,
            CONNECT_MAX.as_secs(),
        );
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .build()
        .upgrade_for_ballista(format!("http://{scheduler}"))?;
    Ok(SessionContext::new_with_state(state))
}

/// The table of these Parquet files.
pub(super) fn listing(
    paths: impl Iterator<Item = String>,
    schema: SchemaRef,
) -> Result<Arc<ListingTable>> {
    let addresses = paths.map(ListingTableUrl::parse).collect::<Result<_>>()?;
    let config = ListingTableConfig::new_with_multi_paths(addresses)
        .with_listing_options(ListingOptions::new(Arc::new(ParquetFormat::default())))
        .with_schema(schema);
    Ok(Arc::new(ListingTable::try_new(config)?))
}

/// Bytes that further sums may take.
pub(super) fn room_left(room: usize, batch: &RecordBatch) -> Result<usize> {
    room.checked_sub(batch.get_array_memory_size()).ok_or_else(|| {
        exec_datafusion_err!(
            "the cluster's sums have more than {CLUSTER_BYTES_MAX} bytes; group by fewer columns"
        )
    })
}

/// The scan below conditions and selections of columns.
fn scan_below(plan: &LogicalPlan) -> Option<&TableScan> {
    match plan {
        LogicalPlan::TableScan(scan) => scan.fetch.is_none().then_some(scan),
        LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. })
        | LogicalPlan::Filter(Filter { input, .. }) => scan_below(input),
        _ => None,
    }
}

/// Whether a plan calls a function that executors do not have, or asks another plan.
fn has_own_functions(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        let is_scan = matches!(node, LogicalPlan::TableScan(_));
        let is_own = |expr: &Expr| -> Result<bool> {
            let is_subquery = |expr: &Expr| {
                matches!(
                    expr,
                    Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_)
                )
            };
            Ok(uses_stacks(expr) || expr.exists(|expr| Ok(is_subquery(expr)))?)
        };
        for expr in node.expressions() {
            // A scan may leave conditions to the filter above it.
            found |= !is_scan && is_own(&expr)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The columns of a part under names that are different.
fn numbered(part: &LogicalPlan) -> SchemaRef {
    let fields = part.schema().fields().iter().enumerate();
    Arc::new(Schema::new(
        fields
            .map(|(number, field): (usize, &Arc<Field>)| {
                field.as_ref().clone().with_name(format!("c{number}"))
            })
            .collect::<Vec<_>>(),
    ))
}

/// Executors may use another type for texts.
fn renamed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| cast(column, field.data_type()));
    Ok(RecordBatch::try_new(
        schema.clone(),
        columns.collect::<std::result::Result<_, _>>()?,
    )?)
}

/// The rows of a part, with the names of its columns.
fn table_of(
    number: usize,
    part: &Part,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
) -> Result<LogicalPlan> {
    let table = MemTable::try_new(schema, vec![batches])?;
    let name = format!("cluster_{number}");
    let rows = LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(table)), None)?;
    let columns: Vec<Expr> = rows
        .schema()
        .columns()
        .into_iter()
        .zip(part.local.schema().columns())
        .map(|(column, original)| {
            Expr::Column(column).alias_qualified(original.relation, original.name)
        })
        .collect();
    rows.project(columns)?.build()
}

/// The address of a store as executors reach it, or of all stores of a place.
///
/// # Errors
/// If the folder does not exist.
pub(crate) fn folder(
    data: Option<&Path>,
    place: Option<&StorePlace>,
    name: Option<&str>,
) -> anyhow::Result<String> {
    let name = name.unwrap_or_default();
    match place {
        Some(StorePlace::Bucket { bucket, prefix }) => {
            let parts: Vec<_> = [bucket.as_str(), prefix.as_str(), name]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            Ok(format!("s3://{}", escaped(&parts.join("/"))))
        }
        Some(StorePlace::Directory(folder)) => address_of(&folder.join(name)),
        None => address_of(data.unwrap_or(Path::new("."))),
    }
}

fn address_of(folder: &Path) -> anyhow::Result<String> {
    let folder = folder
        .canonicalize()
        .with_context(|| format!("{} cannot be found", folder.display()))?;
    let path = folder
        .to_str()
        .with_context(|| format!("{} is not UTF-8", folder.display()))?;
    Ok(format!("file://{}", escaped(path)))
}

/// A path in a URL.
pub(super) fn escaped(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~=".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
