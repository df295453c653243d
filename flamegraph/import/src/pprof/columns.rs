//! Values of a sample that are time, and their states. `docs/FORMATS.md` has the table.

use flamegraph::messages::pprof as proto;
use profiler_core::State;

use super::super::builder::Builder;
use super::super::error::{ImportError, echo};
use super::super::json::unit_ns;
use super::{Fields, Tables, Value};

/// Words in names of values that are never time of a thread, whatever their unit: a lock that is held keeps nobody
/// from running, and a lifetime contains everything else.
const NEVER_TIME: [&str; 14] = [
    "alloc",
    "allocs",
    "exception",
    "exceptions",
    "gpu",
    "heap",
    "held",
    "hold",
    "inuse",
    "lifetime",
    "live",
    "release",
    "request",
    "timeline",
];

/// The meaning of a time of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    Cpu,
    /// All that passes, on a CPU or not.
    Wall,
    OffCpu,
    LockWait,
    /// The name is unknown, the unit is one of time.
    Unknown,
}

impl Meaning {
    /// `None` if the name is not that of a thread's time.
    fn of(name: &str) -> Option<Meaning> {
        let name = name.to_ascii_lowercase().replace('-', "_");
        if name.split('_').any(|word| NEVER_TIME.contains(&word)) {
            return None;
        }
        Some(match name.trim_end_matches("_time") {
            "cpu" | "on_cpu" | "oncpu" => Meaning::Cpu,
            "wall" | "wallclock" | "wall_clock" | "time" | "real" => Meaning::Wall,
            "off_cpu" | "offcpu" => Meaning::OffCpu,
            "block" | "block_delay" | "contention" | "contentions" | "delay" | "lock"
            | "lock_acquire_wait" | "lock_delay" | "lock_wait" | "mutex" | "mutex_delay" => {
                Meaning::LockWait
            }
            _ => Meaning::Unknown,
        })
    }
}

/// A value of each sample that is time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'t> {
    at: usize,
    unit_ns: u64,
    name: &'t str,
    meaning: Meaning,
}

impl Column<'_> {
    fn time_ns(
        &self,
        builder: &Builder<'_>,
        values: &[i64],
        number: usize,
    ) -> Result<u64, ImportError> {
        let value = values[self.at];
        let count = u64::try_from(value).map_err(|_| {
            let reason =
                format!("sample {number} has value {value}; a time of 0 or more is expected");
            builder.invalid(reason)
        })?;
        count.checked_mul(self.unit_ns).ok_or_else(|| {
            let [name, unit_ns] = [echo(self.name), self.unit_ns.to_string()];
            builder.invalid(format!(
                "sample {number} has {value} {name} of {unit_ns} ns each, which exceeds 64 bits of nanoseconds"
            ))
        })
    }
}

/// How the values of a sample become time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Measure<'t> {
    /// One time for all that a thread did, and perhaps the part of it that was on a CPU. `tells_cpu`: the file
    /// has values for that part, which may all be 0.
    Whole {
        whole: Column<'t>,
        cpu: Option<Column<'t>>,
        tells_cpu: bool,
    },
    /// Time on a CPU, and time that the thread waited. They exclude each other.
    Parts {
        cpu: Option<Column<'t>>,
        wait: Option<Column<'t>>,
    },
}

/// The time of a sample by state.
pub(super) type Weights = [(State, u64); 2];

