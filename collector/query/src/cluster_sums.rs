//! Sums of samples that a cluster reads in place of this process.
//!
//! The files of all stores go to it in one request, each store with its own numbers of tasks and workers. The sums
//! come back by node, and count like rows of a table.

use std::collections::BTreeMap;

use super::QueryError;
use super::table_reader::{PieceFile, ScanFilter, TableReader};
use crate::profiles::weight_sums::Sums;
use store::{ClusterRequest, Piece, SamplePiece, StoreSamples, SumCluster, SumTable};

/// Adds the rows of a scan by a cluster. Returns the number of unknown nodes; `None` if nothing was added: the files
/// are too small for a cluster, or it failed.
pub(super) fn add_by_cluster(
    stored: &mut TableReader<'_>,
    cluster: &dyn SumCluster,
    table_of: &dyn Fn(&Piece) -> SumTable,
    asked: ScanFilter<'_>,
    sums: &mut Sums,
) -> Result<Option<u64>, QueryError> {
    let files = stored.files(table_of);
    let bytes: u64 = files.iter().map(|found| found.file.bytes).sum();
    if bytes < cluster.bytes_min() {
        return Ok(None);
    }
    let parts = stored.parts();
    let mut by_place: BTreeMap<usize, Vec<PieceFile>> = BTreeMap::new();
    for file in files {
        by_place.entry(file.place).or_default().push(file);
    }
    let mut places = Vec::new();
    let mut request = ClusterRequest::default();
    for (place, files) in by_place {
        let numbers = parts.get(place).map(|part| &part.numbers);
        let tasks = asked.tasks.map(|tasks| match numbers {
            Some(numbers) => numbers.tops_in_store(tasks),
            None => tasks.to_vec(),
        });
        let workers = asked.workers.map(|workers| match numbers {
            Some(numbers) => numbers.workers_in_store(workers),
            None => workers.to_vec(),
        });
        if tasks.as_ref().is_some_and(Vec::is_empty) || workers.as_ref().is_some_and(Vec::is_empty)
        {
            continue;
        }
        places.push(place);
        request.stores.push(StoreSamples {
            pieces: pieces(stored, files),
            tasks: tasks.map(|tasks| tasks.iter().map(|task| task.0).collect()),
            workers: workers.map(|workers| workers.iter().map(|worker| worker.0).collect()),
        });
    }
    let cancel = stored.cancel();
    let found = match cluster.sums(&request, &|| cancel.check().is_err()) {
        Ok(found) => found,
        Err(reason) => {
            cancel.check()?;
            tracing::warn!(
                reason,
                bytes,
                "the cluster did not sum, so this process reads the files"
            );
            return Ok(None);
        }
    };
    let mut unknown = 0;
    for sum in found {
        let place = places.get(sum.store as usize);
        let node = match place.and_then(|place| parts.get(*place)) {
            Some(part) => part.numbers.nodes.get(sum.node as usize).map(|node| node.0),
            None => place.map(|_| sum.node),
        };
        let is_known =
            node.is_some_and(|node| sums.add(node, usize::from(sum.state), sum.weight_ns));
        unknown += u64::from(!is_known);
    }
    Ok(Some(unknown))
}

/// The files of a store, with those of a piece together.
fn pieces(stored: &TableReader<'_>, files: Vec<PieceFile>) -> Vec<SamplePiece> {
    let mut pieces: Vec<SamplePiece> = Vec::new();
    for PieceFile { piece, file, .. } in files {
        let millisecond = |period: u32| i64::from(period) * i64::from(piece.tier.seconds()) * 1_000;
        let from_ms = millisecond(piece.periods.start.0);
        let to_ms = millisecond(piece.periods.end.0);
        let path = stored.path_of(&file);
        match pieces.last_mut() {
            Some(last) if last.from_ms == from_ms && last.to_ms == to_ms => last.files.push(path),
            _ => pieces.push(SamplePiece {
                files: vec![path],
                from_ms,
                to_ms,
            }),
        }
    }
    pieces
}
