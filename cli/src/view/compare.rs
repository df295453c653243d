//! Task names on two sides, and the functions that changed.

use std::collections::BTreeMap;

use api::{DurationChange, FailureChange, NameComparison, TaskComparisonAnswer};
use flamegraph::symbols::label;
use flamegraph::text::{cell, duration};
use profiler_core::{FrameKind, Profile, State, Weight};
use serde::{Serialize, Serializer};

use super::{corrupt_files, counted, digits, grouped, or_dash, range, rounded_percent};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// Columns of names, so that rows fit into 80.
const TASK_COLUMNS: usize = 18;
const FUNCTION_COLUMNS: usize = 40;

/// Functions for each name.
const FUNCTIONS: usize = 8;

/// The rows to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// All rows of names with a change beyond noise, the median of the others.
    Changes,
    /// All rows of all names.
    All,
}

/// Lines for stderr.
pub(crate) fn notes(answer: &TaskComparisonAnswer) -> Vec<String> {
    let mut notes = vec![
        format!("before: {}", range(&answer.before)),
        format!("after:  {}", range(&answer.after)),
    ];
    if answer.names.is_empty() {
        notes.push("no tasks ended in either range".to_owned());
    }
    if answer.omitted > 0 {
        let names = counted(answer.omitted, "more name");
        notes.push(format!(
            "{names} with smaller changes or tasks on one side only; --limit shows more"
        ));
    }
    notes.extend(corrupt_files(&answer.corrupt_files));
    notes
}

/// A table of names, those that got slower first.
pub(crate) fn comparison(answer: &TaskComparisonAnswer, shown: Shown) -> String {
    if answer.names.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&[
        ("TASK", Left),
        ("", Left),
        ("BEFORE", Right),
        ("AFTER", Right),
        ("CHANGE", Right),
        ("VERDICT", Left),
    ]);
    for name in &answer.names {
        let rows = rows(name);
        let is_changed = ["slower", "mixed", "faster"].contains(&&*name.verdict)
            || ["more", "fewer"].contains(&&*name.failures.verdict);
        let count = if is_changed || shown == Shown::All {
            rows.len()
        } else {
            1
        };
        let mut title = cell(&name.name, TASK_COLUMNS);
        for row in rows.into_iter().take(count) {
            let [what, before, after, change, verdict] = row;
            grid.push([
                std::mem::take(&mut title),
                what,
                before,
                after,
                change,
                verdict,
            ]);
        }
    }
    grid.text()
}

/// Rows of the table: compared quantity, before, after, change, verdict.
fn rows(name: &NameComparison) -> [[String; 5]; 5] {
    let NameComparison { before, after, .. } = name;
    let quantile = |what: &str, before_ns, after_ns, change: &DurationChange| {
        [
            what.to_owned(),
            or_dash(before_ns, duration),
            or_dash(after_ns, duration),
            or_dash(change.ratio, ratio),
            match &*name.verdict {
                "only_before" => "none after".to_owned(),
                "only_after" => "none before".to_owned(),
                _ => verdict(&change.verdict),
            },
        ]
    };
    let tasks = [
        "tasks".to_owned(),
        grouped(before.ended),
        grouped(after.ended),
        String::new(),
        String::new(),
    ];
    [
        quantile("p50", before.p50_ns, after.p50_ns, &name.p50),
        quantile("p90", before.p90_ns, after.p90_ns, &name.p90),
        quantile("p99", before.p99_ns, after.p99_ns, &name.p99),
        tasks,
        failures(&name.failures),
    ]
}

fn failures(change: &FailureChange) -> [String; 5] {
    let points = change
        .before_share
        .zip(change.after_share)
        .map(|(before, after)| 100.0 * (after - before));
    let is_none = change.p_value.is_none();
    [
        "failed".to_owned(),
        or_dash(change.before_share, percent),
        or_dash(change.after_share, percent),
        or_dash(points.filter(|_| !is_none), signed_points),
        if is_none {
            String::new()
        } else {
            verdict(&change.verdict)
        },
    ]
}

fn percent(share: f64) -> String {
    rounded_percent(100.0 * share)
}

/// `+2.16 pp`: a change of percentages.
fn signed_points(points: f64) -> String {
    let sign = if points < 0.0 { '-' } else { '+' };
    format!("{sign}{} pp", digits(points.abs()))
}

/// `×2.01`, as people say it.
pub(super) fn ratio(ratio: f64) -> String {
    format!("×{}", digits(ratio))
}

