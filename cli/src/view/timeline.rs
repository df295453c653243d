//! Time by task, step by step.

use api::{Series, TimelineAnswer};
use flamegraph::text::duration;
use jiff::Timestamp;

use super::{View, corrupt_files, range};
use crate::grid::Align::{Left, Right, Time};
use crate::grid::Grid;
use crate::zone::{start_title, without_zone};

impl View for TimelineAnswer {
    fn notes(&self) -> Vec<String> {
        let step = duration(self.step_ns);
        let mut notes = vec![format!("thread time in {}, by {step}", range(&self.range))];
        if self.series.is_empty() {
            notes.push("no samples in that range".to_owned());
        }
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            (start_title(), Time),
            ("TASK", Left),
            ("CPU", Right),
            ("RUNNABLE", Right),
            ("WAIT", Right),
            ("LOCK", Right),
            ("GIL", Right),
            ("SLEEP", Right),
            ("NETWORK", Right),
            ("DISK", Right),
            ("OTHER", Right),
        ]);
        for step in 0..usize::try_from(self.steps).unwrap_or(0) {
            for series in &self.series {
                let times = times(series, step);
                if times.iter().all(|time_ns| *time_ns == 0) {
                    continue;
                }
                let names = [start_of(self, step), series.name.clone()];
                grid.push(names.into_iter().chain(times.map(|time_ns| {
                    if time_ns == 0 {
                        "-".to_owned()
                    } else {
                        duration(time_ns)
                    }
                })));
            }
        }
        grid.text()
    }
}

/// Start of a step, in the selected zone.
fn start_of(answer: &TimelineAnswer, step: usize) -> String {
    let start_ns = i128::from(answer.first_ns) + i128::from(answer.step_ns) * step as i128;
    Timestamp::from_nanosecond(start_ns).map_or_else(|_| start_ns.to_string(), without_zone)
}

/// Times of a step by the columns of the table.
fn times(series: &Series, step: usize) -> [u64; 9] {
    let at = |times: &Vec<u64>| times.get(step).copied().unwrap_or(0);
    let of_wait = |times: &Option<Vec<u64>>| times.as_ref().map_or(0, at);
    [
        at(&series.cpu_ns),
        at(&series.runnable_ns),
        at(&series.wait_ns),
        of_wait(&series.lock_ns),
        of_wait(&series.interpreter_ns),
        of_wait(&series.sleep_ns),
        of_wait(&series.network_ns),
        of_wait(&series.disk_ns),
        of_wait(&series.other_ns),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::range_of_test;

    #[test]
    fn a_step_has_a_row_for_each_task_with_time_in_it() {
        let answer = TimelineAnswer {
            range: range_of_test(),
            first_ns: 1_769_860_800_000_000_000,
            step_ns: 1_000_000_000,
            steps: 2,
            series: vec![
                series(
                    "load",
                    vec![250_000_000, 1_000_000_000],
                    vec![500_000_000, 0],
                ),
                series("save", vec![0, 3_000_000], vec![0, 0]),
            ],
            ..TimelineAnswer::default()
        };
        let text = answer.text();
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(
            rows[0].contains("load") && rows[0].contains("500 ms"),
            "{text}"
        );
        assert!(
            rows[1].contains("load") && rows[2].contains("save"),
            "{text}"
        );
        let notes = answer.notes().join("\n");
        assert!(notes.ends_with(", by 1.00 s"), "{notes}");
    }

    fn series(name: &str, cpu_ns: Vec<u64>, wait_ns: Vec<u64>) -> Series {
        Series {
            name: name.to_owned(),
            cpu_ns,
            runnable_ns: vec![0, 0],
            disk_ns: Some(wait_ns.clone()),
            wait_ns,
            ..Series::default()
        }
    }
}
