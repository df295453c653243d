//! This program as a process of its own, which a collector starts for a query.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use collector::{ClusterProgram, SqlProgram, SumCluster};

use super::sql::NO_BALLISTA;
use crate::args::ClusterArgs;
use crate::exit::BadInput;

/// The program that has a cluster sum large tables, if there is a cluster. `store` says where the stores are.
pub(super) fn cluster_program(
    store: Option<Vec<OsString>>,
    args: &ClusterArgs,
) -> anyhow::Result<Option<Arc<dyn SumCluster>>> {
    if args.scheduler.is_some() && !cfg!(feature = "ballista") {
        return Err(BadInput(NO_BALLISTA.to_owned()).into());
    }
    let has_cluster = cfg!(feature = "ballista") && args.scheduler.is_some();
    let Some(arguments) = store.filter(|_| has_cluster) else { return Ok(None) };
    let program = std::env::current_exe().context("cannot find this program's file")?;
    Ok(Some(Arc::new(ClusterProgram::new(program, arguments, args.distribute_over()))))
}

/// The cluster of queries as arguments of `emberline sql`.
pub(super) fn cluster_arguments(args: &ClusterArgs) -> Vec<OsString> {
    let Some(scheduler) = &args.scheduler else { return Vec::new() };
    let size = size_argument(args.distribute_over());
    vec![
        "--scheduler".into(),
        scheduler.to_string().into(),
        "--distribute-over".into(),
        size.into(),
    ]
}

/// A store's folder as arguments of `emberline sql`.
pub(super) fn data_arguments(data: &Path) -> Vec<OsString> {
    vec!["--data".into(), data.into()]
}

/// The program that answers queries in SQL from a store: this one, if it can.
pub(super) fn sql_program(store: Option<Vec<OsString>>) -> anyhow::Result<Option<SqlProgram>> {
    let Some(store) = store.filter(|_| cfg!(feature = "sql")) else { return Ok(None) };
    let program = std::env::current_exe().context("cannot find this program's file")?;
    Ok(Some(SqlProgram { program, store }))
}

/// A size as the value of an option.
pub(super) fn size_argument(bytes: u64) -> String {
    // Sizes are given in one of the two.
    match bytes % 1_000_000 {
        0 => format!("{}MB", bytes / 1_000_000),
        _ => format!("{}MiB", bytes >> 20),
    }
}
