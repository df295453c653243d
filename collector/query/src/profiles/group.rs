//! Profiles by worker, host, label, run or phase: one more level above the tasks.

use std::ops::ControlFlow;

use profiler_core::hash::KeyedMap;
use profiler_core::{NodeId, Profile, State, Weight};

use crate::Queries;
use crate::QueryError;
use crate::parameters::label_scope::NO_TASK;
use crate::profiles::group_by::{GroupBy, Heaviest};
use crate::profiles::profile::{ProfileQuery, sample_columns};
use crate::profiles::step_sums::StepScan;
use crate::profiles::time_groups::TimeGroups;
use crate::profiles::weight_sums::Sums;
use crate::table_reader::{Cancel, ScanFilter, TableReader};
use base::limits::GROUPED_SUMS_MAX;
use base::sync::read;
use state::tree::TopNode;
use state::windows::WindowSnapshot;
use store::{SumTable, Tier};

/// A profile with a level of groups.
pub(crate) struct GroupedProfile {
    pub(crate) profile: Profile,
    /// The number of groups in `[other]`.
    pub(crate) others: usize,
}

/// Nanoseconds by line of the answer, node and state.
#[derive(Default)]
struct GroupedSums {
    sums: KeyedMap<(u32, u32, u8), u64>,
    /// Whether rows were dropped for lack of room.
    omitted: bool,
}

impl GroupedSums {
    fn add(&mut self, line: u32, node: u32, state: u8, nanoseconds: u64) {
        let has_room = self.sums.len() < GROUPED_SUMS_MAX;
        match self.sums.get_mut(&(line, node, state)) {
            Some(sum) => *sum = sum.saturating_add(nanoseconds),
            None if has_room => drop(self.sums.insert((line, node, state), nanoseconds)),
            None => self.omitted = true,
        }
    }

    /// The sums of each line by node.
    fn by_line(self, names: Vec<String>) -> Vec<Group> {
        let mut groups: Vec<Group> = names.into_iter().map(Group::new).collect();
        for ((line, node, state), nanoseconds) in self.sums {
            if let Some(state) = State::ALL.get(usize::from(state)) {
                let nodes = &mut groups[line as usize].nodes;
                nodes.entry(node).or_default().count(*state, nanoseconds);
            }
        }
        groups
    }
}

/// The time of a group, by node.
struct Group {
    name: String,
    nodes: KeyedMap<u32, Weight>,
}

impl Group {
    fn new(name: String) -> Group {
        let nodes = KeyedMap::default();
        Group { name, nodes }
    }
}

