//! Parameters as given, and those that several queries share.

use api::time::{RangeEnd, TIME_ALLOWED, TimeError, TimeParser};
use jiff::tz::TimeZone;
use profiler_core::{Filter, StateSet, ThreadKind, TimeRange, Timestamp, WorkerId};

use crate::QueryError;
use crate::error::echo;
use crate::parameters::labels::labeled;
use crate::parameters::parameter::{Kind, Parameter, Parameters, names};
use crate::parameters::shown_names::shown_worker;
use crate::parameters::suggest::nearest;
use base::limits::FILTER_VALUES_MAX;
use base::sync::read;
use state::CollectorState;
use store::rows::Names;

/// One request's parameters, all of known names.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    pairs: &'a [(String, String)],
    /// Empty for the parameters of other tools.
    table: Parameters,
}

impl<'a> Params<'a> {
    /// Checks that each parameter is in `table`.
    pub fn of(pairs: &'a [(String, String)], table: Parameters) -> Result<Params<'a>, QueryError> {
        let allowed = table
            .iter()
            .copied()
            .flatten()
            .map(|parameter| parameter.name);
        let params = Params::new(pairs, &allowed.collect::<Vec<_>>())?;
        Ok(Params { table, ..params })
    }

    /// Checks that each parameter is one of `allowed`, which another tool defines.
    pub fn new(
        pairs: &'a [(String, String)],
        allowed: &[&'static str],
    ) -> Result<Params<'a>, QueryError> {
        match pairs
            .iter()
            .find(|(name, _)| !allowed.contains(&name.as_str()))
        {
            Some((name, _)) => {
                let allowed = allowed.to_vec();
                Err(QueryError::UnknownParameter {
                    name: echo(name),
                    allowed,
                })
            }
            None => Ok(Params { pairs, table: &[] }),
        }
    }

    /// Whether this parameter is parsed as its table says. Without an entry it is never given.
    fn is_declared(&self, name: &str, parses: impl Fn(&Parameter) -> bool) -> bool {
        let mut parameters = self.table.iter().copied().flatten();
        parameters.all(|found| found.name != name || parses(found))
    }

    /// The value of a parameter that may occur once.
    pub fn one(&self, name: &'static str) -> Result<Option<&'a str>, QueryError> {
        debug_assert!(
            self.is_declared(name, |parameter| !parameter.is_repeated),
            "{name}"
        );
        Ok(self.values(name, 1)?.pop())
    }

    /// The values of a parameter that may be repeated.
    pub fn many(&self, name: &'static str) -> Result<Vec<&'a str>, QueryError> {
        debug_assert!(
            self.is_declared(name, |parameter| parameter.is_repeated),
            "{name}"
        );
        self.values(name, FILTER_VALUES_MAX)
    }

    /// At most `limit` values of a parameter.
    pub(crate) fn values(
        &self,
        name: &'static str,
        limit: usize,
    ) -> Result<Vec<&'a str>, QueryError> {
        let values: Vec<&str> = self
            .pairs
            .iter()
            .filter(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
            .collect();
        match values.len() {
            count if count > limit => Err(QueryError::TooMany { name, count, limit }),
            _ => Ok(values),
        }
    }

    /// The value of a parameter among `choices`; the first by default.
    pub fn choice<T: Copy>(
        &self,
        name: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<T, QueryError> {
        Ok(self.one_of(name, choices)?.unwrap_or(choices[0].1))
    }

    /// The value of a parameter among `choices`, if it was given.
    pub(crate) fn one_of<T: Copy>(
        &self,
        name: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Option<T>, QueryError> {
        debug_assert!(self.has_choices(name, choices), "{name}");
        self.one(name)?
            .map(|value| choose(name, value, choices))
            .transpose()
    }

    /// The values of a parameter that may be repeated, each among `choices`.
    pub(crate) fn many_of<T: Copy>(
        &self,
        name: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Vec<T>, QueryError> {
        debug_assert!(self.has_choices(name, choices), "{name}");
        self.many(name)?
            .into_iter()
            .map(|value| choose(name, value, choices))
            .collect()
    }

    /// Whether the table has all of `choices`.
    fn has_choices<T>(&self, name: &str, choices: &[(&'static str, T)]) -> bool {
        self.is_declared(name, |parameter| match parameter.kind {
            Kind::Choice(values) => names(choices).iter().all(|value| values().contains(value)),
            _ => false,
        })
    }
}

/// The choice named `value`.
pub(crate) fn choose<T: Copy>(
    name: &'static str,
    value: &str,
    choices: &[(&'static str, T)],
) -> Result<T, QueryError> {
    let found = choices.iter().find(|(choice, _)| *choice == value);
    found
        .map(|(_, choice)| *choice)
        .ok_or_else(|| QueryError::Choice {
            name,
            value: echo(value),
            allowed: choices.iter().map(|(choice, _)| *choice).collect(),
        })
}

/// A range as given; by default from 5 minutes ago to now.
#[derive(Clone, Copy, Debug)]
pub struct RangeText<'a> {
    pub from: &'a str,
    pub to: &'a str,
}

impl<'a> RangeText<'a> {
    /// The given range, and whether any was given.
    pub fn parse(params: &Params<'a>) -> Result<(RangeText<'a>, bool), QueryError> {
        let from = params.one("from")?;
        let to = params.one("to")?;
        let text = RangeText {
            from: from.unwrap_or("-5m"),
            to: to.unwrap_or("now"),
        };
        Ok((text, from.is_some() || to.is_some()))
    }

    /// The range by the collector's clock. Times without a zone are in UTC.
    pub fn resolve(&self, now: Timestamp) -> Result<TimeRange, QueryError> {
        let parser = TimeParser {
            now_ns: now.unix_ns(),
            zone: TimeZone::UTC,
        };
        let time = |name, text, end| {
            let at_ns = parser.parse(text, end);
            at_ns
                .map(Timestamp::from_unix_ns)
                .map_err(|error| match error {
                    TimeError::Form => QueryError::Form {
                        name,
                        value: echo(text),
                        allowed: TIME_ALLOWED.to_vec(),
                    },
                    TimeError::Range => QueryError::Time {
                        name,
                        value: echo(text),
                    },
                })
        };
        let from_at = time("from", self.from, RangeEnd::From)?;
        let to_at = time("to", self.to, RangeEnd::To)?;
        TimeRange::new(from_at, to_at).ok_or_else(|| {
            let from = echo(self.from);
            let to = echo(self.to);
            if from_at == to_at {
                QueryError::Empty {
                    from,
                    to,
                    at: from_at,
                }
            } else {
                QueryError::Reversed {
                    from,
                    to,
                    from_at,
                    to_at,
                }
            }
        })
    }
}

pub(crate) const TASK: Parameter =
    Parameter::text("task", "load", "Names of tasks. Default: all.").repeated();

pub(crate) const WORKER: Parameter = Parameter::text(
    "worker",
    "w-1",
    "Ids of workers, or their names as they are shown. Default: all.",
)
.repeated();

pub(crate) const LABEL: Parameter = Parameter::text(
    "label",
    "zone=a",
    "`KEY=VALUE` or `KEY=*`: workers whose latest agent has this label; several must all match.",
)
.repeated();

pub(crate) const THREADS: Parameter = Parameter::choice(
    "threads",
    || names(&Filters::THREADS),
    "all",
    "The program's threads, or the profiler's own.",
)
.default("program");

/// The parameters that filter samples.
pub(crate) struct Filters;

impl Filters {
    pub(crate) const PARAMETERS: [Parameter; 6] = [
        TASK,
        WORKER,
        LABEL,
        Parameter::choice(
            "state",
            || [&StateSet::NAMES[..], &[ALL_STATES]].concat(),
            "cpu",
            "States; `wait` is every kind of waiting. Default: all.",
        )
        .repeated(),
        THREADS,
        Parameter::text(
            "phase",
            "execute",
            "Phases of tasks; time outside of tasks is then excluded. Default: all.",
        )
        .repeated(),
    ];

    pub(crate) const THREADS: [(&'static str, ThreadKind); 3] = [
        ("program", ThreadKind::Program),
        ("agent", ThreadKind::Agent),
        ("all", ThreadKind::All),
    ];

    /// The filter of samples; its tasks and workers must be known.
    pub(crate) fn parse(params: &Params<'_>, state: &CollectorState) -> Result<Filter, QueryError> {
        let states = params
            .many("state")?
            .into_iter()
            .map(state_set)
            .reduce(|all, states| Ok(all? | states?));
        Ok(Filter {
            threads: params.choice("threads", &Filters::THREADS)?,
            tasks: known_tasks(params, state)?.to_vec(),
            outside_tasks: false,
            workers: known_workers(params, state)?.to_vec(),
            states: states.unwrap_or(Ok(StateSet::ALL))?,
        })
    }
}

/// All states, as a value of `state`.
const ALL_STATES: &str = "all";

/// The set of states with that name.
fn state_set(name: &str) -> Result<StateSet, QueryError> {
    if name == ALL_STATES {
        return Ok(StateSet::ALL);
    }
    StateSet::from_name(name).ok_or_else(|| QueryError::Choice {
        name: "state",
        value: echo(name),
        allowed: [&StateSet::NAMES[..], &[ALL_STATES]].concat(),
    })
}

/// The requested tasks, all known.
pub(crate) fn known_tasks(
    params: &Params<'_>,
    state: &CollectorState,
) -> Result<Names, QueryError> {
    let asked = params.many("task")?;
    if let Some(name) = asked
        .iter()
        .find(|name: &&&str| !state.knows_task(name) && !state.tables.lacks_names())
    {
        let known = state.task_names();
        return Err(unknown("task", name, known.iter().map(|known| &**known)));
    }
    Ok(asked.into_iter().map(str::to_owned).collect())
}

/// The requested workers, all known; of these, or of all, those with the requested labels.
pub(crate) fn known_workers(
    params: &Params<'_>,
    state: &CollectorState,
) -> Result<Names, QueryError> {
    let asked = params.many("worker")?;
    if asked.is_empty() {
        return labeled(params, state, imported_workers(params, state)?);
    }
    let known = state.workers();
    let mut workers = Vec::with_capacity(asked.len());
    for name in asked {
        let worker = match known_worker(state, &known, name)? {
            Some(worker) => worker,
            None if state.tables.lacks_names() => name.to_owned(),
            None => {
                let known = known.iter().map(|known| &*known.0);
                return Err(unknown("worker", name, known));
            }
        };
        workers.push(worker);
    }
    labeled(params, state, workers.into())
}

/// The requested workers, which need not be known yet.
pub(crate) fn named_workers(
    params: &Params<'_>,
    state: &CollectorState,
) -> Result<Names, QueryError> {
    let asked = params.many("worker")?;
    if asked.is_empty() {
        return Ok(Names::default());
    }
    let known = state.workers();
    asked
        .into_iter()
        .map(|name| Ok(known_worker(state, &known, name)?.unwrap_or_else(|| name.to_owned())))
        .collect()
}

/// The id of a worker, by its id or the name that it is shown by.
fn known_worker(
    state: &CollectorState,
    known: &[WorkerId],
    name: &str,
) -> Result<Option<String>, QueryError> {
    if known.iter().any(|known| *known.0 == *name) {
        return Ok(Some(name.to_owned()));
    }
    shown_worker(state, name)
}

/// The workers of the requested runs if all of them are imported profiles: such a run is that profile, not
/// what others did at its time. Else none, which stands for all.
fn imported_workers(params: &Params<'_>, state: &CollectorState) -> Result<Names, QueryError> {
    let telemetry = read(&state.telemetry);
    let runs = params
        .values("run", FILTER_VALUES_MAX)?
        .into_iter()
        .map(|run| {
            let worker = telemetry.runs().find(run)?.worker.as_ref()?;
            worker.is_import().then(|| worker.to_string())
        });
    let workers: Option<Names> = runs.collect();
    Ok(workers.unwrap_or_default())
}

/// The error for an unknown name.
pub(crate) fn unknown<'k>(
    kind: &'static str,
    name: &str,
    known: impl Iterator<Item = &'k str>,
) -> QueryError {
    let nearest = nearest(name, known).iter().map(|name| echo(name)).collect();
    QueryError::UnknownName {
        kind,
        name: echo(name),
        nearest,
    }
}
