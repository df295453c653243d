//! `emberline report diff`: what changed between two reports, without a collector.

use std::cmp::Reverse;
use std::path::Path;

use anyhow::bail;
use api::{NameComparison, TaskComparisonAnswer};
use collector::compare_ended_tasks;
use profiler_core::{Filter, ThreadKind};
use serde::Serialize;

use super::file::ReportFile;
use crate::args::{ReportDiffArgs, RowFormat};
use crate::command::compare::explained;
use crate::exit::BadInput;
use crate::output::{print, print_json, say, say_wrapped};
use crate::view::compare::{FunctionChanges, Shown, comparison, explanation, notes};
use crate::view::counted;
use crate::view::report_diff::{Total, Unit, totals_text};

/// Changes between two reports, as JSON.
#[derive(Serialize)]
struct Diff<'a> {
    before_run: Option<&'a str>,
    after_run: Option<&'a str>,
    totals: Vec<Total>,
    tasks: &'a TaskComparisonAnswer,
    functions: &'a [TaskFunctions],
}

/// The functions that explain the change of a task name.
#[derive(Serialize)]
struct TaskFunctions {
    task: String,
    functions: FunctionChanges,
}

pub(super) fn run(args: &ReportDiffArgs) -> anyhow::Result<()> {
    let before = ReportFile::read(&args.before)?;
    let after = ReportFile::read(&args.after)?;
    let mut tasks = task_changes(&before, &after)?;
    keep_tasks(&mut tasks, &args.task)?;
    let worse = worse_names(&tasks);
    let functions = function_changes(&before, &after, &tasks, !args.task.is_empty());
    note_what_is_missing(&args.before, &before);
    note_what_is_missing(&args.after, &after);
    if args.format == RowFormat::Json {
        let diff = Diff {
            before_run: before.about.run.as_deref(),
            after_run: after.about.run.as_deref(),
            totals: totals(&before, &after),
            tasks: &tasks,
            functions: &functions,
        };
        print_json(serde_json::to_vec(&diff)?)?;
    } else {
        let limit = args.limit as usize;
        tasks.omitted = tasks.names.len().saturating_sub(limit) as u64;
        tasks.names.truncate(limit);
        notes(&tasks).iter().for_each(|note| say_wrapped(note));
        let shown = if args.task.is_empty() {
            Shown::Changes
        } else {
            Shown::All
        };
        let mut text = totals_text(&totals(&before, &after));
        text.push('\n');
        text.push_str(&comparison(&tasks, shown));
        for TaskFunctions { task, functions } in &functions {
            text.push('\n');
            text.push_str(&explanation(task, functions));
        }
        print(text.as_bytes())?;
    }
    if args.fail_on_regression && worse > 0 {
        bail!(
            "{} got slower or failed more often, by more than noise",
            counted(worse, "task name")
        );
    }
    Ok(())
}

fn task_changes(before: &ReportFile, after: &ReportFile) -> Result<TaskComparisonAnswer, BadInput> {
    let changes = compare_ended_tasks(&before.ended_tasks()?, &after.ended_tasks()?);
    Ok(TaskComparisonAnswer {
        before: before.timeline.range.clone(),
        after: after.timeline.range.clone(),
        ..changes
    })
}

/// Keeps these names only; all if there are none.
fn keep_tasks(tasks: &mut TaskComparisonAnswer, wanted: &[String]) -> Result<(), BadInput> {
    let unknown = wanted
        .iter()
        .find(|task| !tasks.names.iter().any(|name| name.name == **task));
    if let Some(unknown) = unknown {
        let known: Vec<&str> = tasks
            .names
            .iter()
            .take(20)
            .map(|name| &*name.name)
            .collect();
        let text = format!(
            "no task {unknown:?} in the reports; expected {}",
            known.join(", ")
        );
        return Err(BadInput(text));
    }
    tasks
        .names
        .retain(|name| wanted.is_empty() || wanted.contains(&name.name));
    Ok(())
}