impl<'t> Measure<'t> {
    /// Selects the values of a message that are time.
    pub(super) fn new(
        builder: &mut Builder<'_>,
        tables: &'t Tables<'t>,
    ) -> Result<Measure<'t>, ImportError> {
        let types = Types::read(builder, tables)?;
        let columns = &types.columns;
        if columns.is_empty() {
            return Err(types.without_time(builder));
        }
        let pick = |meaning| types.pick(meaning);
        let [cpu, wall] = [Meaning::Cpu, Meaning::Wall].map(pick);
        let [off_cpu, lock] = [Meaning::OffCpu, Meaning::LockWait].map(pick);
        let last_unknown = columns
            .iter()
            .rev()
            .find(|column| column.meaning == Meaning::Unknown);
        let unknown = pick(Meaning::Unknown)
            .filter(|column| column.name == types.default)
            .or(last_unknown.copied());
        let measure = match (wall, off_cpu.or(lock), unknown) {
            (Some(whole), ..) => Measure::Whole {
                whole,
                cpu,
                tells_cpu: types.tells_cpu,
            },
            (None, wait, _) if wait.is_some() || cpu.is_some() => Measure::Parts { cpu, wait },
            (None, _, Some(whole)) => Measure::Whole {
                whole,
                cpu: None,
                tells_cpu: false,
            },
            (None, _, None) => return Err(types.without_time(builder)),
        };
        for column in columns.iter().filter(|column| !measure.reads(column)) {
            let name = echo(column.name);
            builder.note(format!(
                "values {name} do not count: their time is in others already"
            ));
        }
        Ok(measure)
    }

    fn reads(&self, column: &Column<'_>) -> bool {
        let read = match *self {
            Measure::Whole { whole, cpu, .. } => [Some(whole), cpu],
            Measure::Parts { cpu, wait } => [cpu, wait],
        };
        read.into_iter().flatten().any(|read| read.at == column.at)
    }

    /// The time of a sample. `stated` is the state that its labels have.
    pub(super) fn weights(
        &self,
        builder: &Builder<'_>,
        values: &[i64],
        number: usize,
        stated: Option<State>,
    ) -> Result<Weights, ImportError> {
        let time_ns = |column: Option<Column<'_>>| {
            column.map_or(Ok(0), |column| column.time_ns(builder, values, number))
        };
        match *self {
            Measure::Whole {
                whole,
                cpu,
                tells_cpu,
            } => {
                let whole_ns = time_ns(Some(whole))?;
                let cpu_ns = time_ns(cpu.filter(|_| stated.is_none()))?;
                let rest = if tells_cpu {
                    // Time that is not on a CPU waits for something.
                    State::Other
                } else if whole.meaning == Meaning::Wall {
                    // A thread that sleeps has as much of it as one that runs.
                    builder.options.state.unwrap_or(State::Other)
                } else {
                    builder.options.state()
                };
                // Threads that are measured as one, such as the runtime's own, use more CPU time than passes.
                let rest_ns = whole_ns.saturating_sub(cpu_ns);
                Ok([(State::Cpu, cpu_ns), (stated.unwrap_or(rest), rest_ns)])
            }
            Measure::Parts { cpu, wait } => {
                let is_lock = wait.is_some_and(|wait| wait.meaning == Meaning::LockWait);
                let waiting = if is_lock { State::Lock } else { State::Other };
                Ok([
                    (stated.unwrap_or(State::Cpu), time_ns(cpu)?),
                    (stated.unwrap_or(waiting), time_ns(wait)?),
                ])
            }
        }
    }
}

