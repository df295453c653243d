//! The stores of several collectors as one: what queries are answered from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use profiler_core::{NodeId, Timestamp};

use super::NamedStore;
use super::store::{Change, FollowedStore, Opened};
use crate::CollectorState;
use crate::ledger::Ledger;
use crate::session::{Presence, Registry, SessionCell};
use crate::telemetry::UnsealedTelemetry;
use crate::tree::Adopted;
use crate::windows::UnsealedWindows;
use base::clock::Clock;
use base::limits::{AWAY_AFTER, Limits, RUNS_MAX, UNION_NODES_AT_ONCE, nanoseconds};
use base::sync::{lock, read, write, write_second};
use naming::Naming;
use store::rows::{DisconnectReason, StoredWindow};
use store::{LostLog, Manifest, Tables, UnionPart};

/// The stores as one.
pub(super) struct Union {
    pub(super) state: Arc<CollectorState>,
    /// Numbers of each store's stacks in the union, in the order of the stores.
    adopted: Vec<Adopted>,
    /// Missing part of each store at the last update.
    missing: Vec<Option<LostLog>>,
}

impl Union {
    pub(super) fn new(clock: Clock, limits: Limits, naming: Naming) -> Union {
        let tables = Tables::union(clock.clone());
        let state = Arc::new(CollectorState::over(clock, limits, tables, naming));
        Union {
            state,
            adopted: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Shows readers what the stores have now. `changes` tells which of them have changed.
    pub(super) fn update(&mut self, stores: &[NamedStore], changes: &BTreeMap<usize, Change>) {
        let missing: Vec<Option<LostLog>> = stores.iter().map(NamedStore::missing).collect();
        let is_changed = changes.values().any(|change| *change != Change::None);
        if is_changed || missing != self.missing {
            self.adopted.resize_with(stores.len(), Adopted::default);
            for (place, change) in changes {
                if *change == Change::Opened {
                    self.adopted[*place] = Adopted::default();
                }
            }
            self.missing = missing;
            self.unite(stores);
        }
        let now = self.state.clock.now();
        let sessions = lock(&self.state.registry).all();
        for cell in sessions {
            note_presence(&cell, now);
        }
    }

    fn unite(&mut self, stores: &[NamedStore]) {
        let tables = &self.state.tables;
        let mut parts = Vec::new();
        for (place, named) in stores.iter().enumerate() {
            let opened = named.store.as_ref().and_then(FollowedStore::opened);
            let adopted = &mut self.adopted[place];
            let of_store = match opened {
                Some(opened) => {
                    adopt(&self.state, &opened.state, adopted);
                    tables.number_in_union(&opened.state.tables, &mut adopted.numbers);
                    opened.state.tables.clone()
                }
                // Keeps its place.
                None => Arc::new(Tables::union(self.state.clock.clone())),
            };
            parts.push(Arc::new(UnionPart {
                name: named.name.to_string(),
                tables: of_store,
                numbers: adopted.numbers.clone(),
                missing: self.missing[place].iter().cloned().collect(),
            }));
        }
        let manifest = tables.unite(parts);
        let opened: Vec<(&Opened, &Adopted)> = stores
            .iter()
            .zip(&self.adopted)
            .filter_map(|(named, adopted)| Some((named.store.as_ref()?.opened()?, adopted)))
            .collect();
        self.show(&opened, &manifest);
    }

    /// Replaces what is in memory. Each part changes together with its version of the tables, so that a reader
    /// sees everything once.
    fn show(&self, stores: &[(&Opened, &Adopted)], manifest: &Arc<Manifest>) {
        let state = &self.state;
        let limits = &state.limits;
        let mut windows = UnsealedWindows::new(manifest.clone());
        let mut ledger = Ledger::new(manifest.clone(), limits.ledger_rows_max);
        let mut telemetry = UnsealedTelemetry::new(manifest.clone(), RUNS_MAX);
        let mut registry = Registry::new(limits.sessions_max, limits.label_bytes_max);
        let mut flushes = 0;
        for (opened, adopted) in stores {
            let store = &opened.state;
            let windows_of_store = read(&store.windows);
            for window in windows_of_store.all() {
                windows.insert(translated(window, adopted, state));
            }
            drop(windows_of_store);
            ledger.add_all(&read(&store.ledger));
            telemetry.add_all(&read(&store.telemetry));
            let sessions = lock(&store.registry).all();
            for cell in sessions {
                flushes += lock(&cell.state).acked_seq;
                registry.add(cell);
            }
        }
        *lock(&state.registry) = registry;
        // A lock each, under which what was there before is not dropped.
        let telemetry_before = std::mem::replace(&mut *write(&state.telemetry), telemetry);
        let ledger_before = std::mem::replace(&mut *write(&state.ledger), ledger);
        let windows_before = std::mem::replace(&mut *write(&state.windows), windows);
        drop((telemetry_before, ledger_before, windows_before));
        state.flushes.store(flushes, Ordering::Relaxed);
    }
}

/// Adds the stacks of a store to those of the union.
fn adopt(union: &CollectorState, store: &CollectorState, adopted: &mut Adopted) {
    let tree = read(&store.tree);
    while write_second(&union.tree).adopt(&tree, adopted, UNION_NODES_AT_ONCE) {}
}

/// A window by the union's stacks.
fn translated(window: &StoredWindow, adopted: &Adopted, union: &CollectorState) -> StoredWindow {
    let tree = read(&union.tree);
    let node_of = |node: NodeId| adopted.numbers.nodes[node.index()];
    let task_of = |node: NodeId| tree.task_of(node);
    StoredWindow {
        samples: window.samples.translated(node_of, task_of),
        threads: window.threads.translated(node_of, task_of),
        ..window.clone()
    }
}

/// A store has the end of an agent that said Goodbye. Whether another one is connected is in no store: one that ships
/// each second is.
fn note_presence(cell: &SessionCell, now: Timestamp) {
    let mut session = lock(&cell.state);
    match session.presence {
        Presence::Gone(_) => return,
        Presence::Away(disconnect) if disconnect.reason == DisconnectReason::Clean => {
            session.presence = Presence::Gone(disconnect);
            return;
        }
        Presence::Connected | Presence::Away(_) => {}
    }
    let is_seen = session.last_seen >= now.shifted(-nanoseconds(AWAY_AFTER));
    session.presence = if is_seen {
        Presence::Connected
    } else {
        Presence::Away(cell.disconnect(session.last_seen, DisconnectReason::Unknown))
    };
}