impl Queries<'_> {
    /// The profile of each group of workers or of each run, below its name.
    pub(crate) fn profile_by_worker(
        &self,
        query: &ProfileQuery,
        by: &GroupBy,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        tops: &[TopNode],
        cancel: &Cancel,
    ) -> Result<GroupedProfile, QueryError> {
        let groups = TimeGroups::of(self, by, query.range, stored, view, Tier::Day)?;
        let heaviest = self.heaviest(query, &groups, stored, view, tops)?;
        let mut sums = GroupedSums::default();
        for window in &view.windows {
            cancel.check()?;
            let group = groups.of_window(window);
            for (node, state, nanoseconds) in window.samples.entries() {
                sums.add(heaviest.lines[group], node.0, state as u8, nanoseconds);
            }
        }
        let numbers = stored.worker_numbers(&query.filter.workers);
        let (tasks, columns) = sample_columns(&query.filter, tops, true);
        let asked = ScanFilter {
            tasks: tasks.as_deref(),
            workers: numbers.as_deref(),
            columns,
            sums_only: false,
        };
        if tops.is_empty() {
            return Ok(GroupedProfile {
                profile: Profile::default(),
                others: 0,
            });
        }
        stored.scan_while(
            |_| SumTable::Samples,
            asked,
            |batch, rows| {
                rows.each(|index| {
                    let group = groups.of_number(batch.worker[index], || rows.start(index));
                    let state = State::ALL.get(usize::from(batch.kind[index]));
                    if let (Some(group), Some(state)) = (group, state) {
                        let line = heaviest.lines[group];
                        sums.add(line, batch.node[index], *state as u8, batch.values[index]);
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
        let parts = sums.by_line(heaviest.names(groups.names()));
        Ok(GroupedProfile {
            profile: self.below_groups(query, parts, cancel)?,
            others: heaviest.others,
        })
    }

    /// The groups of the answer. Only if there may be too many are their times read first, from the totals of tasks.
    fn heaviest(
        &self,
        query: &ProfileQuery,
        groups: &TimeGroups,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        tops: &[TopNode],
    ) -> Result<Heaviest, QueryError> {
        let names = groups.names();
        if names.len() <= query.groups_max {
            return Ok(Heaviest::all(names.len()));
        }
        let numbers = stored.worker_numbers(&query.filter.workers);
        let nodes = query.phases.nodes(&self.tree);
        let scan = StepScan {
            tops,
            numbers: numbers.as_deref(),
            states: query.filter.states,
            nodes: nodes.as_deref(),
            groups: Some(&groups.workers),
            node_groups: None,
            long: None,
        };
        let mut times_ns = vec![0u64; names.len()];
        scan.visit(stored, view, &mut |cell, weight| {
            let time_ns = &mut times_ns[groups.of_cell(cell)];
            *time_ns = time_ns.saturating_add(weight.total_ns());
        })?;
        Ok(Heaviest::of(&times_ns, query.groups_max, |group| {
            names[group].clone()
        }))
    }

    /// The profile of each phase, below its name; and of time outside of tasks.
    pub(crate) fn profile_by_phase(
        &self,
        query: &ProfileQuery,
        sums: &Sums,
        tops: &[TopNode],
        cancel: &Cancel,
    ) -> Result<GroupedProfile, QueryError> {
        let excerpt = self.excerpt(sums.touched().clone());
        let mut names: Vec<String> = Vec::new();
        let mut numbers: KeyedMap<&str, usize> = KeyedMap::default();
        let mut nodes: Vec<(u32, Option<usize>)> = Vec::new();
        let mut times_ns: Vec<u64> = Vec::new();
        let ids = excerpt.tree_ids();
        for ((phase, top), id) in excerpt.phases().iter().zip(excerpt.tops()).zip(&ids[1..]) {
            let is_asked = tops.binary_search_by_key(&top, |top| top.node).is_ok();
            let Some(phase) = phase else {
                nodes.push((id.0, None));
                continue;
            };
            let group = *numbers.entry(phase).or_insert_with(|| {
                names.push((*phase).to_owned());
                times_ns.push(0);
                names.len() - 1
            });
            nodes.push((id.0, Some(group)));
            if is_asked && query.phases.keeps(Some(phase)) {
                let weight = sums.weight(*id);
                let states = query.filter.states.states();
                let time_ns: u64 = states.map(|state| weight.get(state)).sum();
                times_ns[group] = times_ns[group].saturating_add(time_ns);
            }
        }
        let heaviest = if names.len() <= query.groups_max {
            Heaviest::all(names.len())
        } else {
            Heaviest::of(&times_ns, query.groups_max, |group| names[group].clone())
        };
        let mut parts: Vec<Group> = heaviest.names(&names).into_iter().map(Group::new).collect();
        parts.push(Group::new(NO_TASK.to_owned()));
        let no_task = parts.len() - 1;
        for (node, group) in nodes {
            let line = group.map_or(no_task, |group| heaviest.lines[group] as usize);
            parts[line].nodes.insert(node, sums.weight(NodeId(node)));
        }
        Ok(GroupedProfile {
            profile: self.below_groups(query, parts, cancel)?,
            others: heaviest.others,
        })
    }

    /// The profiles of groups, below their names.
    fn below_groups(
        &self,
        query: &ProfileQuery,
        groups: Vec<Group>,
        cancel: &Cancel,
    ) -> Result<Profile, QueryError> {
        let nodes_max = read(&self.tree).node_count();
        let parts: Vec<(String, Profile)> = groups
            .into_iter()
            .filter(|group| !group.nodes.is_empty())
            .map(|Group { name, nodes }| {
                cancel.check()?;
                let unknown = nodes.keys().filter(|node| **node >= nodes_max).count();
                if unknown > 0 {
                    return Err(QueryError::UnknownNodes {
                        rows: unknown as u64,
                    });
                }
                let excerpt = self.excerpt(nodes.keys().copied().collect());
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