/// The number of names that got worse by more than noise.
fn worse_names(tasks: &TaskComparisonAnswer) -> u64 {
    tasks
        .names
        .iter()
        .filter(|name: &&NameComparison| {
            matches!(&*name.verdict, "slower" | "mixed") || name.failures.verdict == "more"
        })
        .count() as u64
}

fn function_changes(
    before: &ReportFile,
    after: &ReportFile,
    tasks: &TaskComparisonAnswer,
    are_asked_for: bool,
) -> Vec<TaskFunctions> {
    let samples = [before.samples(), after.samples()];
    let of_name = |name: &&NameComparison| {
        let filter = Filter {
            tasks: vec![name.name.clone()],
            threads: ThreadKind::Program,
            ..Filter::default()
        };
        let [before, after] = samples.each_ref().map(|profile| profile.keep(&filter));
        TaskFunctions {
            task: name.name.clone(),
            functions: FunctionChanges::of(&before, &after, [name.before.ended, name.after.ended]),
        }
    };
    explained(tasks, are_asked_for)
        .iter()
        .map(of_name)
        .collect()
}

/// Sums of whole reports.
fn totals(before: &ReportFile, after: &ReportFile) -> Vec<Total> {
    let row = |name: &str, unit, value: fn(&ReportFile) -> u64| Total {
        name: name.to_owned(),
        unit,
        before: value(before),
        after: value(after),
    };
    let mut rows = vec![
        row("length of the range", Unit::Ns, |report| {
            let range = &report.timeline.range;
            range.to_ns.abs_diff(range.from_ns)
        }),
        row("tasks ended", Unit::Count, |report| ended(report, |_| true)),
        row("failed or lost", Unit::Count, |report| {
            ended(report, |outcome| {
                matches!(outcome, "failed" | "panicked" | "lost")
            })
        }),
        row("program on CPU", Unit::Ns, |report| {
            report.profile.totals.cpu_ns
        }),
        row("program waiting", Unit::Ns, |report| {
            report.blocked.totals.wait_ns
        }),
    ];
    rows.extend(phases(before, after));
    rows
}

fn ended(report: &ReportFile, counts: impl Fn(&str) -> bool) -> u64 {
    let outcomes = report.summary.names.iter().flat_map(|name| &name.outcomes);
    outcomes
        .filter(|(outcome, _)| counts(outcome))
        .map(|(_, count)| count)
        .sum()
}

/// Time of all tasks by phase, the longest first.
fn phases(before: &ReportFile, after: &ReportFile) -> Vec<Total> {
    let mut rows: Vec<Total> = Vec::new();
    add_phases(&mut rows, before, |row| &mut row.before);
    add_phases(&mut rows, after, |row| &mut row.after);
    rows.sort_by_key(|row| Reverse(row.before.max(row.after)));
    rows
}

fn add_phases(rows: &mut Vec<Total>, report: &ReportFile, side: fn(&mut Total) -> &mut u64) {
    for phase in report.summary.names.iter().flat_map(|name| &name.phases) {
        let name = format!("phase {}", phase.name);
        let known = rows.iter().position(|row| row.name == name);
        let at = known.unwrap_or_else(|| {
            rows.push(Total {
                name,
                unit: Unit::Ns,
                before: 0,
                after: 0,
            });
            rows.len() - 1
        });
        *side(&mut rows[at]) += phase.duration_ns;
    }
}

/// Says which tasks of a report are not compared.
fn note_what_is_missing(path: &Path, report: &ReportFile) {
    let listed = report.columns.columns.id.len() as u64;
    let missing = report.columns.total.saturating_sub(listed) + report.columns.aggregated;
    if missing > 0 {
        say(&format!(
            "{} has rows of its newest {}; {} more are in totals only",
            path.display(),
            counted(listed, "task"),
            counted(missing, "task")
        ));
    }
}

#[cfg(test)]
mod tests {
    use api::{Durations, PhaseSum, TaskColumnsAnswer, TaskName, TaskSummaryAnswer, TaskVectors};
    use api::{TimeRange, TimelineAnswer, Totals};
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::*;

