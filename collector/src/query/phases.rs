//! Which phases of tasks a question is about: the second level of the tree.

use std::sync::RwLock;

use profiler_core::task::PHASES;
use profiler_core::{FrameKind, NodeId};

use super::QueryError;
use super::error::echo;
use super::nearest::nearest;
use super::params::Params;
use crate::collector::Collector;
use crate::ledger::EXECUTE;
use crate::sync::read;
use crate::tree::Tree;

/// Nodes that are looked at under one lock of the tree.
const NODES_AT_ONCE: u32 = 4_096;

/// The phases whose samples are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phases {
    /// All time, in a task or not.
    #[default]
    All,
    /// These phases of tasks.
    Named(Vec<String>),
    /// What is not within a task.
    NoTask,
}

impl Phases {
    /// The phases that the parameters ask for, all known.
    pub(crate) fn parse(params: &Params<'_>, collector: &Collector) -> Result<Phases, QueryError> {
        let asked = params.many("phase")?;
        if asked.is_empty() {
            return Ok(Phases::All);
        }
        let met = read(&collector.tree).phase_names();
        let is_known = |name: &str| PHASES.contains(&name) || met.contains(name);
        if let Some(name) = asked.iter().find(|name| !is_known(name)) {
            let known = PHASES.into_iter().chain(met.iter().map(|name| &**name));
            let nearest = nearest(name, known).iter().map(|name| echo(name)).collect();
            return Err(QueryError::UnknownName { kind: "phase", name: echo(name), nearest });
        }
        Ok(Phases::Named(asked.into_iter().map(str::to_owned).collect()))
    }

    /// Whether a phase is kept; `None` for time outside any task.
    fn keeps(&self, phase: Option<&str>) -> bool {
        match (self, phase) {
            (Phases::All, _) | (Phases::NoTask, None) => true,
            (Phases::Named(names), Some(phase)) => names.iter().any(|name| name == phase),
            (Phases::Named(_), None) | (Phases::NoTask, Some(_)) => false,
        }
    }

    /// By node of the tree, whether its own time is kept; `None` if all is.
    pub(crate) fn nodes(&self, tree: &RwLock<Tree>) -> Option<Vec<bool>> {
        if *self == Phases::All {
            return None;
        }
        let mut places = vec![Place::ABOVE];
        loop {
            let tree = read(tree);
            let next = u32::try_from(places.len()).expect("ids have 32 bits");
            let end = tree.node_count().min(next.saturating_add(NODES_AT_ONCE));
            if end <= next {
                return Some(places.into_iter().map(|place| place.is_kept).collect());
            }
            for node in (next..end).map(NodeId) {
                let (parent, frame) = tree.trie.node(node).expect("only node 0 is the root");
                let frame = tree.symbols.frame_ids(frame);
                let name = tree.string(frame.function);
                let above = places[parent.index()];
                places.push(above.below(frame.kind, name, || true, self));
            }
        }
    }
}

/// How far down a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Root,
    Top,
    Phase,
    Stack,
}

/// What is known of a node when what is below it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) level: Level,
    /// Whether its own time is kept.
    pub(crate) is_kept: bool,
    /// Whether the first level above it is.
    is_top_kept: bool,
}

impl Place {
    /// The root.
    pub(crate) const ABOVE: Place =
        Place { level: Level::Root, is_kept: false, is_top_kept: false };

    /// What is known of a node below: whose frame is of that kind and name, and if it is at the first
    /// level, whether `keeps_top`.
    pub(crate) fn below(
        self,
        kind: FrameKind,
        name: &str,
        keeps_top: impl FnOnce() -> bool,
        phases: &Phases,
    ) -> Place {
        match (self.level, kind) {
            (Level::Root, _) => {
                let phase = (kind == FrameKind::Task).then_some(EXECUTE);
                let is_top_kept = keeps_top();
                let is_kept = is_top_kept && phases.keeps(phase);
                Place { level: Level::Top, is_kept, is_top_kept }
            }
            (Level::Top, FrameKind::Phase) => {
                let is_kept = self.is_top_kept && phases.keeps(Some(name));
                Place { level: Level::Phase, is_kept, ..self }
            }
            _ => Place { level: Level::Stack, ..self },
        }
    }
}
