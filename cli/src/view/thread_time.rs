//! Where the time of threads went.

use std::collections::BTreeMap;

use flamegraph::text::{duration, percent};
use serde::Deserialize;

use super::{Answered, Span, corrupt_files};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// The states of a thread, in the order of the columns.
const STATES: [&str; 7] = ["cpu", "runnable", "lock", "sleep", "network", "disk", "other"];

/// A budget, by task and phase over all threads.
#[derive(Deserialize, Debug)]
#[serde(transparent)]
pub(crate) struct ByPhase(ThreadTime);

/// A budget, by thread or worker.
#[derive(Deserialize, Debug)]
#[serde(transparent)]
pub(crate) struct ByThread(ThreadTime);

#[derive(Deserialize, Debug)]
struct ThreadTime {
    range: Span,
    #[serde(default)]
    corrupt_files: Vec<String>,
    threads: Vec<Thread>,
}

#[derive(Deserialize, Debug)]
struct Thread {
    worker: String,
    thread: Option<String>,
    thread_id: Option<u32>,
    parts: Vec<Part>,
}

#[derive(Deserialize, Debug)]
struct Part {
    task: Option<String>,
    phase: Option<String>,
    state: String,
    time_ns: u64,
}

/// Time by state.
#[derive(Default)]
struct Split {
    by_state: [u64; STATES.len()],
    /// In states that this program does not know.
    unknown_ns: u64,
}

impl Split {
    fn add(&mut self, part: &Part) {
        let state = STATES.iter().position(|state| *state == part.state);
        let sum = state.map_or(&mut self.unknown_ns, |state| &mut self.by_state[state]);
        *sum = sum.saturating_add(part.time_ns);
    }

    fn total_ns(&self) -> u64 {
        self.by_state.iter().fold(self.unknown_ns, |sum, ns| sum.saturating_add(*ns))
    }

    /// The time by state, their sum, and its share of `whole_ns`.
    fn cells(&self, whole_ns: u64) -> impl Iterator<Item = String> {
        let time = |ns: &u64| if *ns == 0 { "-".to_owned() } else { duration(*ns) };
        let mut cells: Vec<String> = self.by_state.iter().map(time).collect();
        cells.push(duration(self.total_ns()));
        cells.push(format!("{:.1} %", percent(self.total_ns(), whole_ns)));
        cells.into_iter()
    }
}

impl ThreadTime {
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("time of threads in {}", self.range)];
        if self.threads.is_empty() {
            notes.push("no thread was seen in it".to_owned());
        }
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    /// A row for each group of parts, those with most time first.
    fn table<const N: usize>(
        &self,
        titles: [(&'static str, crate::grid::Align); N],
        group: impl Fn(&Thread, &Part) -> [String; N],
    ) -> String {
        let mut splits: BTreeMap<[String; N], Split> = BTreeMap::new();
        for thread in &self.threads {
            for part in &thread.parts {
                splits.entry(group(thread, part)).or_default().add(part);
            }
        }
        let whole_ns = splits.values().fold(0, |sum: u64, one| sum.saturating_add(one.total_ns()));
        let mut rows: Vec<([String; N], Split)> = splits.into_iter().collect();
        rows.sort_by_key(|(_, split)| std::cmp::Reverse(split.total_ns()));
        let states = STATES_TITLES.into_iter().chain(["TOTAL", "SHARE"]);
        let columns: Vec<_> =
            titles.into_iter().chain(states.map(|title| (title, Right))).collect();
        let mut grid = Grid::new(&columns);
        for (names, split) in rows {
            grid.push(names.into_iter().chain(split.cells(whole_ns)));
        }
        grid.text()
    }
}

const STATES_TITLES: [&str; STATES.len()] =
    ["CPU", "RUNNABLE", "LOCK", "SLEEP", "NETWORK", "DISK", "OTHER"];

impl Answered for ByPhase {
    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    fn text(&self) -> String {
        self.0.table([("TASK", Left), ("PHASE", Left)], |_, part| {
            let task = part.task.clone().unwrap_or_else(|| "[no task]".to_owned());
            let phase = part.phase.clone().or_else(|| part.task.as_ref().map(|_| "execute".into()));
            [task, phase.unwrap_or_default()]
        })
    }
}

impl Answered for ByThread {
    fn notes(&self) -> Vec<String> {
        self.0.notes()
    }

    fn text(&self) -> String {
        if self.0.threads.iter().all(|thread| thread.thread.is_none()) {
            return self.0.table([("WORKER", Left)], |thread, _| [thread.worker.clone()]);
        }
        self.0.table([("WORKER", Left), ("THREAD", Left), ("ID", Right)], |thread, _| {
            let id = thread.thread_id.map_or(String::new(), |id| id.to_string());
            [thread.worker.clone(), thread.thread.clone().unwrap_or_default(), id]
        })
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn answer() -> serde_json::Value {
        let part = |task: Option<&str>, phase: Option<&str>, state: &str, time_ns: u64| json!({"task": task, "phase": phase, "state": state, "time_ns": time_ns});
        json!({
            "range": {"from": "2026-01-31T12:00:00Z", "to": "2026-01-31T12:00:02Z"},
            "elapsed_ns": 4_000_000_000_u64,
            "threads": [
                {"worker": "w-1", "thread": "pool-1", "thread_id": 12, "total_ns": 2_000_000_000,
                 "parts": [part(Some("load"), Some("transfer"), "network", 500_000_000),
                           part(Some("load"), None, "cpu", 1_500_000_000)]},
                {"worker": "w-1", "thread": "pool-2", "thread_id": null, "total_ns": 2_000_000_000,
                 "parts": [part(None, None, "lock", 1_900_000_000),
                           part(Some("load"), None, "cpu", 60_000_000),
                           part(None, None, "dozing", 40_000_000)]}
            ]
        })
    }

    #[test]
    fn tasks_and_phases_are_summed_over_threads() {
        let times: ByPhase = serde_json::from_value(answer()).unwrap();
        expect![[r#"
            TASK       PHASE        CPU    LOCK  NETWORK   TOTAL   SHARE
            [no task]                 -  1.90 s        -  1.94 s  48.5 %
            load       execute   1.56 s       -        -  1.56 s  39.0 %
            load       transfer       -       -   500 ms  500 ms  12.5 %
        "#]]
        .assert_eq(&times.text());
        expect!["time of threads in 2026-01-31 12:00:00.000 UTC to 2026-01-31 12:00:02.000 UTC"]
            .assert_eq(&times.notes().join("\n"));
    }

    #[test]
    fn threads_and_workers_have_a_row_each() {
        let times: ByThread = serde_json::from_value(answer()).unwrap();
        expect![[r#"
            WORKER  THREAD  ID      CPU    LOCK  NETWORK   TOTAL   SHARE
            w-1     pool-1  12   1.50 s       -   500 ms  2.00 s  50.0 %
            w-1     pool-2      60.0 ms  1.90 s        -  2.00 s  50.0 %
        "#]]
        .assert_eq(&times.text());
        let mut workers = answer();
        for thread in workers["threads"].as_array_mut().unwrap() {
            thread["thread"] = json!(null);
        }
        let times: ByThread = serde_json::from_value(workers).unwrap();
        expect![[r#"
            WORKER     CPU    LOCK  NETWORK   TOTAL    SHARE
            w-1     1.56 s  1.90 s   500 ms  4.00 s  100.0 %
        "#]]
        .assert_eq(&times.text());
    }
}
