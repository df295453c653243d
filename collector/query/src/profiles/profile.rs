//! Profiles.

use std::ops::Range;

use flamegraph::{Hidden, Unmatched, View, ViewedProfile};
use profiler_core::{
    Filter, NodeId, Profile, StateSet, ThreadKind, TimeRange, Timestamp, WorkerId,
};

use crate::Queries;
use crate::QueryError;
use crate::cluster_sums::add_by_cluster;
use crate::parameters::parameter::{FLAG, Parameter, Parameters, names};
use crate::parameters::params::{Filters, Params};
use crate::parameters::range::{RANGE, asked_range};
use crate::parameters::table_format::TableFormat;
use crate::profiles::cycles::{Cycles, Sampling};
use crate::profiles::group::GroupedProfile;
use crate::profiles::group_by::GroupBy;
use crate::profiles::thread_profile::ThreadFilter;
use crate::profiles::unnamed::Unnamed;
use crate::profiles::view::{VIEW, parse_view};
use crate::profiles::weight_sums::Sums;
use crate::table_reader::{Cancel, ScanFilter, TableReader};
use crate::tasks::phases::parse_phases;
use base::limits::{GROUPS_DEFAULT, QUERY_BYTES_MAX};
use base::sync::read;
use naming::Naming;
use state::CollectorState;
use state::tree::{PhaseFilter, ProfileForm, SampleScope, TopNode};
use state::windows::WindowSnapshot;
use store::rows::Names;
use store::{Column, Coverage, Piece, Plan, Second, SumCluster, SumTable, Tier, WorkerNumber};

/// Kind of the nodes of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A function; its lines are merged.
    Function,
    /// A line of a function.
    Line,
}

/// The answer's format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Json,
    /// JSON with nodes as columns of numbers, for profiles of many nodes.
    Columns,
    Collapsed,
    Svg,
    /// pprof's messages in gzip.
    Pprof,
    Speedscope,
    /// The processed format of the Firefox Profiler.
    Firefox,
    /// The tree as nested JSON.
    Nested,
    /// A row for each function.
    File(TableFormat),
}

impl Format {
    /// Readers of pprof and Firefox profiles merge the lines of a function themselves.
    const fn default_by(self) -> By {
        match self {
            Format::Pprof | Format::Firefox => By::Line,
            Format::Json
            | Format::Columns
            | Format::Collapsed
            | Format::Svg
            | Format::Speedscope
            | Format::Nested
            | Format::File(_) => By::Function,
        }
    }
}

/// A query for a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileQuery {
    pub range: TimeRange,
    pub filter: Filter,
    /// The phases of tasks to keep.
    pub phases: PhaseFilter,
    /// Whether phases are a level of the answer.
    pub phases_shown: bool,
    /// The level above the tasks.
    pub group: Option<GroupBy>,
    /// Most groups, the heaviest; the others are one more.
    pub groups_max: usize,
    pub by: By,
    pub format: Format,
    /// The part of the profile to show, apart from the states, which are the filter's.
    pub view: View,
    /// The threads to keep.
    pub threads: ThreadFilter,
}

impl ProfileQuery {
    pub const PARAMETERS: Parameters = &[
        &RANGE,
        &Filters::PARAMETERS,
        &[
            Parameter::flag("phases", "Phases as the level below the tasks."),
            Parameter::text(
                "group",
                "worker",
                "A first level of groups: `worker`, `host`, `run`, `phase`, `second` or `label:KEY`.",
            ),
            GroupBy::LIMIT,
            Parameter::choice(
                "by",
                || names(&ProfileQuery::BY),
                "line",
                "Kind of the nodes. Default: `function`, but `line` for `pprof` and `firefox`.",
            ),
            Parameter::choice(
                "format",
                || names(&ProfileQuery::FORMATS),
                "svg",
                "Format of the answer.",
            )
            .default("json"),
        ],
        &VIEW,
        &ThreadFilter::PARAMETERS,
    ];

