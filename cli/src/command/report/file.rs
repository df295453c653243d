//! The JSON of a report, read back.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use api::{TaskColumnsAnswer, TaskSummaryAnswer, TimelineAnswer, Totals};
use collector::{EndedTask, EndedTasksOf};
use flamegraph::ParsedColumns;
use profiler_core::{Outcome, Profile, TimeRange, Timestamp};
use serde::Deserialize;

use crate::exit::BadInput;

/// Largest file that is read: fifty times what 200,000 tasks and three profiles need.
const REPORT_BYTES_MAX: u64 = 1 << 30;

/// The parts of a report that a comparison needs.
#[derive(Deserialize)]
pub(super) struct ReportFile {
    pub(super) about: About,
    pub(super) timeline: TimelineAnswer,
    pub(super) summary: TaskSummaryAnswer,
    pub(super) columns: TaskColumnsAnswer,
    pub(super) profile: ProfilePart,
    pub(super) blocked: ProfilePart,
}

/// Metadata of a report.
#[derive(Deserialize)]
pub(super) struct About {
    pub(super) run: Option<String>,
}

/// A profile with its sums.
#[derive(Deserialize)]
pub(super) struct ProfilePart {
    pub(super) totals: Totals,
    profile: ParsedColumns,
}

impl ReportFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`BadInput`] if it is not the JSON of a report.
    pub(super) fn read(path: &Path) -> anyhow::Result<ReportFile> {
        let shown = path.display();
        let failed = || format!("could not read {shown}");
        let mut json = Vec::new();
        let file = File::open(path).with_context(failed)?;
        file.take(REPORT_BYTES_MAX + 1)
            .read_to_end(&mut json)
            .with_context(failed)?;
        if json.len() as u64 > REPORT_BYTES_MAX {
            let text = format!("{shown} is larger than 1 GiB, which no report is");
            return Err(BadInput(text).into());
        }
        if json.trim_ascii_start().starts_with(b"<") {
            let text = format!(
                "{shown} is a document; expected the JSON that `emberline report` wrote next to it: {}",
                path.with_extension("json").display()
            );
            return Err(BadInput(text).into());
        }
        Ok(serde_json::from_slice(&json).map_err(|error: serde_json::Error| {
            BadInput(format!(
                "{shown} is not the JSON of a whole report, which `emberline report -o report.html` \
                 writes next to it: {error}"
            ))
        })?)
    }

    /// The tasks that ended.
    ///
    /// # Errors
    /// [`BadInput`] if its columns do not fit each other.
    pub(super) fn ended_tasks(&self) -> Result<EndedTasksOf, BadInput> {
        let TaskColumnsAnswer {
            outcomes,
            names,
            first_ns,
            columns,
            ..
        } = &self.columns;
        let range = &self.timeline.range;
        let at = Timestamp::from_unix_ns;
        let range = TimeRange::new(at(range.from_ns), at(range.to_ns))
            .ok_or_else(|| invalid("its range ends before it starts"))?;
        let count = columns.id.len();
        let lengths = [
            columns.earlier_us.len(),
            columns.duration_us.len(),
            columns.name.len(),
        ];
        if lengths
            .iter()
            .chain([&columns.outcome.len()])
            .any(|length| *length != count)
        {
            return Err(invalid("the columns of its tasks differ in length"));
        }
        let names: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
        let outcomes: Vec<Option<Outcome>> = outcomes.iter().map(|word| outcome(word)).collect();
        let mut start_us = first_ns.unwrap_or(0).div_euclid(1_000);
        let mut tasks = Vec::with_capacity(count);
        for task in 0..count {
            start_us = start_us.saturating_sub_unsigned(columns.earlier_us[task]);
            let duration_us = columns.duration_us[task];
            let outcome = outcomes
                .get(usize::from(columns.outcome[task]))
                .copied()
                .flatten()
                .ok_or_else(|| invalid("a task has an unknown outcome"))?;
            let name = names
                .get(columns.name[task] as usize)
                .ok_or_else(|| invalid("a task has no name"))?
                .clone();
            let stop = at(start_us
                .saturating_add_unsigned(duration_us)
                .saturating_mul(1_000));
            let duration_ns = duration_us.saturating_mul(1_000);
            if outcome != Outcome::Running {
                tasks.push(EndedTask {
                    name,
                    stop,
                    outcome,
                    duration_ns,
                });
            }
        }
        Ok(EndedTasksOf { range, tasks })
    }

    /// The program's samples, on CPU and waiting.
    pub(super) fn samples(&self) -> Profile {
        self.profile.profile.0.merge(&self.blocked.profile.0)
    }
}

fn invalid(what: &str) -> BadInput {
    BadInput(format!("invalid report: {what}"))
}

fn outcome(word: &str) -> Option<Outcome> {
    Outcome::ALL
        .into_iter()
        .find(|outcome| outcome.name() == word)
}
