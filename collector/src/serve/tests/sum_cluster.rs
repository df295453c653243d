//! Profiles whose samples a cluster sums are the same.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use profiler_core::NodeId;

use super::ALL;
use super::stores::{TwoStores, answers, compare, follow, seal};
use store::{
    Batch, ClusterRequest, ClusterSum, Column, Objects, Period, SamplePiece, Scan, StoreError,
    StoreSamples, SumCluster, TableName, Tables, WorkerNumber,
};

/// Reads the files in this process.
#[derive(Debug)]
struct FilesCluster {
    place: PathBuf,
    /// Number of requests for one store, and for several.
    asked: [AtomicUsize; 2],
    is_down: AtomicBool,
}

type Totals = BTreeMap<(u32, u8), u64>;

impl FilesCluster {
    fn add(
        path: &str,
        store: &StoreSamples,
        piece: &SamplePiece,
        tables: &Tables,
        sums: &mut Totals,
    ) {
        let manifest = tables.manifest();
        let file = manifest
            .files
            .iter()
            .find(|file| path.ends_with(&file.path()))
            .unwrap();
        let TableName::Sums(_, tier) = file.table else {
            panic!("{path} has no sums")
        };
        let period = |ms: i64| Period(u32::try_from(ms / 1_000).unwrap() / tier.seconds());
        let periods = period(piece.from_ms)..period(piece.to_ms);
        let tasks = store
            .tasks
            .as_ref()
            .map(|tasks| tasks.iter().copied().map(NodeId).collect::<Vec<_>>());
        let workers = store
            .workers
            .as_ref()
            .map(|list| list.iter().copied().map(WorkerNumber).collect::<Vec<_>>());
        let scan = Scan {
            spans: None,
            periods: periods.clone(),
            tasks: tasks.as_deref(),
            workers: workers.as_deref(),
            columns: &[Column::Task, Column::Worker, Column::Kind, Column::Node],
            sums_only: false,
        };
        let mut visit = |batch: &Batch| {
            for row in 0..batch.row_count() {
                let is_asked = periods.contains(&Period(batch.ts[row]))
                    && has(&store.tasks, batch.task[row])
                    && (store.workers.is_none() || has(&store.workers, batch.worker[row]));
                if is_asked {
                    *sums.entry((batch.node[row], batch.kind[row])).or_default() +=
                        batch.values[row];
                }
            }
            ControlFlow::Continue(())
        };
        tables.scan(file, &scan, &mut visit).unwrap();
    }

    fn tables(&self, name: &str) -> Result<Tables, StoreError> {
        let objects = Objects::local(&self.place.join(name))?;
        Tables::open_read_only(objects).map(|(tables, _)| tables)
    }
}

fn has(list: &Option<Vec<u32>>, number: u32) -> bool {
    list.as_ref().is_none_or(|list| list.contains(&number))
}

impl SumCluster for FilesCluster {
    fn bytes_min(&self) -> u64 {
        1
    }

    fn sums(
        &self,
        asked: &ClusterRequest,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<ClusterSum>, String> {
        assert!(!is_cancelled());
        self.asked[usize::from(asked.stores.len() > 1)].fetch_add(1, Ordering::Relaxed);
        if self.is_down.load(Ordering::Relaxed) {
            return Err("it is down".to_owned());
        }
        let mut all = Vec::new();
        for (number, store) in (0u32..).zip(&asked.stores) {
            let name = store.pieces[0].files[0].split_once('/').unwrap().0;
            let tables = self.tables(name).map_err(|error| error.to_string())?;
            let mut sums = Totals::new();
            for piece in &store.pieces {
                for path in &piece.files {
                    assert!(path.starts_with(name), "{path} is not of {name}");
                    FilesCluster::add(path, store, piece, &tables, &mut sums);
                }
            }
            all.extend(
                sums.into_iter()
                    .map(|((node, state), weight_ns)| ClusterSum {
                        store: number,
                        node,
                        state,
                        weight_ns,
                    }),
            );
        }
        Ok(all)
    }
}

#[tokio::test]
async fn a_cluster_sums_the_samples_of_all_stores() {
    let TwoStores {
        whole,
        parts,
        mut workers,
        place,
        folder: _folder,
    } = TwoStores::start().await;
    for second in 0..10 {
        for worker in &mut workers {
            worker.ship().await;
        }
        // The last seconds are in no table.
        if second == 7 {
            seal(&parts[0]).await;
            seal(&parts[1]).await;
            seal(&whole).await;
        }
    }
    let reader = follow(place.path()).await;
    let cluster = Arc::new(FilesCluster {
        place: place.path().to_owned(),
        asked: Default::default(),
        is_down: AtomicBool::new(false),
    });
    let state = reader.collector.upgrade().unwrap().state.clone();
    state.cluster.set(cluster.clone()).unwrap();
    let expected = answers(&whole).await;
    assert_eq!(compare(&expected, &answers(&reader).await), None);
    // Only one store knows this worker.
    let path = format!("/api/v1/profile?{ALL}&worker=w2");
    let totals = &reader.json(&path).await["totals"];
    assert_eq!(*totals, whole.json(&path).await["totals"]);
    assert!(totals["total_ns"].as_u64() > Some(0), "{totals}");
    let asked = cluster
        .asked
        .each_ref()
        .map(|count| count.load(Ordering::Relaxed));
    assert!(asked[0] == 1 && asked[1] >= 5, "{asked:?}");

    // Without it, this process reads the files.
    cluster.is_down.store(true, Ordering::Relaxed);
    assert_eq!(compare(&expected, &answers(&reader).await), None);
}
