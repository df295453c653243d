//! Sums samples on a cluster. A collector's profiles need these sums.

use std::sync::Arc;

use anyhow::Context as _;
use datafusion::arrow::array::{AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, Field, Schema, TimeUnit, UInt8Type, UInt32Type, UInt64Type,
};
use datafusion::catalog::default_table_source::provider_as_source;
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, col, lit};
use store::{ClusterRequest, ClusterSum, SamplePiece, StoreSamples};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

use super::cluster::{
    CLUSTER_BYTES_MAX, CLUSTER_TIME_MAX, ClusterError, context, escaped, listing, room_left,
};
use super::file_table::PERIOD;

/// Sums the samples of a request, whose files are below `folder`. Tries twice.
///
/// # Errors
/// If the cluster fails, or is gone.
pub(crate) fn sums(
    scheduler: &str,
    folder: &str,
    asked: &ClusterRequest,
) -> anyhow::Result<Vec<ClusterSum>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start a thread")?;
    let plan = plan(folder, asked)?;
    let ask = || timeout(CLUSTER_TIME_MAX, run(scheduler, plan.clone()));
    let answer = runtime.block_on(async {
        match ask().await {
            Ok(Err(_)) => ask().await,
            answer => answer,
        }
    });
    let reason = match answer {
        Ok(Ok(sums)) => return Ok(sums),
        Ok(Err(error)) => super::first_line(&error.strip_backtrace()).to_owned(),
        Err(_) => format!("no answer in {} s", CLUSTER_TIME_MAX.as_secs()),
    };
    Err(ClusterError {
        scheduler: scheduler.to_owned(),
        reason,
    }
    .into())
}

/// One sum over all stores, so that the cluster has one job.
fn plan(folder: &str, asked: &ClusterRequest) -> Result<LogicalPlan> {
    let mut plan: Option<LogicalPlanBuilder> = None;
    for (number, store) in (0u32..).zip(&asked.stores) {
        for piece in &store.pieces {
            let rows = rows(folder, number, store, piece)?;
            plan = Some(match plan {
                Some(others) => others.union(rows.build()?)?,
                None => rows,
            });
        }
    }
    let plan = plan.unwrap_or_else(|| LogicalPlanBuilder::empty(false));
    let keys = [col("store"), col("node"), col("state")];
    plan.aggregate(keys, [sum(col("weight_ns"))])?.build()
}

/// The rows of a piece with the number of their store.
fn rows(
    folder: &str,
    number: u32,
    store: &StoreSamples,
    piece: &SamplePiece,
) -> Result<LogicalPlanBuilder> {
    let number_column = |name| Field::new(name, DataType::UInt32, false);
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let mut fields = vec![
        Field::new(PERIOD, time, false),
        number_column("task"),
        Field::new("state", DataType::UInt8, false),
        number_column("node"),
        Field::new("weight_ns", DataType::UInt64, false),
    ];
    if store.workers.is_some() {
        fields.push(number_column("worker"));
    }
    let files = piece
        .files
        .iter()
        .map(|file| format!("{folder}/{}", escaped(file)));
    let table = listing(files, Arc::new(Schema::new(fields)))?;
    let at = |ms: i64| {
        lit(ScalarValue::TimestampMillisecond(
            Some(ms),
            Some("UTC".into()),
        ))
    };
    let mut conditions = vec![
        col(PERIOD).gt_eq(at(piece.from_ms)),
        col(PERIOD).lt(at(piece.to_ms)),
    ];
    conditions.extend(one_of("task", store.tasks.as_deref()));
    conditions.extend(one_of("worker", store.workers.as_deref()));
    LogicalPlanBuilder::scan("samples", provider_as_source(table), None)?
        .filter(conjunction(conditions).unwrap_or(lit(true)))?
        .project([
            lit(number).alias("store"),
            col("node"),
            col("state"),
            col("weight_ns"),
        ])
}

fn one_of(column: &str, numbers: Option<&[u32]>) -> Option<Expr> {
    let list = numbers?.iter().map(|number| lit(*number)).collect();
    Some(col(column).in_list(list, false))
}

async fn run(scheduler: &str, plan: LogicalPlan) -> Result<Vec<ClusterSum>> {
    let frame = context(scheduler)?.execute_logical_plan(plan).await?;
    let mut batches = frame.execute_stream().await?;
    let mut room = CLUSTER_BYTES_MAX;
    let mut sums = Vec::new();
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        room = room_left(room, &batch)?;
        add(&batch, &mut sums);
    }
    Ok(sums)
}

fn add(batch: &RecordBatch, sums: &mut Vec<ClusterSum>) {
    let stores = batch.column(0).as_primitive::<UInt32Type>().values();
    let nodes = batch.column(1).as_primitive::<UInt32Type>().values();
    let states = batch.column(2).as_primitive::<UInt8Type>().values();
    let weights = batch.column(3).as_primitive::<UInt64Type>().values();
    sums.extend((0..batch.num_rows()).map(|row| ClusterSum {
        store: stores[row],
        node: nodes[row],
        state: states[row],
        weight_ns: weights[row],
    }));
}
