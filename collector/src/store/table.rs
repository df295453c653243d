//! Which tables there are, and which columns each has.

use serde::{Deserialize, Serialize};

use super::tier::Tier;

/// A counting table: rows of numbers and one sum, which merge by addition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Counting {
    /// Nanoseconds by task, worker, state and stack.
    Samples,
    /// The same over all workers; from minutes on.
    SamplesAll,
    /// Nanoseconds by task, worker and state.
    Totals,
    /// Facts of the sampling by worker: see [`Measure`].
    Cycles,
    /// How many tasks took how long, by name, outcome and bucket.
    Durations,
    /// Nanoseconds that tasks took, by name and outcome.
    DurationSums,
    /// Sums of transfers by link, worker, direction and measure.
    TransferSums,
    /// How often tasks were in a phase, by name and outcome; and how many have no rows.
    Phases,
    /// Nanoseconds that tasks were in a phase, by name and outcome.
    PhaseSums,
    /// Nanoseconds by task, worker, state and thread.
    Threads,
}

/// What a row of [`Counting::Cycles`] counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Measure {
    /// Windows that start in the period.
    Windows,
    /// Nanoseconds from their starts to their stops.
    SampledNs,
    /// Ticks that were made.
    Ticks,
    /// Ticks that the interval asks for.
    TicksExpected,
    /// Of these, ticks that the sampler left out on purpose.
    TicksThrottled,
}

impl Measure {
    pub(crate) const ALL: [Measure; 5] = [
        Measure::Windows,
        Measure::SampledNs,
        Measure::Ticks,
        Measure::TicksExpected,
        Measure::TicksThrottled,
    ];
}

/// A key column of a counting table, beside `ts`, which all have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Column {
    Task,
    Worker,
    Kind,
    Node,
}

impl Counting {
    pub(crate) const ALL: [Counting; 10] = [
        Counting::Samples,
        Counting::SamplesAll,
        Counting::Totals,
        Counting::Cycles,
        Counting::Durations,
        Counting::DurationSums,
        Counting::TransferSums,
        Counting::Phases,
        Counting::PhaseSums,
        Counting::Threads,
    ];

    /// The table's columns beside `ts` and the sum, in the order of the file.
    pub(crate) const fn columns(self) -> &'static [Column] {
        use Column::{Kind, Node, Task, Worker};
        match self {
            Counting::Samples | Counting::Threads | Counting::TransferSums => {
                &[Task, Worker, Kind, Node]
            }
            Counting::SamplesAll | Counting::Durations | Counting::Phases | Counting::PhaseSums => {
                &[Task, Kind, Node]
            }
            Counting::Totals => &[Task, Worker, Kind],
            Counting::Cycles => &[Worker, Kind],
            Counting::DurationSums => &[Task, Kind],
        }
    }

    /// Whether there is such a table in that tier.
    pub(crate) fn has(self, tier: Tier) -> bool {
        self != Counting::SamplesAll || tier > Tier::Second
    }

    /// Name of the table in a tier, such as `samples_1s` or `samples_1m_all`.
    pub(crate) fn name(self, tier: Tier) -> String {
        let (base, suffix) = match self {
            Counting::Samples => ("samples", ""),
            Counting::SamplesAll => ("samples", "_all"),
            Counting::Totals => ("totals", ""),
            Counting::Cycles => ("cycles", ""),
            Counting::Durations => ("durations", ""),
            Counting::DurationSums => ("duration_sums", ""),
            Counting::TransferSums => ("transfer_sums", ""),
            Counting::Phases => ("phases", ""),
            Counting::PhaseSums => ("phase_sums", ""),
            Counting::Threads => ("threads", ""),
        };
        format!("{base}_{}{suffix}", tier.name())
    }

    /// What [`Column::Kind`] is called in the file.
    pub(crate) const fn kind_name(self) -> &'static str {
        match self {
            Counting::Samples | Counting::SamplesAll | Counting::Totals | Counting::Threads => {
                "state"
            }
            Counting::Cycles => "measure",
            Counting::Durations
            | Counting::DurationSums
            | Counting::Phases
            | Counting::PhaseSums => "outcome",
            Counting::TransferSums => "direction",
        }
    }

    /// What [`Column::Task`] is called in the file.
    pub(crate) const fn task_name(self) -> &'static str {
        match self {
            Counting::TransferSums => "link",
            _ => "task",
        }
    }

    /// What [`Column::Node`] is called in the file.
    pub(crate) const fn node_name(self) -> &'static str {
        match self {
            Counting::Durations => "bucket",
            Counting::TransferSums => "measure",
            _ => "node",
        }
    }

    /// What the sum is called in the file.
    pub(crate) const fn value_name(self) -> &'static str {
        match self {
            Counting::Samples | Counting::SamplesAll | Counting::Totals | Counting::Threads => {
                "weight_ns"
            }
            Counting::Cycles | Counting::TransferSums => "sum",
            Counting::Durations => "tasks",
            Counting::DurationSums | Counting::PhaseSums => "duration_ns",
            Counting::Phases => "count",
        }
    }
}

