//! Profiles by worker, host, label or phase: one more level above the tasks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use profiler_core::hash::KeyedMap;
use profiler_core::{NodeId, Profile, State, Weight, WorkerId};

use crate::Queries;
use crate::QueryError;
use crate::error::echo;
use crate::parameters::label_scope::NO_TASK;
use crate::parameters::labels::{WorkerAttributes, known_key};
use crate::parameters::params::Params;
use crate::profiles::profile::{ProfileQuery, sample_columns};
use crate::table_reader::{Cancel, ScanFilter, TableReader};
use base::id_set::IdSet;
use base::limits::{GROUPED_SUMS_MAX, GROUPS_MAX};
use base::sync::read;
use state::CollectorState;
use state::ledger::EXECUTE;
use state::tree::{Excerpt, PhaseFilter, SampleScope, TopNode};
use state::windows::WindowSnapshot;
use store::SumTable;

/// The group of workers without a value.
const NO_VALUE: &str = "[none]";

/// The group of values past the limit.
const OTHERS: &str = "[other]";

/// The level above the tasks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupBy {
    Worker,
    Host,
    /// The value of the label of this key.
    Label(String),
    Phase,
    /// The second, in the order of time.
    Second,
}

impl GroupBy {
    /// The `group` parameter.
    pub fn parse(
        params: &Params<'_>,
        state: &CollectorState,
    ) -> Result<Option<GroupBy>, QueryError> {
        const ALLOWED: [&str; 5] = ["worker", "host", "label:KEY", "phase", "second"];
        let Some(text) = params.one("group")? else {
            return Ok(None);
        };
        Ok(Some(match text {
            "worker" => GroupBy::Worker,
            "host" => GroupBy::Host,
            "phase" => GroupBy::Phase,
            "second" => GroupBy::Second,
            text => {
                let allowed = ALLOWED.to_vec();
                let form = QueryError::Form {
                    name: "group",
                    value: echo(text),
                    allowed,
                };
                let key = text.strip_prefix("label:").ok_or(form)?;
                known_key(state, key)?;
                GroupBy::Label(key.to_owned())
            }
        }))
    }

    /// Kind of its groups, such as `worker`.
    pub fn name(&self) -> &str {
        match self {
            GroupBy::Worker => "worker",
            GroupBy::Host => "host",
            GroupBy::Label(key) => key,
            GroupBy::Phase => "phase",
            GroupBy::Second => "second",
        }
    }

    /// The group of a worker.
    fn of(&self, worker: &WorkerId, facts: &BTreeMap<WorkerId, WorkerAttributes>) -> String {
        let facts = facts.get(worker);
        let said = match self {
            GroupBy::Host => facts.map(|facts| facts.host.clone()),
            GroupBy::Label(key) => facts.and_then(|facts| facts.labels.get(key).cloned()),
            GroupBy::Worker | GroupBy::Phase | GroupBy::Second => Some(worker.to_string()),
        };
        said.filter(|name| !name.is_empty())
            .unwrap_or_else(|| NO_VALUE.to_owned())
    }
}

/// Nanoseconds by group, node and state.
#[derive(Default)]
struct GroupedSums {
    names: Vec<String>,
    numbers: KeyedMap<String, u32>,
    sums: KeyedMap<(u32, u32, u8), u64>,
    /// Whether rows were dropped for lack of room.
    omitted: bool,
}

impl GroupedSums {
    fn group(&mut self, name: String) -> u32 {
        let GroupedSums { names, numbers, .. } = self;
        *numbers.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            u32::try_from(names.len() - 1).expect("no more than workers")
        })
    }

    fn add(&mut self, group: u32, node: u32, state: u8, nanoseconds: u64) {
        let has_room = self.sums.len() < GROUPED_SUMS_MAX;
        match self.sums.get_mut(&(group, node, state)) {
            Some(sum) => *sum = sum.saturating_add(nanoseconds),
            None if has_room => drop(self.sums.insert((group, node, state), nanoseconds)),
            None => self.omitted = true,
        }
    }

    /// The sums of each group by node, the heaviest groups separately.
    fn by_group(self) -> Vec<(String, KeyedMap<u32, Weight>)> {
        let mut totals = vec![0u64; self.names.len()];
        for ((group, ..), nanoseconds) in &self.sums {
            let total = &mut totals[*group as usize];
            *total = total.saturating_add(*nanoseconds);
        }
        let mut order: Vec<usize> = (0..totals.len()).collect();
        order.sort_by_key(|group| (Reverse(totals[*group]), &self.names[*group]));
        let mut line_of = vec![0; totals.len()];
        let mut lines: Vec<(String, KeyedMap<u32, Weight>)> = Vec::new();
        for (line, group) in order.into_iter().enumerate() {
            line_of[group] = line.min(GROUPS_MAX);
            if line <= GROUPS_MAX {
                let name = if line < GROUPS_MAX {
                    self.names[group].as_str()
                } else {
                    OTHERS
                };
                lines.push((name.to_owned(), KeyedMap::default()));
            }
        }
        for ((group, node, state), nanoseconds) in self.sums {
            let (_, nodes) = &mut lines[line_of[group as usize]];
            if let Some(state) = State::ALL.get(usize::from(state)) {
                nodes.entry(node).or_default().count(*state, nanoseconds);
            }
        }
        lines
    }
}

