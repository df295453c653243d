//! Writes the bodies as TypeScript for the page. The test fails if the committed file differs; to
//! regenerate it: `UPDATE_EXPECT=1 cargo test -p emberline-api`.

use expect_test::expect_file;
use ts_rs::{Config, TS};

use crate::*;

const HEAD: &str = "\
// @generated from the crate `emberline-api`: bodies of the collector's HTTP API. To regenerate:
// UPDATE_EXPECT=1 cargo test -p emberline-api

import type { State } from './states';
";

/// The declaration of a type with its documentation, a field a line.
fn declaration<T: TS>(config: &Config) -> String {
    let docs = compact(T::docs().unwrap_or_default());
    let mut text = format!("\n{docs}export ");
    let type_declaration = compact(T::decl(config)).replace(", };", ",\n};");
    for (number, line) in type_declaration.lines().enumerate() {
        let is_field = number > 0 && !line.starts_with('}');
        text.push_str(if is_field { "  " } else { "" });
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Comments of one line, and `null` for what has no value.
fn compact(text: String) -> String {
    text.replace("/**\n * ", "/** ")
        .replace("\n */", " */")
        .replace("`None`", "`null`")
}

#[test]
fn the_committed_typescript_is_up_to_date() {
    let config = Config::new().with_large_int("number");
    macro_rules! declarations {
        ($($body:ty),* $(,)?) => { [$(declaration::<$body>(&config)),*].concat() };
    }
    #[rustfmt::skip]
    let declarations = declarations![
        TimeRange, Failure,
        ProfileAnswer, Filter, Hidden, Unnamed, UnnamedModule, Sampling, Totals, TimelineAnswer, Series,
        ThreadTimeAnswer, ThreadTime, ThreadTimePart,
        TasksAnswer, Task, Phase, TaskColumnsAnswer, TaskThread, TaskVectors,
        TaskSummaryAnswer, SampledTask, TaskName, PhaseSum, Durations, ProgressAnswer, Progress,
        TaskComparisonAnswer, NameComparison, TaskStatistics, DurationChange, FailureChange,
        TaskDurationsAnswer, DurationPoint,
        WorkersAnswer, WorkerCounts, WorkerNamesAnswer, WorkerName, LabelCount, QuotaUse, PushCounts, Scrape, Service, Forward, Store, IngestStatus, WorkerEpochs, Epoch, Disconnect, Clock, LossAccount, Retained,
        SettingsChange, SettingsAnswer, WorkerSettings,
        ThreadDumpAnswer, WorkerThreads, ThreadGroup, StackFrame, ThreadSnapshot,
        TransfersAnswer, Transfer, TransferSummaryAnswer, Link, TransferType, LinkSums, Bandwidth,
        ResourcesAnswer, ResourceSeries, RunName, RunsAnswer, Run,
        EventsAnswer, FleetEvent, Update,
        SessionAnswer,
        SqlRequest, SqlFormat, SqlAnswer, SqlCell, SqlColumn,
    ];
    let expected = expect_file!["../../collector/ui/src/core/api.ts"];
    expected.assert_eq(&(HEAD.to_owned() + &declarations));
}