/// Any table of the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum TableName {
    Counting(Counting, Tier),
    /// What nodes stand for, by id.
    Frames,
    /// The fleet's tree, by id.
    Nodes,
    /// Ids of workers, by number.
    Workers,
    /// Tasks that ended, by name and stop.
    Tasks,
    /// Tasks that ran at the last sealing; replaced whole.
    Running,
    /// Tasks that are in `tasks` as lost, whatever is told of them; replaced whole.
    Settled,
    /// What is known of each life of each agent; replaced whole.
    Sessions,
    /// Peers and types of transfers, by number.
    Links,
    /// Transfers that ended, by worker and stop.
    Transfers,
    /// What workers used, by worker and time.
    Resources,
    /// Named periods; replaced whole.
    Runs,
    /// How many tasks are expected; replaced whole.
    Expected,
}

impl TableName {
    const LISTS: [TableName; 12] = [
        TableName::Frames,
        TableName::Nodes,
        TableName::Workers,
        TableName::Tasks,
        TableName::Running,
        TableName::Settled,
        TableName::Sessions,
        TableName::Links,
        TableName::Transfers,
        TableName::Resources,
        TableName::Runs,
        TableName::Expected,
    ];

    /// All tables, in the order in which they are told of.
    pub(crate) fn all() -> impl Iterator<Item = TableName> {
        let counting = Counting::ALL.into_iter().flat_map(|counting| {
            let tiers = Tier::ALL.into_iter().filter(move |tier| counting.has(*tier));
            tiers.map(move |tier| TableName::Counting(counting, tier))
        });
        counting.chain(TableName::LISTS)
    }

    pub(crate) fn name(self) -> String {
        match self {
            TableName::Counting(counting, tier) => counting.name(tier),
            TableName::Frames => "frames".into(),
            TableName::Nodes => "nodes".into(),
            TableName::Workers => "workers".into(),
            TableName::Tasks => "tasks".into(),
            TableName::Running => "running".into(),
            TableName::Settled => "settled".into(),
            TableName::Sessions => "sessions".into(),
            TableName::Links => "links".into(),
            TableName::Transfers => "transfers".into(),
            TableName::Resources => "resources".into(),
            TableName::Runs => "runs".into(),
            TableName::Expected => "expected".into(),
        }
    }
}

impl TableName {
    /// Whether its files hold rows of one UTC day each, told apart by seconds.
    pub(crate) const fn is_by_day(self) -> bool {
        matches!(self, TableName::Tasks | TableName::Transfers | TableName::Resources)
    }

    /// Whether it is about all time: what gives names to ids, and what stands beside counts.
    pub(crate) const fn is_timeless(self) -> bool {
        !matches!(self, TableName::Counting(..)) && !self.is_by_day()
    }

    /// Whether each sealing replaces it whole.
    pub(crate) const fn is_replaced(self) -> bool {
        matches!(
            self,
            TableName::Running
                | TableName::Settled
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
        let found = TableName::all().find(|table| table.name() == name);
        found.ok_or_else(|| format!("there is no table {name:?}"))
    }
}
