//! How far the tasks are.

use flamegraph::text::{duration, percent, printable};
use serde::{Deserialize, Serialize};

use super::{Answered, grouped};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// Progress by name of task.
#[derive(Deserialize, Serialize, Debug)]
pub(crate) struct Progress {
    now: String,
    names: Vec<Tasks>,
}

/// The tasks of one name.
#[derive(Deserialize, Serialize, Debug)]
pub(crate) struct Tasks {
    name: String,
    expected: Option<u64>,
    done: u64,
    running: u64,
    erred: u64,
    lost: u64,
    cancelled: u64,
    rate_per_s: Option<f64>,
    remaining_ns: Option<u64>,
    state: String,
}

impl Tasks {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// However they ended.
    pub(crate) fn ended(&self) -> u64 {
        self.done
            .saturating_add(self.erred)
            .saturating_add(self.lost)
            .saturating_add(self.cancelled)
    }

    /// What stands behind a bar.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{} {} running", printable(&self.name), grouped(self.running));
        for (count, what) in [(self.erred, "erred"), (self.lost, "lost")] {
            if count > 0 {
                line += &format!(", {} {what}", grouped(count));
            }
        }
        if let Some(remaining_ns) = self.remaining_ns.filter(|_| self.state == "running") {
            line += &format!(", {} left", duration(remaining_ns));
        }
        line
    }
}

impl Progress {
    pub(crate) fn tasks(&self) -> &[Tasks] {
        &self.names
    }

    /// Whether all that is expected has ended; never while nothing is expected and something runs.
    pub(crate) fn is_done(&self) -> bool {
        let ended = |tasks: &Tasks| match tasks.expected {
            Some(expected) => tasks.ended() >= expected,
            None => tasks.running == 0,
        };
        !self.names.is_empty() && self.names.iter().all(ended)
    }

    /// Tasks that erred or were lost.
    pub(crate) fn failed(&self) -> u64 {
        self.names.iter().map(|tasks| tasks.erred.saturating_add(tasks.lost)).sum()
    }

    /// As the collector says it.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts can be written") + "\n"
    }
}

impl Answered for Progress {
    fn notes(&self) -> Vec<String> {
        let none = "no tasks yet; workers say what they expect by `emberline_agent::expect`";
        self.names.is_empty().then(|| none.to_owned()).into_iter().collect()
    }

    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            ("NAME", Left),
            ("EXPECTED", Right),
            ("DONE", Right),
            ("", Right),
            ("RUNNING", Right),
            ("ERRED", Right),
            ("LOST", Right),
            ("CANCELLED", Right),
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
                grouped(tasks.erred),
                grouped(tasks.lost),
                grouped(tasks.cancelled),
                tasks.rate_per_s.map_or_else(missing, |rate| format!("{rate:.1}")),
                tasks.remaining_ns.map_or_else(missing, duration),
                tasks.state.clone(),
            ]);
        }
        grid.text()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::*;

    fn tasks(name: &str, expected: Option<u64>, [done, running, erred]: [u64; 3]) -> Value {
        json!({"name": name, "expected": expected, "done": done, "running": running,
            "erred": erred, "lost": 0, "cancelled": 0, "rate_per_s": 2.5,
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
            NAME         EXPECTED  DONE        RUNNING  ERRED  LOST  CANCELLED  RATE/s    LEFT  STATE
            load              100    38  40 %        2      2     0          0     2.5  4.00 s  running
            solve\u{1b}         -     7     -        0      0     0          0     2.5       -  running
        "#]]
        .assert_eq(&progress.text());
        assert_eq!(progress.tasks()[0].line(), "load 2 running, 2 erred, 4.00 s left");
        assert_eq!(progress.tasks()[1].line(), "solve\\u{1b} 0 running");
        assert_eq!((progress.failed(), progress.is_done()), (2, false));
    }

    #[test]
    fn it_is_done_when_all_that_is_expected_has_ended() {
        for (names, expected) in [
            (vec![], false),
            (vec![tasks("a", Some(3), [2, 0, 1])], true),
            (vec![tasks("a", Some(4), [2, 0, 1])], false),
            (vec![tasks("a", None, [2, 1, 0])], false),
            (vec![tasks("a", Some(2), [2, 0, 0]), tasks("b", None, [9, 0, 0])], true),
        ] {
            assert_eq!(progress(&names).is_done(), expected, "{names:?}");
        }
    }
}