    pub const BY: [(&'static str, By); 2] = [("function", By::Function), ("line", By::Line)];
    const FORMATS: [(&'static str, Format); 10] = [
        ("json", Format::Json),
        ("columns", Format::Columns),
        ("collapsed", Format::Collapsed),
        ("svg", Format::Svg),
        ("pprof", Format::Pprof),
        ("speedscope", Format::Speedscope),
        ("firefox", Format::Firefox),
        ("nested", Format::Nested),
        ("csv", Format::File(TableFormat::Csv)),
        ("parquet", Format::File(TableFormat::Parquet)),
    ];

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<ProfileQuery, QueryError> {
        let params = Params::of(pairs, ProfileQuery::PARAMETERS)?;
        let (range, _) = asked_range(&params, state, now)?;
        let format = params.choice("format", &ProfileQuery::FORMATS)?;
        let by = params
            .one_of("by", &ProfileQuery::BY)?
            .unwrap_or(format.default_by());
        let query = ProfileQuery {
            range,
            by,
            format,
            filter: Filters::parse(&params, state)?,
            phases: parse_phases(&params, state)?,
            phases_shown: params.choice("phases", &FLAG)?,
            group: GroupBy::parse(&params, state, GroupBy::OF_PROFILES)?,
            groups_max: GroupBy::parse_limit(&params)?,
            view: parse_view(&params)?,
            threads: ThreadFilter::parse(&params)?,
        };
        let is_by_second = query.group == Some(GroupBy::Second);
        if query.group.is_some() && !is_by_second && !query.threads.is_all() {
            return Err(QueryError::ThreadAndGroup);
        }
        if query.format == Format::Collapsed && query.by == By::Line {
            return Err(QueryError::CollapsedByLine);
        }
        // Both take the first level for the task of a sample.
        let has_task_level = matches!(format, Format::Pprof | Format::Firefox);
        let is_table = matches!(format, Format::File(_));
        if query.view.is_inverted && (has_task_level || is_table) {
            let known = ProfileQuery::FORMATS
                .iter()
                .find(|(_, known)| *known == format);
            let format = known.map_or("", |(name, _)| name);
            return Err(if is_table {
                QueryError::InvertedTable { format }
            } else {
                QueryError::InvertedFormat { format }
            });
        }
        Ok(query)
    }

    /// A query for the whole profile by function.
    pub fn of(range: TimeRange, filter: Filter) -> ProfileQuery {
        ProfileQuery {
            range,
            filter,
            phases: PhaseFilter::All,
            phases_shown: false,
            group: None,
            groups_max: GROUPS_DEFAULT,
            by: By::Function,
            format: Format::Json,
            view: View::default(),
            threads: ThreadFilter::default(),
        }
    }

    /// The samples to keep.
    pub(crate) fn scope(&self) -> SampleScope<'_> {
        SampleScope {
            filter: &self.filter,
            phases: &self.phases,
        }
    }

    /// Whether rows of single seconds are needed: to tell threads apart, or as groups.
    fn needs_seconds(&self) -> bool {
        !self.threads.is_all() || self.group == Some(GroupBy::Second)
    }

    /// The periods to read: the finest if seconds are needed, otherwise the fewest.
    fn plan(&self, coverage: &Coverage, seconds: Range<Second>) -> Plan {
        if self.needs_seconds() {
            coverage.plan_in(seconds, Tier::Second)
        } else {
            coverage.plan(seconds)
        }
    }

    /// The levels of the answer.
    pub(crate) fn form(&self) -> ProfileForm {
        ProfileForm {
            has_phases: self.phases_shown,
            by_function: self.by == By::Function,
        }
    }
}

/// A profile and its provenance.
#[derive(Clone, Debug)]
pub struct ProfileAnswer {
    /// The part that the view shows.
    pub profile: Profile,
    /// The time of the filter's tasks, phases, workers and threads that it does not show.
    pub hidden: Hidden,
    /// The number of functions that are folded into their callers.
    pub folded: usize,
    /// The number of groups in `[other]`.
    pub others: usize,
    /// The label of the zoomed node.
    pub zoomed: Option<String>,
    /// Selectors of the view that select no function.
    pub unmatched: Vec<Unmatched>,
    /// The time of it in functions without a name.
    pub unnamed: Unnamed,
    pub facts: Provenance,
}

impl ProfileAnswer {
    fn new(
        query: &ProfileQuery,
        whole: GroupedProfile,
        naming: &Naming,
        facts: Provenance,
    ) -> ProfileAnswer {
        let view = View {
            states: query.filter.states,
            ..query.view.clone()
        };
        let ViewedProfile {
            profile,
            hidden,
            folded,
            zoomed,
            unmatched,
        } = view.apply(whole.profile);
        let unnamed = Unnamed::of(&profile, naming);
        ProfileAnswer {
            profile,
            hidden,
            folded,
            others: whole.others,
            zoomed,
            unmatched,
            unnamed,
            facts,
        }
    }
}

/// The data that an answer was computed from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Provenance {
    /// The answered range: more than requested where finer detail has expired.
    pub range: TimeRange,
    pub sampling: Sampling,
    /// Workers with windows in the range, by id.
    pub workers: Vec<WorkerId>,
    /// The span of all stored samples.
    pub data: Option<TimeRange>,
    /// Names of files that are missing from the answer.
    pub damaged: Vec<String>,
}

impl Provenance {
    /// Of the answer to `range` from these tables, windows and cycles.
    pub(crate) fn of(
        stored: TableReader<'_>,
        view: WindowSnapshot,
        range: TimeRange,
        cycles: &Cycles,
    ) -> Provenance {
        Provenance {
            range: stored.range(range),
            sampling: cycles.sampling(),
            workers: cycles.workers(),
            data: stored.data(view.unsealed),
            damaged: stored.damaged(),
        }
    }
}

/// The windows in memory that start in `seconds` and whose worker passes the filter.
pub(crate) fn windows_in(
    state: &CollectorState,
    seconds: Range<Second>,
    filter: &Filter,
) -> WindowSnapshot {
    let mut view = read(&state.windows).view(seconds, state.clock.now());
    if !filter.workers.is_empty() {
        let asked = Names::from(filter.workers.clone());
        view.windows.retain(|stored| asked.keeps(&stored.worker.0));
    }
    view
}

impl Queries<'_> {
    /// Sums the windows that start in the range.
    pub fn profile(
        &self,
        query: &ProfileQuery,
        cancel: &Cancel,
    ) -> Result<ProfileAnswer, QueryError> {
        let ProfileQuery { range, filter, .. } = query;
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            *range,
            |c, seconds| windows_in(c, seconds, filter),
            |held, seconds| query.plan(held, seconds),
        );
        // Read after the snapshot, so every node that it refers to exists.
        let (tops, nodes) = {
            let tree = read(&self.tree);
            (tree.tops_kept(filter), tree.node_count())
        };
        if query.needs_seconds() {
            let numbers = stored.worker_numbers(&filter.workers);
            let cycles = Cycles::read(&mut stored, &view, numbers.as_deref())?;
            let profile =
                self.profile_by_thread(query, &mut stored, &view, &tops, &cycles, cancel)?;
            let facts = Provenance::of(stored, view, *range, &cycles);
            let whole = GroupedProfile { profile, others: 0 };
            return Ok(ProfileAnswer::new(query, whole, &self.naming, facts));
        }
        if let Some(by) = query.group.as_ref().filter(|by| **by != GroupBy::Phase) {
            let profile = self.profile_by_worker(query, by, &mut stored, &view, &tops, cancel)?;
            let numbers = stored.worker_numbers(&filter.workers);
            let cycles = Cycles::read(&mut stored, &view, numbers.as_deref())?;
            let facts = Provenance::of(stored, view, *range, &cycles);
            return Ok(ProfileAnswer::new(query, profile, &self.naming, facts));
        }
        // All states, because the answer has the time in those that it does not show.
        let mut sums = Sums::new(StateSet::ALL, nodes, QUERY_BYTES_MAX);
        for stored in &view.windows {
            cancel.check()?;
            for (node, state, nanoseconds) in stored.samples.entries() {
                sums.add(node.0, state as usize, nanoseconds);
            }
        }
        let numbers = stored.worker_numbers(&filter.workers);
        if !tops.is_empty() {
            let cluster = self.cluster.get().map(|cluster| &**cluster);
            add_stored(
                &mut stored,
                &mut sums,
                filter,
                &tops,
                numbers.as_deref(),
                cluster,
            )?;
        }
        sums.check()?;
        let profile = match query.group {
            Some(_) => self.profile_by_phase(query, &sums, &tops, cancel)?,
            None => GroupedProfile {
                profile: self.profile_of(query, &sums, &tops),
                others: 0,
            },
        };
        let cycles = Cycles::read(&mut stored, &view, numbers.as_deref())?;
        let facts = Provenance::of(stored, view, *range, &cycles);
        Ok(ProfileAnswer::new(query, profile, &self.naming, facts))
    }

    fn profile_of(&self, query: &ProfileQuery, sums: &Sums, tops: &[TopNode]) -> Profile {
        let own = |node| sums.weight(node);
        let touched = sums.touched();
        if query.phases == PhaseFilter::All
            && let Some(profile) =
                self.shapes
                    .profile(self.named_tree(), query.form(), touched, tops, own)
        {
            return profile;
        }
        let excerpt = self.excerpt(touched.clone());
        excerpt.profile(query.scope(), own, query.form())
    }
}