/// The types of a message's values.
struct Types<'t> {
    /// Those that are time and of which a sample has a value.
    columns: Vec<Column<'t>>,
    default: &'t str,
    /// Names and units of all, and whether a sample has a value.
    all: Vec<([&'t str; 2], bool)>,
    /// Whether the file has values for time on a CPU, which may all be 0.
    tells_cpu: bool,
    /// Whether counts of samples would be time if their interval were known.
    lacks_interval: bool,
}

impl<'t> Types<'t> {
    fn read(builder: &mut Builder<'_>, tables: &'t Tables<'t>) -> Result<Types<'t>, ImportError> {
        let has_value = with_values(tables);
        let mut types = Types {
            columns: Vec::new(),
            default: tables.text(builder, tables.default_type)?,
            all: Vec::new(),
            tells_cpu: false,
            lacks_interval: false,
        };
        let mut counted = None;
        for (at, (value_type, has_value)) in tables.types.iter().zip(has_value).enumerate() {
            let name = tables.text(builder, value_type.kind)?;
            let unit = tables.text(builder, value_type.unit)?;
            types.all.push(([name, unit], has_value));
            if is_count_of_samples(name, unit) {
                counted = counted.or(Some((at, name, has_value)));
                continue;
            }
            let Some(unit_ns) = unit_ns(unit) else {
                continue;
            };
            let meaning = Meaning::of(name);
            types.tells_cpu |= meaning == Some(Meaning::Cpu);
            match meaning {
                Some(meaning) if has_value => {
                    types.columns.push(Column {
                        at,
                        unit_ns,
                        name,
                        meaning,
                    });
                }
                None if has_value => {
                    let name = echo(name);
                    builder.note(format!(
                        "values {name} do not count: they are no time of a thread"
                    ));
                }
                _ => {}
            }
        }
        if let Some((at, name, has_value)) = counted {
            let period = Period::of(builder, tables)?;
            types.lacks_interval = period.is_none();
            let column = period.map(|Period { unit_ns, meaning }| Column {
                at,
                unit_ns,
                name,
                meaning,
            });
            // Only where no value has the time itself.
            let is_new = |column: &Column<'_>| match column.meaning {
                Meaning::Unknown => types.columns.is_empty(),
                meaning => types.columns.iter().all(|known| known.meaning != meaning),
            };
            let column = column.filter(|_| has_value).filter(is_new);
            types.columns.extend(column);
        }
        Ok(types)
    }

    /// The column of that meaning: the one that the file shows first, else its first.
    fn pick(&self, meaning: Meaning) -> Option<Column<'t>> {
        let those = || {
            self.columns
                .iter()
                .filter(|column| column.meaning == meaning)
        };
        those()
            .find(|column| column.name == self.default)
            .or_else(|| those().next())
            .copied()
    }

    /// The error of a file without time.
    fn without_time(&self, builder: &Builder<'_>) -> ImportError {
        let is_time =
            |kind: &[&str; 2]| unit_ns(kind[1]).is_some() && Meaning::of(kind[0]).is_some();
        let measures_time = self.all.iter().any(|(kind, _)| is_time(kind));
        let has_values = self.all.iter().any(|(_, has_value)| *has_value);
        if measures_time && !has_values {
            return ImportError::Empty {
                format: builder.format,
            };
        }
        let named = self
            .all
            .iter()
            .filter(|(_, has_value)| *has_value || !measures_time)
            .map(|([name, unit], _)| match (*name, *unit) {
                ("", "") => "a type without a name and a unit".to_owned(),
                ("", unit) => format!("a type without a name, in {}", echo(unit)),
                (name, "") => format!("{} without a unit", echo(name)),
                (name, unit) => echo(&format!("{name}/{unit}")),
            });
        let mut found = named.collect::<Vec<_>>().join(", ");
        if measures_time {
            found = format!("only values of {found}");
        }
        if self.lacks_interval {
            found.push_str("; --interval sets the time of a sample");
        }
        ImportError::NoTime {
            format: builder.format,
            found,
        }
    }
}

fn is_count_of_samples(name: &str, unit: &str) -> bool {
    unit == "count" && matches!(name, "samples" | "sample" | "cpu-samples" | "cpu_samples")
}

/// By type: whether a sample has another value than 0. What is damaged has none here, and is an error later.
fn with_values(tables: &Tables<'_>) -> Vec<bool> {
    let mut found = vec![false; tables.types.len()];
    for sample in tables.samples().map_while(Result::ok) {
        let mut at = 0;
        let mut note = |value: u64| {
            if let Some(found) = found.get_mut(at) {
                *found |= value != 0;
            }
            at += 1;
        };
        for field in (Fields { rest: sample }).map_while(Result::ok) {
            match field {
                (2, Value::Number(value)) => note(value),
                (2, Value::Bytes(mut packed)) => {
                    // At the end, decoding would allocate an error.
                    while !packed.is_empty() {
                        let Ok(value) = prost::encoding::decode_varint(&mut packed) else {
                            break;
                        };
                        note(value);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// The time that a sample stands for.
struct Period {
    unit_ns: u64,
    meaning: Meaning,
}

impl Period {
    /// That of the options or of the file; `None` if neither says it.
    fn of(builder: &Builder<'_>, tables: &Tables<'_>) -> Result<Option<Period>, ImportError> {
        let kind = tables
            .period_type
            .unwrap_or(proto::ValueType { kind: 0, unit: 0 });
        let unit_ns = unit_ns(tables.text(builder, kind.unit)?);
        let meaning = Meaning::of(tables.text(builder, kind.kind)?).filter(|_| unit_ns.is_some());
        let given = |unit_ns| Period {
            unit_ns,
            meaning: meaning.unwrap_or(Meaning::Unknown),
        };
        if let Some(unit_ns) = builder.options.interval_ns {
            return Ok(Some(given(unit_ns)));
        }
        let period = u64::try_from(tables.period)
            .ok()
            .filter(|period| *period > 0);
        let unit_ns = period
            .zip(unit_ns)
            .and_then(|(period, unit_ns)| period.checked_mul(unit_ns));
        Ok(unit_ns
            .zip(meaning)
            .map(|(unit_ns, meaning)| Period { unit_ns, meaning })
            .or(builder.options.interval_default_ns.map(given)))
    }
}
