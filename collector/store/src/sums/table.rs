//! The tables of the store, and their columns.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::sums::tier::Tier;

/// A table of sums: each row has a key of numbers and one sum. Rows with equal keys merge by addition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SumTable {
    /// Nanoseconds by task, worker, state and stack.
    Samples,
    /// The same over all workers, in minutes and coarser tiers.
    SamplesAll,
    /// Nanoseconds by task, worker and state.
    Totals,
    /// Measures of the sampling by worker: see [`Measure`].
    Cycles,
    /// Number of tasks by name, outcome and bucket of the duration.
    Durations,
    /// Nanoseconds of the tasks' durations by name and outcome.
    DurationSums,
    /// Sums of transfers by link, worker, direction and measure.
    TransferSums,
    /// Number of phase intervals of tasks by name and outcome; at the task's own node, the number of
    /// tasks without rows.
    Phases,
    /// Nanoseconds of tasks in a phase by name and outcome.
    PhaseSums,
    /// Nanoseconds by task, worker, state and thread.
    Threads,
}

/// The measure of a row of [`SumTable::Cycles`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Measure {
    /// Windows that start in the period.
    Windows,
    /// Nanoseconds from the windows' starts to their stops.
    SampledNs,
    /// Ticks that were taken.
    Ticks,
    /// Ticks that were due by the interval.
    TicksExpected,
    /// Ticks of these that the sampler skipped to keep its CPU limit.
    TicksThrottled,
}

impl Measure {
    pub const ALL: [Measure; 5] = [
        Measure::Windows,
        Measure::SampledNs,
        Measure::Ticks,
        Measure::TicksExpected,
        Measure::TicksThrottled,
    ];
}

/// A key column of a sum table. All tables also have `ts`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Column {
    Task,
    Worker,
    Kind,
    Node,
}

impl SumTable {
    pub const ALL: [SumTable; 10] = [
        SumTable::Samples,
        SumTable::SamplesAll,
        SumTable::Totals,
        SumTable::Cycles,
        SumTable::Durations,
        SumTable::DurationSums,
        SumTable::TransferSums,
        SumTable::Phases,
        SumTable::PhaseSums,
        SumTable::Threads,
    ];

    /// The table's key columns without `ts`, in the order of the file.
    pub const fn columns(self) -> &'static [Column] {
        use Column::{Kind, Node, Task, Worker};
        match self {
            SumTable::Samples | SumTable::Threads | SumTable::TransferSums => {
                &[Task, Worker, Kind, Node]
            }
            SumTable::SamplesAll | SumTable::Durations | SumTable::Phases | SumTable::PhaseSums => {
                &[Task, Kind, Node]
            }
            SumTable::Totals => &[Task, Worker, Kind],
            SumTable::Cycles => &[Worker, Kind],
            SumTable::DurationSums => &[Task, Kind],
        }
    }

    /// Whether the table exists in a tier.
    pub fn has(self, tier: Tier) -> bool {
        self != SumTable::SamplesAll || tier > Tier::Second
    }

    /// Name of the table in a tier, such as `samples_1s` or `samples_1m_all`.
    pub fn name(self, tier: Tier) -> String {
        let (base, suffix) = match self {
            SumTable::Samples => ("samples", ""),
            SumTable::SamplesAll => ("samples", "_all"),
            SumTable::Totals => ("totals", ""),
            SumTable::Cycles => ("cycles", ""),
            SumTable::Durations => ("durations", ""),
            SumTable::DurationSums => ("duration_sums", ""),
            SumTable::TransferSums => ("transfer_sums", ""),
            SumTable::Phases => ("phases", ""),
            SumTable::PhaseSums => ("phase_sums", ""),
            SumTable::Threads => ("threads", ""),
        };
        format!("{base}_{}{suffix}", tier.name())
    }

    /// Name of [`Column::Kind`] in the file.
    pub const fn kind_name(self) -> &'static str {
        match self {
            SumTable::Samples | SumTable::SamplesAll | SumTable::Totals | SumTable::Threads => {
                "state"
            }
            SumTable::Cycles => "measure",
            SumTable::Durations
            | SumTable::DurationSums
            | SumTable::Phases
            | SumTable::PhaseSums => "outcome",
            SumTable::TransferSums => "direction",
        }
    }

    /// Name of [`Column::Task`] in the file.
    pub const fn task_name(self) -> &'static str {
        match self {
            SumTable::TransferSums => "link",
            _ => "task",
        }
    }

    /// Name of [`Column::Node`] in the file.
    pub const fn node_name(self) -> &'static str {
        match self {
            SumTable::Durations => "bucket",
            SumTable::TransferSums => "measure",
            _ => "node",
        }
    }

    /// Name of the sum in the file.
    pub const fn value_name(self) -> &'static str {
        match self {
            SumTable::Samples | SumTable::SamplesAll | SumTable::Totals | SumTable::Threads => {
                "weight_ns"
            }
            SumTable::Cycles | SumTable::TransferSums => "sum",
            SumTable::Durations => "tasks",
            SumTable::DurationSums | SumTable::PhaseSums => "duration_ns",
            SumTable::Phases => "count",
        }
    }
}

