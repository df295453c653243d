//! Where the time of threads went.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use api::{ThreadTime, ThreadTimeAnswer, ThreadTimePart};
use flamegraph::text::duration;
use serde::Deserialize;

use super::{View, corrupt_files, percentage, range};
use crate::grid::Align::{self, Left, Right};
use crate::grid::Grid;

/// The states of a thread, and their columns.
const STATES: [(&str, &str); 8] = [
    ("cpu", "CPU"),
    ("runnable", "RUNNABLE"),
    ("lock", "LOCK"),
    ("interpreter", "GIL"),
    ("sleep", "SLEEP"),
    ("network", "NETWORK"),
    ("disk", "DISK"),
    ("other", "OTHER"),
];

/// Time by task and phase, over all threads.
#[derive(Deserialize, Debug)]
#[serde(transparent)]
pub(crate) struct ByPhase(ThreadTimeAnswer);

/// Time by thread or worker.
#[derive(Deserialize, Debug)]
#[serde(transparent)]
pub(crate) struct ByThread(ThreadTimeAnswer);

/// Time by state.
#[derive(Default)]
struct Split {
    by_state: [u64; STATES.len()],
    /// In states that this version does not know.
    unknown_ns: u64,
}

impl Split {
    fn add(&mut self, part: &ThreadTimePart) {
        let state = STATES.iter().position(|(state, _)| *state == part.state);
        let sum = state.map_or(&mut self.unknown_ns, |state| &mut self.by_state[state]);
        *sum = sum.saturating_add(part.time_ns);
    }

    fn total_ns(&self) -> u64 {
        self.by_state
            .iter()
            .fold(self.unknown_ns, |sum, ns| sum.saturating_add(*ns))
    }

    /// The time of all states, its share of `whole_ns`, and the time by state.
    fn cells(&self, whole_ns: u64) -> impl Iterator<Item = String> {
        let total_ns = self.total_ns();
        let sums = [duration(total_ns), percentage(total_ns, whole_ns)];
        sums.into_iter()
            .chain(self.by_state.each_ref().map(|ns: &u64| {
                if *ns == 0 {
                    "-".to_owned()
                } else {
                    duration(*ns)
                }
            }))
    }
}

fn notes(answer: &ThreadTimeAnswer) -> Vec<String> {
    let mut notes = vec![format!("thread time in {}", range(&answer.range))];
    if answer.threads.is_empty() {
        notes.push("no samples in that range".to_owned());
    }
    notes.extend(corrupt_files(&answer.corrupt_files));
    notes
}

