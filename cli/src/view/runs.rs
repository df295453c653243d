//! Named runs.

use api::{Run, RunsAnswer};
use flamegraph::text::{duration, printable};

use super::{View, moment, moment_in_zone};
use crate::grid::Align::{Left, Right, Time};
use crate::grid::Grid;
use crate::zone::start_title;

/// `lost`: its worker was gone before it stopped.
fn state(run: &Run) -> &'static str {
    match run.stop {
        None => "open",
        Some(_) if run.lost => "lost",
        Some(_) => "stopped",
    }
}

/// Confirms that a run was started or stopped.
pub(crate) fn line(run: &Run) -> String {
    let name = printable(&run.name);
    let id = printable(&run.id);
    match &run.stop {
        None => format!("run {name} (id {id}) started {}", moment(&run.start)),
        Some(stop) => {
            let length = duration(run.duration_ns);
            format!(
                "run {name} (id {id}) stopped {}, after {length}",
                moment(stop)
            )
        }
    }
}

impl View for RunsAnswer {
    fn notes(&self) -> Vec<String> {
        let none = "no matching runs; start one with `emberline run start NAME`";
        self.runs
            .is_empty()
            .then(|| none.to_owned())
            .into_iter()
            .collect()
    }

    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            ("NAME", Left),
            (start_title(), Time),
            ("DURATION", Right),
            ("STATE", Left),
            ("WORKER", Left),
            ("ID", Left),
        ]);
        for run in &self.runs {
            grid.push([
                run.name.clone(),
                moment_in_zone(&run.start),
                duration(run.duration_ns),
                state(run).to_owned(),
                run.worker.clone().unwrap_or_default(),
                run.id.clone(),
            ]);
        }
        grid.text()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn runs_are_listed_and_confirmed() {
        let stop = Some("2026-01-31T12:01:30Z");
        let runs = vec![
            run(None, None, false),
            run(stop, Some("w-1"), false),
            run(stop, Some("w-2"), true),
        ];
        let answer = RunsAnswer { runs };
        expect![[r#"
            NAME             START (UTC)                DURATION  STATE    WORKER  ID
            nightly\u{202e}  2026-01-31 12:00:00.000  1 min 30 s  open             7
            nightly\u{202e}  2026-01-31 12:00:00.000  1 min 30 s  stopped  w-1     7
            nightly\u{202e}  2026-01-31 12:00:00.000  1 min 30 s  lost     w-2     7
        "#]]
        .assert_eq(&answer.text());
        expect![[r#"
            run nightly\u{202e} (id 7) started 2026-01-31 12:00:00.000 UTC
            run nightly\u{202e} (id 7) stopped 2026-01-31 12:01:30.000 UTC, after 1 min 30 s"#]]
        .assert_eq(&[line(&answer.runs[0]), line(&answer.runs[1])].join("\n"));
    }

    fn run(stop: Option<&str>, worker: Option<&str>, lost: bool) -> Run {
        Run {
            id: "7".to_owned(),
            name: "nightly\u{202e}".to_owned(),
            worker: worker.map(str::to_owned),
            start: "2026-01-31T12:00:00Z".to_owned(),
            stop: stop.map(str::to_owned),
            duration_ns: 90_000_000_000,
            open: stop.is_none(),
            lost,
            ..Run::default()
        }
    }
}