impl Queries<'_> {
    /// The profile of each group of workers, below its name.
    pub(crate) fn profile_by_worker(
        &self,
        query: &ProfileQuery,
        by: &GroupBy,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        tops: &[TopNode],
        cancel: &Cancel,
    ) -> Result<Profile, QueryError> {
        let facts = self.worker_attributes();
        let mut sums = GroupedSums::default();
        for window in &view.windows {
            cancel.check()?;
            let group = sums.group(by.of(&window.worker, &facts));
            for (node, state, nanoseconds) in window.samples.entries() {
                sums.add(group, node.0, state as u8, nanoseconds);
            }
        }
        let numbers = stored.worker_numbers(&query.filter.workers);
        let groups: Vec<u32> = stored
            .all_workers()
            .iter()
            .map(|worker| sums.group(by.of(worker, &facts)))
            .collect();
        let (tasks, columns) = sample_columns(&query.filter, tops, true);
        let asked = ScanFilter {
            tasks: tasks.as_deref(),
            workers: numbers.as_deref(),
            columns,
        };
        if tops.is_empty() {
            return Ok(Profile::default());
        }
        stored.scan_while(
            |_| SumTable::Samples,
            asked,
            |batch, rows| {
                rows.each(|index| {
                    let group = batch.worker[index]
                        .checked_sub(1)
                        .and_then(|at| groups.get(at as usize));
                    let state = State::ALL.get(usize::from(batch.kind[index]));
                    if let (Some(group), Some(state)) = (group, state) {
                        sums.add(*group, batch.node[index], *state as u8, batch.values[index]);
                    }
                });
                if sums.omitted {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        )?;
        if sums.omitted {
            let limit = GROUPED_SUMS_MAX;
            return Err(QueryError::Groups { limit });
        }
        let nodes_max = read(&self.tree).node_count();
        let parts: Vec<(String, Profile)> = sums
            .by_group()
            .into_iter()
            .map(|(name, nodes)| {
                cancel.check()?;
                let unknown = nodes.keys().filter(|node| **node >= nodes_max).count();
                if unknown > 0 {
                    return Err(QueryError::UnknownNodes {
                        rows: unknown as u64,
                    });
                }
                let excerpt = self.excerpt(nodes.keys().copied().collect::<IdSet>());
                Ok((
                    name,
                    excerpt.profile(
                        query.scope(),
                        |node: NodeId| nodes.get(&node.0).copied().unwrap_or_default(),
                        query.form(),
                    ),
                ))
            })
            .collect::<Result<_, _>>()?;
        let filled = parts.iter().filter(|(_, profile)| !profile.is_empty());
        Ok(Profile::grouped(
            filled.map(|(name, profile)| (name.as_str(), profile)),
        ))
    }
}

/// The profile of each phase, below its name; and of time outside of tasks.
pub(crate) fn profile_by_phase(
    query: &ProfileQuery,
    excerpt: &Excerpt,
    own: impl Fn(NodeId) -> Weight,
) -> Profile {
    let mut names = excerpt.phase_names();
    names.insert(EXECUTE.into());
    if let PhaseFilter::Named(asked) = &query.phases {
        names.retain(|name| asked.iter().any(|asked| **asked == **name));
    }
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let (shown, others) = names.split_at(names.len().min(GROUPS_MAX));
    let mut groups: Vec<(&str, PhaseFilter)> = shown
        .iter()
        .map(|name| (name.as_str(), PhaseFilter::Named(vec![name.clone()])))
        .collect();
    if !others.is_empty() {
        groups.push((OTHERS, PhaseFilter::Named(others.to_vec())));
    }
    if query.phases == PhaseFilter::All {
        groups.push((NO_TASK, PhaseFilter::NoTask));
    }
    let parts: Vec<(&str, Profile)> = groups
        .into_iter()
        .map(|(name, phases)| {
            let profile = excerpt.profile(
                SampleScope {
                    filter: &query.filter,
                    phases: &phases,
                },
                &own,
                query.form(),
            );
            (name, profile)
        })
        .filter(|(_, part)| !part.is_empty())
        .collect();
    Profile::grouped(parts.iter().map(|(name, profile)| (*name, profile)))
}
