//! Kinds of groups, and the groups that an answer shows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use profiler_core::WorkerId;

use crate::QueryError;
use crate::error::echo;
use crate::parameters::labels::{WorkerAttributes, known_key};
use crate::parameters::parameter::Parameter;
use crate::parameters::params::Params;
use base::limits::{GROUPS_DEFAULT, GROUPS_MAX};
use state::CollectorState;

/// The group of time without a value.
pub(crate) const NO_VALUE: &str = "[none]";

/// The group of values past the limit.
pub(crate) const OTHERS: &str = "[other]";

/// Kinds of groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// The first-level node.
    Task,
    Worker,
    Host,
    /// The value of the label of this key.
    Label(String),
    Phase,
    /// A single thread of a worker.
    Thread,
    Run,
    /// The second, in the order of time.
    Second,
}

impl GroupBy {
    /// The kinds without a key that a profile can have.
    pub(crate) const OF_PROFILES: &[GroupBy] = &[
        GroupBy::Worker,
        GroupBy::Host,
        GroupBy::Run,
        GroupBy::Phase,
        GroupBy::Second,
    ];

    /// The kinds without a key that a timeline can have.
    pub(crate) const OF_TIMELINES: &[GroupBy] = &[
        GroupBy::Task,
        GroupBy::Worker,
        GroupBy::Host,
        GroupBy::Run,
        GroupBy::Phase,
        GroupBy::Thread,
    ];

    /// Most groups of an answer.
    pub(crate) const LIMIT: Parameter = Parameter::integer(
        "groups",
        1..=GROUPS_MAX,
        Some(GROUPS_DEFAULT),
        "20",
        "Most groups, the heaviest. The others are one more, `[other]`, of which `others` is the number.",
    );

    /// The `group` parameter: one of `kinds`, or a label.
    pub(crate) fn parse(
        params: &Params<'_>,
        state: &CollectorState,
        kinds: &[GroupBy],
    ) -> Result<Option<GroupBy>, QueryError> {
        let Some(text) = params.one("group")? else {
            return Ok(None);
        };
        if let Some(kind) = kinds.iter().find(|kind| kind.word() == text) {
            return Ok(Some(kind.clone()));
        }
        let key = text
            .strip_prefix("label:")
            .ok_or_else(|| QueryError::Form {
                name: "group",
                value: echo(text),
                allowed: kinds
                    .iter()
                    .map(GroupBy::word)
                    .chain(["label:KEY"])
                    .collect(),
            })?;
        known_key(state, key)?;
        Ok(Some(GroupBy::Label(key.to_owned())))
    }

    /// The `groups` parameter.
    pub(crate) fn parse_limit(params: &Params<'_>) -> Result<usize, QueryError> {
        let Some(text) = params.one(GroupBy::LIMIT.name)? else {
            return Ok(GROUPS_DEFAULT);
        };
        let number = text.parse().ok();
        number
            .filter(|number| (1..=GROUPS_MAX).contains(number))
            .ok_or_else(|| QueryError::Limit {
                name: GroupBy::LIMIT.name,
                value: echo(text),
                limit: GROUPS_MAX,
            })
    }

    /// Its value as a parameter, without the key of a label.
    fn word(&self) -> &'static str {
        match self {
            GroupBy::Task => "task",
            GroupBy::Worker => "worker",
            GroupBy::Host => "host",
            GroupBy::Label(_) => "label",
            GroupBy::Phase => "phase",
            GroupBy::Thread => "thread",
            GroupBy::Run => "run",
            GroupBy::Second => "second",
        }
    }

    /// Kind of its groups, such as `worker`.
    pub fn name(&self) -> &str {
        match self {
            GroupBy::Label(key) => key,
            kind => kind.word(),
        }
    }

    /// The group of a worker.
    pub(crate) fn of(
        &self,
        worker: &WorkerId,
        facts: &BTreeMap<WorkerId, WorkerAttributes>,
    ) -> String {
        let facts = facts.get(worker);
        let said = match self {
            GroupBy::Host => facts.map(|facts| facts.host.clone()),
            GroupBy::Label(key) => facts.and_then(|facts| facts.labels.get(key).cloned()),
            _ => Some(worker.to_string()),
        };
        said.filter(|name| !name.is_empty())
            .unwrap_or_else(|| NO_VALUE.to_owned())
    }
}

/// The groups of an answer: the heaviest by name, and the rest as one more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Heaviest {
    /// By group: its line in the answer.
    pub(crate) lines: Vec<u32>,
    /// The groups with a line of their own, in this order.
    pub(crate) shown: Vec<usize>,
    /// The number of groups with time in the last line; without any there is no such line.
    pub(crate) others: usize,
}

impl Heaviest {
    /// All of so many groups.
    pub(crate) fn all(count: usize) -> Heaviest {
        let lines = 0..u32::try_from(count).expect("few groups are shown");
        Heaviest {
            lines: lines.collect(),
            shown: (0..count).collect(),
            others: 0,
        }
    }

    /// Of groups with these times at most `limit`; those of equal time in the order of `before`. Groups without time
    /// have no lines.
    pub(crate) fn of<K: Ord>(
        times_ns: &[u64],
        limit: usize,
        before: impl Fn(usize) -> K,
    ) -> Heaviest {
        let with_time = |group: &usize| times_ns[*group] > 0;
        let mut shown: Vec<usize> = (0..times_ns.len()).filter(with_time).collect();
        shown.sort_by_cached_key(|group| (Reverse(times_ns[*group]), before(*group)));
        let others = shown.split_off(shown.len().min(limit)).len();
        let past = u32::try_from(shown.len()).expect("few groups are shown");
        let mut lines = vec![past; times_ns.len()];
        for (line, group) in (0..).zip(&shown) {
            lines[*group] = line;
        }
        Heaviest {
            lines,
            shown,
            others,
        }
    }

    /// The names of the lines.
    pub(crate) fn names(&self, names: &[String]) -> Vec<String> {
        let shown = self.shown.iter().map(|group| names[*group].clone());
        shown.chain([OTHERS.to_owned()]).collect()
    }
}