    const TASKS: u64 = 40;
    const SECOND_NS: i64 = 1_000_000_000;

    /// A report of forty tasks `load`, two a second, of this length. Their function is as slow as they are.
    fn report(task_us: u64, failed: u64) -> Value {
        let half_ns = TASKS * task_us * 500;
        let range = TimeRange {
            from: "1970-01-01T00:00:00Z".to_owned(),
            to: "1970-01-01T00:00:20Z".to_owned(),
            to_ns: 20 * SECOND_NS,
            ..TimeRange::default()
        };
        let columns = TaskColumnsAnswer {
            total: TASKS,
            outcomes: vec!["running".into(), "ok".into(), "failed".into()],
            names: vec!["load".to_owned()],
            first_ns: Some(19 * SECOND_NS + SECOND_NS / 2),
            columns: TaskVectors {
                name: vec![0; TASKS as usize],
                thread: vec![0; TASKS as usize],
                id: (0..TASKS).collect(),
                earlier_us: (0..TASKS)
                    .map(|at| if at == 0 { 0 } else { 500_000 })
                    .collect(),
                duration_us: (0..TASKS).map(|at| task_us + at % 3).collect(),
                outcome: (0..TASKS)
                    .map(|at| if at < failed { 2 } else { 1 })
                    .collect(),
            },
            ..TaskColumnsAnswer::default()
        };
        let outcomes = [("ok".into(), TASKS - failed), ("failed".into(), failed)];
        let summary = TaskSummaryAnswer {
            names: vec![TaskName {
                name: "load".to_owned(),
                outcomes: outcomes.into_iter().collect(),
                durations: Some(Durations {
                    count: TASKS,
                    ..Durations::default()
                }),
                phases: vec![PhaseSum {
                    name: "execute".to_owned(),
                    tasks: TASKS,
                    duration_ns: 2 * half_ns,
                }],
                ..TaskName::default()
            }],
            ..TaskSummaryAnswer::default()
        };
        json!({
            "about": {"run": null},
            "timeline": TimelineAnswer { range, ..TimelineAnswer::default() },
            "summary": summary,
            "columns": columns,
            "profile": profile(task_us, "cpu", Totals { cpu_ns: half_ns, ..Totals::default() }),
            "blocked": profile(task_us, "disk", Totals { wait_ns: half_ns, ..Totals::default() }),
        })
    }

    fn profile(task_us: u64, state: &str, totals: Totals) -> Value {
        json!({
            "totals": totals,
            "profile": {
                "unit": "ns",
                "functions": {
                    "names": ["load", "parse"], "kinds": ["task", "function"], "files": ["", ""],
                    "lines": [0, 0], "modules": ["", ""],
                },
                "parents": [1, 1],
                "numbers": [0, 1],
                "self": {state: {"nodes": [2], "ns": [TASKS * task_us * 500]}},
            },
        })
    }