/// Any table of the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TableName {
    Sums(SumTable, Tier),
    /// Frames of the nodes, by id.
    Frames,
    /// Nodes of the fleet's tree, by id.
    Nodes,
    /// Ids of workers, by number.
    Workers,
    /// Ended tasks, by name and stop.
    Tasks,
    /// Tasks that ran at the last sealing; every sealing replaces the table.
    Running,
    /// Tasks that were sealed as lost: their ends are final. Every sealing replaces the table.
    LostTasks,
    /// One row for each life of each agent; every sealing replaces the table.
    Sessions,
    /// Peers and types of transfers, by number.
    Links,
    /// Ended transfers, by worker and stop.
    Transfers,
    /// Resource use of workers, by worker and time.
    Resources,
    /// Named runs; every sealing replaces the table.
    Runs,
    /// Expected numbers of tasks; every sealing replaces the table.
    Expected,
}

impl TableName {
    const LISTS: [TableName; 12] = [
        TableName::Frames,
        TableName::Nodes,
        TableName::Workers,
        TableName::Tasks,
        TableName::Running,
        TableName::LostTasks,
        TableName::Sessions,
        TableName::Links,
        TableName::Transfers,
        TableName::Resources,
        TableName::Runs,
        TableName::Expected,
    ];

    /// All tables, in the order of reports.
    pub fn all() -> impl Iterator<Item = TableName> {
        let sum_table = SumTable::ALL.into_iter().flat_map(|sum_table| {
            let tiers = Tier::ALL
                .into_iter()
                .filter(move |tier| sum_table.has(*tier));
            tiers.map(move |tier| TableName::Sums(sum_table, tier))
        });
        sum_table.chain(TableName::LISTS)
    }

    pub fn name(self) -> String {
        match self {
            TableName::Sums(sum_table, tier) => sum_table.name(tier),
            TableName::Frames => "frames".into(),
            TableName::Nodes => "nodes".into(),
            TableName::Workers => "workers".into(),
            TableName::Tasks => "tasks".into(),
            TableName::Running => "running".into(),
            TableName::LostTasks => "lost_tasks".into(),
            TableName::Sessions => "sessions".into(),
            TableName::Links => "links".into(),
            TableName::Transfers => "transfers".into(),
            TableName::Resources => "resources".into(),
            TableName::Runs => "runs".into(),
            TableName::Expected => "expected".into(),
        }
    }

    /// Whether each file has the rows of one UTC day, with a span in seconds.
    pub const fn is_by_day(self) -> bool {
        matches!(
            self,
            TableName::Tasks | TableName::Transfers | TableName::Resources
        )
    }

    /// Whether the table has no time: those that name ids, and those that every sealing replaces.
    pub const fn is_timeless(self) -> bool {
        !matches!(self, TableName::Sums(..)) && !self.is_by_day()
    }

    /// Whether each sealing replaces the table.
    pub const fn is_replaced(self) -> bool {
        matches!(
            self,
            TableName::Running
                | TableName::LostTasks
                | TableName::Sessions
                | TableName::Runs
                | TableName::Expected
        )
    }
}

impl From<TableName> for String {
    fn from(table: TableName) -> String {
        table.name()
    }
}

impl TryFrom<String> for TableName {
    type Error = String;

    fn try_from(name: String) -> Result<TableName, String> {
        /// A manifest names the table of each of its files.
        static TABLES: LazyLock<HashMap<String, TableName>> = LazyLock::new(|| {
            TableName::all()
                .map(|table| (table.name(), table))
                .collect()
        });
        let found = TABLES.get(&name).copied();
        found.ok_or_else(|| format!("unknown table {name:?}"))
    }
}
