//! The columns of each table. Names of members are those of JSON, where both have them.

use std::cmp::Reverse;
use std::iter::repeat_n;
use std::sync::Arc;

use flamegraph::symbols::portable_file;
use flamegraph::{FunctionTime, function_times};
use profiler_core::{Outcome, Profile, State, Timestamp};
use serde::Serialize;

use super::Table;
use store::kinds::{
    Flag, Fraction, Number32, Number64, OptionalNumber64, OptionalSigned64, OptionalTime, Text,
    Time,
};

/// One row for each task. Labels and phases are JSON.
pub(in crate::serve) fn tasks(answer: &api::TasksAnswer) -> Table {
    let tasks = &answer.tasks;
    let text = |member: fn(&api::Task) -> &str| tasks.iter().map(move |task| member(task).into());
    Table::new("tasks", tasks.len())
        .with_fact("x-emberline-total", answer.total)
        .with_fact("x-emberline-aggregated", answer.aggregated)
        .with_fact(
            "x-emberline-corrupt-files",
            answer.corrupt_files.len() as u64,
        )
        .with::<Text>("name", text(|task| &task.name))
        .with::<Text>("key", text(|task| &task.key))
        .with::<Text>("outcome", text(|task| &task.outcome))
        .with::<Time>(
            "start",
            tasks
                .iter()
                .map(|task| Timestamp::from_unix_ns(task.start_ns)),
        )
        .with::<OptionalTime>(
            "stop",
            tasks
                .iter()
                .map(|task| task.stop_ns.map(Timestamp::from_unix_ns)),
        )
        .with::<Number64>("duration_ns", tasks.iter().map(|task| task.duration_ns))
        .with::<Text>("worker", text(|task| &task.worker))
        .with::<Text>("epoch", text(|task| &task.epoch))
        .with::<Number64>("id", tasks.iter().map(|task| task.id))
        .with::<OptionalNumber64>("parent", tasks.iter().map(|task| task.parent))
        .with::<Number32>("thread_id", tasks.iter().map(|task| task.thread_id))
        .with::<Text>("thread_name", text(|task| &task.thread_name))
        .with::<Text>("cause", text(|task| &task.cause))
        .with::<OptionalNumber64>(
            "attempt",
            tasks.iter().map(|task| task.attempt.map(u64::from)),
        )
        .with::<OptionalNumber64>("result_bytes", tasks.iter().map(|task| task.result_bytes))
        .with::<Text>("type_name", text(|task| &task.type_name))
        .with::<Text>("labels", tasks.iter().map(|task| json(&task.labels)))
        .with::<Text>("phases", tasks.iter().map(|task| json(&task.phases)))
}

fn json(value: &impl Serialize) -> Arc<str> {
    serde_json::to_string(value)
        .expect("memory takes texts and numbers")
        .into()
}

/// One row for each name of tasks.
pub(in crate::serve) fn task_names(answer: &api::TaskSummaryAnswer) -> Table {
    let names = &answer.names;
    let mut table = Table::new("task_names", names.len())
        .with_fact("x-emberline-aggregated", answer.aggregated)
        .with_fact(
            "x-emberline-corrupt-files",
            answer.corrupt_files.len() as u64,
        )
        .with::<Text>("name", names.iter().map(|name| name.name.as_str().into()))
        .with::<Number64>("running", names.iter().map(|name| name.running));
    for outcome in Outcome::ALL
        .into_iter()
        .filter(|outcome| *outcome != Outcome::Running)
    {
        let count = |name: &api::TaskName| name.outcomes.get(outcome.name()).copied();
        let counts = names.iter().map(|name| count(name).unwrap_or(0));
        table = table.with::<Number64>(outcome.name(), counts);
    }
    type Measure = fn(&api::Durations) -> u64;
    const MEASURES: [(&str, Measure); 8] = [
        ("count", |durations| durations.count),
        ("min_ns", |durations| durations.min_ns),
        ("p50_ns", |durations| durations.p50_ns),
        ("p90_ns", |durations| durations.p90_ns),
        ("p99_ns", |durations| durations.p99_ns),
        ("max_ns", |durations| durations.max_ns),
        ("mean_ns", |durations| durations.mean_ns),
        ("total_ns", |durations| durations.total_ns),
    ];
    MEASURES.into_iter().fold(table, |table, (name, measure)| {
        let values = names
            .iter()
            .map(|name| name.durations.as_ref().map(measure));
        table.with::<OptionalNumber64>(name, values)
    })
}