    fn read(report: Value) -> ReportFile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        std::fs::write(&path, report.to_string()).unwrap();
        ReportFile::read(&path).unwrap()
    }

    #[test]
    fn two_reports_are_compared_by_sums_tasks_and_functions() {
        let before = read(report(10_000, 0));
        let after = read(report(30_000, 20));
        let tasks = task_changes(&before, &after).unwrap();
        assert_eq!(worse_names(&tasks), 1);
        let functions = function_changes(&before, &after, &tasks, false);
        let mut text = totals_text(&totals(&before, &after));
        text.push_str(&comparison(&tasks, Shown::Changes));
        text.push_str(&explanation(&functions[0].task, &functions[0].functions));
        expect![[r#"
            TOTAL                BEFORE   AFTER  CHANGE
            length of the range  20.0 s  20.0 s   ×1.00
            tasks ended              40      40   ×1.00
            failed or lost            0      20       -
            program on CPU       200 ms  600 ms   ×3.00
            program waiting      200 ms  600 ms   ×3.00
            phase execute        400 ms  1.20 s   ×3.00
            TASK           BEFORE    AFTER    CHANGE  VERDICT
            load  p50     10.0 ms  30.0 ms     ×3.00  slower, exceeds noise
                  p90     10.0 ms  30.0 ms     ×3.00  slower, exceeds noise
                  p99     10.0 ms  30.0 ms     ×3.00  slower, exceeds noise
                  tasks        40       40
                  failed       0%    50.0%  +50.0 pp  more, exceeds noise
            load: self time per task, by function
             BEFORE    AFTER    CHANGE  STATE  FUNCTION
            10.0 ms  30.0 ms  +20.0 ms  disk   parse
        "#]]
        .assert_eq(&text);
        let json = serde_json::to_string_pretty(&Diff {
            before_run: None,
            after_run: Some("nightly"),
            totals: totals(&before, &after),
            tasks: &TaskComparisonAnswer {
                names: Vec::new(),
                ..tasks
            },
            functions: &functions,
        });
        expect![[r#"
            {
              "before_run": null,
              "after_run": "nightly",
              "totals": [
                {
                  "name": "length of the range",
                  "unit": "ns",
                  "before": 20000000000,
                  "after": 20000000000
                },
                {
                  "name": "tasks ended",
                  "unit": "count",
                  "before": 40,
                  "after": 40
                },
                {
                  "name": "failed or lost",
                  "unit": "count",
                  "before": 0,
                  "after": 20
                },
                {
                  "name": "program on CPU",
                  "unit": "ns",
                  "before": 200000000,
                  "after": 600000000
                },
                {
                  "name": "program waiting",
                  "unit": "ns",
                  "before": 200000000,
                  "after": 600000000
                },
                {
                  "name": "phase execute",
                  "unit": "ns",
                  "before": 400000000,
                  "after": 1200000000
                }
              ],
              "tasks": {
                "before": {
                  "from": "1970-01-01T00:00:00Z",
                  "to": "1970-01-01T00:00:20Z",
                  "from_ns": 0,
                  "to_ns": 20000000000
                },
                "after": {
                  "from": "1970-01-01T00:00:00Z",
                  "to": "1970-01-01T00:00:20Z",
                  "from_ns": 0,
                  "to_ns": 20000000000
                },
                "false_alarms": 0.05,
                "tests": 4,
                "corrupt_files": [],
                "names": [],
                "omitted": 0
              },
              "functions": [
                {
                  "task": "load",
                  "functions": {
                    "is_empty": false,
                    "rows": [
                      {
                        "name": "parse",
                        "state": "disk",
                        "before_ns": 10000000.0,
                        "after_ns": 30000000.0
                      }
                    ]
                  }
                }
              ]
            }"#]]
        .assert_eq(&json.unwrap());
    }

    #[test]
    fn equal_reports_have_no_regression_and_unknown_tasks_are_rejected() {
        let before = read(report(10_000, 3));
        let mut tasks = task_changes(&before, &before).unwrap();
        assert_eq!(
            (worse_names(&tasks), &*tasks.names[0].verdict),
            (0, "no_change")
        );
        let error = keep_tasks(&mut tasks, &["laod".to_owned()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no task \"laod\" in the reports; expected load"
        );
        keep_tasks(&mut tasks, &["load".to_owned()]).unwrap();
        assert_eq!(tasks.names.len(), 1);
    }

    #[test]
    fn columns_that_do_not_fit_each_other_are_rejected() {
        for (path, value, why) in [
            ("/columns/columns/name", json!([]), "differ in length"),
            ("/columns/names", json!([]), "a task has no name"),
            (
                "/columns/outcomes",
                json!(["running", "fine"]),
                "an unknown outcome",
            ),
            ("/timeline/range/to_ns", json!(-1), "ends before it starts"),
        ] {
            let mut report = report(10_000, 0);
            *report.pointer_mut(path).unwrap() = value;
            let Err(error) = read(report).ended_tasks() else {
                panic!("{path} was accepted")
            };
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
