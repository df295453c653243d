//! Several stores as one, for answers about all of them.
//!
//! Each store has numbers of its own for stacks, workers and links. In the union, the upper bits of a file's id
//! tell its store, and the numbers in its rows are translated as they are read.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use profiler_core::NodeId;

use super::manifest::{FileEntry, LostFile, LostLog, Manifest};
use super::objects::Objects;
use super::segment::{Batch, Scan};
use super::tables::Tables;
use super::versions::Versions;
use crate::sums::row::WorkerNumber;
use crate::sums::table::{SumTable, TableName};
use base::clock::Clock;
use base::sync::{read, write};

/// The bits of a file's id below those that tell its store: enough for 65,536 lives of a collector.
const ID_BITS: u32 = 56;

/// Most stores of a union.
pub const UNION_STORES_MAX: usize = 1 << (u64::BITS - ID_BITS);

/// Stands for a number that a store's lists do not have, because a file of them is damaged. No tree has a node of
/// that number.
const UNKNOWN: u32 = u32::MAX;

/// The numbers of a union by those of one of its stores.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// By node of the store.
    pub nodes: Vec<NodeId>,
    /// First-level nodes.
    pub tops: Vec<TopNumber>,
    /// By number of a worker in the store; number 0 stands for all workers.
    workers: Vec<u32>,
    /// By number of a link in the store.
    links: Vec<u32>,
}

/// The numbers of a first-level node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopNumber {
    pub in_store: NodeId,
    pub in_union: NodeId,
}

/// A store of a union.
#[derive(Debug)]
pub struct UnionPart {
    /// Of its collector.
    pub name: String,
    pub tables: Arc<Tables>,
    pub numbers: Numbers,
    /// Data missing from answers, in addition to the losses in its manifest.
    pub missing: Vec<LostLog>,
}

/// A file of one of the stores.
pub(super) struct PartFile {
    pub(super) part: Arc<UnionPart>,
    /// As the store has it.
    pub(super) file: FileEntry,
}

impl Numbers {
    /// Replaces the store's numbers in rows of a table.
    fn translate(&self, sum_table: SumTable, batch: &mut Batch) {
        let nodes = |number: &mut u32| {
            *number = self
                .nodes
                .get(*number as usize)
                .map_or(UNKNOWN, |node| node.0);
        };
        match sum_table {
            SumTable::TransferSums => batch
                .task
                .iter_mut()
                .for_each(|number: &mut u32| translate_by(&self.links, number)),
            _ => batch.task.iter_mut().for_each(nodes),
        }
        batch
            .worker
            .iter_mut()
            .for_each(|number| translate_by(&self.workers, number));
        match sum_table {
            SumTable::Samples
            | SumTable::SamplesAll
            | SumTable::Threads
            | SumTable::Phases
            | SumTable::PhaseSums => batch.node.iter_mut().for_each(nodes),
            // The column has buckets or measures, or does not exist.
            SumTable::Durations
            | SumTable::TransferSums
            | SumTable::Totals
            | SumTable::Cycles
            | SumTable::DurationSums => {}
        }
    }

    /// The store's numbers of first-level nodes of the union, ascending.
    pub fn tops_in_store(&self, asked: &[NodeId]) -> Vec<NodeId> {
        let mut tops: Vec<_> = self
            .tops
            .iter()
            .filter(|top: &&TopNumber| asked.binary_search(&top.in_union).is_ok())
            .map(|top| top.in_store)
            .collect();
        tops.sort_unstable();
        tops
    }

    /// The store's numbers of what a table has in its column `task`, ascending.
    fn tasks_in_store(&self, sum_table: SumTable, asked: &[NodeId]) -> Vec<NodeId> {
        match sum_table {
            SumTable::TransferSums => {
                let known = (0u32..).zip(&self.links);
                known
                    .filter(|(_, in_union): &(u32, &u32)| {
                        asked.binary_search(&NodeId(**in_union)).is_ok()
                    })
                    .map(|(in_store, _)| NodeId(in_store))
                    .collect()
            }
            SumTable::Samples
            | SumTable::SamplesAll
            | SumTable::Threads
            | SumTable::Phases
            | SumTable::PhaseSums
            | SumTable::Durations
            | SumTable::DurationSums
            | SumTable::Totals
            | SumTable::Cycles => self.tops_in_store(asked),
        }
    }

    /// The store's numbers of workers of the union, ascending.
    pub fn workers_in_store(&self, asked: &[WorkerNumber]) -> Vec<WorkerNumber> {
        let known = (0u32..).zip(&self.workers);
        known
            .filter(|(_, in_union): &(u32, &u32)| {
                asked.binary_search(&WorkerNumber(**in_union)).is_ok()
            })
            .map(|(in_store, _)| WorkerNumber(in_store))
            .collect()
    }
}

fn translate_by(numbers: &[u32], number: &mut u32) {
    *number = numbers.get(*number as usize).copied().unwrap_or(UNKNOWN);
}

/// Whether the ids of a store's files fit.
pub fn fits_union(manifest: &Manifest) -> bool {
    manifest.next_id >> ID_BITS == 0
}

