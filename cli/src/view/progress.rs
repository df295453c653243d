//! How far the tasks are.

use console::{measure_text_width, pad_str, truncate_str};
use flamegraph::text::{cell, duration, percent};
use serde::{Deserialize, Serialize};

use super::{Answered, grouped};
use crate::grid::Align::{Count, Left, Right};
use crate::grid::Grid;

/// Columns of a bar between its brackets.
const BAR_COLUMNS: usize = 20;
/// Widest name beside a bar, in characters; longer ones lose their middle.
const NAME_COLUMNS_MAX: usize = 24;

/// Progress by name of task.
#[derive(Deserialize, Serialize, Debug)]
pub(crate) struct Progress {
    now: String,
    names: Vec<Tasks>,
}

/// The tasks of one name.
#[derive(Deserialize, Serialize, Debug)]
struct Tasks {
    name: String,
    expected: Option<u64>,
    done: u64,
    running: u64,
    failed: u64,
    lost: u64,
    cancelled: u64,
    rate_per_s: Option<f64>,
    remaining_ns: Option<u64>,
    state: String,
}

impl Tasks {
    /// However they ended.
    fn ended(&self) -> u64 {
        self.done
            .saturating_add(self.failed)
            .saturating_add(self.lost)
            .saturating_add(self.cancelled)
    }

    /// How far they are: a bar if that is known.
    fn bar(&self) -> String {
        let Some(expected) = self.expected else { return String::new() };
        // Rounded down: it is full when all have ended, and no sooner.
        let part = |of: usize| match self.ended() {
            ended if ended < expected => {
                (ended as u128 * of as u128 / u128::from(expected)) as usize
            }
            _ => of,
        };
        let full = part(BAR_COLUMNS);
        let tip = if full < BAR_COLUMNS { ">" } else { "" };
        format!("[{:<BAR_COLUMNS$}] {:>3} %", "#".repeat(full) + tip, part(100))
    }

    fn counts(&self) -> String {
        match self.expected {
            Some(expected) => format!("{} of {}", grouped(self.ended()), grouped(expected)),
            None => grouped(self.ended()),
        }
    }

    /// What else there is to say.
    fn rest(&self) -> String {
        let counts = [(self.running, "running"), (self.failed, "failed"), (self.lost, "lost")];
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let mut parts: Vec<String> =
            counts.map(|(count, what)| format!("{} {what}", grouped(count))).collect();
        if let Some(left_ns) = self.remaining_ns.filter(|left_ns| *left_ns > 0) {
            parts.push(format!("{} left", duration(left_ns)));
        }
        parts.join(", ")
    }
}

impl Progress {
    /// The lines of a picture that fits into a terminal of that size, those of what is expected first.
    pub(crate) fn picture(&self, (lines, columns): (usize, usize)) -> Vec<String> {
        if self.names.is_empty() {
            return vec![truncate_str("no tasks yet", columns, "…").into_owned()];
        }
        let mut tasks: Vec<&Tasks> = self.names.iter().collect();
        tasks.sort_by_key(|tasks| tasks.expected.is_none());
        // One that does not fit takes the line that says so, too.
        let shown = if tasks.len() <= lines { tasks.len() } else { lines.saturating_sub(1) };
        let hidden = tasks.split_off(shown).len();
        let cells = |tasks: &&Tasks| {
            [cell(&tasks.name, NAME_COLUMNS_MAX), tasks.bar(), tasks.counts(), tasks.rest()]
        };
        let rows: Vec<[String; 4]> = tasks.iter().map(cells).collect();
        let width = |column: usize| {
            rows.iter().map(|row| measure_text_width(&row[column])).max().unwrap_or(0)
        };
        let widths = [width(0), width(1), width(2)];
        let line = |row: &[String; 4]| {
            let [name, bar, counts, rest] = row;
            let name = pad_str(name, widths[0], console::Alignment::Left, None);
            let counts = pad_str(counts, widths[2], console::Alignment::Right, None);
            // Without any expectation there are no bars at all.
            let bar = match widths[1] {
                0 => String::new(),
                width => format!("{bar:width$}  "),
            };
            let line = format!("{name}  {bar}{counts}  {rest}");
            truncate_str(line.trim_end(), columns, "…").into_owned()
        };
        let mut picture: Vec<String> = rows.iter().map(line).collect();
        if hidden > 0 && lines > 0 {
            let more = format!("and {hidden} more; --task chooses");
            picture.push(truncate_str(&more, columns, "…").into_owned());
        }
        picture
    }

    /// Whether nothing runs of what was seen.
    pub(crate) fn rests(&self) -> bool {
        !self.names.is_empty() && self.names.iter().all(|tasks| tasks.running == 0)
    }

    /// Whether all that is expected has ended; if nothing is, whether it rests.
    pub(crate) fn is_done(&self) -> bool {
        let mut expected = self.names.iter().filter(|tasks| tasks.expected.is_some()).peekable();
        match expected.peek() {
            Some(_) => expected.all(|tasks| tasks.ended() >= tasks.expected.unwrap_or(0)),
            None => self.rests(),
        }
    }

    /// Tasks that failed or were lost.
    pub(crate) fn failed(&self) -> u64 {
        self.names.iter().map(|tasks| tasks.failed.saturating_add(tasks.lost)).sum()
    }