/// The tasks and columns of samples to read.
pub(crate) fn sample_columns(
    filter: &Filter,
    tops: &[TopNode],
    by_worker: bool,
) -> (Option<Vec<NodeId>>, &'static [Column]) {
    // Most queries only exclude the agent's own time, which is not worth a search in each page.
    let is_narrow = !filter.tasks.is_empty() || filter.threads == ThreadKind::Agent;
    let columns: &[Column] = if by_worker {
        &[Column::Worker, Column::Kind, Column::Node]
    } else {
        &[Column::Kind, Column::Node]
    };
    (
        is_narrow.then(|| tops.iter().map(|top| top.node).collect()),
        columns,
    )
}

/// Adds the samples in tables. Rows of other tasks may be included; the filter drops them at the
/// end.
fn add_stored(
    stored: &mut TableReader<'_>,
    sums: &mut Sums,
    filter: &Filter,
    tops: &[TopNode],
    numbers: Option<&[WorkerNumber]>,
    cluster: Option<&dyn SumCluster>,
) -> Result<(), QueryError> {
    let (tasks, columns) = sample_columns(filter, tops, false);
    let table_of = |piece: &Piece| match numbers {
        None if SumTable::SamplesAll.has(piece.tier) => SumTable::SamplesAll,
        _ => SumTable::Samples,
    };
    let asked = ScanFilter {
        tasks: tasks.as_deref(),
        workers: numbers,
        columns,
        sums_only: true,
    };
    let by_cluster = match cluster {
        Some(cluster) => add_by_cluster(stored, cluster, &table_of, asked, sums)?,
        None => None,
    };
    let mut unknown = by_cluster.unwrap_or(0);
    if by_cluster.is_none() {
        stored.scan(table_of, asked, |batch, rows| {
            rows.each(|index| {
                let state = usize::from(batch.kind[index]);
                unknown += u64::from(!sums.add(batch.node[index], state, batch.values[index]));
            });
        })?;
    }
    match unknown {
        0 => Ok(()),
        rows => Err(QueryError::UnknownNodes { rows }),
    }
}