/// A row for each group of parts, those with most time first.
fn table<const N: usize>(
    answer: &ThreadTimeAnswer,
    titles: [(&'static str, Align); N],
    group: impl Fn(&ThreadTime, &ThreadTimePart) -> [String; N],
) -> String {
    let mut splits: BTreeMap<[String; N], Split> = BTreeMap::new();
    for thread in &answer.threads {
        for part in &thread.parts {
            splits.entry(group(thread, part)).or_default().add(part);
        }
    }
    let whole_ns = splits
        .values()
        .fold(0, |sum: u64, split| sum.saturating_add(split.total_ns()));
    let mut rows: Vec<([String; N], Split)> = splits.into_iter().collect();
    rows.sort_by_key(|(_, split)| Reverse(split.total_ns()));
    let sums = ["TOTAL", "SHARE"].into_iter();
    let states = sums.chain(STATES.into_iter().map(|(_, title)| title));
    let columns: Vec<_> = titles
        .into_iter()
        .chain(states.map(|title| (title, Right)))
        .collect();
    let mut grid = Grid::new(&columns);
    for (names, split) in rows {
        grid.push(names.into_iter().chain(split.cells(whole_ns)));
    }
    grid.text()
}

impl View for ByPhase {
    fn notes(&self) -> Vec<String> {
        notes(&self.0)
    }

    fn text(&self) -> String {
        table(&self.0, [("TASK", Left), ("PHASE", Left)], |_, part| {
            let task = part.task.clone().unwrap_or_else(|| "[no task]".to_owned());
            let phase = part
                .phase
                .clone()
                .or_else(|| part.task.as_ref().map(|_| "execute".into()));
            [task, phase.unwrap_or_default()]
        })
    }
}

impl View for ByThread {
    fn notes(&self) -> Vec<String> {
        notes(&self.0)
    }

    fn text(&self) -> String {
        if self.0.threads.iter().all(|thread| thread.thread.is_none()) {
            return table(&self.0, [("WORKER", Left)], |thread, _| {
                [thread.worker.clone()]
            });
        }
        table(
            &self.0,
            [("WORKER", Left), ("THREAD", Left), ("ID", Right)],
            |thread, _| {
                let id = thread.thread_id.map_or(String::new(), |id| id.to_string());
                [
                    thread.worker.clone(),
                    thread.thread.clone().unwrap_or_default(),
                    id,
                ]
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::view::tests::range_of_test;

    fn answer() -> ThreadTimeAnswer {
        let first = vec![
            part(Some("load"), Some("transfer"), "network", 500_000_000),
            part(Some("load"), None, "cpu", 1_500_000_000),
        ];
        let second = vec![
            part(None, None, "lock", 1_900_000_000),
            part(Some("load"), None, "cpu", 60_000_000),
            part(None, None, "dozing", 40_000_000),
        ];
        ThreadTimeAnswer {
            range: range_of_test(),
            elapsed_ns: 4_000_000_000,
            threads: vec![
                thread("pool-1", Some(12), first),
                thread("pool-2", None, second),
            ],
            ..ThreadTimeAnswer::default()
        }
    }

    fn part(
        task: Option<&str>,
        phase: Option<&str>,
        state: &'static str,
        time_ns: u64,
    ) -> ThreadTimePart {
        ThreadTimePart {
            task: task.map(str::to_owned),
            phase: phase.map(str::to_owned),
            state: state.into(),
            time_ns,
        }
    }

    fn thread(name: &str, thread_id: Option<u32>, parts: Vec<ThreadTimePart>) -> ThreadTime {
        ThreadTime {
            worker: "w-1".to_owned(),
            thread: Some(name.to_owned()),
            thread_id,
            total_ns: 2_000_000_000,
            parts,
        }
    }

    #[test]
    fn tasks_and_phases_are_summed_over_threads() {
        let times = ByPhase(answer());
        expect![[r#"
            TASK       PHASE      TOTAL  SHARE     CPU    LOCK  NETWORK
            [no task]            1.94 s  48.5%       -  1.90 s        -
            load       execute   1.56 s  39.0%  1.56 s       -        -
            load       transfer  500 ms  12.5%       -       -   500 ms
        "#]]
        .assert_eq(&times.text());
        expect!["thread time in 2026-01-31 12:00:00.000 UTC to 2026-01-31 12:00:02.000 UTC"]
            .assert_eq(&times.notes().join("\n"));
    }

    #[test]
    fn threads_and_workers_have_a_row_each() {
        expect![[r#"
            WORKER  THREAD  ID   TOTAL  SHARE      CPU    LOCK  NETWORK
            w-1     pool-1  12  2.00 s  50.0%   1.50 s       -   500 ms
            w-1     pool-2      2.00 s  50.0%  60.0 ms  1.90 s        -
        "#]]
        .assert_eq(&ByThread(answer()).text());
        let mut workers = answer();
        for thread in &mut workers.threads {
            thread.thread = None;
        }
        expect![[r#"
            WORKER   TOTAL  SHARE     CPU    LOCK  NETWORK
            w-1     4.00 s   100%  1.56 s  1.90 s   500 ms
        "#]]
        .assert_eq(&ByThread(workers).text());
    }
}
