//! Conversions to the bodies of the HTTP API ([`api`]).

mod events;
mod profile;
mod svg;
mod symbols;
mod task_columns;
mod tasks;
mod telemetry;
mod thread_dump;
mod thread_time;
mod timeline;
mod workers;

use api::Word;
use profiler_core::{Filter, State, StateSet, ThreadKind, TimeRange, Weight};

pub(crate) use self::events::{events, subject};
pub(crate) use self::profile::{profile, with_profile};
pub(crate) use self::svg::{export_options, svg_options};
pub(crate) use self::symbols::{
    symbols, symbols_received, symbols_removed, symbols_verified, unnamed,
};
pub(crate) use self::task_columns::TaskColumnsBody;
pub(crate) use self::tasks::{
    TasksBody, progress, task_comparison, task_durations, task_summary, tasks,
};
pub(crate) use self::telemetry::{resources, run, runs, transfer_summary, transfers};
pub(crate) use self::thread_dump::thread_dump;
pub(crate) use self::thread_time::thread_time;
pub(crate) use self::timeline::timeline;
pub(crate) use self::workers::{settings, workers};
pub(crate) use front::answer::{json, json_text};
use query::{Sampling, format_time};

fn time_range(range: TimeRange) -> api::TimeRange {
    api::TimeRange {
        from: format_time(range.start()),
        to: format_time(range.stop()),
        from_ns: range.start().unix_ns(),
        to_ns: range.stop().unix_ns(),
    }
}

fn filter(filter: &Filter) -> api::Filter {
    let threads = match filter.threads {
        ThreadKind::Program => "program",
        ThreadKind::Agent => "agent",
        ThreadKind::All => "all",
    };
    api::Filter {
        tasks: filter.tasks.clone(),
        workers: filter.workers.clone(),
        states: state_names(filter.states),
        threads: threads.into(),
    }
}

fn state_names(states: StateSet) -> Vec<Word> {
    states.states().map(|state| state.name().into()).collect()
}

fn totals(weight: Weight) -> api::Totals {
    api::Totals {
        cpu_ns: weight.get(State::Cpu),
        runnable_ns: weight.get(State::Runnable),
        lock_ns: weight.get(State::Lock),
        interpreter_ns: weight.get(State::Interpreter),
        sleep_ns: weight.get(State::Sleep),
        network_ns: weight.get(State::Network),
        disk_ns: weight.get(State::Disk),
        other_ns: weight.get(State::Other),
        wait_ns: weight.wait_ns(),
        total_ns: weight.total_ns(),
    }
}

fn sampling(sampling: &Sampling) -> api::Sampling {
    api::Sampling {
        worker_seconds: sampling.windows,
        sampled_ns: sampling.sampled_ns,
        ticks: sampling.ticks.made,
        ticks_expected: sampling.ticks.expected,
        ticks_throttled: sampling.ticks.throttled,
        ticks_missed: sampling.ticks.missed(),
        achieved_rate_hz: sampling.rate_hz(),
        achieved_share: sampling.share(),
    }
}
