//! Named periods.

use flamegraph::text::{duration, printable};
use serde::Deserialize;

use super::{Answered, moment};
use crate::grid::Align::{Left, Right};
use crate::grid::Grid;

/// Runs, as the collector lists them.
#[derive(Deserialize, Debug)]
pub(crate) struct Runs {
    runs: Vec<Run>,
}

/// One named period.
#[derive(Deserialize, Debug)]
pub(crate) struct Run {
    id: String,
    name: String,
    worker: Option<String>,
    start: String,
    stop: Option<String>,
    duration_ns: u64,
    lost: bool,
}

impl Run {
    /// `lost`: its worker was gone before it ended.
    fn state(&self) -> &'static str {
        match self.stop {
            None => "open",
            Some(_) if self.lost => "lost",
            Some(_) => "ended",
        }
    }

    /// What became of it when it was begun or ended.
    pub(crate) fn line(&self) -> String {
        let (name, id) = (printable(&self.name), printable(&self.id));
        match &self.stop {
            None => format!("run {name} (id {id}) goes on since {}", moment(&self.start)),
            Some(stop) => {
                let length = duration(self.duration_ns);
                format!("run {name} (id {id}) ended {}, after {length}", moment(stop))
            }
        }
    }
}

impl Answered for Runs {
    fn notes(&self) -> Vec<String> {
        let none = "no runs of what was asked for; begin one with `emberline run start NAME`";
        self.runs.is_empty().then(|| none.to_owned()).into_iter().collect()
    }

    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            ("NAME", Left),
            ("START (UTC)", Left),
            ("DURATION", Right),
            ("STATE", Left),
            ("WORKER", Left),
            ("ID", Left),
        ]);
        for run in &self.runs {
            grid.push([
                run.name.clone(),
                moment(&run.start).trim_end_matches(" UTC").to_owned(),
                duration(run.duration_ns),
                run.state().to_owned(),
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
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_are_listed_and_told_of() {
        let run = |stop: Option<&str>, worker: Option<&str>, lost: bool| {
            json!({"id": "7", "name": "nightly\u{202e}", "worker": worker,
                "start": "2026-01-31T12:00:00Z", "start_ns": 0, "stop": stop, "stop_ns": null,
                "duration_ns": 90_000_000_000_u64, "open": stop.is_none(), "lost": lost})
        };
        let stop = Some("2026-01-31T12:01:30Z");
        let runs =
            [run(None, None, false), run(stop, Some("w-1"), false), run(stop, Some("w-2"), true)];
        let runs: Runs = serde_json::from_value(json!({ "runs": runs })).unwrap();
        expect![[r#"
            NAME             START (UTC)              DURATION  STATE  WORKER  ID
            nightly\u{202e}  2026-01-31 12:00:00.000  1 m 30 s  open           7
            nightly\u{202e}  2026-01-31 12:00:00.000  1 m 30 s  ended  w-1     7
            nightly\u{202e}  2026-01-31 12:00:00.000  1 m 30 s  lost   w-2     7
        "#]]
        .assert_eq(&runs.text());
        expect![[r#"
            run nightly\u{202e} (id 7) goes on since 2026-01-31 12:00:00.000 UTC
            run nightly\u{202e} (id 7) ended 2026-01-31 12:01:30.000 UTC, after 1 m 30 s"#]]
        .assert_eq(&[runs.runs[0].line(), runs.runs[1].line()].join("\n"));
    }
}
