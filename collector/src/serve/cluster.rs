//! Sums of large tables by a cluster. Each is requested by a process of its own, as queries in SQL are.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::sql::answer_of;
use base::limits::{CLUSTER_SUMS_MAX, QUERY_WAIT_MAX, SQL_TIME_MAX};
use front::error::ErrorAnswer;
use store::{ClusterRequest, ClusterSum, NoClusterSum, SumCluster};

/// Time between two checks whether the reader has gone away.
const CANCEL_CHECK_EVERY: Duration = Duration::from_millis(50);

/// A program that has a cluster sum tables. At most [`CLUSTER_SUMS_MAX`] run at once.
#[derive(Debug)]
pub struct ClusterProgram {
    program: PathBuf,
    arguments: Vec<OsString>,
    bytes_min: u64,
    room: Semaphore,
}

impl ClusterProgram {
    /// The program is run as `PROGRAM cluster-sums ARGUMENTS`, with a [`ClusterRequest`] in JSON on its standard
    /// input, and answers with a line for each [`ClusterSum`]. The arguments say where the stores are, and the
    /// cluster: `--store URL --scheduler HOST:PORT`. `bytes_min` is the size of the files that a profile reads from which
    /// on the cluster is asked.
    #[must_use]
    pub fn new(program: PathBuf, arguments: Vec<OsString>, bytes_min: u64) -> ClusterProgram {
        ClusterProgram {
            program,
            arguments,
            bytes_min,
            room: Semaphore::new(CLUSTER_SUMS_MAX),
        }
    }

    async fn run(&self, request: &[u8]) -> Result<Vec<u8>, String> {
        let room = timeout(QUERY_WAIT_MAX, self.room.acquire()).await;
        let _room = room.map_err(|_| "other sums are running".to_owned())?;
        let mut command = Command::new(&self.program);
        command.arg("cluster-sums").args(&self.arguments);
        let answered = timeout(SQL_TIME_MAX, answer_of(command, request)).await;
        answered
            .map_err(|_| format!("no answer in {} s", SQL_TIME_MAX.as_secs()))?
            .map(|answer| answer.content)
            .map_err(ErrorAnswer::into_text)
    }
}

impl SumCluster for ClusterProgram {
    fn bytes_min(&self) -> u64 {
        self.bytes_min
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
        // Queries run on threads of the server's runtime.
        let answer = Handle::current().block_on(async {
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
