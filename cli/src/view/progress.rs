//! Progress of the tasks.

use api::{Progress, ProgressAnswer};
use console::{Alignment, measure_text_width, pad_str, truncate_str};
use flamegraph::text::{cell, duration};

use super::{View, counted, digits, grouped, or_dash, percentage};
use crate::grid::Align::{Count, Left, Right};
use crate::grid::Grid;

/// Columns of a bar between its brackets.
const BAR_COLUMNS: usize = 20;
/// Widest name next to a bar, in characters; longer ones lose their middle.
const NAME_COLUMNS_MAX: usize = 24;

/// Tasks that have ended, in any way.
fn ended(tasks: &Progress) -> u64 {
    let others = [tasks.failed, tasks.lost, tasks.cancelled];
    others.into_iter().fold(tasks.done, u64::saturating_add)
}

/// A bar, if it is known how many tasks are expected.
fn bar(tasks: &Progress) -> String {
    let Some(expected) = tasks.expected else {
        return String::new();
    };
    let ended = ended(tasks);
    // Rounded down, so that the bar is full only when all have ended.
    let part = |of: usize| {
        if ended >= expected {
            return of;
        }
        (ended as u128 * of as u128 / u128::from(expected)) as usize
    };
    let full = part(BAR_COLUMNS);
    let tip = if full < BAR_COLUMNS { ">" } else { "" };
    format!(
        "[{:<BAR_COLUMNS$}] {:>3}%",
        "#".repeat(full) + tip,
        part(100)
    )
}

fn counts(tasks: &Progress) -> String {
    let ended = grouped(ended(tasks));
    match tasks.expected {
        Some(expected) => format!("{ended} of {}", grouped(expected)),
        None => ended,
    }
}