/// One row for each point of each series. With `align`, times are since the start of the run.
pub(in crate::serve) fn resources(answer: &api::ResourcesAnswer) -> Table {
    let series = &answer.series;
    let points = || series.iter().flat_map(|one| &one.points);
    // Texts of a series are shared by its rows.
    let text = |member: fn(&api::ResourceSeries) -> &str| {
        series
            .iter()
            .flat_map(move |one| repeat_n(Arc::from(member(one)), one.points.len()))
    };
    let table = Table::new("resources", points().count())
        .with_fact(
            "x-emberline-corrupt-files",
            answer.corrupt_files.len() as u64,
        )
        .with::<Text>("worker", text(|one| &one.worker))
        .with::<Text>("host", text(|one| &one.host))
        .with::<Text>("run", text(|one| one.run.as_deref().unwrap_or_default()))
        .with::<Text>("measure", text(|one| &one.measure))
        .with::<Text>("unit", text(|one| &one.unit))
        .with::<Flag>(
            "cumulative",
            series
                .iter()
                .flat_map(|one| repeat_n(one.cumulative, one.points.len())),
        );
    let times = points().map(|point| point.0);
    let table = if answer.align {
        table.with::<OptionalSigned64>("offset_ns", times.map(Some))
    } else {
        table.with::<Time>("time", times.map(Timestamp::from_unix_ns))
    };
    table
        .with::<Fraction>("mean", points().map(|point| point.1))
        .with::<Fraction>("max", points().map(|point| point.2))
        .with::<Fraction>("min", points().map(|point| point.3))
}

/// One row for each transfer. Keys are JSON.
pub(in crate::serve) fn transfers(answer: &api::TransfersAnswer) -> Table {
    let transfers = &answer.transfers;
    let text =
        |member: fn(&api::Transfer) -> &str| transfers.iter().map(move |one| member(one).into());
    let time = |ns: fn(&api::Transfer) -> i64| {
        transfers
            .iter()
            .map(move |one| Timestamp::from_unix_ns(ns(one)))
    };
    Table::new("transfers", transfers.len())
        .with_fact("x-emberline-total", answer.total)
        .with_fact(
            "x-emberline-corrupt-files",
            answer.corrupt_files.len() as u64,
        )
        .with::<Text>("worker", text(|one| &one.worker))
        .with::<Text>("epoch", text(|one| &one.epoch))
        .with::<Number64>("id", transfers.iter().map(|one| one.id))
        .with::<Text>("direction", text(|one| &one.direction))
        .with::<Text>("peer", text(|one| &one.peer))
        .with::<Text>("keys", transfers.iter().map(|one| json(&one.keys)))
        .with::<Number64>("more_keys", transfers.iter().map(|one| one.more_keys))
        .with::<Text>("type_name", text(|one| &one.type_name))
        .with::<Number64>("bytes", transfers.iter().map(|one| one.bytes))
        .with::<OptionalNumber64>(
            "compressed_bytes",
            transfers.iter().map(|one| one.compressed_bytes),
        )
        .with::<Time>("start", time(|one| one.start_ns))
        .with::<Time>("stop", time(|one| one.stop_ns))
        .with::<Number64>("duration_ns", transfers.iter().map(|one| one.duration_ns))
        .with::<OptionalNumber64>("bandwidth", transfers.iter().map(|one| one.bandwidth))
        .with::<OptionalNumber64>("task_id", transfers.iter().map(|one| one.task_id))
        .with::<Number32>("thread_id", transfers.iter().map(|one| one.thread_id))
        .with::<Text>("outcome", text(|one| &one.outcome))
        .with::<Text>("cause", text(|one| &one.cause))
}

