//! Sums of large tables by a cluster. Each is asked for by a process of its own, as queries in SQL are.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::error::ErrorAnswer;
use super::sql::answer_of;
use crate::limits::{CLUSTER_SUMS_MAX, QUERY_WAIT_MAX, SQL_TIME_MAX};
use crate::sum_cluster::{ClusterRequest, ClusterSum, NoClusterSum, SumCluster};

/// Time between two checks whether the reader has gone away.
const CANCEL_CHECK_EVERY: Duration = Duration::from_millis(50);

/// The program that has a cluster sum tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterProgram {
    /// It is run as `PROGRAM cluster-sums ARGUMENTS`, with a [`ClusterRequest`] in JSON on its standard input, and
    /// answers with a line for each [`ClusterSum`].
    pub program: PathBuf,
    /// Where the stores are, and the cluster: `--store URL --scheduler HOST:PORT`.
    pub arguments: Vec<OsString>,
    /// Bytes of the files that a profile reads from which on the cluster is asked.
    pub bytes_min: u64,
}

/// Runs the program.
#[derive(Debug)]
pub(super) struct ClusterProcesses {
    program: ClusterProgram,
    room: Semaphore,
    runtime: Handle,
}

impl ClusterProcesses {
    /// Called on a thread of the runtime.
    pub(super) fn new(program: ClusterProgram) -> ClusterProcesses {
        let room = Semaphore::new(CLUSTER_SUMS_MAX);
        ClusterProcesses { program, room, runtime: Handle::current() }
    }

    async fn run(&self, request: &[u8]) -> Result<Vec<u8>, String> {
        let room = timeout(QUERY_WAIT_MAX, self.room.acquire()).await;
        let _room = room.map_err(|_| "other sums are running".to_owned())?;
        let mut command = Command::new(&self.program.program);
        command.arg("cluster-sums").args(&self.program.arguments);
        let answered = timeout(SQL_TIME_MAX, answer_of(command, request)).await;
        answered
            .map_err(|_| format!("no answer in {} s", SQL_TIME_MAX.as_secs()))?
            .map_err(ErrorAnswer::into_text)
    }
}

impl SumCluster for ClusterProcesses {
    fn bytes_min(&self) -> u64 {
        self.program.bytes_min
    }

    fn sums(
        &self,
        asked: &ClusterRequest,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<ClusterSum>, String> {
        let request = serde_json::to_vec(asked).map_err(|error| error.to_string())?;
        let cancelled = async {
            while !is_cancelled() {
                sleep(CANCEL_CHECK_EVERY).await;
            }
        };
        let answer = self.runtime.block_on(async {
            tokio::select! {
                answer = self.run(&request) => answer,
                () = cancelled => Err("its reader went away".to_owned()),
            }
        })?;
        let answer = String::from_utf8(answer).map_err(|error| error.to_string())?;
        let sums: Result<Vec<ClusterSum>, NoClusterSum> = answer.lines().map(str::parse).collect();
        sums.map_err(|error| error.to_string())
    }
}