fn verdict(word: &str) -> String {
    match word {
        "no_change" => "within noise".to_owned(),
        "too_few" => "too few".to_owned(),
        change => format!("{change}, exceeds noise"),
    }
}

/// Self time of functions, per task.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub(crate) struct FunctionChanges {
    /// Whether a side has no samples.
    is_empty: bool,
    /// The largest changes first.
    rows: Vec<FunctionChange>,
}

#[derive(Clone, PartialEq, Serialize, Debug)]
struct FunctionChange {
    name: String,
    /// The state in which most of the change is.
    #[serde(serialize_with = "state_name")]
    state: State,
    before_ns: f64,
    after_ns: f64,
}

fn state_name<S: Serializer>(state: &State, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(state.name())
}

impl FunctionChange {
    fn ns(&self) -> f64 {
        self.after_ns - self.before_ns
    }
}

impl FunctionChanges {
    /// The changes between two profiles of a task, each of that many tasks.
    pub(crate) fn of(before: &Profile, after: &Profile, tasks: [u64; 2]) -> FunctionChanges {
        let diff = before.by_function().diff(&after.by_function());
        let mut sums: BTreeMap<String, (Weight, Weight)> = BTreeMap::new();
        for node in diff.nodes() {
            let frame = diff.frame(node.frame);
            if frame.kind == FrameKind::Task {
                continue;
            }
            let sum = sums.entry(label(&frame)).or_default();
            sum.0 += node.before;
            sum.1 += node.after;
        }
        let [before_tasks, after_tasks] = tasks.map(|tasks| tasks.max(1) as f64);
        let per_task =
            |(before, after): &(Weight, Weight), of: fn(&Weight, State) -> u64, state| {
                (
                    of(before, state) as f64 / before_tasks,
                    of(after, state) as f64 / after_tasks,
                )
            };
        let in_state = |weight: &Weight, state| weight.get(state);
        let in_all = |weight: &Weight, _| weight.total_ns();
        let mut rows: Vec<FunctionChange> = sums
            .iter()
            .map(|(name, sum)| {
                let change = |state: State| {
                    let (before_ns, after_ns) = per_task(sum, in_state, state);
                    (after_ns - before_ns).abs()
                };
                let states = State::ALL.into_iter();
                let state = states.max_by(|a, b| change(*a).total_cmp(&change(*b)));
                let (before_ns, after_ns) = per_task(sum, in_all, State::Cpu);
                FunctionChange {
                    name: name.clone(),
                    state: state.unwrap_or(State::Cpu),
                    before_ns,
                    after_ns,
                }
            })
            // Callers have no time of their own.
            .filter(|row| row.before_ns.max(row.after_ns) >= 1.0)
            .collect();
        rows.sort_by(|a, b| b.ns().abs().total_cmp(&a.ns().abs()));
        let is_empty = before.is_empty() || after.is_empty();
        FunctionChanges { is_empty, rows }
    }
}

/// The functions whose self time per task of this name changed most.
pub(crate) fn explanation(task: &str, changes: &FunctionChanges) -> String {
    let task = cell(task, FUNCTION_COLUMNS);
    if changes.is_empty {
        return format!("{task}: no samples on one side, so no functions to compare\n");
    }
    let mut grid = Grid::new(&[
        ("BEFORE", Right),
        ("AFTER", Right),
        ("CHANGE", Right),
        ("STATE", Left),
        ("FUNCTION", Left),
    ]);
    for change in changes.rows.iter().take(FUNCTIONS) {
        let sign = if change.ns() < 0.0 { '-' } else { '+' };
        grid.push([
            rounded_duration(change.before_ns),
            rounded_duration(change.after_ns),
            format!("{sign}{}", rounded_duration(change.ns().abs())),
            change.state.name().to_owned(),
            cell(&change.name, FUNCTION_COLUMNS),
        ]);
    }
    format!("{task}: self time per task, by function\n{}", grid.text())
}