impl Tables {
    /// The union of no stores yet.
    pub fn union(clock: Clock) -> Tables {
        Tables::new(Objects::memory(), clock, Versions::default(), 1)
    }

    /// Numbers the workers and links of a store in the union.
    pub fn number_in_union(&self, store: &Tables, numbers: &mut Numbers) {
        // Not under the locks of the union: they have the same ranks.
        let ids = store.worker_ids();
        let links_of_store = store.links();
        let mut workers = write(&self.workers);
        numbers.workers = vec![WorkerNumber::ALL.0];
        numbers
            .workers
            .extend(ids.iter().map(|id| workers.assign(id).0));
        drop(workers);
        let mut links = write(&self.links);
        numbers.links = vec![0];
        let assigned = links_of_store
            .into_iter()
            .map(|(peer, kind)| links.assign(&peer, &kind));
        numbers.links.extend(assigned);
    }

    /// Makes these stores the union, in place of those before. A store keeps its place, by which files of earlier
    /// versions are found.
    pub fn unite(&self, parts: Vec<Arc<UnionPart>>) -> Arc<Manifest> {
        assert!(parts.len() <= UNION_STORES_MAX, "{} stores", parts.len());
        let version = self.manifest().version + 1;
        let manifest = Arc::new(union_manifest(version, &parts));
        *write(&self.parts) = parts;
        self.show(manifest.clone());
        manifest
    }

    /// The place of a file's store among the parts of a union.
    pub fn place_of(&self, file: &FileEntry) -> usize {
        usize::try_from(file.id >> ID_BITS).expect("it has 8 bits")
    }

    /// The stores of a union; none if this is no union.
    pub fn parts(&self) -> Vec<Arc<UnionPart>> {
        read(&self.parts).clone()
    }

    /// The store of a file; `None` if this is no union.
    pub(super) fn part_of(&self, file: &FileEntry) -> Option<PartFile> {
        let part = read(&self.parts).get(self.place_of(file))?.clone();
        let id = file.id & ((1 << ID_BITS) - 1);
        Some(PartFile {
            part,
            file: FileEntry { id, ..file.clone() },
        })
    }

    /// A file's path, which begins with the name of its store in a union.
    pub fn path_of(&self, file: &FileEntry) -> String {
        match self.part_of(file) {
            Some(PartFile { part, file }) => format!("{}/{}", part.name, file.path()),
            None => file.path(),
        }
    }
}

impl PartFile {
    /// As [`Tables::scan`].
    pub(super) fn scan(
        &self,
        scan: &Scan<'_>,
        visit: &mut dyn FnMut(&Batch) -> ControlFlow<()>,
    ) -> Result<(), super::StoreError> {
        let PartFile { part, file } = self;
        let TableName::Sums(sum_table, _) = file.table else {
            return part.tables.scan(file, scan, visit);
        };
        let tasks = scan
            .tasks
            .map(|asked| part.numbers.tasks_in_store(sum_table, asked));
        let workers = scan
            .workers
            .map(|asked| part.numbers.workers_in_store(asked));
        if tasks.as_ref().is_some_and(Vec::is_empty) || workers.as_ref().is_some_and(Vec::is_empty)
        {
            return Ok(());
        }
        let scan = Scan {
            tasks: tasks.as_deref(),
            workers: workers.as_deref(),
            ..scan.clone()
        };
        let mut translated = Batch::default();
        part.tables.scan(file, &scan, &mut |batch| {
            translated.clone_from(batch);
            part.numbers.translate(sum_table, &mut translated);
            visit(&translated)
        })
    }
}

/// A manifest of all files with time. Those with names and numbers are loaded when a store is opened.
fn union_manifest(version: u64, parts: &[Arc<UnionPart>]) -> Manifest {
    let mut union = Manifest {
        version,
        ..Manifest::default()
    };
    let mut cut: BTreeMap<TableName, u32> = BTreeMap::new();
    for (place, part) in (0u64..).zip(parts) {
        let manifest = part.tables.manifest();
        let in_union = |file: &FileEntry| FileEntry {
            id: file.id | place << ID_BITS,
            ..file.clone()
        };
        let files = manifest
            .files
            .iter()
            .filter(|file| !file.table.is_timeless());
        union.files.extend(files.map(in_union));
        let found = part.tables.damaged_lists();
        let lost = manifest.lost.iter().chain(&found);
        union.lost.extend(lost.map(|lost| LostFile {
            file: in_union(&lost.file),
            reason: lost.reason.clone(),
        }));
        let lost_log = manifest.lost_log.iter().chain(&part.missing);
        union.lost_log.extend(lost_log.map(|lost| LostLog {
            path: format!("{}/{}", part.name, lost.path),
            ..lost.clone()
        }));
        // Seconds that one store has dropped are incomplete for all.
        for (table, second) in &manifest.cut {
            let known = cut.entry(*table).or_default();
            *known = (*second).max(*known);
        }
        union.windows_to = union.windows_to.max(manifest.windows_to);
        union.made_at_ns = union.made_at_ns.max(manifest.made_at_ns);
    }
    union.cut = cut;
    union
}