/// Counts other than 0, and the remaining time.
fn details(tasks: &Progress) -> String {
    let counts = [
        (tasks.running, "running"),
        (tasks.failed, "failed"),
        (tasks.lost, "lost"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = counts
        .map(|(count, outcome)| format!("{} {outcome}", grouped(count)))
        .collect();
    if let Some(remaining_ns) = tasks.remaining_ns.filter(|ns| *ns > 0) {
        parts.push(format!("{} left", duration(remaining_ns)));
    }
    parts.join(", ")
}

/// The lines of a picture that fits into a terminal of that size, expected tasks first.
pub(crate) fn picture(progress: &ProgressAnswer, lines: usize, columns: usize) -> Vec<String> {
    let truncated = |text: &str| truncate_str(text, columns, "…").into_owned();
    if progress.names.is_empty() {
        return vec![truncated("no tasks yet")];
    }
    let mut tasks: Vec<&Progress> = progress.names.iter().collect();
    tasks.sort_by_key(|tasks| tasks.expected.is_none());
    // If not all fit, the last line counts the hidden ones.
    let shown = if tasks.len() <= lines {
        tasks.len()
    } else {
        lines.saturating_sub(1)
    };
    let hidden = tasks.split_off(shown).len();
    let rows: Vec<[String; 4]> = tasks
        .iter()
        .map(|tasks: &&Progress| {
            [
                cell(&tasks.name, NAME_COLUMNS_MAX),
                bar(tasks),
                counts(tasks),
                details(tasks),
            ]
        })
        .collect();
    let width = |column: usize| {
        rows.iter()
            .map(|row| measure_text_width(&row[column]))
            .max()
            .unwrap_or(0)
    };
    let name_width = width(0);
    let bar_width = width(1);
    let count_width = width(2);
    let mut picture: Vec<String> = rows
        .iter()
        .map(|[name, bar, counts, details]: &[String; 4]| {
            let name = pad_str(name, name_width, Alignment::Left, None);
            let counts = pad_str(counts, count_width, Alignment::Right, None);
            let bar = if bar_width == 0 {
                String::new()
            } else {
                format!("{bar:bar_width$}  ")
            };
            truncated(format!("{name}  {bar}{counts}  {details}").trim_end())
        })
        .collect();
    if hidden > 0 && lines > 0 {
        picture.push(truncated(&format!("and {hidden} more; --task selects")));
    }
    picture
}

/// Whether tasks were seen, and none of them runs.
pub(crate) fn is_idle(progress: &ProgressAnswer) -> bool {
    !progress.names.is_empty() && progress.names.iter().all(|tasks| tasks.running == 0)
}

/// Whether all expected tasks have ended; without expectations, whether the fleet is idle.
pub(crate) fn is_done(progress: &ProgressAnswer) -> bool {
    let mut expected = progress
        .names
        .iter()
        .filter_map(|tasks| Some((ended(tasks), tasks.expected?)))
        .peekable();
    match expected.peek() {
        Some(_) => expected.all(|(ended, expected)| ended >= expected),
        None => is_idle(progress),
    }
}

/// Tasks that failed or were lost.
pub(crate) fn failed(progress: &ProgressAnswer) -> u64 {
    progress
        .names
        .iter()
        .map(|tasks| tasks.failed.saturating_add(tasks.lost))
        .sum()
}

impl View for ProgressAnswer {
    fn notes(&self) -> Vec<String> {
        let none = "no tasks yet; workers announce theirs by `emberline_agent::expect_tasks`";
        let mut notes = Vec::new();
        if self.omitted > 0 {
            notes.push(format!(
                "{} of the oldest are not counted: too many are expected since different times; select \
                 them with --task",
                counted(self.omitted, "name")
            ));
        }
        notes.extend(self.names.is_empty().then(|| none.to_owned()));
        notes
    }

    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            ("NAME", Left),
            ("EXPECTED", Right),
            ("DONE", Right),
            ("DONE %", Right),
            ("RUNNING", Right),
            ("FAILED", Count),
            ("LOST", Count),
            ("CANCELLED", Count),
            ("RATE/s", Right),
            ("ETA", Right),
            ("STATE", Left),
        ]);
        for tasks in &self.names {
            grid.push([
                tasks.name.clone(),
                or_dash(tasks.expected, grouped),
                grouped(tasks.done),
                or_dash(tasks.expected, |expected| {
                    percentage(ended(tasks), expected)
                }),
                grouped(tasks.running),
                grouped(tasks.failed),
                grouped(tasks.lost),
                grouped(tasks.cancelled),
                or_dash(tasks.rate_per_s, digits),
                or_dash(tasks.remaining_ns.filter(|ns| *ns > 0), duration),
                tasks.state.to_string(),
            ]);
        }
        grid.text()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn tasks(name: &str, expected: Option<u64>, [done, running, failed]: [u64; 3]) -> Progress {
        Progress {
            name: name.to_owned(),
            expected,
            done,
            running,
            failed,
            rate_per_s: Some(2.5),
            remaining_ns: expected.map(|_| 4_000_000_000),
            state: "running".into(),
            ..Progress::default()
        }
    }

    fn progress(names: &[Progress]) -> ProgressAnswer {
        ProgressAnswer {
            names: names.to_vec(),
            ..ProgressAnswer::default()
        }
    }

    #[test]
    fn a_row_shows_counts_rate_and_remaining_time() {
        let progress = progress(&[
            tasks("load", Some(100), [38, 2, 2]),
            tasks("solve\u{1b}", None, [7, 0, 0]),
        ]);
        expect![[r#"
            NAME         EXPECTED  DONE  DONE %  RUNNING  FAILED  RATE/s     ETA  STATE
            load              100    38   40.0%        2       2    2.50  4.00 s  running
            solve\u{1b}         -     7       -        0       0    2.50       -  running
        "#]]
        .assert_eq(&progress.text());
        assert_eq!((failed(&progress), is_done(&progress)), (2, false));
    }

    fn check_picture(names: &[Progress], lines: usize, columns: usize, expected: Expect) {
        let picture = picture(&progress(names), lines, columns);
        assert!(picture.len() <= lines);
        assert!(
            picture
                .iter()
                .all(|line| measure_text_width(line) <= columns)
        );
        expected.assert_eq(&(picture.join("\n") + "\n"));
    }

    #[test]
    fn a_picture_fits_the_terminal_with_expected_tasks_first() {
        let names = [
            tasks("größe", None, [16_642, 0, 0]),
            tasks("load", Some(100), [38, 2, 2]),
            tasks("多多\u{1b}[2J\n", Some(3), [3, 0, 0]),
            tasks(&"long".repeat(20), Some(1_000_000), [999_999, 1_000, 0]),
        ];
        check_picture(
            &names,
            24,
            80,
            expect![[r#"
                load                      [########>           ]  40%             40 of 100  2 …
                多多\u{1b}[2J\n           [####################] 100%                3 of 3  4.…
                longlonglong…onglonglong  [###################>]  99%  999,999 of 1,000,000  1,…
                größe                                                                16,642
            "#]],
        );
        check_picture(
            &names,
            3,
            40,
            expect![[r#"
            load             [########>           ]…
            多多\u{1b}[2J\n  [####################]…
            and 2 more; --task selects
        "#]],
        );
        check_picture(
            &names[..1],
            1,
            80,
            expect![[r#"
            größe  16,642
        "#]],
        );
        check_picture(
            &[],
            9,
            5,
            expect![[r#"
            no t…
        "#]],
        );
        assert!(picture(&progress(&names), 0, 0).is_empty());
    }

    #[test]
    fn progress_is_done_when_all_expected_tasks_have_ended() {
        for (names, expected) in [
            (vec![], false),
            (vec![tasks("a", Some(3), [2, 0, 1])], true),
            (vec![tasks("a", Some(4), [2, 0, 1])], false),
            (vec![tasks("a", None, [2, 1, 0])], false),
            (vec![tasks("a", None, [2, 0, 0])], true),
            (
                vec![tasks("a", Some(2), [2, 0, 0]), tasks("b", None, [9, 0, 0])],
                true,
            ),
            // A service that is never idle does not keep the rest from being done.
            (
                vec![tasks("a", Some(2), [2, 0, 0]), tasks("b", None, [9, 1, 0])],
                true,
            ),
            (
                vec![
                    tasks("a", Some(2), [2, 0, 0]),
                    tasks("b", Some(3), [2, 1, 0]),
                ],
                false,
            ),
        ] {
            assert_eq!(is_done(&progress(&names)), expected, "{names:?}");
            let idle = !names.is_empty() && names.iter().all(|tasks| tasks.running == 0);
            assert_eq!(is_idle(&progress(&names)), idle, "{names:?}");
        }
    }
}
