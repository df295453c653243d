//! Rows for names in the tables that all identities share.
//!
//! A row is never free again, and a sealing does not know who sent a name. So a name has its row as soon as it
//! arrives: it takes the common room while there is some, then what is reserved for its sender.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use profiler_core::{PhaseInterval, TaskRecord, TaskTotals, TransferEvent};

use crate::CollectorState;
use crate::tree::UsedIds;
use base::sync::{lock, read, write};
use shares::{Account, SharedTable};

/// Tasks and sums that are looked up at once. A change of the tree waits for these at most.
const LOOKED_UP_AT_ONCE: usize = 1_024;

/// Names of tasks without a node, or with phases without a node, and these phases.
type Missing<'a> = BTreeMap<&'a Arc<str>, BTreeSet<&'a Arc<str>>>;

fn phases_of(task: &TaskRecord) -> &[PhaseInterval] {
    task.detail.as_ref().map_or(&[], |detail| &detail.phases)
}

impl CollectorState {
    /// The names and stacks of all sessions that may go on.
    pub fn names_of_sessions(&self) -> UsedIds {
        let cells = lock(&self.registry).all();
        let mut used = UsedIds::default();
        for cell in cells {
            let translation = {
                let mut session = lock(&cell.state);
                session.forget_ended_agent();
                session.translation.clone()
            };
            used.add(&translation);
        }
        used
    }

    /// Adds the nodes of names and phases of an identity's tasks.
    pub fn add_task_nodes(&self, owner: &Account, tasks: &[TaskRecord], totals: &[TaskTotals]) {
        let mut missing = Missing::new();
        for tasks in tasks.chunks(LOOKED_UP_AT_ONCE) {
            let pairs = tasks.iter().map(|task| (&task.name, phases_of(task)));
            self.find_missing(pairs, &mut missing);
        }
        for totals in totals.chunks(LOOKED_UP_AT_ONCE) {
            let pairs = totals
                .iter()
                .map(|totals| (&totals.name, &totals.phases[..]));
            self.find_missing(pairs, &mut missing);
        }
        for (name, phases) in missing {
            let Some(task) = write(&self.tree).add_task(name, || owner.reserve(SharedTable::Names))
            else {
                continue;
            };
            for phase in phases {
                write(&self.tree).add_phase(task, phase, || owner.reserve(SharedTable::Phases));
            }
        }
    }

    fn find_missing<'a>(
        &self,
        tasks: impl Iterator<Item = (&'a Arc<str>, &'a [PhaseInterval])>,
        missing: &mut Missing<'a>,
    ) {
        let tree = read(&self.tree);
        for (name, phases) in tasks {
            let task = tree.find_task(name);
            if task.is_none() {
                missing.entry(name).or_default();
            }
            for phase in phases {
                if task.is_none_or(|task| tree.find_phase(task, &phase.name).is_none()) {
                    missing.entry(name).or_default().insert(&phase.name);
                }
            }
        }
    }

    /// Numbers the links of an identity's transfers.
    pub fn add_links(&self, owner: &Account, transfers: &[TransferEvent]) {
        let links = transfers
            .iter()
            .map(|transfer| (&transfer.peer, &transfer.type_name));
        self.tables
            .add_links(links, || owner.reserve(SharedTable::Links));
    }
}