/// One row for each step of each task.
pub(in crate::serve) fn timeline(answer: &api::TimelineAnswer) -> Table {
    let series = &answer.series;
    let steps = usize::try_from(answer.steps).expect("there are few steps");
    let text = |member: fn(&api::Series) -> &str| {
        series
            .iter()
            .flat_map(move |one| repeat_n(Arc::from(member(one)), steps))
    };
    let step_ns = i64::try_from(answer.step_ns).unwrap_or(i64::MAX);
    let starts = (0..answer.steps.cast_signed())
        .map(|step| answer.first_ns.saturating_add(step.saturating_mul(step_ns)))
        .map(Timestamp::from_unix_ns);
    let table = Table::new("timeline", series.len() * steps)
        .with_fact(
            "x-emberline-corrupt-files",
            answer.corrupt_files.len() as u64,
        )
        .with::<Text>("kind", text(|one| &one.kind))
        .with::<Text>("name", text(|one| &one.name))
        .with::<Time>("start", series.iter().flat_map(|_| starts.clone()));
    type Weights = fn(&api::Series) -> Option<&Vec<u64>>;
    const STATES: [(&str, Weights); 9] = [
        ("cpu_ns", |one| Some(&one.cpu_ns)),
        ("runnable_ns", |one| Some(&one.runnable_ns)),
        ("wait_ns", |one| Some(&one.wait_ns)),
        ("lock_ns", |one| one.lock_ns.as_ref()),
        ("interpreter_ns", |one| one.interpreter_ns.as_ref()),
        ("sleep_ns", |one| one.sleep_ns.as_ref()),
        ("network_ns", |one| one.network_ns.as_ref()),
        ("disk_ns", |one| one.disk_ns.as_ref()),
        ("other_ns", |one| one.other_ns.as_ref()),
    ];
    STATES.into_iter().fold(table, |table, (name, of_state)| {
        let values = series.iter().flat_map(|one| {
            let weights = of_state(one);
            (0..steps).map(move |step| weights.map_or(0, |weights| weights[step]))
        });
        table.with::<Number64>(name, values)
    })
}

/// One row for each function, and for each task or other level above functions; by self time.
pub(in crate::serve) fn functions(profile: &Profile) -> Table {
    let mut functions = function_times(profile);
    functions.retain(|function| function.total_ns > 0);
    functions.sort_by_cached_key(|one| {
        let FunctionTime {
            frame,
            own,
            total_ns,
        } = one;
        let place = (frame.file.to_owned(), frame.line, frame.module.to_owned());
        (
            Reverse(own.total_ns()),
            Reverse(*total_ns),
            frame.label(),
            place,
        )
    });
    let rows = || functions.iter();
    let table = Table::new("functions", functions.len())
        .with::<Text>("kind", rows().map(|one| one.kind().into()))
        .with::<Text>("name", rows().map(|one| one.frame.label().into()))
        .with::<Text>("crate", rows().map(|one| one.owner().into()))
        .with::<Text>(
            "file",
            rows().map(|one| portable_file(one.frame.file).into()),
        )
        .with::<Number32>("line", rows().map(|one| one.frame.line))
        .with::<Text>("module", rows().map(|one| one.frame.module.into()))
        .with::<Number64>("self_ns", rows().map(|one| one.own.total_ns()))
        .with::<Number64>("total_ns", rows().map(|one| one.total_ns));
    const SELF_NAMES: [(State, &str); State::ALL.len()] = [
        (State::Cpu, "self_cpu_ns"),
        (State::Runnable, "self_runnable_ns"),
        (State::Lock, "self_lock_ns"),
        (State::Interpreter, "self_interpreter_ns"),
        (State::Sleep, "self_sleep_ns"),
        (State::Network, "self_network_ns"),
        (State::Disk, "self_disk_ns"),
        (State::Other, "self_other_ns"),
    ];
    SELF_NAMES.into_iter().fold(table, |table, (state, name)| {
        table.with::<Number64>(name, rows().map(|one| one.own.get(state)))
    })
}