    /// As the collector says it.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts can be written") + "\n"
    }
}

impl Answered for Progress {
    fn notes(&self) -> Vec<String> {
        let none = "no tasks yet; workers say what they expect by `emberline_agent::expect_tasks`";
        self.names.is_empty().then(|| none.to_owned()).into_iter().collect()
    }

    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            ("NAME", Left),
            ("EXPECTED", Right),
            ("DONE", Right),
            ("PART", Right),
            ("RUNNING", Right),
            ("ERRED", Count),
            ("LOST", Count),
            ("CANCELLED", Count),
            ("RATE/s", Right),
            ("LEFT", Right),
            ("STATE", Left),
        ]);
        for tasks in &self.names {
            let share = |expected| format!("{:.0} %", percent(tasks.ended(), expected));
            let missing = || "-".to_owned();
            grid.push([
                tasks.name.clone(),
                tasks.expected.map_or_else(missing, grouped),
                grouped(tasks.done),
                tasks.expected.map_or_else(missing, share),
                grouped(tasks.running),
                grouped(tasks.failed),
                grouped(tasks.lost),
                grouped(tasks.cancelled),
                tasks.rate_per_s.map_or_else(missing, |rate| format!("{rate:.1}")),
                tasks.remaining_ns.filter(|left| *left > 0).map_or_else(missing, duration),
                tasks.state.clone(),
            ]);
        }
        grid.text()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    fn tasks(name: &str, expected: Option<u64>, [done, running, failed]: [u64; 3]) -> Value {
        json!({"name": name, "expected": expected, "done": done, "running": running,
            "failed": failed, "lost": 0, "cancelled": 0, "rate_per_s": 2.5,
            "remaining_ns": expected.map(|_| 4_000_000_000_u64), "state": "running"})
    }

    fn progress(names: &[Value]) -> Progress {
        serde_json::from_value(json!({"now": "2026-01-31T12:00:00Z", "names": names})).unwrap()
    }

    #[test]
    fn a_row_says_how_far_and_how_long() {
        let progress = progress(&[
            tasks("load", Some(100), [38, 2, 2]),
            tasks("solve\u{1b}", None, [7, 0, 0]),
        ]);
        expect![[r#"
            NAME         EXPECTED  DONE  PART  RUNNING  ERRED  RATE/s    LEFT  STATE
            load              100    38  40 %        2      2     2.5  4.00 s  running
            solve\u{1b}         -     7     -        0      0     2.5       -  running
        "#]]
        .assert_eq(&progress.text());
        assert_eq!((progress.failed(), progress.is_done()), (2, false));
    }

    fn check_picture(names: &[Value], size: (usize, usize), expected: Expect) {
        let picture = progress(names).picture(size);
        assert!(
            picture.len() <= size.0
                && picture.iter().all(|line| measure_text_width(line) <= size.1)
        );
        expected.assert_eq(&(picture.join("\n") + "\n"));
    }

    #[test]
    fn a_picture_fits_the_terminal_and_has_what_is_expected_first() {
        let names = [
            tasks("größe", None, [16_642, 0, 0]),
            tasks("load", Some(100), [38, 2, 2]),
            tasks("多多\u{1b}[2J\n", Some(3), [3, 0, 0]),
            tasks(&"long".repeat(20), Some(1_000_000), [999_999, 1_000, 0]),
        ];
        check_picture(
            &names,
            (24, 80),
            expect![[r#"
            load                      [########>           ]  40 %             40 of 100  2…
            多多\u{1b}[2J\n           [####################] 100 %                3 of 3  4…
            longlonglong…onglonglong  [###################>]  99 %  999,999 of 1,000,000  1…
            größe                                                                 16,642
        "#]],
        );
        check_picture(
            &names,
            (3, 40),
            expect![[r#"
            load             [########>           ]…
            多多\u{1b}[2J\n  [####################]…
            and 2 more; --task chooses
        "#]],
        );
        check_picture(
            &names[..1],
            (1, 80),
            expect![[r#"
            größe  16,642
        "#]],
        );
        check_picture(
            &[],
            (9, 5),
            expect![[r#"
            no t…
        "#]],
        );
        assert!(progress(&names).picture((0, 0)).is_empty());
    }

    #[test]
    fn it_is_done_when_all_that_is_expected_has_ended() {
        for (names, expected) in [
            (vec![], false),
            (vec![tasks("a", Some(3), [2, 0, 1])], true),
            (vec![tasks("a", Some(4), [2, 0, 1])], false),
            (vec![tasks("a", None, [2, 1, 0])], false),
            (vec![tasks("a", None, [2, 0, 0])], true),
            (vec![tasks("a", Some(2), [2, 0, 0]), tasks("b", None, [9, 0, 0])], true),
            // A service that never rests keeps nobody from being done.
            (vec![tasks("a", Some(2), [2, 0, 0]), tasks("b", None, [9, 1, 0])], true),
            (vec![tasks("a", Some(2), [2, 0, 0]), tasks("b", Some(3), [2, 1, 0])], false),
        ] {
            assert_eq!(progress(&names).is_done(), expected, "{names:?}");
            let runs = names.is_empty() || names.iter().any(|tasks| tasks["running"] != 0);
            assert_eq!(progress(&names).rests(), !runs, "{names:?}");
        }
    }
}