fn rounded_duration(ns: f64) -> String {
    duration(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use api::TaskStatistics;
    use expect_test::expect;
    use flamegraph::ParsedProfile;

    use super::*;
    use crate::view::tests::range_of_test;

    fn change(before_ns: u64, after_ns: u64, verdict: &'static str) -> DurationChange {
        DurationChange {
            change_ns: Some(after_ns.cast_signed() - before_ns.cast_signed()),
            ratio: Some(after_ns as f64 / before_ns as f64),
            p_value: Some(1e-9),
            verdict: verdict.into(),
        }
    }

    fn answer() -> TaskComparisonAnswer {
        let slower = NameComparison {
            name: "a_name_that_is_too_long_for_its_column".to_owned(),
            verdict: "slower".into(),
            before: statistics(12_045, 1, 10),
            after: statistics(11_045, 250, 20),
            p50: change(10, 20, "slower"),
            p90: change(20, 40, "slower"),
            p99: change(300, 600, "too_few"),
            failures: FailureChange {
                before_share: Some(0.001),
                after_share: Some(0.0226),
                p_value: Some(1e-9),
                verdict: "more".into(),
            },
        };
        let same = NameComparison {
            name: "load".to_owned(),
            verdict: "no_change".into(),
            p50: change(100, 101, "no_change"),
            failures: FailureChange {
                verdict: "no_change".into(),
                ..FailureChange::default()
            },
            ..slower.clone()
        };
        let fresh = NameComparison {
            name: "fresh".to_owned(),
            verdict: "only_after".into(),
            before: TaskStatistics::default(),
            p50: DurationChange::default(),
            p90: DurationChange::default(),
            p99: DurationChange::default(),
            ..same.clone()
        };
        TaskComparisonAnswer {
            before: range_of_test(),
            after: range_of_test(),
            false_alarms: 0.05,
            tests: 9,
            corrupt_files: Vec::new(),
            names: vec![slower, fresh, same],
            omitted: 2,
        }
    }

    fn statistics(ended: u64, failed: u64, scale: u64) -> TaskStatistics {
        TaskStatistics {
            ended,
            failed,
            p50_ns: Some(scale * 1_000_000),
            p90_ns: Some(scale * 2_000_000),
            p99_ns: Some(scale * 30_000_000),
        }
    }

    #[test]
    fn changes_are_in_words_and_fit_80_columns() {
        let text = comparison(&answer(), Shown::Changes);
        expect![[r#"
            TASK                         BEFORE    AFTER    CHANGE  VERDICT
            a_name_th…s_column  p50     10.0 ms  20.0 ms     ×2.00  slower, exceeds noise
                                p90     20.0 ms  40.0 ms     ×2.00  slower, exceeds noise
                                p99      300 ms   600 ms     ×2.00  too few
                                tasks    12,045   11,045
                                failed    0.10%    2.26%  +2.16 pp  more, exceeds noise
            fresh               p50           -  20.0 ms         -  none before
            load                p50     10.0 ms  20.0 ms     ×1.01  within noise
        "#]]
        .assert_eq(&text);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        let all = comparison(&answer(), Shown::All);
        assert_eq!(all.lines().count(), 1 + 3 * 5);
        let last = notes(&answer()).pop().unwrap();
        assert_eq!(
            last,
            "2 more names with smaller changes or tasks on one side only; --limit shows more"
        );
    }

    #[test]
    fn functions_are_ordered_by_their_change_per_task() {
        // Ten tasks before, five after.
        let before = profile(
            r#"{"parent":1,"name":"main","kind":"function"},
               {"parent":2,"name":"read","kind":"function","self":{"cpu":10000000}},
               {"parent":2,"name":"parse","kind":"function","self":{"cpu":50000000}}"#,
        );
        let after = profile(
            r#"{"parent":1,"name":"read","kind":"function","self":{"cpu":5000000,"wait":45000000,"lock":45000000}},
               {"parent":1,"name":"parse","kind":"function","self":{"cpu":20000000}}"#,
        );
        let changes = FunctionChanges::of(&before, &after, [10, 5]);
        expect![[r#"
            load: self time per task, by function
             BEFORE    AFTER    CHANGE  STATE  FUNCTION
            1.00 ms  10.0 ms  +9.00 ms  lock   read
            5.00 ms  4.00 ms  -1.00 ms  cpu    parse
        "#]]
        .assert_eq(&explanation("load", &changes));
        let none = FunctionChanges::of(&before, &Profile::default(), [10, 0]);
        assert!(explanation("load", &none).contains("no samples on one side"));
    }

    fn profile(nodes: &str) -> Profile {
        let text = format!(
            r#"{{"unit":"ns","nodes":[{{"parent":0,"name":"load","kind":"task"}},{nodes}]}}"#
        );
        serde_json::from_str::<ParsedProfile>(&text).unwrap().0
    }
}
